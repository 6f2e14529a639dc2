package claiming

import (
	"cmp"
	"slices"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

// PoolWait is the due runs of a job that wait for a slot of their pool.
type PoolWait struct {
	Pool   string
	Runs   int
	Oldest record.Instant // the earliest fire among them
}

// PoolWaits has at most one PoolWait for each pool.
type PoolWaits []PoolWait

// add counts runs. The receiver is unchanged.
func (ws PoolWaits) add(w PoolWait) PoolWaits {
	out := slices.Clone(ws)
	for i := range out {
		if out[i].Pool == w.Pool {
			out[i].Runs += w.Runs
			out[i].Oldest = min(out[i].Oldest, w.Oldest)
			return out
		}
	}
	return append(out, w)
}

// orderForPool puts those shards first whose last fire is the oldest, so that each gets a slot in its turn.
func (in *Input) orderForPool(groups record.Watermarks) record.Watermarks {
	if !in.Plan.HasPool() {
		return groups
	}
	groups = slices.Clone(groups)
	slices.SortStableFunc(groups, func(a, b record.WatermarkGroup) int { return cmp.Compare(a.Fire, b.Fire) })
	return groups
}

// takeSlots takes slots of the run's pool for as many shards as there are, and returns these. The others wait.
func (in *Input) takeSlots(out *Decision, shards shardset.Set, r record.Ref) shardset.Set {
	e, ok := in.Plan.Epoch(r.Epoch)
	if !ok || e.Job().Pool == "" {
		return shards
	}
	pool := e.Job().Pool
	free := max(in.FreeSlots[pool]-out.taken[pool], 0)
	var got shardset.Set
	for s := range shards.All() {
		if got.Len() == free {
			break
		}
		got.Add(s)
	}
	if waiting := shards.Minus(got); !waiting.IsZero() {
		in.Trace.note(NoSlot, waiting, r)
		out.Waits = out.Waits.add(PoolWait{pool, waiting.Len(), r.Fire})
	}
	if !got.IsZero() {
		if out.taken == nil {
			out.taken = map[string]int{}
		}
		out.taken[pool] += got.Len()
	}
	return got
}

// Taken returns how many slots of each pool the runs of Starts use.
func (out *Decision) Taken() map[string]int { return out.taken }
