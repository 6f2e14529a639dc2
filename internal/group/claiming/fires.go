package claiming

import (
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

// noteRan puts a claimed run on record for the leader, which finds out when all runs of the fire have ended.
func (in *Input) noteRan(out *Decision, shards shardset.Set, r record.Ref) {
	if in.tracksFire(r) {
		out.Claims.Fires = out.Claims.Fires.With(record.FireRunOf(r, shards, shardset.Set{}))
	}
}

// noteFailed puts on record that the last attempt of shards at a fire has failed, or is lost.
func (in *Input) noteFailed(out *Decision, shards shardset.Set, r record.Ref) {
	if in.tracksFire(r) && !shards.IsZero() {
		out.Claims.Fires = out.Claims.Fires.With(record.FireRunOf(r, shards, shards))
	}
}

// tracksFire reports whether the leader tracks a fire, and does not know its end yet.
func (in *Input) tracksFire(r record.Ref) bool {
	return in.Plan != nil && in.Plan.Fires != nil && r.Fire >= in.Plan.Fires.From && r.Fire > in.Plan.Fires.Through && !in.Plan.RunsPastFire(r)
}

// dropEndedFires drops what the leader knows from the record, if it is written anyway. If too many fires have
// not ended, it drops the oldest: their shards then count as skipped.
func (in *Input) dropEndedFires(out *Decision) {
	switch {
	case len(out.Claims.Fires) == 0 || in.Plan == nil:
	case in.Plan.Fires == nil:
		out.Claims.Fires = nil
	default:
		out.Claims.Fires = out.Claims.Fires.After(in.Plan.Fires.Through).Latest()
	}
}
