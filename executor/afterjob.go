package executor

import (
	"fmt"
	"strings"
	"time"

	"github.com/rota-dev/rota/coordinator"
	"github.com/rota-dev/rota/internal/record"
)

// AfterJob fires when a fire of the job with the given name has ended: all its shards have run it, retries and
// re-runs included, and all have succeeded. The fire is the same instant as that of the followed job, or the
// instant of its trigger, and Run.FireTime is that instant. Triggers of some shards count as well.
//
// With several jobs, they should have the same schedule: a fire comes after all of them have ended the fire of
// the same instant. If one has no fire of that instant, it is skipped.
//
// A fire of which a run failed, or was lost or skipped, is no fire of this job: it counts as skipped, with
// the reason SkipUpstream. OnEnd and OnFailure change that. A fire that ends while this job is paused is never run.
// Job.OnMisfire and Job.CatchupWindow apply from the end of the followed fire on: with RunOnce, of several fires
// that wait only the latest runs.
//
// The followed jobs must be in the same group, with TrackRuns. FixedDelay and Always cannot be followed, as their
// shards have no fires in common. The order of fires is that of the instants: a fire waits until all earlier ones
// have ended, too. In, From, Until and Spread do not apply. Register refuses jobs that follow each other in a circle;
// Status.Problem names circles over several processes, and followed jobs that do not exist.
func AfterJob(name string, more ...string) Schedule {
	return Schedule{text: record.After{On: record.AfterSuccess, Jobs: append([]string{name}, more...)}.String()}
}

// OnEnd returns an AfterJob schedule that fires however the followed fires have ended.
func (s Schedule) OnEnd() Schedule { return s.onOutcome(record.AfterEnd) }

// OnFailure returns an AfterJob schedule that fires if a run of a followed fire has failed or was lost. Fires that succeeded do
// not count as skipped.
func (s Schedule) OnFailure() Schedule { return s.onOutcome(record.AfterFailure) }

func (s Schedule) onOutcome(kind string) Schedule {
	words := strings.Fields(s.String())
	if words[0] != record.AfterSuccess {
		return Schedule{text: kind + " " + s.String()} // kept, for check to refuse it
	}
	return Schedule{text: strings.Join(append([]string{kind}, words[1:]...), " ")}
}

// After returns the names of the jobs that s follows, nil if it is no AfterJob schedule.
func (s Schedule) After() []string {
	a, err := record.ParseAfter(s.String())
	if err != nil || a == nil {
		return nil
	}
	return a.Jobs
}

// parseAfter reads the text of an AfterJob schedule, or returns false if it is of another kind.
func parseAfter(words []string) (s Schedule, is bool, err error) {
	a, err := record.ParseAfter(strings.Join(words, " "))
	if a == nil && err == nil {
		return Schedule{}, false, nil
	}
	if err != nil {
		return Schedule{text: strings.Join(words, " ")}, true, err
	}
	return Schedule{text: a.String()}, true, nil
}

// checkAfter returns the rule that an AfterJob schedule breaks, or nil.
func checkAfter(kind []string, all modifiers) (is bool, err error) {
	a, err := record.ParseAfter(strings.Join(kind, " "))
	switch {
	case err != nil:
		return true, err
	case a == nil:
		return false, nil
	case len(all) > 0:
		return true, fmt.Errorf("%q does not apply to a schedule that follows jobs", all[0].word)
	}
	return true, nil
}

// FollowsJobs is described in coordinator.Follower.
func (p *program) FollowsJobs() bool { return p.follows }

// DueReleased is described in coordinator.Follower. A fire is due from its release on. So the instants of the
// releases take the place of the fires for all policies.
func (p *program) DueReleased(released []coordinator.Release, last, now time.Time) coordinator.Due {
	f := newFollowedFires(released, last)
	q := *p
	q.times = f.released
	return f.translate(q.Due(f.last, time.Time{}, now))
}

// SkipReleased is described in coordinator.Follower.
func (p *program) SkipReleased(released []coordinator.Release, last, now time.Time) coordinator.Due {
	f := newFollowedFires(released, last)
	q := *p
	q.times = f.released
	return f.translate(q.SkipDue(f.last, time.Time{}, now))
}

// followedFires translates between fires and the instants of their releases, for one shard.
type followedFires struct {
	released instants
	at       map[time.Time]time.Time // fires, by the instants of their releases
	last     time.Time               // before the releases of fires that are not claimed
}

func newFollowedFires(all []coordinator.Release, last time.Time) followedFires {
	f := followedFires{at: map[time.Time]time.Time{}}
	for _, r := range all {
		if r.At.After(last) {
			f.released = append(f.released, r.Released)
			f.at[r.Released] = r.At
		}
	}
	if len(f.released) > 0 {
		f.last = f.released[0].Add(-1)
	}
	return f
}

// translate returns d with fires in place of the instants of their releases. Wake stays.
func (f *followedFires) translate(d coordinator.Due) coordinator.Due {
	d.Fire, d.Through = f.fireOf(d.Fire), f.fireOf(d.Through)
	return d
}

func (f *followedFires) fireOf(released time.Time) time.Time {
	if released.IsZero() {
		return released
	}
	return f.at[released]
}

// checkCirclesLocked reports jobs that, with those registered before, follow each other in a circle. A circle leads
// to an added job, so there is no search from jobs that none follows: a chain of jobs that are registered one by one
// would be searched as a whole each time. The caller holds e.mu.
func (e *Executor) checkCirclesLocked(jobs []Job) error {
	added, followedNow := make(map[string]*Job, len(jobs)), map[string]bool{}
	for i := range jobs {
		added[jobs[i].Name] = &jobs[i]
		for _, name := range jobs[i].Schedule.After() {
			followedNow[name] = true
		}
	}
	followed := func(name string) []string {
		j, ok := added[name]
		if !ok && !e.withdrawn[name] {
			j = e.jobs[name]
		}
		if j == nil {
			return nil
		}
		return j.Schedule.After()
	}
	circles := record.NewCircles(followed)
	for _, j := range jobs {
		if !followedNow[j.Name] && !e.followed[j.Name] {
			continue
		}
		if circle := circles.Through(j.Name); circle != nil {
			return fmt.Errorf("%w %q: Schedule: it follows itself: %s", ErrInvalidJob, j.Name, strings.Join(append(circle, j.Name), " follows "))
		}
	}
	return nil
}
