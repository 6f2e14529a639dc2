package executor

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"

	"github.com/rota-dev/rota/internal/group/event"
)

// Stats are the figures of an instance at one instant, for metrics.
type Stats struct {
	Namespace, Group, Instance string
	// Leading reports whether this instance is the leader of its group.
	Leading bool
	// SafeUntil is when the session is lost unless the store answers before. It is zero without
	// a session.
	SafeUntil time.Time
	// Running is the number of runs whose handlers have not returned, Waiting that of claimed runs that
	// wait for a worker. Runs that wait for their instants of Schedule.Spread are in neither.
	Running, Waiting int
	// RefusedClaims counts the transactions with claims that the store has refused since New.
	RefusedClaims RefusedClaims
	// Jobs has the jobs of which this instance owns shards, or has runs. On the leader it also
	// has the jobs with shards that no instance owns, and paused jobs.
	Jobs map[string]JobStats
	// Pools has the pools of jobs of which this instance owns or has owned shards. On the leader it also has all pools with a size. It is
	// nil if there are none.
	Pools map[string]PoolStats
}

// PoolStats describes in Stats what this instance has of a pool. Operator.Pools has the whole fleet.
type PoolStats struct {
	Slots   int // that it may use
	Running int // claimed runs whose handlers have not returned
	Waiting int // due runs that wait for a slot, and are not claimed

	// Size is the size of the pool in the group, and Sized reports whether it has one. The leader knows them; on other instances they are zero.
	Size  int
	Sized bool
}

// RefusedClaims counts transactions that claim runs or record their ends and that the store refused, by cause. The
// instance decides on their jobs again; no run has begun without a claim.
type RefusedClaims struct {
	// Plan: the leader had changed the plan of a job. Some are normal while shards move.
	Plan uint64
	// Session: the session of the instance had ended.
	Session uint64
	// Record: another writer had changed a claims record. The instance joins again.
	Record uint64
	// Store: the store refused for a reason of its own: it is full, or a permission is missing. The instance tries
	// again each second.
	Store uint64
}

// refusedClaims counts as RefusedClaims does.
type refusedClaims struct{ plan, session, record, store atomic.Uint64 }

func (c *refusedClaims) count(e event.Refused) {
	switch e.Cause {
	case event.RefusedByPlan:
		c.plan.Add(1)
	case event.RefusedBySession:
		c.session.Add(1)
	case event.RefusedByRecord:
		c.record.Add(1)
	case event.RefusedByStore:
		c.store.Add(1)
	}
}

func (c *refusedClaims) load() RefusedClaims {
	return RefusedClaims{Plan: c.plan.Load(), Session: c.session.Load(), Record: c.record.Load(), Store: c.store.Load()}
}

// JobStats describes a job in Stats.
type JobStats struct {
	// Kind is the kind of a defined job, empty for a registered one.
	Kind string
	// Owned is the number of shards that this instance owns. Blocked is the number of shards
	// that it may not run until a handler of its earlier session returns.
	Owned, Blocked   int
	Running, Waiting int
	// Overdue is how long ago the oldest fire of the owned shards came due that is not claimed:
	// zero if there is none. It does not include fires that will be skipped. The fires of a
	// shard are not claimed while the shard runs. With Always and FixedDelay, a shard that runs is not late.
	Overdue time.Duration
	// NextFire is the next scheduled fire, zero if there is none or if no shard is owned. With Always and
	// FixedDelay there is none while all owned shards run.
	NextFire time.Time

	// The leader knows the following. On other instances they are zero.

	// Unowned is the number of shards that no instance owns, except disabled ones. It is zero
	// for a job that no live instance has offered for coordinator.MaxUnoffered.
	Unowned int
	// UnownedOverdue is as Overdue, for the shards that no instance owns. Shards that wait for
	// the return of an instance with a RestartGrace are in neither.
	UnownedOverdue time.Duration
	Paused         bool
}

// statsTimeout bounds the wait for the loop that knows what is claimed. It does not block, and
// answers in microseconds unless the process lacks CPU.
const statsTimeout = time.Second

// Stats returns the present state of this instance. It reads nothing from the store. Before Start,
// after Shutdown and without a session, there are no owned shards.
func (e *Executor) Stats() Stats {
	ctx, cancel := context.WithTimeout(context.Background(), statsTimeout)
	defer cancel()
	m := e.member.Stats(ctx)
	s := Stats{
		Namespace: e.namespace, Group: e.group, Instance: e.Instance(),
		Leading: m.Leading, SafeUntil: m.SafeUntil, RefusedClaims: e.refused.load(), Jobs: make(map[string]JobStats, len(m.Jobs)),
	}
	now := e.clock()
	since := func(due time.Time) time.Duration {
		if due.IsZero() {
			return 0
		}
		return max(now.Sub(due), 0)
	}
	for name, j := range m.Jobs {
		s.Jobs[name] = JobStats{
			Kind: j.Kind, Owned: j.Owned, Blocked: j.Blocked, Overdue: since(j.Due), NextFire: j.NextFire,
			Unowned: j.Unowned, UnownedOverdue: since(j.UnownedDue), Paused: j.Paused,
		}
	}
	for name, p := range m.Pools {
		if s.Pools == nil {
			s.Pools = map[string]PoolStats{}
		}
		s.Pools[name] = PoolStats{p.Slots, p.Running, p.Waiting, p.Size, p.Sized}
	}
	for name, running := range e.claimed.countRunning() { // the pool counts a batch of Together as one
		j := s.Jobs[name]
		j.Running = running
		s.Jobs[name] = j
		s.Running += running
	}
	for name, c := range e.pool.CountByJob() {
		if c.Waiting > 0 {
			j := s.Jobs[name]
			j.Waiting, j.Kind = c.Waiting, cmp.Or(j.Kind, c.Kind)
			s.Jobs[name] = j
			s.Waiting += c.Waiting
		}
	}
	return s
}
