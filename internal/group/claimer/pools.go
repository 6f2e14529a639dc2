package claimer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/rota-dev/rota/internal/group/claiming"
	"github.com/rota-dev/rota/internal/group/feed"
	"github.com/rota-dev/rota/internal/group/pools"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// poolShares is the state of a claimer concerning pools. It is empty, and costs nothing, until a job here has one.
type poolShares struct {
	slots    *feed.Reader[record.Slots] // nil: no job here has had a pool
	byName   map[string]*poolShare
	follower sync.WaitGroup
	failed   chan error // receives why the slots of pools cannot be followed any more

	demandRev registry.Rev // of the record with the demand; zero: it does not exist yet
	sending   bool
	unsent    bool      // the last write has failed
	sendAgain time.Time // not before
	recheck   time.Time // when a demand may change without other news; zero: never
	sent      chan demandResult
}

// poolShare is the state of one pool.
type poolShare struct {
	pools.Share
	waiting  map[*JobState]claiming.PoolWait
	allotted map[*JobState]int // free slots, for the next decisions on jobs that wait
}

// demandResult is the result of a write of the demand.
type demandResult struct {
	rev registry.Rev
	err error
}

// PoolView is a claimer's state of one pool at an instant.
type PoolView struct{ Slots, Running, Waiting int }

// followPools begins to follow the slots of pools, once a job here has a pool. It ends with ctx.
func (c *Claimer) followPools(ctx context.Context) {
	p := &c.pools
	f := feed.New(c.Keys.Pools(), c.Log, record.DecodeSlotsEntry)
	f.UnreadableLevel = slog.LevelDebug // the leader logs it
	p.byName, p.failed, p.sent = map[string]*poolShare{}, make(chan error, 1), make(chan demandResult, 1)
	p.slots = f.NewReader(c.wake)
	p.follower.Go(func() {
		if err := f.Run(ctx, c.Reg); err != nil && ctx.Err() == nil {
			p.failed <- fmt.Errorf("follow %s: %w", c.Keys.Pools(), err)
		}
	})
}

// closePools waits for the goroutines of pools, which end with their context.
func (c *Claimer) closePools() {
	c.pools.follower.Wait()
	if c.pools.sending {
		<-c.pools.sent
	}
}

// applyPoolsOf updates the pools of a job after a change of its plan. The next decision finds the waiting runs anew.
func (c *Claimer) applyPoolsOf(ctx context.Context, j *JobState) {
	c.setWaits(j, nil)
	j.pools = j.pools[:0:0]
	if j.Plan == nil {
		return
	}
	for i := range j.Plan.Epochs {
		if pool := j.Plan.Epochs[i].Job().Pool; pool != "" && !slices.Contains(j.pools, pool) {
			j.pools = append(j.pools, pool)
		}
	}
	if len(j.pools) > 0 && c.pools.slots == nil {
		c.followPools(ctx)
	}
}

// poolShare returns the state of a pool that a job here has.
func (c *Claimer) poolShare(name string) *poolShare {
	s := c.pools.byName[name]
	if s == nil {
		s = &poolShare{waiting: map[*JobState]claiming.PoolWait{}, allotted: map[*JobState]int{}}
		c.pools.byName[name] = s
		if slots, ok := c.pools.slots.Feed.Values()[name]; ok {
			s.Observe(&slots, c.Me, time.Now())
		}
	}
	return s
}

// applySlots applies the slots of pools that have been dealt anew.
func (c *Claimer) applySlots() {
	if c.pools.slots == nil {
		return
	}
	c.pools.slots.Drain(func(n feed.Update[record.Slots]) {
		s := c.pools.byName[n.Name]
		switch {
		case s == nil:
		case n.Deleted || n.Unreadable:
			s.Observe(nil, c.Me, time.Now())
		default:
			s.Observe(&n.Value, c.Me, time.Now())
		}
	})
}

// freeSlotsFor returns how many runs of each of its pools a job may claim now. While other jobs wait for slots, a job gets those
// that allotSlots has reserved for it, so that earlier fires go first.
func (c *Claimer) freeSlotsFor(j *JobState) map[string]int {
	if len(j.pools) == 0 {
		return nil
	}
	free := make(map[string]int, len(j.pools))
	for _, pool := range j.pools {
		s := c.poolShare(pool)
		if _, waits := s.waiting[j]; len(s.waiting) == 0 || waits && len(s.waiting) == 1 {
			free[pool] = s.Free(time.Now())
		} else {
			free[pool] = s.allotted[j]
		}
		delete(s.allotted, j)
	}
	return free
}

// setWaits replaces the runs of a job that wait for slots.
func (c *Claimer) setWaits(j *JobState, waits claiming.PoolWaits) {
	for _, pool := range j.pools {
		s := c.poolShare(pool)
		s.Waiting -= s.waiting[j].Runs
		delete(s.waiting, j)
	}
	for _, w := range waits {
		s := c.poolShare(w.Pool)
		s.waiting[j] = w
		s.Waiting += w.Runs
	}
}

// reserveSlots counts the slots that a claim uses.
func (c *Claimer) reserveSlots(e *PendingWrite) {
	for pool, n := range e.decision.Taken() {
		c.poolShare(pool).Running += n
	}
}

// returnSlots takes back reserveSlots for a claim that is not made.
func (c *Claimer) returnSlots(e *PendingWrite) {
	for pool, n := range e.decision.Taken() {
		c.poolShare(pool).Running -= n
	}
}

// queueAgain returns the slots of a claim that did not fit its transaction, whose job is decided on again.
func (c *Claimer) queueAgain(e *PendingWrite) {
	c.returnSlots(e)
	for pool, n := range e.decision.Taken() {
		c.poolShare(pool).allotted[e.Job] = n
	}
}

// allotSlots has the claimer decide on the jobs with the earliest fires for which slots are free.
func (c *Claimer) allotSlots(now time.Time) {
	for _, s := range c.pools.byName {
		free := s.Free(now)
		if free == 0 || len(s.waiting) == 0 {
			continue
		}
		for _, n := range s.allotted {
			free -= n
		}
		for _, j := range s.inOrder(free) {
			if free <= 0 {
				break
			}
			if s.allotted[j] == 0 {
				s.allotted[j] = min(s.waiting[j].Runs, free)
				free -= s.allotted[j]
			}
			c.MarkDirty(j)
		}
	}
}

// inOrder returns the jobs that wait, those with earlier fires first. It needs no more than n of them.
func (s *poolShare) inOrder(n int) []*JobState {
	if n <= 0 {
		return nil
	}
	compare := func(a, b *JobState) int {
		return cmp.Or(cmp.Compare(s.waiting[a].Oldest, s.waiting[b].Oldest), cmp.Compare(a.Segment, b.Segment))
	}
	if n == 1 {
		return []*JobState{slices.MinFunc(slices.Collect(maps.Keys(s.waiting)), compare)}
	}
	return slices.SortedFunc(maps.Keys(s.waiting), compare)
}

// announceDemand writes what this incarnation wants of pools, if it has changed. One write is in flight at most.
func (c *Claimer) announceDemand(ctx context.Context, now time.Time) {
	p := &c.pools
	if p.slots == nil || p.sending {
		return
	}
	next, changed := record.Demand{Incarnation: c.Me, Pools: map[string]record.PoolDemand{}}, p.unsent
	p.recheck = time.Time{}
	for name, s := range p.byName {
		d, recheck := s.Next(now)
		if !recheck.IsZero() && (p.recheck.IsZero() || recheck.Before(p.recheck)) {
			p.recheck = recheck
		}
		if d != (record.PoolDemand{}) {
			next.Pools[name] = d
		}
		changed = changed || d != s.Announced
	}
	switch {
	case !changed:
		return
	case now.Before(p.sendAgain):
		p.recheck = p.sendAgain
		return
	}
	value, err := record.Encode(&next)
	if err != nil {
		c.Log.Error("demand for slots of pools cannot be encoded", "error", err)
		return
	}
	for name, s := range p.byName { // it binds from now on, since the store may have it at any time
		s.Announced = next.Pools[name]
	}
	p.sending, p.sendAgain = true, now.Add(pools.AnnounceInterval)
	rev := p.demandRev
	go func() { // one at once; it ends with ctx
		rev, err := c.writeDemand(ctx, rev, value)
		p.sent <- demandResult{rev, err}
	}()
}

// writeDemand writes the demand. If another writer has changed or deleted the record, it is written anew.
func (c *Claimer) writeDemand(ctx context.Context, rev registry.Rev, value []byte) (registry.Rev, error) {
	key := c.Keys.Demand(c.Me)
	for {
		op := registry.CreateOwned(key, value, c.Session.ID())
		if !rev.IsZero() {
			op = registry.Set(key, rev, value)
		}
		written, err := registry.Apply(ctx, c.Reg, registry.Txn{If: []registry.Cond{registry.Alive(c.Session.ID())}, Then: []registry.Op{op}})
		var conflict *registry.ConflictError
		switch {
		case err == nil || !errors.As(err, &conflict):
			return written, err
		case conflict.Index == 0:
			return written, fmt.Errorf("%w: %w", registry.ErrSessionLost, err)
		}
		e, err := c.Reg.Get(ctx, key, registry.ReadOptions{Fresh: true})
		switch {
		case errors.Is(err, registry.ErrNotFound):
			rev = registry.Rev{}
		case err != nil:
			return rev, err
		default:
			rev = e.Modified
		}
	}
}

// applyDemandResult applies the result of a write of the demand.
func (c *Claimer) applyDemandResult(r demandResult) error {
	p := &c.pools
	p.sending, p.unsent = false, r.err != nil
	switch {
	case r.err == nil:
		p.demandRev = r.rev
	case errors.Is(r.err, registry.ErrSessionLost), errors.Is(r.err, registry.ErrClosed):
		return fmt.Errorf("announce demand: %w", r.err)
	default:
		c.Log.Error("demand for slots of pools not written; trying again", "error", r.err)
		p.sendAgain = time.Now().Add(RefusedRetryDelay)
	}
	return nil
}

// viewPools returns a view of all pools, nil if there are none.
func (c *Claimer) viewPools() map[string]PoolView {
	if len(c.pools.byName) == 0 {
		return nil
	}
	views := make(map[string]PoolView, len(c.pools.byName))
	for name, s := range c.pools.byName {
		views[name] = PoolView{s.Limit(), s.Running, s.Waiting}
	}
	return views
}
