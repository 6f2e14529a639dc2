package executor

import (
	"time"

	"github.com/rota-dev/rota/internal/firelist"
	"github.com/rota-dev/rota/internal/group/due"
)

// FollowsJobs is described in due.Follower.
func (p *program) FollowsJobs() bool { return p.follows }

// DueReleased is described in due.Follower. A fire is due from its release on. So the instants of the
// releases take the place of the fires for all policies.
func (p *program) DueReleased(released []due.Release, last, now time.Time) due.Due {
	return p.ofReleased((*program).Due, released, last, now)
}

// SkipReleased is described in due.Follower.
func (p *program) SkipReleased(released []due.Release, last, now time.Time) due.Due {
	return p.ofReleased((*program).SkipDue, released, last, now)
}

func (p *program) ofReleased(decide func(p *program, last, until, now time.Time) due.Due, released []due.Release, last, now time.Time) due.Due {
	f := newFollowedFires(released, last)
	q := *p
	q.times = f.released
	return f.translate(decide(&q, f.last, time.Time{}, now))
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
