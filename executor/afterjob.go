package executor

import (
	"fmt"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/firelist"
	"github.com/rota-dev/rota/internal/group/due"
	"github.com/rota-dev/rota/internal/scheduletext"
)

// FollowsJobs is described in due.Follower.
func (p *program) FollowsJobs() bool { return p.follows }

// DueReleased is described in due.Follower. A fire is due from its release on. So the instants of the
// releases take the place of the fires for all policies.
func (p *program) DueReleased(released []due.Release, last, now time.Time) due.Due {
	f := newFollowedFires(released, last)
	q := *p
	q.times = f.released
	return f.translate(q.Due(f.last, time.Time{}, now))
}

// SkipReleased is described in due.Follower.
func (p *program) SkipReleased(released []due.Release, last, now time.Time) due.Due {
	f := newFollowedFires(released, last)
	q := *p
	q.times = f.released
	return f.translate(q.SkipDue(f.last, time.Time{}, now))
}

// releases are the instants of releases, in ascending order: the timetable of a job that follows others.
type releases []time.Time

// Next is described in timetable.
func (r releases) Next(after time.Time) time.Time { return firelist.Next(r, after) }

// Count is described in timetable.
func (r releases) Count(after, through time.Time) int { return firelist.Count(r, after, through) }

// followedFires translates between fires and the instants of their releases, for one shard.
type followedFires struct {
	released releases
	at       map[time.Time]time.Time // fires, by the instants of their releases
	last     time.Time               // before the releases of fires that are not claimed
}

func newFollowedFires(all []due.Release, last time.Time) followedFires {
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
func (f *followedFires) translate(d due.Due) due.Due {
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
	circles := scheduletext.NewCircles(followed)
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
