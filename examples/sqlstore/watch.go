package sqlstore

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/backend"
)

// pollEvery is the interval at which a handle with watchers asks for new commits, once for all of them.
const pollEvery = 20 * time.Millisecond

// watched are the directories whose watchers wait for a commit.
type watched struct {
	begin   sync.Once
	reached int64 // the last commit that poll has seen
	mu      sync.Mutex
	waiting map[registry.Key]chan struct{} // closed at a commit
}

// next returns a channel that is closed after the next commit in a directory, and perhaps without one.
func (w *watched) next(dir registry.Key) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waiting == nil {
		w.waiting = make(map[registry.Key]chan struct{})
	}
	if w.waiting[dir] == nil {
		w.waiting[dir] = make(chan struct{})
	}
	return w.waiting[dir]
}

// wake wakes the watchers of some directories.
func (w *watched) wake(chosen func(dir registry.Key) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for dir, c := range w.waiting {
		if chosen(dir) {
			close(c)
			delete(w.waiting, dir)
		}
	}
}

// Watch implements registry.Registry.
func (c *Client) Watch(ctx context.Context, dir registry.Key, _ registry.WatchOptions) (registry.Watcher, error) {
	c.watched.begin.Do(func() { c.handle.Go(c.poll) })
	w, err := c.handle.Watch(ctx, dir, backend.Source{
		List: func(ctx context.Context) ([]registry.Entry, registry.Rev, error) { return c.children(ctx, dir) },
		Changes: func(ctx context.Context, after registry.Rev) ([]backend.Change, registry.Rev, error) {
			next := c.watched.next(dir) // before the query, so that no commit is between the two
			changes, reached, err := c.changes(ctx, dir, after)
			if err != nil || len(changes) > 0 {
				return changes, reached, err
			}
			select {
			case <-next:
			case <-ctx.Done():
			}
			return nil, reached, ctx.Err()
		},
	})
	if err != nil {
		return nil, err
	}
	return w, nil
}

// changes returns the changes of a directory after a commit: the last one of each name, with the entry that it left.
func (c *Client) changes(ctx context.Context, dir registry.Key, after registry.Rev) (changes []backend.Change, reached registry.Rev, err error) {
	err = c.handle.Call(ctx, func(ctx context.Context) error {
		rows, err := c.query(ctx, `
			SELECT l.first, l.last, d.name, d.seq, k.value, k.created, k.modified, k.owner
			FROM (SELECT min(seq) AS first, max(seq) AS last FROM log) l
				LEFT JOIN (SELECT name, max(seq) AS seq FROM log WHERE dir = $1 AND seq > $2 GROUP BY name) d ON true
				LEFT JOIN kv k ON k.dir = $1 AND k.name = d.name
			ORDER BY d.seq`, dir, int64(after.Seq))
		if err != nil {
			return translate(err)
		}
		reached = revOf(rows[0].last)
		if after.Seq+1 < uint64(rows[0].first) || after.Seq > reached.Seq { // deleted from the log, or of another history
			return fmt.Errorf("%w: the log has the commits %d to %d", backend.ErrMissed, rows[0].first, rows[0].last)
		}
		for _, r := range rows {
			if !r.name.Valid {
				continue // nothing has changed
			}
			change := backend.Change{Key: dir.Join(r.name.String), Rev: revOf(r.seq.Int64)}
			if e, err := r.entry(change.Key); err == nil { // else it was deleted, or is foreign
				change.Entry = &e
			}
			changes = append(changes, change)
		}
		return nil
	})
	return changes, reached, err
}

// poll wakes watchers until the handle is closed.
func (c *Client) poll() {
	w := &c.watched
	for backend.Sleep(c.handle.Context(), pollEvery) {
		dirs, last := map[registry.Key]bool{}, int64(0)
		all := true // the log lacks the last commit that was seen: commits after it may be missing
		err := c.handle.Call(c.handle.Context(), func(ctx context.Context) error {
			rows, err := c.calls.QueryContext(ctx, "SELECT dir, min(seq), max(seq) FROM log WHERE seq >= $1 GROUP BY dir", w.reached)
			if err != nil {
				return err
			}
			defer rows.Close()
			for rows.Next() {
				var dir registry.Key
				var low, high int64
				if err := rows.Scan(&dir, &low, &high); err != nil {
					return err
				}
				dirs[dir] = high > w.reached
				all = all && low != w.reached
				last = max(last, high)
			}
			return rows.Err()
		})
		if err != nil {
			last = 0 // the next answer wakes all
		} else {
			w.wake(func(dir registry.Key) bool { return all || dirs[dir] })
		}
		w.reached = last
	}
}
