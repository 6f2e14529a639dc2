package membertest

import (
	"context"
	"sync"
	"time"

	"github.com/rota-dev/rota/registry"
)

// hooked is a registry that calls hooks of a test before and after each transaction.
type hooked struct {
	registry.Registry
	NoClock bool // WrittenAt reports that the store has no clock

	mu     sync.Mutex
	first  func(registry.Txn) error
	second func(registry.Txn)
}

// BeforeTxn sets the hook to call before each transaction.
func (h *hooked) BeforeTxn(f func(registry.Txn)) {
	h.ReplaceTxn(func(t registry.Txn) error {
		f(t)
		return nil
	})
}

// ReplaceTxn sets the hook to call before each transaction. If it fails, the transaction is not
// sent and fails with the hook's error.
func (h *hooked) ReplaceTxn(f func(registry.Txn) error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.first = f
}

// AfterTxn sets the hook to call after each transaction.
func (h *hooked) AfterTxn(f func(registry.Txn)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.second = f
}

// Txn calls the hooks around the transaction.
func (h *hooked) Txn(ctx context.Context, t registry.Txn) (registry.Rev, error) {
	h.mu.Lock()
	first, second := h.first, h.second
	h.mu.Unlock()
	if first != nil {
		if err := first(t); err != nil {
			return registry.Rev{}, err
		}
	}
	rev, err := h.Registry.Txn(ctx, t)
	if second != nil {
		second(t)
	}
	return rev, err
}

// WrittenAt implements the clock of a store.
func (h *hooked) WrittenAt(ctx context.Context, key registry.Key) (time.Time, error) {
	if h.NoClock {
		return time.Time{}, registry.ErrNoClock
	}
	return registry.WrittenAt(ctx, h.Registry, key)
}

// OnFirstWrite returns a hook that calls f at the first write of a key for which is returns true.
func OnFirstWrite(is func(registry.Key) bool, f func()) func(registry.Txn) {
	var once sync.Once
	return func(t registry.Txn) {
		for _, op := range t.Then {
			if is(op.Key) {
				once.Do(f)
			}
		}
	}
}

// IsBelow matches the keys of a directory.
func IsBelow(dir registry.Key) func(registry.Key) bool {
	return func(k registry.Key) bool { return k.Dir() == dir }
}

// IsKey matches one key.
func IsKey(key registry.Key) func(registry.Key) bool {
	return func(k registry.Key) bool { return k == key }
}
