package judge

import (
	"slices"
	"time"
)

// Call is one call of a handler, as the handler reports it.
type Call struct {
	Job      string
	Shard    int
	Shards   int
	Fire     time.Time
	Trigger  uint64
	Attempt  int
	Fence    uint64
	Key      string // of the work; empty: not reported
	Instance string
	Client   string // the process
	Start    time.Time

	end      time.Time // zero: it has not returned
	canceled time.Time // when its context ended; zero if not before end
	overlap  []*Call
}

// Event is the begin or the end of a call.
type Event struct {
	*Call
	End      time.Time // zero: the call begins
	Canceled time.Time // when the call's context ended, if that was before End
	Failed   bool      // the call returned an error
}

// At returns when the event happened.
func (e Event) At() time.Time {
	if e.End.IsZero() {
		return e.Start
	}
	return e.End
}

// JudgeCalls judges begins and ends of calls. The commits of their claims must have been judged before.
func (o *Judge) JudgeCalls(log []Event) {
	for _, e := range log {
		j := o.job(e.Job)
		sh := j.shard(e.Shard)
		if e.End.IsZero() {
			o.now = e.Start
			o.judgeStart(j, sh, e.Call)
			continue
		}
		o.now, e.Call.end, e.Call.canceled = e.End, e.End, e.Canceled
		if c := sh.claimOf(e.Call); c != nil {
			c.returned, c.failed = instantOf(e.End), e.Failed
			o.judgeCancelledCall(j, sh, c, e.Call)
			o.addPoolRun(c, e.Call)
		}
		sh.active = slices.DeleteFunc(sh.active, func(f *Call) bool { return f == e.Call })
		o.judgeOverlaps(j, sh, e.Call)
	}
}

func (f *Call) run() run {
	r := run{Trigger: f.Trigger, Attempt: f.Attempt}
	if f.Trigger == 0 {
		r.Fire = instantOf(f.Fire)
	}
	return r
}

func (o *Judge) judgeStart(j *jobState, sh *shardState, f *Call) {
	o.report.Functions++
	r := f.run()
	c := sh.claimOf(f)
	switch {
	case c == nil:
		o.addJobViolation(1, j, "shard %d: %s began %s without a claim", f.Shard, f.Instance, r)
	case c.started:
		o.addJobViolation(1, j, "shard %d: %s began %s a second time", f.Shard, f.Instance, r)
	case c.fence != f.Fence || nameOf(c.incarnation) != f.Instance:
		o.addJobViolation(6, j, "shard %d: %s began %s with fence %d, but %s claimed it with fence %d",
			f.Shard, f.Instance, r, f.Fence, c.incarnation, c.fence)
	case c.fire != instantOf(f.Fire):
		o.addJobViolation(12, j, "shard %d: %s was claimed for the fire %v, but its call got %v", f.Shard, r, c.fire, instantOf(f.Fire))
	default:
		c.started = true
	}
	of := j.life(r)
	if c != nil {
		of = c.life
	}
	if w := j.works[of]; w != nil && w.total != f.Shards {
		o.addJobViolation(8, j, "shard %d: %s has a total of %d, but its call got %d", f.Shard, r, w.total, f.Shards)
	}
	if c != nil {
		o.judgeKey(j, f, of)
	}
	for _, earlier := range sh.active {
		if earlier.Fence > f.Fence && !sh.forced(f) {
			o.addJobViolation(6, j, "shard %d: %s began with fence %d during a call with fence %d", f.Shard, r, f.Fence, earlier.Fence)
		}
		if earlier.Client == f.Client {
			o.addJobViolation(1, j, "shard %d: %s began %s while it ran %s", f.Shard, f.Client, r, earlier.run())
		}
		earlier.overlap = append(earlier.overlap, f)
	}
	sh.active = append(sh.active, f)
}

// judgeOverlaps judges the calls that began before f returned.
func (o *Judge) judgeOverlaps(j *jobState, sh *shardState, f *Call) {
	for _, later := range f.overlap {
		if !later.Start.Before(f.end) {
			continue // at the same instant
		}
		if !f.canceled.IsZero() && !f.canceled.After(later.Start) {
			o.report.Overlaps++ // the handler returned late
			continue
		}
		if sh.forced(f) || sh.forced(later) {
			o.report.ForcedOverlaps++
			continue
		}
		o.addJobViolation(1, j, "shard %d: %s of %s ran until %v and its context ended at %v, but %s of %s began at %v",
			f.Shard, f.run(), f.Client, clock(f.end), clock(f.canceled), later.run(), later.Client, clock(later.Start))
	}
	f.overlap = nil
}

// forced reports whether the session of a call was expired by force, before its TTL. Its process cannot know
// that: it may go on, and may begin runs that it has claimed.
func (sh *shardState) forced(f *Call) bool {
	c := sh.claimOf(f)
	return c != nil && c.session.forced
}

// claimOf returns the claim of a call, nil if there is none.
func (sh *shardState) claimOf(f *Call) *claimState {
	var last *claimState
	for key := (attempt{life{work: f.run().work()}, f.Attempt}); key.resets <= sh.resets; key.resets++ {
		if c := sh.attempts[key]; c != nil {
			if last = c; c.fence == f.Fence {
				return c
			}
		}
	}
	return last
}

func clock(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.UTC().Format("15:04:05.000")
}
