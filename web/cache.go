package web

import (
	"sync"
	"time"
)

// cache keeps answers of the store for a while, so that many viewers of a page cost no more than one. Concurrent callers share a call.
type cache[V any] struct {
	keep  time.Duration
	times int // an answer is kept at least so many times as long as its call took, so that viewers cost a bounded part of a processor
	most  int // entries

	mu      sync.Mutex
	entries map[string]*entry[V]
}

type entry[V any] struct {
	done  chan struct{} // closed when value and err are set
	until time.Time     // when the value is to be renewed
	value V
	err   error
}

func newCache[V any](keep time.Duration, most int) *cache[V] {
	return &cache[V]{keep: keep, most: most, entries: map[string]*entry[V]{}}
}

// get returns the answer of a key that is kept, or that of call. A failed call is kept too. The value must not be changed.
func (c *cache[V]) get(key string, call func() (V, error)) (V, error) {
	c.mu.Lock()
	e := c.entries[key]
	if e == nil || e.isOld() {
		e = &entry[V]{done: make(chan struct{})}
		c.makeRoom()
		c.entries[key] = e
		c.mu.Unlock()
		defer close(e.done)
		began := time.Now()
		e.value, e.err = call()
		ended := time.Now()
		e.until = ended.Add(max(c.keep, time.Duration(c.times)*ended.Sub(began)))
		return e.value, e.err
	}
	c.mu.Unlock()
	<-e.done // bounded as call is
	return e.value, e.err
}

func (e *entry[V]) isOld() bool {
	select {
	case <-e.done:
		return time.Now().After(e.until)
	default:
		return false
	}
}

// makeRoom removes the entries that no call returns any more, and if that is not enough, all. The mutex is held.
func (c *cache[V]) makeRoom() {
	if len(c.entries) < c.most {
		return
	}
	for key, e := range c.entries {
		if e.isOld() {
			delete(c.entries, key)
		}
	}
	if len(c.entries) >= c.most {
		clear(c.entries)
	}
}

// dropAll has the next get of each key call again. A call in progress may have begun before the change that is the reason.
func (c *cache[V]) dropAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.entries)
}
