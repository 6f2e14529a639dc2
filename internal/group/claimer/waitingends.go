package claimer

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// waitingEnds are jobs with ended runs whose ends are not written yet.
type waitingEnds struct {
	jobs  map[*JobState]struct{}
	until time.Time // when the ends are written at the latest
}

// add adds a job. The first one sets the time until which all wait.
func (w *waitingEnds) add(j *JobState, now time.Time, delay time.Duration) {
	if len(w.jobs) == 0 {
		w.jobs, w.until = map[*JobState]struct{}{}, now.Add(delay)
	}
	w.jobs[j] = struct{}{}
}

// areDue reports whether the ends have waited long enough.
func (w *waitingEnds) areDue(now time.Time) bool { return len(w.jobs) > 0 && !now.Before(w.until) }

// takeAll removes all jobs, and returns them in order.
func (w *waitingEnds) takeAll() []*JobState {
	jobs := slices.SortedFunc(maps.Keys(w.jobs), func(a, b *JobState) int { return cmp.Compare(a.Segment, b.Segment) })
	w.jobs = nil
	return jobs
}

// holdEnd has the end of a run wait: for the next claim of the job if the run was short and the
// claim is due soon, and otherwise for other ends to share its commit.
func (c *Claimer) holdEnd(j *JobState, shard int, now, clock time.Time) {
	run, _ := j.Claims.Running.Of(shard)
	if clock.Sub(run.Fire.Time()) <= maxCarryDelay && j.wake != 0 && j.wake.Time().Sub(clock) <= maxCarryDelay {
		c.carried.add(j, now, maxCarryDelay)
		return
	}
	c.held.add(j, now, maxEndsDelay)
}

// releaseEnds takes a job whose ends are being written off those that wait.
func (c *Claimer) releaseEnds(j *JobState) {
	delete(c.held.jobs, j)
	delete(c.carried.jobs, j)
}

// markWaiting marks jobs whose ends wait, so that the ends are written.
func (c *Claimer) markWaiting(w *waitingEnds) {
	for _, j := range w.takeAll() {
		c.MarkDirty(j)
	}
}
