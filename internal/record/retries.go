package record

import "github.com/rota-dev/rota/internal/shardset"

// Retry is a trigger that has the failed work of a fire done again.
type Retry struct {
	Trigger uint64       `json:"trigger"`
	Fire    Instant      `json:"fire"`
	Work    string       `json:"work,omitempty"` // as of Trigger
	Shards  shardset.Set `json:"shards"`
}

// Retries are the latest retries of a job, in the order of their triggers.
type Retries []Retry

// LostRetries bounds the retries that are no longer among Retries: all had triggers and fires up to these.
type LostRetries struct {
	Trigger uint64  `json:"trigger"`
	Fire    Instant `json:"fire"`
}

const (
	maxRetries      = 32
	maxRetriesBytes = 4 << 10
)

// AddRetry adds the retry of a trigger, and drops the oldest ones beyond the bounds.
func (c *Control) AddRetry(r Retry) {
	all := append(c.Retries[:len(c.Retries):len(c.Retries)], r)
	size, first := 0, len(all)
	for first > 0 && len(all)-first < maxRetries {
		if size += EncodedLen(all[first-1]); size > maxRetriesBytes {
			break
		}
		first--
	}
	for _, old := range all[:first] {
		c.LostRetries.Trigger = max(c.LostRetries.Trigger, old.Trigger)
		c.LostRetries.Fire = max(c.LostRetries.Fire, old.Fire)
	}
	c.Retries = all[first:]
}

// Last returns the latest retry of the work of a fire in a shard, nil if none is known.
func (rs Retries) Last(fire Instant, work string, shard int) *Retry {
	for i := len(rs) - 1; i >= 0; i-- {
		if r := &rs[i]; r.Fire == fire && r.Work == work && r.Shards.Has(shard) {
			return r
		}
	}
	return nil
}
