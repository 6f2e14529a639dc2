package simulate

import (
	"context"
	"fmt"
	"sync"

	"github.com/rota-dev/rota/registry"
)

// stoppable is the registry of a process that can be stopped, as by SIGSTOP or a long garbage collection: it sends
// nothing and receives nothing until it is continued. A write that was decided before is sent then, unchanged. A bubble
// has one clock, so timers of the process fire meanwhile; internal/test/fleet stops real processes.
type stoppable struct {
	registry.Registry

	mu    sync.Mutex
	stops int
	goOn  chan struct{} // closed while the process is not stopped
}

func newStoppable(reg registry.Registry) *stoppable {
	goOn := make(chan struct{})
	close(goOn)
	return &stoppable{Registry: reg, goOn: goOn}
}

// stop stops the process until undo is called. Several stops may overlap.
func (s *stoppable) stop() (undo func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stops++; s.stops == 1 {
		s.goOn = make(chan struct{})
	}
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.stops--; s.stops == 0 {
			close(s.goOn)
		}
	})
}

// wait waits while the process is stopped, and reports whether it was.
func (s *stoppable) wait() bool {
	stopped := false
	for {
		s.mu.Lock()
		goOn, stops := s.goOn, s.stops
		s.mu.Unlock()
		if stops == 0 {
			return stopped
		}
		stopped = true
		<-goOn
	}
}

func (s *stoppable) Get(ctx context.Context, key registry.Key, o registry.ReadOptions) (registry.Entry, error) {
	s.wait()
	e, err := s.Registry.Get(ctx, key, o)
	s.wait()
	return e, err
}

func (s *stoppable) List(ctx context.Context, dir registry.Key, o registry.ReadOptions) (registry.Listing, error) {
	s.wait()
	l, err := s.Registry.List(ctx, dir, o)
	s.wait()
	return l, err
}

func (s *stoppable) Txn(ctx context.Context, t registry.Txn) (registry.Rev, error) {
	if err := ctx.Err(); err != nil {
		return registry.Rev{}, fmt.Errorf("%w: %w", registry.ErrNotApplied, err)
	}
	if s.wait() {
		ctx = context.WithoutCancel(ctx) // it checked ctx before it was stopped
	}
	rev, err := s.Registry.Txn(ctx, t)
	s.wait()
	return rev, err
}

func (s *stoppable) Watch(ctx context.Context, dir registry.Key, o registry.WatchOptions) (registry.Watcher, error) {
	s.wait()
	w, err := s.Registry.Watch(ctx, dir, o)
	if err != nil {
		return nil, err
	}
	return &stoppableWatcher{w, s}, nil
}

func (s *stoppable) OpenSession(ctx context.Context, o registry.SessionOptions) (registry.Session, error) {
	s.wait()
	x, err := s.Registry.OpenSession(ctx, o)
	s.wait()
	return x, err
}

type stoppableWatcher struct {
	registry.Watcher
	of *stoppable
}

func (w *stoppableWatcher) Next(ctx context.Context) (registry.Batch, error) {
	b, err := w.Watcher.Next(ctx)
	w.of.wait()
	return b, err
}
