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

// watcher follows a directory: it lists it, then applies the events after the list's revision.
// It reads events at once and merges them, because they would pile up without bound in the
// client library. All watches of a handle share one gRPC stream.
type watcher struct {
	client         *Client
	dir            registry.Key
	prefix         string // of the stored keys
	batches        *remote.Batches
	relist         chan struct{}   // one slot: an event was missed
	ctx            context.Context // ends with the watcher
	cancel         context.CancelFunc
	releaseContext func() bool // detaches the watcher from the context given to Watch

	mu        sync.Mutex
	revision  int64            // the last one received
	revisions map[string]int64 // stored key to revision, as received
	audited   int64            // up to this revision, revisions is known to be complete
}

// Watch implements registry.Registry. It fails if no server can be reached.
func (c *Client) Watch(ctx context.Context, dir registry.Key, _ registry.WatchOptions) (registry.Watcher, error) {
	if err := registry.CheckDir(dir); err != nil {
		return nil, err
	}
	w := &watcher{
		client:  c,
		dir:     dir,
		prefix:  c.childrenPrefix(dir),
		batches: remote.NewBatches(),
		relist:  make(chan struct{}, 1),
	}
	// The caller's context would not do: the client library opens a stream of its own for each
	// set of context values.
	w.ctx, w.cancel = context.WithCancel(clientv3.WithRequireLeader(c.calls.Context()))
	s, err := w.listAndOpen(ctx)
	if err == nil && !c.addWatcher(w, s) {
		err = remote.ErrHandleClosed
	}
	if err != nil {
		w.cancel()
		return nil, fmt.Errorf("watch %s: %w", dir, remote.Unavailable(err))
	}
	w.releaseContext = context.AfterFunc(ctx, func() {
		w.finish(fmt.Errorf("%w: %w", registry.ErrClosed, context.Cause(ctx)))
	})
	return w, nil
}

// addWatcher starts w. It reports false if Close came first.
func (c *Client) addWatcher(w *watcher, s *stream) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing || !c.calls.Go(func() { w.run(s) }) {
		return false
	}
	c.watchers[w] = struct{}{}
	c.startAudit()
	return true
}

func (c *Client) removeWatcher(w *watcher) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.watchers, w)
}

// Next implements registry.Watcher.
func (w *watcher) Next(ctx context.Context) (registry.Batch, error) {
	b, err := w.batches.Next(ctx)
	if err != nil {
		return registry.Batch{}, fmt.Errorf("watch %s: %w", w.dir, err)
	}
	return b, nil
}

// Close implements registry.Watcher.
func (w *watcher) Close() error {
	w.releaseContext()
	w.finish(registry.ErrClosed)
	return nil
}

// finish ends the watcher, unless it has ended.
func (w *watcher) finish(err error) {
	w.batches.Fail(err)
	w.cancel()
}

// run follows the directory until the watcher ends. After a change of link, the watch resumes
// after the last received revision; it lists again only if an event was missed. s is the result
// of listAndOpen.
func (w *watcher) run(s *stream) {
	defer w.client.removeWatcher(w)
	defer w.finish(registry.ErrClosed) // has no effect if finish was called before
	var pause time.Duration
	for missed := false; remote.Sleep(w.ctx, pause); {
		began := time.Now()
		var err error
		if missed {
			s, err = w.listAndOpen(w.ctx)
		}
		if err == nil {
			err = w.followStream(s)
			s = nil
			missed = errors.Is(err, errMissed) || errors.Is(err, rpctypes.ErrCompacted)
		}
		switch {
		case w.ctx.Err() != nil:
			return
		case missed:
			w.client.log.LogAttrs(w.ctx, slog.LevelInfo, "watch restarted with a full list", slog.String("dir", string(w.dir)), errorAttr(err))
		case errors.Is(err, registry.ErrPermission) || errors.Is(err, registry.ErrUnauthenticated):
			w.finish(err)
			return
		}
		pause = nextBackoff(pause)
		if time.Since(began) > stableAfter {
			pause = 0
		}
	}
}

// listSnapshot publishes the present entries as a Snapshot.
func (w *watcher) listSnapshot(ctx context.Context) error {
	resp, err := w.client.listDir(ctx, w.dir)
	if err != nil {
		return err
	}
	revision := resp.Header.Revision
	has := make(map[string]int64, len(resp.Kvs))
	for _, kv := range resp.Kvs {
		has[string(kv.Key)] = kv.ModRevision
	}
	w.batches.Snapshot(w.client.decodeChildren(w.dir, w.prefix, resp.Kvs), revOf(revision))
	w.mu.Lock()
	defer w.mu.Unlock()
	w.revision, w.audited, w.revisions = revision, revision, has
	return nil
}

// stream is a watch that a server has opened.
type stream struct {
	link   *link
	events clientv3.WatchChan
	from   int64 // the stream carries all commits after this revision
	end    func()
}

// openStream opens a watch at a revision, or with 0 at the server's next revision. It returns
// when the server has confirmed the watch or ctx has ended.
func (w *watcher) openStream(ctx context.Context, revision int64) (*stream, error) {
	l, err := w.client.links.waitForLink(ctx)
	if err != nil {
		return nil, err
	}
	sctx, cancel := context.WithCancel(w.ctx)
	left := context.AfterFunc(l.ctx, cancel)
	s := &stream{link: l, end: func() { left(); cancel() }}
	defer context.AfterFunc(ctx, cancel)()
	over := l.beginCall(silenceTimeout)
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
	// errMissed ends a watch to which the server has not sent an event.
	errMissed = errors.New("the server did not send an event")
)

// listAndOpen opens a watch and publishes a list, in this order. It returns the watch, or nil
// if the caller has to open one after the list.
//
// The watch begins in the present because etcd serves a watch that begins in the past from a
// background loop, ten times a second, and in a busy store there is a commit between any two
// requests.
func (w *watcher) listAndOpen(ctx context.Context) (*stream, error) {
	ctx, end, err := w.client.calls.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	s, _ := w.openStream(ctx, 0) // on failure the list decides whether there is an error to return
	err = w.listSnapshot(ctx)
	if s != nil && (err != nil || w.revision < s.from) { // the list came from a member that lags behind the watch
		s.end()
		s = nil
	}
	return s, err
}

// followStream applies the events after the last received revision until the watch ends. It
// opens a watch if s is nil.
func (w *watcher) followStream(s *stream) (err error) {
	if s == nil {
		if s, err = w.openStream(w.ctx, w.revision+1); err != nil {
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
				s.link.leaveIfNoLeader(err)
				return err
			}
			w.applyEvents(resp.Events)
		case <-w.relist:
			return errMissed
		}
	}
}

// applyEvents publishes events, all events of a revision in one batch.
func (w *watcher) applyEvents(events []*clientv3.Event) {
	changes := make([]remote.Change, 0, len(events))
	w.mu.Lock()
	seen := w.revision
	for _, ev := range events {
		if ev.Kv.ModRevision <= seen {
			continue // a repetition
		}
		w.revision = ev.Kv.ModRevision
		if ev.Type == clientv3.EventTypeDelete {
			delete(w.revisions, string(ev.Kv.Key))
		} else {
			w.revisions[string(ev.Kv.Key)] = ev.Kv.ModRevision
		}
		if c, ok := w.toChange(ev); ok {
			changes = append(changes, c)
		}
	}
	w.mu.Unlock()
	w.batches.Delta(changes...)
}

// toChange returns the change that an event describes. A foreign value counts as a deletion, as
// it does in List: the entry that the reader has is outdated.
func (w *watcher) toChange(ev *clientv3.Event) (c remote.Change, ok bool) {
	c.Rev = revOf(ev.Kv.ModRevision)
	if ev.Type != clientv3.EventTypeDelete {
		if e, ok := w.client.decodeChild(w.dir, w.prefix, ev.Kv); ok {
			c.Key, c.Entry = e.Key, &e
			return c, true
		}
	}
	key, err := childKey(w.dir, w.prefix, ev.Kv.Key)
	c.Key = key
	return c, err == nil
}
