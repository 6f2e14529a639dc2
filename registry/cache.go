package registry

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
)

// Cache is a replica of the immediate children of a directory, updated by one goroutine.
// All its methods may be called from many goroutines, and only Close waits.
//
// A Cache lags behind the store, and does not report how far: normally by the time that an
// event takes to arrive, but without bound while the connection is down. Within one watch it
// never goes back in time; after a watch was reopened it may. So never decide by a Cache
// alone: make the observed Entry.Modified a condition of the Txn that acts on it.
type Cache struct {
	cancel context.CancelFunc
	done   chan struct{} // closed when the goroutine has returned

	mu      sync.RWMutex
	entries map[Key]Entry
	rev     Rev
	changed chan struct{} // closed, and replaced, at each change
	err     error
}

// NewCache waits for the first Snapshot of dir, at most until ctx ends, and returns the
// replica. The Cache outlives ctx: call Close to end it. It also ends by itself when Follow
// would return, since the registry was closed or refuses the watch.
func NewCache(ctx context.Context, reg Registry, dir Key) (*Cache, error) {
	life, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	c := &Cache{
		cancel:  func() { cancel(ErrClosed) },
		done:    make(chan struct{}),
		changed: make(chan struct{}),
	}
	first := c.changed
	go c.follow(life, reg, dir)
	select {
	case <-first:
		if err := c.Err(); err != nil {
			c.Close()
			return nil, fmt.Errorf("cache %s: %w", dir, err)
		}
		return c, nil
	case <-ctx.Done():
		c.Close()
		return nil, fmt.Errorf("cache %s: %w: %w", dir, ErrUnavailable, context.Cause(ctx))
	}
}

func (c *Cache) follow(ctx context.Context, reg Registry, dir Key) {
	defer close(c.done)
	err := Follow(ctx, reg, dir, func(b Batch) error {
		c.apply(b)
		return nil
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
	c.notify()
}

func (c *Cache) apply(b Batch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if b.Kind == Snapshot {
		c.entries = make(map[Key]Entry, len(b.Puts))
	}
	for _, e := range b.Puts {
		c.entries[e.Key] = e
	}
	for _, key := range b.Deletes {
		delete(c.entries, key)
	}
	c.rev = b.Rev
	c.notify()
}

// notify wakes the receivers of Changed. c.mu is held.
func (c *Cache) notify() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// Get returns the entry at key, if there is one. All readers share its Value and must not
// change it.
func (c *Cache) Get(key Key) (Entry, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	e, ok := c.entries[key]
	return e, ok
}

// Entries returns all entries, sorted by key. The slice is the caller's; all readers share
// the values and must not change them.
func (c *Cache) Entries() []Entry {
	c.mu.RLock()
	entries := slices.AppendSeq(make([]Entry, 0, len(c.entries)), maps.Values(c.entries))
	c.mu.RUnlock()
	slices.SortFunc(entries, func(a, b Entry) int { return cmp.Compare(a.Key, b.Key) })
	return entries
}

// Len returns the number of entries.
func (c *Cache) Len() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return len(c.entries)
}

// Rev returns the Rev of the last batch that was applied: no entry is newer.
func (c *Cache) Rev() Rev {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.rev
}

// Changed returns a channel that is closed at the next change, and when the Cache ends. Call
// it before reading, so as to miss no change. Several changes in quick succession may close
// it once. A Snapshot closes it even if it contains no change.
func (c *Cache) Changed() <-chan struct{} {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.changed
}

// Err returns nil while the Cache is updated, then the error of Follow that ended it:
// ErrClosed after Close. The entries of its last state can still be read.
func (c *Cache) Err() error {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.err
}

// Close ends the Cache and waits for its goroutine. Closing twice is legal.
func (c *Cache) Close() {
	c.cancel()
	<-c.done
}
