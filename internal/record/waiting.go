package record

import (
	"cmp"
	"maps"
	"slices"

	"github.com/rota-dev/rota/internal/shardset"
)

// Waiting is runs of a job that an incarnation has claimed and that wait for a worker. It
// informs operators and never influences a decision.
type Waiting struct {
	Shards shardset.Set `json:"shards"`           // with so many ranges at most
	More   int          `json:"more,omitempty"`   // shards that wait and are not among Shards
	Since  Instant      `json:"since"`            // when the first of them was started
	Behind string       `json:"behind,omitempty"` // the bound that is reached, cut
}

// The bounds keep the record of a member small: all jobs of a process may wait at once.
const (
	maxWaitingJobs   = 100
	maxWaitingRanges = 8
	maxBehindBytes   = 300
)

// BoundWaiting returns as much of waiting, which is by job, as a member's record may hold:
// of too many jobs those that have waited longest.
func BoundWaiting(waiting map[string]Waiting) map[string]Waiting {
	if len(waiting) == 0 {
		return nil
	}
	jobs := slices.SortedFunc(maps.Keys(waiting), func(a, b string) int {
		return cmp.Or(cmp.Compare(waiting[a].Since, waiting[b].Since), cmp.Compare(a, b))
	})
	out := make(map[string]Waiting, min(len(jobs), maxWaitingJobs))
	for _, job := range jobs[:min(len(jobs), maxWaitingJobs)] {
		w := waiting[job]
		shards, more := firstRanges(w.Shards, maxWaitingRanges)
		w.Shards, w.More, w.Behind = shards, w.More+more, cut(w.Behind, maxBehindBytes)
		out[job] = w
	}
	return out
}

// Equal reports whether w and o are the same.
func (w Waiting) Equal(o Waiting) bool {
	return w.Shards.Equal(o.Shards) && w.More == o.More && w.Since == o.Since && w.Behind == o.Behind
}
