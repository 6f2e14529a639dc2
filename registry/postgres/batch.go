package postgres

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// batcher sends questions that wait at the same time as one request. Since commits are made one after the other, each with a flush of the
// server's log, their number per second is that of flushes, unless they are sent together.
type batcher[Q, A any] struct {
	goTask   func(func()) bool
	senders  int // how many requests may be under way
	maxCount int
	maxBytes int
	await    func()                    // waits until send can send: a question that waits meanwhile can be withdrawn
	send     func(qs []Q) ([]A, error) // returns an answer for each question, or one error for all

	mu      sync.Mutex
	waiting []*question[Q, A]
	sending int
}

type question[Q, A any] struct {
	q     Q
	bytes int
	done  chan struct{} // closed when a and err are set
	a     A
	err   error
}

func newBatcher[Q, A any](goTask func(func()) bool, senders, maxCount, maxBytes int, await func(), send func([]Q) ([]A, error)) *batcher[Q, A] {
	return &batcher[Q, A]{goTask: goTask, senders: senders, maxCount: maxCount, maxBytes: maxBytes, await: await, send: send}
}

// ask returns the answer to q, which counts as bytes. If ctx ends before q was given to send, the error wraps errNotSent.
func (b *batcher[Q, A]) ask(ctx context.Context, q Q, bytes int) (a A, err error) {
	w := &question[Q, A]{q: q, bytes: bytes, done: make(chan struct{})}
	b.mu.Lock()
	b.waiting = append(b.waiting, w)
	if b.sending < b.senders && b.goTask(b.sendAll) {
		b.sending++
	}
	orphaned := b.sending == 0 // closed
	b.mu.Unlock()
	if orphaned {
		b.withdraw(w)
		return a, fmt.Errorf("%w: %w", errNotSent, errGone)
	}
	select {
	case <-w.done:
		return w.a, w.err
	case <-ctx.Done():
	}
	if b.withdraw(w) {
		return a, fmt.Errorf("%w: %w", errNotSent, ctx.Err())
	}
	select {
	case <-w.done:
		return w.a, w.err
	default:
		return a, ctx.Err()
	}
}

// withdraw removes a question that was not given to send.
func (b *batcher[Q, A]) withdraw(w *question[Q, A]) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.Index(b.waiting, w)
	if i >= 0 {
		b.waiting = slices.Delete(b.waiting, i, i+1)
	}
	return i >= 0
}

// sendAll is a goroutine that sends waiting questions, until there are none.
func (b *batcher[Q, A]) sendAll() {
	for {
		b.await()
		batch := b.next()
		if len(batch) == 0 {
			return
		}
		qs := make([]Q, len(batch))
		for i, w := range batch {
			qs[i] = w.q
		}
		as, err := b.send(qs)
		for i, w := range batch {
			if w.err = err; err == nil {
				w.a = as[i]
			}
			close(w.done)
		}
	}
}

// next removes and returns the next batch. If it is empty, the sender has to end.
func (b *batcher[Q, A]) next() []*question[Q, A] {
	b.mu.Lock()
	defer b.mu.Unlock()
	n, bytes := 0, 0
	for n < len(b.waiting) && n < b.maxCount && (n == 0 || bytes+b.waiting[n].bytes <= b.maxBytes) {
		bytes += b.waiting[n].bytes
		n++
	}
	batch := b.waiting[:n:n]
	b.waiting = slices.Clone(b.waiting[n:])
	if n == 0 {
		b.sending--
	}
	return batch
}
