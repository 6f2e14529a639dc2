package coordinator

import (
	"slices"
	"time"

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
func (v *view) unoffered(segment, job string) bool {
	for inc, m := range v.members {
		if (v.alive(inc) || v.waits(segment, inc)) && (m.Offers(job) || slices.Contains(m.NotUnderstood, job)) {
			return false
		}
	}
	return true
}

// noteUnoffered writes into the plan since when the job is unoffered. No shard of it has an owner
// then, and none is given one before it is offered.
func (p *planning) noteUnoffered() {
	if p.desired.unoffered && len(p.p.Owners) == 0 && p.p.Unoffered == 0 {
		p.p.Unoffered = p.now
		p.because("offered by no live instance")
	}
}

// offeredAgain ends the time in which the job was unoffered.
func (p *planning) offeredAgain() {
	since := p.p.Unoffered
	if since == 0 || p.desired.unoffered {
		return
	}
	p.p.Unoffered = 0
	if p.now < since.Add(MaxUnoffered) {
		p.because("offered again")
		return
	}
	p.because("offered again after %v: what it owed is skipped", time.Duration(p.now-since).Round(time.Second))
	through, _ := p.claimed()         // no claims but those in the plan, as no shard has an owner
	held := p.p.Paused || p.p.Stopped // its epochs have ended, and the resume begins another
	if !held {
		p.endAll(p.now)
	}
	p.skipOwed()
	p.loseReruns()
	if !held {
		p.takeReset()
		p.append(max(p.now.Add(p.skew), through+1), p.newest())
	}
}

// newest returns the definition that a new epoch is to have.
func (p *planning) newest() []byte {
	if job, ok := p.jobs[p.segment]; ok {
		return job.def
	}
	return p.p.Last().Def // the stored one has gone
}

// skipOwed counts as skipped all that is owed now under epochs that have ended, and raises the
// watermarks accordingly.
func (p *planning) skipOwed() {
	for i := range p.p.Epochs {
		e := &p.p.Epochs[i]
		prog, err := p.compile(e.Def)
		if err != nil {
			p.because("give up what generation %d may owe: this leader does not understand its definition", e.Gen)
			continue
		}
		for _, part := range p.p.Marks.Split(shardset.Range(0, e.Job().Shards)) {
			if owed, ok := owedOf(e, prog, part.Mark, p.now, true); ok {
				p.p.Counts.Skipped += uint64(owed.Skipped * part.Shards.Len())
			}
		}
	}
	last := p.p.Last()
	p.p.Marks = p.p.Marks.Raise(shardset.Range(0, p.p.Shards()), record.Mark{Gen: last.Gen, Fire: min(last.Until-1, p.now)})
}

// loseReruns counts all pending re-runs as lost, as if they had been claimed.
func (p *planning) loseReruns() {
	for _, g := range p.p.Reruns {
		p.p.Marks = p.p.Marks.Raise(g.Shards, g.Mark())
		p.p.Counts.Lost += uint64(g.Shards.Len())
		g.Attempt-- // the one that a crash ended
		p.p.Failures = p.p.Failures.With(record.Failure{RunGroup: g, At: p.now, Error: crashed})
		p.because("count %s as lost", g.Shards)
	}
	p.p.Reruns = nil
}
