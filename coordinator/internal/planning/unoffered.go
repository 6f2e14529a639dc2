package planning

import (
	"slices"
	"time"

	"github.com/rota-dev/rota/coordinator/internal/due"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

// MaxUnoffered is for how long a job may be offered by no live instance and still owe the fires
// that fall due meanwhile. A job that is offered again later owes nothing: its fires count from
// then on, as after a resume, and its pending re-runs count as lost. The hour begins when a
// leader first observes that no live instance offers the job, nor one whose return is awaited
// (MemberOptions.RestartGrace), and that none owns a shard of it any more. It goes by the clocks
// of leaders. While no instance of the group is alive, there is no leader that observes it.
const MaxUnoffered = time.Hour

// unoffered reports whether no live instance has a job among those that it offers, or would offer
// if it understood them, nor has one whose return is awaited.
func (v *View) unoffered(segment, job string) bool {
	for inc, m := range v.Members {
		if (v.Alive(inc) || v.waits(segment, inc)) && (m.Offers(job) || slices.Contains(m.Unsupported, job)) {
			return false
		}
	}
	return true
}

// noteUnoffered writes into the plan since when the job is unoffered. No shard of it has an owner
// then, and none is given one before it is offered.
func (p *jobPlanner) noteUnoffered() {
	if p.desired.unoffered && len(p.next.Owners) == 0 && p.next.Unoffered == 0 {
		p.next.Unoffered = p.Now
		p.because("offered by no live instance")
	}
}

// offeredAgain ends the time in which the job was unoffered.
func (p *jobPlanner) offeredAgain() {
	since := p.next.Unoffered
	if since == 0 || p.desired.unoffered {
		return
	}
	p.next.Unoffered = 0
	if p.Now < since.Add(MaxUnoffered) {
		p.because("offered again")
		return
	}
	p.because("offered again after %v: what it owed is skipped", time.Duration(p.Now-since).Round(time.Second))
	through, _ := p.claimed()               // no claims but those in the plan, as no shard has an owner
	held := p.next.Paused || p.next.Stopped // its epochs have ended, and the resume begins another
	if !held {
		p.endAll(p.Now)
	}
	p.skipOwed()
	p.loseReruns()
	if !held {
		p.takeReset()
		p.append(max(p.Now.Add(p.Skew), through+1), p.newest())
	}
}

// newest returns the definition that a new epoch is to have.
func (p *jobPlanner) newest() []byte {
	if job, ok := p.Jobs[p.segment]; ok {
		return job.Def
	}
	return p.next.Last().Def // the stored one has gone
}

// skipOwed counts as skipped all that is owed now under epochs that have ended, and raises the
// watermarks accordingly.
func (p *jobPlanner) skipOwed() {
	for i := range p.next.Epochs {
		e := &p.next.Epochs[i]
		prog, err := p.Compile(e.Def)
		if err != nil {
			p.because("give up what epoch %d may owe: this leader does not understand its definition", e.Number)
			continue
		}
		for _, part := range p.next.Watermarks.Split(shardset.Range(0, e.Job().Shards)) {
			if owed, ok := due.InEpoch(e, prog, part.Watermark, p.Now, true); ok {
				p.next.Counts.Skipped += uint64(owed.Skipped * part.Shards.Len())
			}
		}
	}
	last := p.next.Last()
	p.next.Watermarks = p.next.Watermarks.Raise(shardset.Range(0, p.next.Shards()), record.Watermark{Epoch: last.Number, Fire: min(last.Until-1, p.Now)})
}

// loseReruns counts all pending re-runs as lost, as if they had been claimed.
func (p *jobPlanner) loseReruns() {
	for _, g := range p.next.Reruns {
		p.next.Watermarks = p.next.Watermarks.Raise(g.Shards, g.Watermark())
		p.next.Counts.Lost += uint64(g.Shards.Len())
		g.Attempt-- // the one that a crash ended
		p.next.Failures = p.next.Failures.With(record.Failure{RunGroup: g, At: p.Now, Error: due.CrashedRunError})
		p.because("count %s as lost", g.Shards)
	}
	p.next.Reruns = nil
}
