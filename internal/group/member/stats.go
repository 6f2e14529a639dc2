package member

import (
	"context"
	"time"

	"github.com/rota-dev/rota/internal/group/claimer"
	"github.com/rota-dev/rota/internal/group/due"
	"github.com/rota-dev/rota/internal/group/planning"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

// Stats describes a member at an instant.
type Stats struct {
	Leading   bool
	SafeUntil time.Time // when the session is lost unless the store answers before; zero: no session
	Jobs      map[string]JobStats
	Pools     map[string]PoolStats // nil: no job here has had one, and no pool has a size or this is not the leader
}

// PoolStats describes what a member has of a pool. Only the leader has Size and Sized.
type PoolStats struct {
	claimer.PoolView
	Size  int
	Sized bool
}

// JobStats describes what a member owns of a job. Unowned, UnownedDue and Paused are known to the
// leader only.
type JobStats struct {
	Kind           string // of a defined job
	Owned, Blocked int
	Due            time.Time // the oldest fire of its shards that is due and not claimed; zero: none
	NextFire       time.Time // zero: none
	Unowned        int       // shards without an owner, except disabled ones
	UnownedDue     time.Time // as Due, for the shards without an owner
	Paused         bool
}

// IsLeading reports whether the present incarnation is the leader, as far as it knows.
func (m *Member) IsLeading() bool {
	in := m.presentIncarnation()
	return in != nil && in.Elector.IsLeading()
}

// Stats returns the present state of the member. If ctx ends before the claimer answers, the shards
// that the member owns are missing.
func (m *Member) Stats(ctx context.Context) Stats {
	out := Stats{Jobs: map[string]JobStats{}}
	in := m.presentIncarnation()
	if in == nil {
		return out
	}
	_, out.SafeUntil = in.Session.State()
	now := record.InstantOf(m.Clock())
	for job, shards := range m.Blocked.CopyBlocked() {
		out.Jobs[job] = JobStats{Blocked: shards.Len()}
	}
	views := m.awaitViews(ctx, in)
	for name, v := range views.Pools {
		out.setPool(name, PoolStats{PoolView: v})
	}
	for _, v := range views.Jobs {
		if v.Plan != nil {
			out.addOwned(v, in.ID, now)
		}
	}
	if out.Leading = in.Elector.IsLeading(); out.Leading {
		for _, p := range in.plans.Values() {
			out.addUnowned(p, m.Work.Compile, now)
		}
		if sizes := in.poolSizes.Load(); sizes != nil {
			for name, size := range *sizes {
				out.setPool(name, PoolStats{out.Pools[name].PoolView, size, true})
			}
		}
	}
	return out
}

func (s *Stats) setPool(name string, p PoolStats) {
	if s.Pools == nil {
		s.Pools = map[string]PoolStats{}
	}
	s.Pools[name] = p
}

// awaitViews returns the claimer's views, empty if the incarnation or ctx ends before.
func (m *Member) awaitViews(ctx context.Context, in *Incarnation) claimer.Views {
	views := in.Claimer.RequestViews()
	for {
		m.mu.Lock()
		current, changed := m.current, m.changed
		m.mu.Unlock()
		if current != in {
			return claimer.Views{}
		}
		select {
		case v := <-views:
			return v
		case <-changed:
		case <-ctx.Done():
			return claimer.Views{}
		}
	}
}

// addOwned adds the figures that a claimer has of a job.
func (s *Stats) addOwned(v claimer.JobView, me string, now record.Instant) {
	mine := v.Plan.Owners[me]
	if mine.IsZero() {
		return
	}
	j := s.Jobs[v.Plan.Job]
	j.Kind, j.Owned = v.Plan.Last().Job().Kind, mine.Len()
	marks := v.Claims.Watermarks.Fold(v.Plan.Watermarks, mine)
	done := due.NewProgress(marks, v.Claims.Running, due.PendingOf(v.Plan, due.HandedBack(&v.Claims, mine)))
	j.Due = earliest(j.Due, due.OldestUnclaimed(v.Plan, v.Programs, done, mine, now))
	j.NextFire = due.NextFire(v.Plan, v.Programs, done, mine, now.Time())
	s.Jobs[v.Plan.Job] = j
}

// addUnowned adds what the plan of a job shows about its shards without an owner. Of a job that skips
// its due fires, since no live instance has offered it for long, they do not count. Nor do they of a job that is
// paused without a problem: it is retiring and waits for its last runs, or the leader is about to assign them.
func (s *Stats) addUnowned(p *record.Plan, compile due.Compiler, now record.Instant) {
	j := s.Jobs[p.Job]
	j.Paused = p.Paused
	unowned := shardset.Range(0, p.Shards()).Minus(p.Disabled)
	for _, shards := range p.Owners {
		unowned = unowned.Minus(shards)
	}
	skips := p.Unoffered != 0 && now >= p.Unoffered.Add(planning.MaxUnoffered) || p.Paused && p.Problem == ""
	if !unowned.IsZero() && !skips {
		programs := map[int]due.Program{}
		for i := range p.Epochs {
			if prog, err := compile(p.Epochs[i].Def); err == nil {
				programs[p.Epochs[i].Number] = prog
			}
		}
		j.Unowned = unowned.Len()
		done := due.Progress{Watermarks: p.Watermarks, Pending: due.PendingOf(p)}
		j.UnownedDue = earliest(time.Time{}, due.OldestUnclaimed(p, programs, done, unowned, now))
	}
	if j != (JobStats{}) {
		j.Kind = p.Last().Job().Kind
		s.Jobs[p.Job] = j
	}
}

// earliest returns the earlier of two instants. A zero instant does not count.
func earliest(a time.Time, b record.Instant) time.Time {
	if b == 0 || !a.IsZero() && a.Before(b.Time()) {
		return a
	}
	return b.Time()
}
