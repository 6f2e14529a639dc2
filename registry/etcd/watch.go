package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/rota-dev/rota/internal/remote"
	"github.com/rota-dev/rota/registry"
)

// watcher follows a directory: by a list, and by the events after the list's revision.
// Events are read as they come, so that they wait here, merged, and not in the client
// library, where nothing bounds them. The watches of a handle share one stream.
type watcher struct {
	client  *Client
	dir     registry.Key
	prefix  string // of the stored keys
	batches *remote.Batches
	relist  chan struct{}   // one slot: something was missed
	ctx     context.Context // ends with the watcher
	cancel  context.CancelFunc
	forget  func() bool // forgets the context given to Watch

	mu       sync.Mutex
	revision int64            // the last that was seen
	has      map[string]int64 // the revisions of what was seen, by stored key
	audited  int64            // the revision up to which has is known to be all there is
}

// Watch is described in registry.Registry. It fails if the server cannot be reached.
func (c *Client) Watch(ctx context.Context, dir registry.Key, _ registry.WatchOptions) (registry.Watcher, error) {
	if err := registry.CheckDir(dir); err != nil {
		return nil, err
	}
	w := &watcher{
		client:  c,
		dir:     dir,
		prefix:  c.children(dir),
		batches: remote.NewBatches(),
		relist:  make(chan struct{}, 1),
	}
	// Not of the caller's context, the values of which would open a stream of their own.
	w.ctx, w.cancel = context.WithCancel(clientv3.WithRequireLeader(c.calls.Context()))
	s, err := w.start(ctx)
	if err == nil && !c.enroll(w, s) {
		err = remote.ErrHandleClosed
	}
	if err != nil {
		w.cancel()
		return nil, fmt.Errorf("watch %s: %w", dir, remote.Unavailable(err))
	}
	w.forget = context.AfterFunc(ctx, func() {
		w.finish(fmt.Errorf("%w: %w", registry.ErrClosed, context.Cause(ctx)))
	})
	return w, nil
}

// enroll makes w run, until it ends or Close ends it. It reports false if Close came first.
func (c *Client) enroll(w *watcher, s *stream) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing || !c.calls.Go(func() { w.run(s) }) {
		return false
	}
	c.watchers[w] = struct{}{}
	c.beginAudit()
	return true
}

func (c *Client) dismiss(w *watcher) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.watchers, w)
}

// Next is described in registry.Watcher.
func (w *watcher) Next(ctx context.Context) (registry.Batch, error) {
	b, err := w.batches.Next(ctx)
	if err != nil {
		return registry.Batch{}, fmt.Errorf("watch %s: %w", w.dir, err)
	}
	return b, nil
}

// Close is described in registry.Watcher.
func (w *watcher) Close() error {
	w.forget()
	w.finish(registry.ErrClosed)
	return nil
}

// finish ends the watcher, if it has not ended.
func (w *watcher) finish(err error) {
	w.batches.Fail(err)
	w.cancel()
}

// run follows the directory until the watcher ends. A watch whose link was left goes on
// after what was seen last; only where something was missed is there a list again. s is what
// start returned.
func (w *watcher) run(s *stream) {
	defer w.client.dismiss(w)
	defer w.finish(registry.ErrClosed) // whatever ended it, unless that has said so
	var pause time.Duration
	for missed := false; remote.Sleep(w.ctx, pause); {
		began := time.Now()
		var err error
		if missed {
			s, err = w.start(w.ctx)
		}
		if err == nil {
			err = w.follow(s)
			s = nil
			missed = errors.Is(err, errMissed) || errors.Is(err, rpctypes.ErrCompacted)
		}
		switch {
		case w.ctx.Err() != nil:
			return
		case missed:
			w.client.log.LogAttrs(w.ctx, slog.LevelInfo, "watch begins again", slog.String("dir", string(w.dir)), cause(err))
		case errors.Is(err, registry.ErrPermission) || errors.Is(err, registry.ErrUnauthenticated):
			w.finish(err)
			return
		}
		pause = longer(pause)
		if time.Since(began) > settled {
			pause = 0
		}
	}
}

// list begins with what there is.
func (w *watcher) list(ctx context.Context) error {
	resp, err := w.client.list(ctx, w.dir)
	if err != nil {
		return err
	}
	revision := resp.Header.Revision
	has := make(map[string]int64, len(resp.Kvs))
	for _, kv := range resp.Kvs {
		has[string(kv.Key)] = kv.ModRevision
	}
	w.batches.Snapshot(w.client.readChildren(w.dir, w.prefix, resp.Kvs), revOf(revision))
	w.mu.Lock()
	defer w.mu.Unlock()
	w.revision, w.audited, w.has = revision, revision, has
	return nil
}

// stream is a watch that a server keeps.
type stream struct {
	link   *link
	events clientv3.WatchChan
	from   int64 // it tells of every commit that is newer
	end    func()
}

// open begins to watch, from a revision on; with 0, from the server's next one on. It
// returns when the server has begun, unless ctx ends before that.
func (w *watcher) open(ctx context.Context, revision int64) (*stream, error) {
	l, err := w.client.links.get(ctx)
	if err != nil {
		return nil, err
	}
	sctx, cancel := context.WithCancel(w.ctx)
	left := context.AfterFunc(l.ctx, cancel)
	s := &stream{link: l, end: func() { left(); cancel() }}
	defer context.AfterFunc(ctx, cancel)()
	over := l.begin(silentFor)
	s.events = l.etcd.Watch(sctx, w.prefix, clientv3.WithPrefix(), clientv3.WithRev(revision), clientv3.WithCreatedNotify())
	resp, ok := <-s.events
	if err = translate(resp.Err()); !ok {
		err = errClosed
	}
	over(err)
	if err != nil {
		s.end()
		return nil, err
	}
	s.from = resp.Header.Revision
	return s, nil
}

var (
	errClosed = errors.New("the watch was closed")
	// errMissed ends a watch that the server has kept something from.
	errMissed = errors.New("an event did not come")
)

// start lists what there is, and returns the watch that goes on from there, or nil if that is
// still to be opened. It is opened before the list, without a past: etcd serves a watch of what
// has been in its spare time, which it looks for ten times a second, and in a store that is in
// use something has been between any two requests.
func (w *watcher) start(ctx context.Context) (*stream, error) {
	ctx, end, err := w.client.calls.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	s, _ := w.open(ctx, 0) // if it cannot be, the list says whether that matters
	err = w.list(ctx)
	if s != nil && (err != nil || w.revision < s.from) { // the list is of a member that was behind
		s.end()
		s = nil
	}
	return s, err
}

// follow takes in the events after what was seen, until the watch ends: s, or if that is nil
// one that is opened now.
func (w *watcher) follow(s *stream) (err error) {
	if s == nil {
		if s, err = w.open(w.ctx, w.revision+1); err != nil {
			return err
		}
	}
	defer s.end()
	for {
		select {
		case resp, ok := <-s.events:
			if !ok {
				return errClosed
			}
			if err := translate(resp.Err()); err != nil {
				s.link.leaderless(err)
				return err
			}
			w.take(resp.Events)
		case <-w.relist:
			return errMissed
		}
	}
}

// take hands on events, all those of a revision together.
func (w *watcher) take(events []*clientv3.Event) {
	changes := make([]remote.Change, 0, len(events))
	w.mu.Lock()
	seen := w.revision
	for _, ev := range events {
		if ev.Kv.ModRevision <= seen {
			continue // told again
		}
		w.revision = ev.Kv.ModRevision
		if ev.Type == clientv3.EventTypeDelete {
			delete(w.has, string(ev.Kv.Key))
		} else {
			w.has[string(ev.Kv.Key)] = ev.Kv.ModRevision
		}
		if c, ok := w.change(ev); ok {
			changes = append(changes, c)
		}
	}
	w.mu.Unlock()
	w.batches.Delta(changes...)
}

// change returns what an event says. A key that a foreign value was written to is gone, as
// it is from a List: what the reader has of it is not true any more.
func (w *watcher) change(ev *clientv3.Event) (c remote.Change, ok bool) {
	c.Rev = revOf(ev.Kv.ModRevision)
	if ev.Type != clientv3.EventTypeDelete {
		if e, ok := w.client.readChild(w.dir, w.prefix, ev.Kv); ok {
			c.Key, c.Entry = e.Key, &e
			return c, true
		}
	}
	key, err := child(w.dir, w.prefix, ev.Kv.Key)
	c.Key = key
	return c, err == nil
}
