package diagnosis

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rota-dev/rota/internal/group/planning"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/registry"
)

// longFrozen is how long idle shards may be frozen before that is a finding. The leader moves them in the round after it has
// read their owner's claims. It may lose its session meanwhile, and so may its successor; the time is enough for that with
// sessions of 40 s, the longest that ZooKeeper gives by default, and with a busy store.
const longFrozen = 12 * registry.DefaultSessionTTL

// checkFrozen reports frozen shards of a job whose move does not complete. Without a leader no shard moves, which is a finding
// of its own, and so is an owner that has gone.
func (d *diagnosis) checkFrozen(segment string, p *record.Plan) {
	since := frozenSince(p)
	if d.Seat == nil || p.Frozen.IsZero() || d.Now-since < record.Instant(longFrozen) {
		return
	}
	for _, inc := range slices.Sorted(maps.Keys(p.Owners)) {
		frozen := p.Frozen.Intersect(p.Owners[inc])
		if m, found := d.Members[inc]; !found || !d.IsLive(m.Session) || frozen.IsZero() {
			continue
		}
		running := d.Claims[segment][inc].Running.Shards().Intersect(frozen)
		owner, key := record.InstanceOf(inc), d.Keys.Plan(segment)
		if idle := frozen.Minus(running); !idle.IsZero() && d.Unreadable[d.Keys.Claims(inc, segment)] == nil {
			d.add(Finding{
				Warning, Stuck, p.Job, key,
				fmt.Sprintf("frozen on %s since %v, though nothing runs: %s; the leader has to read the claims of %s, and then moves them", owner, since, idle.Text(), owner),
				"look at the leader's log for ERROR and \"store unreachable\"; if it has no reason, restart the leader: its successor decides anew",
			})
		}
		if d.holdsMove(segment, p, running, since) {
			d.add(Finding{
				Warning, Stuck, p.Job, key,
				fmt.Sprintf("frozen on %s since %v: %s; they move when their runs have ended", owner, since, running.Text()),
				fmt.Sprintf("wait for the runs, or end them: rota cancel %s --shard %s; a long handler should return after Run.Yield is closed", p.Job, running),
			})
		}
	}
}

// holdsMove reports whether runs in progress hold up the move of their shards for too long. A run may last: it holds up
// nothing before the next fire of its shard is late or, if fires count from the ends of runs, before it has ignored for
// long that it is to yield.
func (d *diagnosis) holdsMove(segment string, p *record.Plan, running shardset.Set, since record.Instant) bool {
	switch job := p.Last().Job(); {
	case running.IsZero():
		return false
	case d.Compile == nil:
		return true // the instants of fires are not known
	case job.Always:
		return since < d.Now.Add(-longLate)
	}
	late := d.findLateFireOf(segment, p, func(shardset.Set) shardset.Set { return running })
	return late != 0 && late < d.Now.Add(-longLate)
}

// frozenSince returns when the leader last decided which shards are frozen, or an instant after that if the decision is not
// on record any more. It is zero if no decision is.
func frozenSince(p *record.Plan) record.Instant {
	for _, of := range slices.Backward(p.Decisions) {
		if strings.Contains(of.What, planning.FreezeDecision) || strings.HasSuffix(of.What, record.CutMark) {
			return of.At
		}
	}
	if len(p.Decisions) == 0 {
		return 0
	}
	return p.Decisions[0].At
}
