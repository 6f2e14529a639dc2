package web

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/rota-dev/rota/operator"
)

const (
	// readEvery is the least time between two snapshots.
	readEvery = time.Second
	// readAtLeast is the most: fires come due, and jobs late, without a change of a record.
	readAtLeast = 5 * time.Second
	// keepFor is how long the watches stay without a request.
	keepFor = time.Minute
	// probeWithin bounds a probe. A store that takes longer counts as away.
	probeWithin = 3 * time.Second
	// retryAfter is how long a failure to open the watches holds for all requests.
	retryAfter = 2 * time.Second
	// maxStreams bounds the streams of all browsers together.
	maxStreams = 256
)

// errClosed means that the console has been closed.
var errClosed = errors.New("the console is closed")

// feed is the state of the group, which all viewers share. Its watches begin with the first request and end a while after the
// last one, so that a console that nobody looks at costs the store nothing.
type feed struct {
	watch    func(context.Context) (*operator.GroupView, error)
	onChange func() // called before readers learn of another snapshot; nil for none
	// observe is called in order with each snapshot; nil for none. It must not call the feed.
	observe func(operator.GroupStatus)
	// probe reads something of the store. A view says nothing while the store is away: it is as old as the last event.
	probe func(context.Context) error

	mu       sync.Mutex
	ctx      context.Context // ends with the feed
	end      context.CancelFunc
	opening  chan struct{} // closed when the view has been opened, or could not be
	view     *operator.GroupView
	err      error     // of the last try to open it, or of its end
	failed   time.Time // when err was found
	status   operator.GroupStatus
	changed  chan struct{} // closed at the next snapshot
	lastUsed time.Time
	users    int // streams
	tasks    sync.WaitGroup
}

func newFeed(watch func(context.Context) (*operator.GroupView, error)) *feed {
	f := &feed{watch: watch, changed: make(chan struct{})}
	f.ctx, f.end = context.WithCancel(context.Background())
	return f
}

// close ends the watches and waits for them.
func (f *feed) close() {
	f.end()
	f.tasks.Wait()
}

// read returns the latest snapshot, and a channel that is closed when there is another one. The snapshot must not be changed.
func (f *feed) read(ctx context.Context) (operator.GroupStatus, <-chan struct{}, error) {
	f.mu.Lock()
	f.lastUsed = time.Now()
	if f.ctx.Err() != nil {
		f.mu.Unlock()
		return operator.GroupStatus{}, nil, errClosed
	}
	if f.view == nil && f.opening == nil && time.Since(f.failed) >= retryAfter {
		f.opening = make(chan struct{})
		f.tasks.Go(f.run)
	}
	opening := f.opening
	f.mu.Unlock()
	if opening != nil {
		select {
		case <-opening:
		case <-ctx.Done():
			return operator.GroupStatus{}, nil, ctx.Err()
		case <-f.ctx.Done():
			return operator.GroupStatus{}, nil, errClosed
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.status, f.changed, f.err
}

// latest returns the latest snapshot, zero if there is none.
func (f *feed) latest() operator.GroupStatus {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.status
}

// ask calls f with the view, if there is one.
func (f *feed) ask(question func(*operator.GroupView)) bool {
	f.mu.Lock()
	view := f.view
	f.mu.Unlock()
	if view == nil {
		return false
	}
	question(view)
	return true
}

// catchUpWithin bounds catchUp.
const catchUpWithin = 2 * time.Second

// catchUp has later reads show an act on a job, or on the group if job is empty. If the watches do not bring it in time, a page shows it
// with the next snapshot.
func (f *feed) catchUp(ctx context.Context, job string) {
	f.mu.Lock()
	view := f.view
	f.mu.Unlock()
	if view == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, catchUpWithin)
	defer cancel()
	_ = view.Await(ctx, job)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.view != view {
		return
	}
	f.keep(view.Status())
	if f.onChange != nil {
		f.onChange()
	}
	f.publish()
}

// next returns a channel that is closed at the next snapshot.
func (f *feed) next() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.changed
}

// addStream keeps the watches while a stream lasts. It returns false if there are too many.
func (f *feed) addStream() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.users == maxStreams || f.ctx.Err() != nil {
		return false
	}
	f.users++
	return true
}

func (f *feed) removeStream() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.users--
	f.lastUsed = time.Now()
}

// run opens the view, and reads it until nobody uses it, or it ends.
func (f *feed) run() {
	ctx, cancel := context.WithTimeout(f.ctx, callTimeout)
	view, err := f.watch(ctx)
	cancel()
	var changed <-chan struct{}
	f.mu.Lock()
	if err == nil {
		changed = view.Changed() // before Status, to miss no change
		f.keep(view.Status())
	}
	f.view = view
	f.fail(err)
	close(f.opening)
	f.opening = nil
	f.mu.Unlock()
	if err != nil {
		return
	}
	defer view.Close()
	for ok := true; ok && f.isUsed(); {
		changed, ok = f.take(view, changed)
	}
	f.mu.Lock()
	f.view = nil
	f.publish()
	f.mu.Unlock()
}

// take waits for the time of another snapshot and takes it. It returns the channel of the next change, and false when the view has
// ended.
func (f *feed) take(view *operator.GroupView, changed <-chan struct{}) (next <-chan struct{}, ok bool) {
	soon, late := time.NewTimer(readEvery), time.NewTimer(readAtLeast)
	defer soon.Stop()
	defer late.Stop()
	select {
	case <-soon.C:
	case <-f.ctx.Done():
		return nil, false
	}
	select {
	case <-changed:
	case <-late.C:
	case <-f.ctx.Done():
		return nil, false
	}
	ended := view.Err()
	away := f.isAway()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail(errors.Join(ended, away)); ended != nil {
		return nil, false
	}
	next = view.Changed()
	if away == nil {
		f.keep(view.Status())
	}
	if f.onChange != nil {
		f.onChange()
	}
	f.publish()
	return next, true
}

// isAway returns an error if the store does not answer.
func (f *feed) isAway() error {
	if f.probe == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(f.ctx, probeWithin)
	defer cancel()
	return f.probe(ctx)
}

// fail keeps an error, or nil after a success. The mutex is held.
func (f *feed) fail(err error) {
	if f.err = err; err != nil {
		f.failed = time.Now()
	}
}

// keep keeps a snapshot. The mutex is held.
func (f *feed) keep(st operator.GroupStatus) {
	if f.status = st; f.observe != nil {
		f.observe(st)
	}
}

// events returns what is on record of the past of the group, nothing without watches.
func (f *feed) events(q operator.EventsQuery) []operator.Event {
	f.mu.Lock()
	view := f.view
	f.mu.Unlock()
	if view == nil {
		return nil
	}
	return view.Events(q)
}

// publish tells readers that there is another snapshot. The mutex is held.
func (f *feed) publish() {
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *feed) isUsed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.users > 0 || time.Since(f.lastUsed) < keepFor
}
