package planning

import (
	"time"

	"github.com/rota-dev/rota/internal/group/due"
	"github.com/rota-dev/rota/internal/group/event"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

// MaxUnoffered is how long a job that no live instance offers keeps its due fires. If the job is
// offered again later, they are skipped, its pending re-runs count as lost, and its fires count
// from then on, as after a resume. The time begins when a leader first observes that the job is
// offered by no live instance and by none that is awaited (MemberOptions.RestartGrace), and that
// no instance owns a shard of it any more. It is measured on the clocks of leaders. While no
// instance of the group is alive, there is no leader to observe it.
const MaxUnoffered = time.Hour

// isUnoffered reports whether no live or awaited member offers a job, or would offer it if it
// supported its definitions.
func (r *round) isUnoffered(segment string, job record.Job) bool {
	for inc, m := range r.Members {
		if (r.Alive(inc) || r.isAwaited(segment, inc)) && (m.Offers(job) || m.LacksSupport(job)) {
			return false
		}
	}
	return true
}

// isNoLongerOffered reports whether the plan does not yet name since when the job is unoffered.
func (p *jobPlanner) isNoLongerOffered() bool { return p.target.unoffered && p.prev.Unoffered == 0 }

// beginUnoffered writes into the plan since when the job is unoffered. No shard of it has an owner
// then, and none gets one before it is offered again.
func (p *jobPlanner) beginUnoffered() {
	if p.target.unoffered && len(p.next.Owners) == 0 && p.next.Unoffered == 0 {
		p.next.Unoffered = p.Now
		p.explain("offered by no live instance")
	}
}

// isOfferedAgain reports whether the plan still names since when the job is unoffered, although it is offered.
func (p *jobPlanner) isOfferedAgain() bool { return !p.target.unoffered && p.prev.Unoffered != 0 }

// endUnoffered ends that time once the job is offered again.
func (p *jobPlanner) endUnoffered() {
	since := p.next.Unoffered
	if since == 0 || p.target.unoffered {
		return
	}
	p.next.Unoffered = 0
	if p.Now < since.Add(MaxUnoffered) {
		p.explain("offered again")
		return
	}
	p.explain("offered again after %v: skip what was due", time.Duration(p.Now-since).Round(time.Second))
	through, _ := p.nextEpochAfter()          // the plan has all claims, as no shard has an owner
	isHeld := p.next.Paused || p.next.Stopped // its epochs have ended, and the resume begins another
	if !isHeld {
		p.endEpochs(p.Now)
	}
	p.skipDue()
	p.loseReruns()
	if !isHeld {
		p.completeReset()
		p.appendEpoch(max(p.Now.Add(p.Skew), through+1), p.newestDefinition())
	}
}

// skipDue counts as skipped all that is due in ended epochs, and raises the watermarks past it.
func (p *jobPlanner) skipDue() {
	for i := range p.next.Epochs {
		e := &p.next.Epochs[i]
		prog, err := p.Compile(e.Def)
		if err != nil {
			p.explain("drop what may be due in epoch %d: the leader does not support its definition", e.Number)
			continue
		}
		for _, part := range p.next.Watermarks.Split(shardset.Range(0, e.Job().Shards)) {
			if d, ok := due.InEpoch(e, prog, part.Watermark, p.Now, true); ok {
				p.next.Counts.Skipped += uint64(d.Skipped * part.Shards.Len())
				if d.Skipped > 0 {
					p.change.Skipped = append(p.change.Skipped, event.Skipped{
						Job: p.next.Job, Kind: e.Job().Kind, Reason: event.Unoffered, Shards: part.Shards, Fires: d.Skipped, From: due.FirstUnclaimed(e, prog, part.Watermark), Through: record.InstantOf(d.Through),
					})
				}
			}
		}
	}
	last := p.next.Last()
	p.next.Watermarks = p.next.Watermarks.Raise(shardset.Range(0, p.next.Shards()), record.Watermark{Epoch: last.Number, Fire: min(last.Until-1, p.Now)})
}

// loseReruns counts all pending re-runs as lost, or retries as failed, and raises the watermarks as if they were claimed.
func (p *jobPlanner) loseReruns() {
	for _, g := range p.next.Reruns {
		p.failFire(g.Shards, g.Ref)
		p.next.Watermarks = p.next.Watermarks.Raise(g.Shards, g.Watermark())
		failure := record.Failure{
			RunGroup: record.RunGroup{Shards: g.Shards, Ref: g.Before()}, At: p.Now, Error: due.CrashedRunError, LastTrigger: p.next.Watermarks.LastTrigger(g.Shards),
		}
		if g.IsRetry() { // the failure on record says that another attempt follows
			failure.Error = due.UnofferedRetryError
			p.next.Counts.Failed += uint64(g.Shards.Len())
			p.explain("count %s as failed", g.Shards)
		} else {
			p.next.Counts.Lost += uint64(g.Shards.Len())
			p.explain("count %s as lost", g.Shards)
		}
		p.next.Failures = p.next.Failures.With(failure.In(p.next))
	}
	p.next.Reruns = nil
}
