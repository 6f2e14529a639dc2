package etcd

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/backend"
)

// source is a directory as a watcher follows it: a list, then the events after the list's
// revision. All watches of a handle share one gRPC stream. After a change of link, the watch
// resumes after the last received revision.
type source struct {
	client *Client
	dir    registry.Key
	prefix string        // of the stored keys
	relist chan struct{} // one slot: an event was missed
	ctx    context.Context
	cancel context.CancelFunc
	stream *stream // nil if a watch has to be opened

	mu        sync.Mutex
	revision  int64            // the last one received
	revisions map[string]int64 // stored key to revision, as received
	audited   int64            // up to this revision, revisions is known to be complete
}

// Watch implements registry.Registry. It fails if no server can be reached.
func (c *Client) Watch(ctx context.Context, dir registry.Key, _ registry.WatchOptions) (registry.Watcher, error) {
	s := &source{client: c, dir: dir, prefix: c.childrenPrefix(dir), relist: make(chan struct{}, 1)}
	// The caller's context would not do: the client library opens a stream of its own for each
	// set of context values.
	s.ctx, s.cancel = context.WithCancel(clientv3.WithRequireLeader(c.handle.Context()))
	w, err := c.handle.Watch(ctx, dir, backend.Source{List: s.list, Changes: s.receive, Close: s.close})
	if err != nil {
		return nil, err
	}
	return w, nil
}

// addSource makes s one of the sources that the audit compares.
func (c *Client) addSource(s *source) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sources[s] = struct{}{}
	c.startAudit()
}

func (s *source) close() {
	s.endStream()
	s.cancel()
	s.client.mu.Lock()
	defer s.client.mu.Unlock()
	delete(s.client.sources, s)
}

func (s *source) endStream() {
	if s.stream != nil {
		s.stream.end()
		s.stream = nil
	}
}

// list opens a watch and lists the directory, in this order. If the list is older than the watch,
// receive opens another one after the list.
//
// The watch begins in the present because etcd serves a watch that begins in the past from a
// background loop, ten times a second, and in a busy store there is a commit between any two
// requests.
func (s *source) list(ctx context.Context) ([]registry.Entry, registry.Rev, error) {
	s.endStream()
	s.stream, _ = s.openStream(ctx, 0) // on failure the list decides whether there is an error to return
	resp, err := s.client.listDir(ctx, s.dir)
	if err != nil {
		s.endStream()
		return nil, registry.Rev{}, err
	}
	revision := resp.Header.Revision
	if s.stream != nil && revision < s.stream.from { // the list came from a member that lags behind the watch
		s.endStream()
	}
	has := make(map[string]int64, len(resp.Kvs))
	for _, kv := range resp.Kvs {
		has[string(kv.Key)] = kv.ModRevision
	}
	s.mu.Lock()
	s.revision, s.audited, s.revisions = revision, revision, has
	s.mu.Unlock()
	s.client.addSource(s)
	return s.client.decodeChildren(s.dir, s.prefix, resp.Kvs), revOf(revision), nil
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
func (s *source) openStream(ctx context.Context, revision int64) (*stream, error) {
	l, err := s.client.links.waitForLink(ctx)
	if err != nil {
		return nil, err
	}
	sctx, cancel := context.WithCancel(s.ctx)
	left := context.AfterFunc(l.ctx, cancel)
	opened := &stream{link: l, end: func() { left(); cancel() }}
	defer context.AfterFunc(ctx, cancel)()
	over := l.beginCall(silenceTimeout)
	opened.events = l.etcd.Watch(sctx, s.prefix, clientv3.WithPrefix(), clientv3.WithRev(revision), clientv3.WithCreatedNotify())
	resp, ok := <-opened.events
	if err = translate(resp.Err()); !ok {
		err = errClosed
	}
	over(err)
	if err != nil {
		opened.end()
		return nil, err
	}
	opened.from = resp.Header.Revision
	return opened, nil
}

var errClosed = errors.New("the watch was closed")

// receive waits for events after a Rev. It opens a watch if there is none.
func (s *source) receive(ctx context.Context, after registry.Rev) (changes []backend.Change, reached registry.Rev, err error) {
	if s.stream == nil {
		if s.stream, err = s.openStream(ctx, int64(after.Seq)+1); err != nil {
			return nil, after, missedIfCompacted(err)
		}
	}
	select {
	case resp, ok := <-s.stream.events:
		err := errClosed
		if ok {
			err = translate(resp.Err())
		}
		if err != nil {
			s.stream.link.leaveIfNoLeader(err)
			s.endStream()
			return nil, after, missedIfCompacted(err)
		}
		changes, revision := s.recordEvents(resp.Events)
		return changes, revOf(revision), nil
	case <-s.relist:
		s.endStream()
		return nil, after, fmt.Errorf("%w: the server did not send an event", backend.ErrMissed)
	case <-ctx.Done():
		return nil, after, ctx.Err()
	}
}

// missedIfCompacted marks the error of a watch that begins in a past which etcd has forgotten.
func missedIfCompacted(err error) error {
	if errors.Is(err, rpctypes.ErrCompacted) {
		return fmt.Errorf("%w: %w", backend.ErrMissed, err)
	}
	return err
}

// recordEvents records events and returns them as changes, with the last received revision.
func (s *source) recordEvents(events []*clientv3.Event) ([]backend.Change, int64) {
	changes := make([]backend.Change, 0, len(events))
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := s.revision
	for _, ev := range events {
		if ev.Kv.ModRevision <= seen {
			continue // a repetition
		}
		s.revision = ev.Kv.ModRevision
		if ev.Type == clientv3.EventTypeDelete {
			delete(s.revisions, string(ev.Kv.Key))
		} else {
			s.revisions[string(ev.Kv.Key)] = ev.Kv.ModRevision
		}
		if c, ok := s.toChange(ev); ok {
			changes = append(changes, c)
		}
	}
	return changes, s.revision
}

// toChange returns the change that an event describes. A foreign value counts as a deletion, as
// it does in List: the entry that the reader has is outdated.
func (s *source) toChange(ev *clientv3.Event) (c backend.Change, ok bool) {
	c.Rev = revOf(ev.Kv.ModRevision)
	if ev.Type != clientv3.EventTypeDelete {
		if e, ok := s.client.decodeChild(s.dir, s.prefix, ev.Kv); ok {
			c.Key, c.Entry = e.Key, &e
			return c, true
		}
	}
	key, err := childKey(s.dir, s.prefix, ev.Kv.Key)
	c.Key = key
	return c, err == nil
}
