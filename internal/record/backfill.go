package record

import (
	"cmp"
	"fmt"
)

// The values of Trigger.Reason. Empty is a trigger by hand.
const (
	TriggerRetry    = "retry"
	TriggerBackfill = "backfill"
)

// FireTime returns the fire of the runs of t: that which it runs again or for the first time, or else the instant of
// the request.
func (t *Trigger) FireTime() Instant { return cmp.Or(t.Fire, t.At) }

// IsPast reports whether t runs a fire of the past, again or for the first time. Jobs that follow its job do not fire
// after it.
func (t *Trigger) IsPast() bool { return t.Fire != 0 }

// RunsPastFire reports whether a run belongs to a trigger in the plan that runs a fire of the past.
func (p *Plan) RunsPastFire(r Ref) bool {
	t := p.Trigger(r.Trigger)
	return t != nil && t.IsPast()
}

// Backfill is the request for runs of past fires. The leader makes each fire a trigger when its turn comes.
type Backfill struct {
	Number   uint64    `json:"number"` // counted from 1 for each job
	At       Instant   `json:"at"`
	Parallel int       `json:"parallel"`        // how many of its triggers a plan holds at most, at least 1
	Fires    []Instant `json:"fires"`           // that are not yet triggers, ascending
	Token    string    `json:"token,omitempty"` // of its triggers
}

// MaxBackfill bounds the fires that wait in the Backfills of a job.
const MaxBackfill = 64

// checkBackfills checks the backfills of a control record.
func (c *Control) checkBackfills() error {
	last, fires := uint64(0), 0
	for _, b := range c.Backfills {
		if b.Number <= last || b.Number > c.LastBackfill {
			return fmt.Errorf("backfills: number %d after %d, with last_backfill %d", b.Number, last, c.LastBackfill)
		}
		if b.Parallel < 1 {
			return fmt.Errorf("backfills: parallel is %d, below 1", b.Parallel)
		}
		last = b.Number
		fires += len(b.Fires)
	}
	if fires > MaxBackfill {
		return fmt.Errorf("backfills: %d fires, at most %d", fires, MaxBackfill)
	}
	return nil
}

// WaitingFires returns how many fires wait in the backfills.
func (c *Control) WaitingFires() int {
	n := 0
	for _, b := range c.Backfills {
		n += len(b.Fires)
	}
	return n
}
