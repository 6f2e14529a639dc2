package claiming

import (
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

// Gate is a reason why a decision claims no run of a shard, or an act of the decision on the shard.
type Gate uint8

// The gates. Those up to Running hold all runs of a shard, the others are about one run or fire.
const (
	Paused      Gate = iota + 1 // the job is paused
	Closed                      // the member claims nothing
	Disabled                    // the shard is disabled: its fires are skipped; another gate may hold it too
	Blocked                     // a handler of an earlier incarnation has not returned
	Frozen                      // the shard is to move
	Running                     // the run has not ended
	Lost                        // the pending re-run is counted as lost
	Cancelled                   // the pending re-run is cancelled, and counted as failed
	Waits                       // the time of the retry has not come
	Unsupported                 // the run's definition has no program, or fires of its epoch, which come first, have none
	Skips                       // the fires of the epoch through that one are skipped, apart from one that is claimed
	NotDue                      // the fire is the next one of the epoch, and fires of later epochs come after it
	Claims                      // the run is claimed
	NoSlot                      // the run waits for a slot of its pool
)

// Note records that a decision on shards met a gate.
type Note struct {
	Shards shardset.Set
	Gate   Gate
	Run    record.Ref // that the gate is about: of fires and epochs, only the Epoch and the Fire; zero for gates up to Frozen
}

// Trace collects the notes of a decision, in order. A nil Trace collects none.
type Trace struct{ Notes []Note }

func (t *Trace) note(g Gate, shards shardset.Set, r record.Ref) {
	if t != nil && !shards.IsZero() {
		t.Notes = append(t.Notes, Note{shards, g, r})
	}
}

// hold notes which of shards a gate holds, and returns the others.
func (t *Trace) hold(g Gate, shards, held shardset.Set, r record.Ref) shardset.Set {
	if t != nil {
		t.note(g, shards.Intersect(held), r)
	}
	return shards.Minus(held)
}

// Find returns the run of the first note about a shard by a gate that matches.
func (t *Trace) Find(shard int, g Gate, matches func(record.Ref) bool) (record.Ref, bool) {
	for _, n := range t.Notes {
		if n.Gate == g && n.Shards.Has(shard) && matches(n.Run) {
			return n.Run, true
		}
	}
	return record.Ref{}, false
}
