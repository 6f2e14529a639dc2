package registry

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
)

// Cache is a replica of the immediate children of a directory, kept by one goroutine. All
// its methods may be called from many goroutines, and none but Close waits.
//
// It shows what the store held a while ago: normally as long ago as an event takes to
// arrive, but while the connection is gone there is no bound, and nothing in the Cache
// tells. Within one watch it does not go back in time; where the watch had to be opened
// anew, it is as new as that. So never decide by a Cache alone: make the Entry.Modified
// that was seen a condition of the Txn that acts on it.
type Cache struct {
	cancel context.CancelFunc
	done   chan struct{} // closed when the goroutine has returned

	mu      sync.RWMutex
	entries map[Key]Entry
	rev     Rev
	changed chan struct{} // closed, and replaced, at each change
	err     error
}

// NewCache returns a replica of dir once it has the first Snapshot, which ctx bounds the
// waiting for. The Cache outlives ctx: it is to be ended by Close, and ends by itself as
// Follow does, when the registry is closed or refuses to go on.
func NewCache(ctx context.Context, reg Registry, dir Key) (*Cache, error) {
	life, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	c := &Cache{
		cancel:  func() { cancel(ErrClosed) },
		done:    make(chan struct{}),
		changed: make(chan struct{}),
	}
	first := c.changed
	go c.keep(life, reg, dir)
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

func (c *Cache) keep(ctx context.Context, reg Registry, dir Key) {
	defer close(c.done)
	err := Follow(ctx, reg, dir, func(b Batch) error {
		c.take(b)
		return nil
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
	c.tell()
}

func (c *Cache) take(b Batch) {
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
	c.tell()
}

func (c *Cache) tell() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// Get returns the entry at key, if there is one. Its Value is shared with all readers and
// not to be changed.
func (c *Cache) Get(key Key) (Entry, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	e, ok := c.entries[key]
	return e, ok
}

// Entries returns all entries, sorted by key. The slice is the caller's; the values are
// shared with all readers and not to be changed.
func (c *Cache) Entries() []Entry {
	c.mu.RLock()
	entries := slices.AppendSeq(make([]Entry, 0, len(c.entries)), maps.Values(c.entries))
	c.mu.RUnlock()
	slices.SortFunc(entries, func(a, b Entry) int { return cmp.Compare(a.Key, b.Key) })
	return entries
}

// Len returns how many entries there are.
func (c *Cache) Len() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return len(c.entries)
}

// Rev returns the Rev of the last batch that was taken in: no entry is newer.
func (c *Cache) Rev() Rev {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.rev
}

// Changed returns a channel that is closed at the next change, and when the Cache ends. Call
// it before reading, to miss none. Changes that come close together may close it once, and
// a Snapshot closes it also if it brings nothing new.
func (c *Cache) Changed() <-chan struct{} {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.changed
}

// Err is nil while the Cache is kept, then why it no longer is, as told by Follow:
// ErrClosed after Close. What it held at its end can still be read.
func (c *Cache) Err() error {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.err
}

// Close ends the Cache and returns when its goroutine has. Closing twice is legal.
func (c *Cache) Close() {
	c.cancel()
	<-c.done
}
