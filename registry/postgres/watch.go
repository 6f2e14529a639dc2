package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/backend"
)

// watchers are the watchers of a handle. Each asks the store for changes when it is woken: by a notification, which is a hint, or by a poll, so
// that a lost notification delays a change and hides none.
type watchers struct {
	mu        sync.Mutex
	all       map[*watcher]struct{}
	listening *conn // the connection that receives notifications; nil without one
}

// watcher follows a directory.
type watcher struct {
	client *Client
	dir    registry.Key
	wake   chan struct{} // one slot: there may be changes
	failed bool          // the last request was not answered
}

// Watch implements registry.Registry. It fails if no server can be reached.
func (c *Client) Watch(ctx context.Context, dir registry.Key, _ registry.WatchOptions) (registry.Watcher, error) {
	w := &watcher{client: c, dir: dir, wake: make(chan struct{}, 1)}
	c.watchers.add(w)
	source := backend.Source{
		List:    func(ctx context.Context) ([]registry.Entry, registry.Rev, error) { return c.listDir(ctx, dir) },
		Changes: w.awaitChanges,
		Close:   func() { c.watchers.remove(w) },
	}
	watched, err := c.handle.Watch(ctx, dir, source)
	if err != nil {
		c.watchers.remove(w)
		return nil, err
	}
	return watched, nil
}

// awaitChanges waits until it is woken, and returns the changes after a Rev.
func (w *watcher) awaitChanges(ctx context.Context, after registry.Rev) ([]backend.Change, registry.Rev, error) {
	if !w.failed {
		select {
		case <-w.wake:
		case <-ctx.Done():
			return nil, after, ctx.Err()
		}
	}
	a, err := w.client.changes.ask(ctx, changesSince{w.dir, after}, 0)
	w.failed = err != nil
	switch {
	case err != nil:
		return nil, after, err
	case a.missed:
		return nil, after, fmt.Errorf("%w: the log lacks commits after %d", backend.ErrMissed, after.Seq)
	}
	return a.changes, a.reached, nil
}

func (s *watchers) add(w *watcher) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = make(map[*watcher]struct{})
	}
	s.all[w] = struct{}{}
}

func (s *watchers) remove(w *watcher) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, w)
}

// wakeDirs wakes the watchers of the directories in a notification: each after a slash, or * for all.
func (s *watchers) wakeDirs(payload string) {
	dirs := map[registry.Key]bool{}
	for d := range strings.SplitSeq(payload, " ") {
		dirs[registry.Key(strings.TrimPrefix(d, "/"))] = true
	}
	s.wakeIf(func(dir registry.Key) bool { return dirs[dir] || payload == "*" })
}

func (s *watchers) wakeIf(chosen func(dir registry.Key) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.all {
		if chosen(w.dir) {
			select {
			case w.wake <- struct{}{}:
			default: // it is awake
			}
		}
	}
}

func (s *watchers) wakeAll() { s.wakeIf(func(registry.Key) bool { return true }) }

// changesSince asks for the changes of a directory.
type changesSince struct {
	dir   registry.Key
	after registry.Rev
}

type changesAnswer struct {
	changes []backend.Change
	reached registry.Rev
	missed  bool
}

// batchWatches bounds the directories in one request for changes.
const batchWatches = 256

// readChanges returns the changes of directories, of one snapshot.
func (c *Client) readChanges(asked []changesSince) ([]changesAnswer, error) {
	ctx, cancel := context.WithTimeout(c.handle.Context(), c.options.CallTimeout)
	defer cancel()
	dirs, afters := textList(), list{oid: oidInt8List, element: oidInt8}
	for _, a := range asked {
		dirs.add([]byte(a.dir))
		afters.addInt8(a.after.Seq)
	}
	rows, err := c.call(ctx, c.reads, statement{
		"SELECT place, seq, name, value, created, modified, owner, txn FROM " + c.options.Schema + ".changes($1, $2)",
		[]param{dirs.param(), afters.param()},
	})
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, errors.New("an incomplete answer")
	}
	return toChanges(asked, rows)
}

// toChanges returns the answers that rows contain. The first one has the number of the last commit.
func toChanges(asked []changesSince, rows []row) ([]changesAnswer, error) {
	answers := make([]changesAnswer, len(asked))
	for i := range answers {
		answers[i].reached = revOf(rows[0].int8(1))
	}
	for _, r := range rows[1:] {
		i := r.int4(0) - 1
		if i < 0 || i >= len(answers) {
			return nil, errors.New("an answer about a directory that was not asked for")
		}
		if r[2] == nil {
			answers[i].missed = true
			continue
		}
		change := backend.Change{Key: asked[i].dir.Join(r.text(2)), Rev: revOf(r.int8(1))}
		if r[3] != nil { // else it was deleted
			e, err := toEntry(change.Key, r, 3)
			if err != nil {
				return nil, err
			}
			change.Rev, change.Entry = e.Modified, &e
		}
		answers[i].changes = append(answers[i].changes, change)
	}
	return answers, nil
}
