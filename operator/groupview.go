package operator

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/rota-dev/rota/internal/group/snapshot"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// GroupView is the state of a group, kept current by watches. Its methods may be called from several
// goroutines.
type GroupView struct {
	op     *Operator
	ctx    context.Context // of the followers
	cancel context.CancelCauseFunc
	tasks  sync.WaitGroup // the followers

	mu      sync.Mutex
	answers *summaries
	claims  map[string]context.CancelFunc // the followers of claims, by incarnation
	pools   bool                          // the records of pools are followed
	unread  map[registry.Key]bool         // directories of which no snapshot has arrived
	ready   chan struct{}                 // closed once unread is empty
	changed chan struct{}                 // closed and replaced at each change
	err     error
}

// Watch returns a view of the group that watches keep current. It waits for the first state, at
// most until ctx ends. The view outlives ctx; the caller closes it. There is one watch, and one
// goroutine, for each directory that Group lists; those of pools once a job has one. Between changes, they cost nothing.
func (o *Operator) Watch(ctx context.Context) (*GroupView, error) {
	if err := o.checkFormat(ctx); err != nil {
		return nil, fmt.Errorf("watch group: %w", err)
	}
	v := &GroupView{
		op: o, answers: o.newSummaries(snapshot.New(o.keys)), claims: map[string]context.CancelFunc{}, unread: map[registry.Key]bool{},
		ready: make(chan struct{}), changed: make(chan struct{}),
	}
	v.ctx, v.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	v.mu.Lock()
	for _, dir := range v.answers.records.Directories() {
		v.startFollower(v.ctx, dir)
	}
	v.mu.Unlock()
	var err error
	select {
	case <-v.ready:
		if err = v.Err(); err == nil {
			return v, nil
		}
	case <-ctx.Done():
		err = fmt.Errorf("%w: %w", registry.ErrUnavailable, context.Cause(ctx))
	}
	v.Close()
	return nil, fmt.Errorf("watch group: %w", err)
}

// Status returns the state of the group now. It computes the summaries of the jobs that changed since the
// last call, and copies those of all.
func (v *GroupView) Status() GroupStatus {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.answers.status(time.Now())
}

// Changes returns the state of the group now, with only those Jobs that may have changed since the last call
// of Changes, and the names of the jobs removed since then, sorted. The first call returns all jobs. The
// cost of a call depends on the number of changed jobs and of instances, not on the number of jobs.
//
// All calls on a view together return each change once, so each caller that shows a group needs a view of
// its own.
func (v *GroupView) Changes() (st GroupStatus, removed []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.answers.changes(time.Now())
}

// Changed returns a channel that is closed at the next change of a record, and when the view ends.
// Call it before Status or Changes to miss no change. Fires come due without a change of a record.
func (v *GroupView) Changed() <-chan struct{} {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.changed
}

// Await waits until the view has the intent for a job as it is stored now, or that for all jobs if job is empty, and until the leader has
// put a pause, a stopped schedule and disabled shards of it into force. So a look at the view after an act and Await shows the act, unless
// ctx ends first: that is the error then.
func (v *GroupView) Await(ctx context.Context, job string) error {
	segment, key := record.Segment(job), v.op.keys.GroupControl()
	if job != "" {
		key = v.op.keys.Control(segment)
	}
	e, found, err := v.op.getRecord(ctx, key)
	if err != nil {
		return fmt.Errorf("await the intent for %q: %w", job, err)
	}
	for {
		v.mu.Lock()
		changed, err := v.changed, v.err
		isThere := v.hasIntent(key, segment, e.Modified.Seq, found)
		v.mu.Unlock()
		if isThere || err != nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// hasIntent reports whether the view has the record of an intent as of a revision or later, and whether it is in force. v.mu is held.
func (v *GroupView) hasIntent(key registry.Key, segment string, rev uint64, found bool) bool {
	records := v.answers.records
	group := records.Group.GroupControl
	if key == v.op.keys.GroupControl() {
		if !found || records.Group.Rev.Seq < rev || group == nil {
			return records.Has(key) == found && records.Group.Rev.Seq >= rev
		}
		for _, p := range records.Plans {
			if p.Plan != nil && (p.Plan.GroupPause != nil) != group.Paused {
				return false
			}
		}
		return true
	}
	control, plan := records.Control[segment], records.Plans[segment].Plan
	switch {
	case !found || control.Rev.Seq < rev || control.Control == nil:
		return records.Has(key) == found && control.Rev.Seq >= rev
	case plan == nil || plan.GroupPause != nil || group != nil && group.Paused:
		return true
	}
	return plan.Paused == control.Paused && plan.Stopped == control.Stopped && plan.Disabled.Equal(control.Disabled)
}

// Err returns nil while the view is kept current, then the error that ended it, as of
// registry.Follow.
func (v *GroupView) Err() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.err
}

// Close ends the view and waits for its goroutines. Closing twice is legal.
func (v *GroupView) Close() {
	v.cancel(registry.ErrClosed)
	v.tasks.Wait()
}

// startFollower follows a directory until ctx ends. v.mu is held.
func (v *GroupView) startFollower(ctx context.Context, dir registry.Key) {
	select {
	case <-v.ready:
	default:
		v.unread[dir] = true
	}
	known := map[registry.Key]bool{}
	v.tasks.Go(func() {
		err := registry.Follow(ctx, v.op.reg, dir, func(b registry.Batch) error {
			v.apply(dir, b, known)
			return nil
		})
		v.mu.Lock()
		defer v.mu.Unlock()
		if ctx == v.ctx || v.ctx.Err() == nil && ctx.Err() == nil { // else its incarnation was reaped
			v.end(err)
			return
		}
		for key := range known {
			v.answers.remove(key)
		}
		v.noteRead(dir)
	})
}

// end ends the view with an error, unless it has ended already. v.mu is held.
func (v *GroupView) end(err error) {
	if v.err == nil {
		v.err = err
		v.cancel(err)
		clear(v.unread)
		v.closeReady()
		v.notify()
	}
}

// apply applies a batch. known are the keys of dir that were delivered before.
func (v *GroupView) apply(dir registry.Key, b registry.Batch, known map[registry.Key]bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	gone := b.Deletes
	if b.Kind == registry.Snapshot {
		there := make(map[registry.Key]bool, len(b.Puts))
		for _, e := range b.Puts {
			there[e.Key] = true
		}
		for key := range known {
			if !there[key] {
				gone = append(gone, key)
			}
		}
	}
	for _, key := range gone {
		delete(known, key)
		v.answers.remove(key)
	}
	for _, e := range b.Puts {
		known[e.Key] = true
		v.answers.put(e)
	}
	if dir == v.op.keys.Members() || dir == v.op.keys.Plans() {
		v.followClaims()
		v.followPools()
	}
	v.noteRead(dir)
	v.notify()
}

// followClaims follows the claims of each incarnation of the group, and no others. v.mu is held.
func (v *GroupView) followClaims() {
	there := map[string]bool{}
	for _, inc := range v.answers.records.Incarnations() {
		there[inc] = true
		if v.claims[inc] == nil {
			ctx, cancel := context.WithCancel(v.ctx)
			v.claims[inc] = cancel
			v.startFollower(ctx, v.op.keys.ClaimsOf(inc))
		}
	}
	for inc, cancel := range v.claims {
		if !there[inc] {
			cancel()
			delete(v.claims, inc)
		}
	}
}

// followPools begins to follow the records of pools once a job has one. v.mu is held.
func (v *GroupView) followPools() {
	if v.pools || !v.answers.records.HasPool() {
		return
	}
	v.pools = true
	for _, dir := range v.answers.records.PoolDirectories() {
		v.startFollower(v.ctx, dir)
	}
}

// noteRead notes that a directory was read. v.mu is held.
func (v *GroupView) noteRead(dir registry.Key) {
	delete(v.unread, dir)
	if len(v.unread) == 0 {
		v.closeReady()
	}
}

func (v *GroupView) closeReady() {
	select {
	case <-v.ready:
	default:
		close(v.ready)
	}
}

// notify wakes the receivers of Changed. v.mu is held.
func (v *GroupView) notify() {
	close(v.changed)
	v.changed = make(chan struct{})
}
