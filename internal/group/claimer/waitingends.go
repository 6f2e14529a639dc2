package claimer

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/group/claiming"
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

// scheduleEnd has the claimer decide on a job of which a run has ended, or has the end wait.
func (c *Claimer) scheduleEnd(j *JobState, e *claiming.EndedRun, now, clock time.Time) {
	run, _ := j.Claims.Running.Of(e.Shard)
	_, moving := c.Frozen[j]
	if !c.deferEnds(j, now, &claiming.Ends{
		Moving: moving, Awaited: j.awaited, Retry: e.Retry,
		Took: clock.Sub(run.Fire.Time()), Agenda: j.wake != 0, ClaimIn: j.wake.Time().Sub(clock),
	}) {
		c.MarkDirty(j)
	}
}

// deferEnds has the ends of a job's runs wait, and reports false if they are to be committed now.
func (c *Claimer) deferEnds(j *JobState, now time.Time, ends *claiming.Ends) (wait bool) {
	switch ends.Commit() {
	case claiming.CommitNow:
		return false
	case claiming.CommitWithClaim:
		c.carried.add(j, now, claiming.MaxCarryDelay)
	case claiming.CommitWithOthers:
		c.held.add(j, now, maxEndsDelay)
	case claiming.CommitWithClaimOnly:
	}
	return true
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
