package judge

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// poolState is the observed state of a pool.
type poolState struct {
	name  string
	sizes []poolSize
	runs  []poolRun
	waits []poolWait
}

// poolSize is a size of a pool.
type poolSize struct {
	from  instant
	size  int     // 0 without a size
	known instant // when all instances act on it, at the latest
}

// poolRun is a run of a job with a pool, as its handler has reported it.
type poolRun struct {
	holder   string  // the client and its session
	claimed  instant // when its claim was committed
	start    instant
	end      instant // when its handler returned
	canceled instant // when its context ended; 0: not before end
	expired  instant // when the store ended its session, if its process could not know that since it was suspended; 0 otherwise
}

// countsUntil returns until when a run counts towards the size of its pool. A handler that goes on although its context has ended
// counts no longer. Nor does a run of a process that was suspended for longer than its session lasts, once the store has ended
// the session.
func (r *poolRun) countsUntil() instant {
	until := r.contextUntil()
	if r.expired != 0 {
		until = min(until, r.expired)
	}
	return until
}

// contextUntil returns when the context of a run ended, or its handler returned if that was before.
func (r *poolRun) contextUntil() instant {
	if r.canceled != 0 {
		return min(r.end, r.canceled)
	}
	return r.end
}

// poolWait is a wait of a due run for nothing but a slot, until its claim.
type poolWait struct {
	span
	job   *jobState
	shard int
}

// poolExcess is a run that began although a pool had no slot for it.
type poolExcess struct {
	run     *poolRun
	running int // with this one
	allowed int
	of      string // the suspended process that has too many runs; "": too many runs count
}

// poolCounts are the most runs of a pool that ran at once.
type poolCounts struct {
	most    int // of those that count
	mostAll int // of all
}

// countPoolRuns counts the runs of a pool that run at once, and returns those that began although too many of them ran. Sizes are
// in order. A smaller one is in force once all instances act on it and no run is left that began before.
//
// A suspended process may exceed the size by as many runs as it had slots, which are no more than the size.
func countPoolRuns(runs []poolRun, sizes []poolSize) (counts poolCounts, over []poolExcess) {
	runs = slices.Clone(runs)
	slices.SortStableFunc(runs, func(a, b poolRun) int { return cmp.Compare(a.start, b.start) })
	var open []*poolRun // that had not returned when the last run began
	for i := range runs {
		r := &runs[i]
		open = append(slices.DeleteFunc(open, func(o *poolRun) bool { return o.end <= r.start }), r)
		counting, held := 0, 0
		for _, o := range open {
			if o.countsUntil() > r.start {
				counting++
			}
			if o.holder == r.holder && o.contextUntil() > r.start {
				held++
			}
		}
		allowed := allowedRuns(sizes, open, r.start)
		switch {
		case r.countsUntil() > r.start && counting > allowed:
			over = append(over, poolExcess{run: r, running: counting, allowed: allowed})
		case held > allowed:
			over = append(over, poolExcess{r, held, allowed, r.holder})
		}
		counts.most, counts.mostAll = max(counts.most, counting), max(counts.mostAll, len(open))
	}
	return counts, over
}

// allowedRuns returns how many runs of a pool may run at once at an instant, at which those of open do.
func allowedRuns(sizes []poolSize, open []*poolRun, at instant) (allowed int) {
	for i := len(sizes) - 1; i >= 0; i-- {
		s := sizes[i]
		if s.from > at {
			continue
		}
		allowed = max(allowed, s.size)
		isLeft := func(r *poolRun) bool { return r.start < s.known && r.start < at }
		if at >= s.known && !slices.ContainsFunc(open, isLeft) {
			break
		}
	}
	return allowed
}

// freeSlots returns the spans in which runs of a pool used fewer slots than it had, in order. Each is of one size. A run uses a
// slot from its claim.
func freeSlots(runs []poolRun, sizes []poolSize, until instant) (free []span) {
	type change struct {
		at   instant
		used int
	}
	var changes []change
	for i := range runs {
		changes = append(changes, change{runs[i].claimed, 1}, change{runs[i].end, -1})
	}
	slices.SortFunc(changes, func(a, b change) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(b.used, a.used)) })
	used := 0
	for i, s := range sizes {
		end := until
		if i+1 < len(sizes) {
			end = sizes[i+1].from
		}
		for from := s.from; from < end; {
			for len(changes) > 0 && changes[0].at <= from {
				used += changes[0].used
				changes = changes[1:]
			}
			to := end
			if len(changes) > 0 {
				to = min(to, changes[0].at)
			}
			switch n := len(free); {
			case used >= s.size:
			case n > 0 && free[n-1].to == from && from > s.from:
				free[n-1].to = to
			default:
				free = append(free, span{from, to})
			}
			from = to
		}
	}
	return free
}

// longestFree returns the longest part of free that is within a span.
func longestFree(free []span, within span) (longest span) {
	first, _ := slices.BinarySearchFunc(free, within.from, func(f span, at instant) int { return cmp.Compare(f.to, at) })
	for _, f := range free[first:] {
		if f.from >= within.to {
			break
		}
		if part := (span{max(f.from, within.from), min(f.to, within.to)}); part.to-part.from > longest.to-longest.from {
			longest = part
		}
	}
	return longest
}

func (o *Judge) pool(name string) *poolState {
	p := o.pools[name]
	if p == nil {
		p = &poolState{name: name}
		o.pools[name] = p
	}
	return p
}

// addPoolSizes records the sizes of pools that operators want.
func (o *Judge) addPoolSizes(c *controlRecord) {
	for name := range c.Pools {
		o.pool(name)
	}
	for name, p := range o.pools {
		was := 0
		if n := len(p.sizes); n > 0 {
			was = p.sizes[n-1].size
		}
		if size := c.Pools[name]; size != was {
			p.sizes = append(p.sizes, poolSize{from: instantOf(o.now), size: size})
			o.report.PoolSizes++
		}
	}
}

// addPoolRun records a call that has returned, if its job has a pool.
func (o *Judge) addPoolRun(c *claimState, f *Call) {
	if c == nil || c.pool == "" {
		return
	}
	r := poolRun{
		holder:  fmt.Sprintf("%s, session %s", f.Client, sessionOf(c.incarnation)),
		claimed: c.at, start: instantOf(f.Start), end: instantOf(f.end),
	}
	if !f.canceled.IsZero() {
		r.canceled = instantOf(f.canceled)
	}
	if c.session.forced && c.session.ended {
		r.expired = instantOf(c.session.end.Add(-o.logLag))
	}
	p := o.pool(c.pool)
	p.runs = append(p.runs, r)
	o.report.PoolRuns++
}

// The stated times of pools.
const (
	slotPrompt = 2 * time.Second // from a free slot to the next run
	slotTurn   = time.Second     // for which an instance may use slots that it is asked to return
)

// JudgePools judges, after all runs have ended, how many runs of each pool ran at once, and that no due run waited while a slot
// was free.
func (o *Judge) JudgePools() {
	unquiet := o.unquietSpans()
	for _, p := range o.pools {
		o.setKnown(p.sizes, unquiet)
		counts, over := countPoolRuns(p.runs, p.sizes)
		o.report.PoolMost, o.report.PoolMostAll = max(o.report.PoolMost, counts.most), max(o.report.PoolMostAll, counts.mostAll)
		for _, e := range over {
			what := "runs at once"
			if e.of != "" {
				what = "runs at once of one process"
			}
			o.now = e.run.start.time()
			o.AddViolation(16, "pool %s: a run of %s began as one of %d %s, but %d may run", p.name, e.run.holder, e.running, what, e.allowed)
		}
		o.judgePoolWaits(p, unquiet)
	}
}

// judgePoolWaits judges the waits for slots of a pool.
func (o *Judge) judgePoolWaits(p *poolState, unquiet []span) {
	free := freeSlots(p.runs, p.sizes, instantOf(o.now))
	for _, w := range p.waits {
		if overlapsAny(unquiet, w.span) {
			continue
		}
		o.report.PoolWaits++
		idle := longestFree(free, w.span)
		took := (idle.to - idle.from).duration()
		o.report.PoolIdle = max(o.report.PoolIdle, took)
		if took > slotPrompt+2*o.maxDelay { // its holder is asked to return it, and then it is dealt
			o.now = w.to.time()
			o.addJobViolation(16, w.job, "shard %d: a run waited for a slot of pool %s from %v to %v, but a slot was free from %v to %v", w.shard, p.name, w.from, w.to, idle.from, idle.to)
		}
	}
}

// setKnown sets from when on all instances act on each size: at once on a greater one, and on a smaller one as soon as nothing has
// disturbed the fleet for a while.
func (o *Judge) setKnown(sizes []poolSize, unquiet []span) {
	calm := slotPrompt + slotTurn + o.maxDelay
	for i := range sizes {
		s := &sizes[i]
		s.known = s.from
		if i == 0 {
			continue
		}
		if s.size < sizes[i-1].size {
			s.known = s.from.add(calm)
			for _, u := range unquiet {
				if u.from <= s.known && u.to >= s.known.add(-calm) {
					s.known = u.to.add(calm)
				}
			}
		}
		s.known = max(s.known, sizes[i-1].known)
	}
}

// unquietSpans returns when a client was disturbed, until its last session has ended, and when leaders changed, sorted.
func (o *Judge) unquietSpans() []span {
	ended := map[string]instant{} // clients without a live session
	for _, s := range o.sessions {
		if at, known := ended[s.client]; !s.ended {
			ended[s.client] = instantOf(o.now)
		} else if !known || at < instantOf(s.end) {
			ended[s.client] = instantOf(s.end)
		}
	}
	all := slices.Clone(o.terms)
	for client, spans := range o.disturbances {
		for _, s := range spans {
			if at, known := ended[client]; known {
				s.to = min(s.to, at.add(slotPrompt+o.maxDelay))
			}
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	return all
}

// overlapsAny reports whether a span has an instant of others.
func overlapsAny(spans []span, s span) bool {
	return slices.ContainsFunc(spans, func(o span) bool { return o.from <= s.to && s.from <= o.to })
}

// PoolText returns a line about the pools.
func (r *Report) PoolText() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d runs with pools of %d sizes, at most %d at once, with those of suspended processes and of ended contexts %d; ", r.PoolRuns, r.PoolSizes, r.PoolMost, r.PoolMostAll)
	fmt.Fprintf(&b, "%d undisturbed waits for slots, for at most %v with a free one", r.PoolWaits, r.PoolIdle.Round(time.Millisecond))
	return b.String()
}
