package due

import (
	"encoding/json"
	"time"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

// Unserved returns the pending re-runs that have not been claimed according to marks.
func Unserved(reruns record.Runs, marks record.Watermarks) record.Runs {
	out := reruns
	for _, g := range reruns {
		for _, part := range marks.Split(g.Shards) {
			if part.Watermark.Covers(g.Ref) {
				out = out.Without(part.Shards)
			}
		}
	}
	return out
}

// Crashed is the error of a run whose session ended.
const Crashed = "the session ended in which it ran"

func Targets(t record.Trigger, e *record.Epoch) shardset.Set {
	all := shardset.Range(0, e.Job().Shards)
	if t.Shards == nil {
		return all
	}
	return all.Intersect(*t.Shards)
}

// Program tells when the shards of a job are due, by one definition of it. It is pure:
// the same arguments give the same answer on every instance.
type Program interface {
	// Owed tells what a shard owes at now, given that everything up to and including
	// last has been claimed or skipped, of the fires before until. Until is zero where
	// no later definition takes over.
	Owed(last, until, now time.Time) Owed
	// Passed tells the same of a shard that is disabled: all that it owes is skipped, so
	// there is no Fire.
	Passed(last, until, now time.Time) Owed
}

// Owed is what a shard owes.
type Owed struct {
	Fire    time.Time // to be claimed now; zero for none. Never after now
	Missed  bool      // Fire is late by more than a grace, or stands for fires before it
	Skipped int       // fires after last that are given up, by the misfire policy or as the shard is disabled
	Through time.Time // if set: everything up to here counts as claimed or skipped
	Wake    time.Time // if Fire is zero: when to ask again; zero: not before the definition changes
}

func (o *Owed) Any() bool { return !o.Fire.IsZero() || o.Skipped > 0 }

// Compiler makes programs of definitions as stored. The error names the field and the
// rule that it breaks. A member that cannot compile all definitions of a job that are in
// force does not offer the job until it can: later versions may know more.
type Compiler func(def json.RawMessage) (Program, error)

// Of asks an epoch's program what a shard with mark m owes, or passes over if it is
// disabled. It reports false if m is beyond the epoch.
func Of(e *record.Epoch, prog Program, m record.Watermark, now record.Instant, disabled bool) (Owed, bool) {
	if m.Epoch > e.Number {
		return Owed{}, false
	}
	last := e.From - 1 // a fire at From is owed
	if m.Epoch == e.Number {
		last = max(last, m.Fire)
	}
	if e.Until != 0 && last >= e.Until {
		return Owed{}, false
	}
	ask := prog.Owed
	if disabled {
		ask = prog.Passed
	}
	return ask(last.Time(), e.Until.Time(), now.Time()), true
}
