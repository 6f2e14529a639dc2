package faults

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/backend"
)

// CallTimeout is how long a call waits for the end of a cut, and for a delayed transaction, if its
// context allows more.
const CallTimeout = 3 * time.Second

// ErrInjected is wrapped by every error that a fault causes, along with the error of package
// registry.
var ErrInjected = errors.New("injected fault")

var (
	errLostRequest = fmt.Errorf("%w: the request was lost", ErrInjected)
	errLostReply   = fmt.Errorf("%w: the reply was lost", ErrInjected)
	errHeld        = fmt.Errorf("%w: the transaction is held", ErrInjected)
	errCut         = fmt.Errorf("%w: the connection was cut", ErrInjected)
)

// Wrap returns a handle that makes its calls on reg, under the faults of the client of that
// name. Handles of one name are independent of each other, but a rule counts their calls together.
//
// reg must not be used otherwise. Closing the returned handle closes reg. During a cut, Close waits
// for its end as other calls do, returns ErrUnavailable if it continues, and closes reg with an
// ended context. The handle implements registry.Clock, and registry.Completer without faults.
func (in *Injector) Wrap(client string, reg registry.Registry) registry.Registry {
	return &handle{
		in: in, name: client, inner: reg,
		base:     backend.NewHandle(backend.Config{CallTimeout: CallTimeout}),
		sessions: make(map[*session]struct{}),
	}
}

// handle is a wrapped registry.
type handle struct {
	in    *Injector
	name  string // of the client
	inner registry.Registry
	base  *backend.Handle // bounds waits, and ends them and the goroutines
	view  view

	mu       sync.Mutex
	sessions map[*session]struct{} // those opened; ended ones are removed by the next OpenSession
}

var (
	_ registry.Registry  = (*handle)(nil)
	_ registry.Clock     = (*handle)(nil)
	_ registry.Completer = (*handle)(nil)
)

// Limits is described in registry.Registry.
func (h *handle) Limits() registry.Limits { return h.inner.Limits() }

// Get is described in registry.Registry.
func (h *handle) Get(ctx context.Context, key registry.Key, o registry.ReadOptions) (registry.Entry, error) {
	if err := registry.CheckKey(key); err != nil {
		return registry.Entry{}, err
	}
	var e registry.Entry
	err := h.repeat(ctx, call{op: Get, key: key, hasKey: true}, func(ctx context.Context, v verdict) (err error) {
		if v.stale != nil && !o.Fresh {
			var ok bool
			if e, err, ok = h.view.get(h, key, o.Buffer); ok {
				v.stale.countStale(h.name)
				return err
			}
		}
		read := h.view.begin(h)
		e, err = h.inner.Get(ctx, key, o)
		h.view.observeGet(h, read, key, o.Fresh, e, err)
		return err
	})
	if err != nil {
		return registry.Entry{}, err
	}
	return e, nil
}

// List is described in registry.Registry.
func (h *handle) List(ctx context.Context, dir registry.Key, o registry.ReadOptions) (registry.Listing, error) {
	if err := registry.CheckDir(dir); err != nil {
		return registry.Listing{}, err
	}
	var l registry.Listing
	err := h.repeat(ctx, call{op: List, key: dir, hasKey: true}, func(ctx context.Context, v verdict) (err error) {
		if v.stale != nil && !o.Fresh {
			var ok bool
			if l, ok = h.view.list(h, dir); ok {
				v.stale.countStale(h.name)
				return nil
			}
		}
		read := h.view.begin(h)
		l, err = h.inner.List(ctx, dir, o)
		h.view.observeList(h, read, dir, o.Fresh, l, err)
		return err
	})
	if err != nil {
		return registry.Listing{}, err
	}
	return l, nil
}

// WrittenAt is described in registry.Clock.
func (h *handle) WrittenAt(ctx context.Context, key registry.Key) (time.Time, error) {
	if err := registry.CheckKey(key); err != nil {
		return time.Time{}, err
	}
	var at time.Time
	err := h.repeat(ctx, call{op: Get, key: key, hasKey: true}, func(ctx context.Context, _ verdict) (err error) {
		at, err = registry.WrittenAt(ctx, h.inner, key)
		h.view.catchUp(h, registry.Rev{})
		return err
	})
	if err != nil {
		return time.Time{}, err
	}
	return at, nil
}

// CompleteRun is described in registry.Completer.
func (h *handle) CompleteRun(ctx context.Context, tx any, end registry.RunEnd) error {
	return registry.CompleteRun(ctx, h.inner, tx, end)
}

// FenceRun is described in registry.Completer.
func (h *handle) FenceRun(ctx context.Context, end registry.RunEnd) (registry.Completion, error) {
	return registry.FenceRun(ctx, h.inner, end)
}

// Watch is described in registry.Registry.
func (h *handle) Watch(ctx context.Context, dir registry.Key, o registry.WatchOptions) (registry.Watcher, error) {
	if err := registry.CheckDir(dir); err != nil {
		return nil, err
	}
	c := call{op: Watch, key: dir, hasKey: true}
	var inner registry.Watcher
	open := func(ctx context.Context, _ verdict) (err error) {
		if inner != nil { // the reply to an earlier attempt was lost
			inner.Close()
		}
		inner, err = h.inner.Watch(ctx, dir, o)
		return err
	}
	if err := h.repeat(ctx, c, open); err != nil {
		if inner != nil {
			inner.Close()
		}
		return nil, err
	}
	return newWatcher(ctx, h, dir, inner), nil
}

// repeat makes a call that may be made more than once: it waits for the end of cuts, and makes the
// call again if a cut has lost the reply.
func (h *handle) repeat(ctx context.Context, c call, send func(context.Context, verdict) error) error {
	if !h.in.isActive() {
		return send(ctx, verdict{})
	}
	// The bound is that of waits here: the inner registry has bounds of its own, so it gets ctx.
	bounded, end, err := h.base.Begin(ctx)
	if err != nil {
		return backend.Unavailable(err)
	}
	defer end()
	c.client = h.name
	v := h.in.decide(&c)
	for {
		if err := h.awaitLink(bounded, c.op, false); err != nil {
			return backend.Unavailable(err)
		}
		if err := sleep(bounded, v.request); err != nil {
			return backend.Unavailable(err)
		}
		if v.loseRequest {
			return backend.Unavailable(errLostRequest)
		}
		err := send(ctx, v)
		if errors.Is(err, registry.ErrClosed) {
			return err
		}
		if v.loseReply {
			return backend.Unavailable(errLostReply)
		}
		if err := sleep(bounded, v.reply); err != nil {
			return backend.Unavailable(err)
		}
		if !h.in.linkOf(h.name, c.op).replies {
			return err
		}
		if err := h.awaitLink(bounded, c.op, true); err != nil {
			return backend.Unavailable(err)
		}
		v = verdict{stale: v.stale}
	}
}

// awaitLink waits until requests of an operation reach the store, and replies the client if
// replies is set.
func (h *handle) awaitLink(ctx context.Context, op Ops, replies bool) error {
	for waiting := false; ; waiting = true {
		l := h.in.linkOf(h.name, op)
		if !l.cut && !(replies && l.replies) {
			return nil
		}
		if !waiting {
			h.in.countCut(l)
		}
		select {
		case <-l.changed:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", errCut, context.Cause(ctx))
		}
	}
}

// sleep waits for d. It returns early, with an error, if ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	if d == 0 || backend.Sleep(ctx, d) {
		return nil
	}
	return fmt.Errorf("%w: delayed by %v: %w", ErrInjected, d, context.Cause(ctx))
}

// Txn is described in registry.Registry.
func (h *handle) Txn(ctx context.Context, t registry.Txn) (registry.Rev, error) {
	if !h.in.isActive() {
		return h.commit(ctx, t)
	}
	if err := registry.CheckTxn(t, h.inner.Limits()); err != nil {
		return registry.Rev{}, err
	}
	bounded, end, err := h.base.Begin(ctx)
	if err != nil {
		return registry.Rev{}, backend.NotApplied(err)
	}
	defer end()
	v := h.in.decide(&call{client: h.name, op: Txn, txn: &t})
	switch {
	case v.hold != nil:
		h.hold(v, t)
		return registry.Rev{}, backend.Unknown(errHeld)
	case v.loseRequest:
		return registry.Rev{}, backend.Unknown(errLostRequest)
	case h.in.linkOf(h.name, Txn).cut:
		return registry.Rev{}, h.cutOff(bounded)
	}
	rev, err := h.commitLate(ctx, bounded, v.request, t)
	switch {
	case errors.Is(err, registry.ErrClosed):
		return rev, err
	case v.loseReply:
		return registry.Rev{}, backend.Unknown(errLostReply)
	}
	if err := sleep(bounded, v.reply); err != nil {
		return registry.Rev{}, backend.Unknown(err)
	}
	if h.in.linkOf(h.name, Txn).replies {
		return registry.Rev{}, h.cutOff(bounded)
	}
	return rev, err
}

// cutOff waits for the end of a cut, and returns the error of a transaction that the cut lost.
func (h *handle) cutOff(ctx context.Context) error {
	if err := h.awaitLink(ctx, Txn, true); err != nil {
		return backend.Unknown(err)
	}
	return backend.Unknown(errCut)
}

// commit makes a Txn of the inner registry.
func (h *handle) commit(ctx context.Context, t registry.Txn) (registry.Rev, error) {
	rev, err := h.inner.Txn(ctx, t)
	if err == nil || errors.Is(err, registry.ErrUnknownOutcome) {
		h.view.catchUp(h, rev) // the handle sees its own writes
	}
	return rev, err
}

// commitLate is commit after a delay. If the caller gives up during the delay, the transaction
// arrives nevertheless: it is on its way.
func (h *handle) commitLate(ctx, bounded context.Context, delay time.Duration, t registry.Txn) (registry.Rev, error) {
	if delay == 0 {
		return h.commit(ctx, t)
	}
	type answer struct {
		rev registry.Rev
		err error
	}
	answers := make(chan answer, 1)
	t = cloneTxn(t)
	started := h.base.Go(func() {
		var a answer
		if err := sleep(h.base.Context(), delay); err != nil {
			a.err = backend.Unknown(err)
		} else if h.in.linkOf(h.name, Txn).cut {
			a.err = backend.Unknown(errCut)
		} else {
			a.rev, a.err = h.commit(h.base.Context(), t)
		}
		answers <- a
	})
	if !started {
		return registry.Rev{}, backend.NotApplied(backend.ErrHandleClosed)
	}
	select {
	case a := <-answers:
		return a.rev, a.err
	case <-bounded.Done():
		return registry.Rev{}, backend.Unknown(fmt.Errorf("%w: delayed by %v: %w", ErrInjected, delay, context.Cause(bounded)))
	}
}

// hold commits t when its Hold ends.
func (h *handle) hold(v verdict, t registry.Txn) {
	t = cloneTxn(t)
	started := h.base.Go(func() {
		defer v.hold.held.Done()
		var late <-chan time.Time
		if v.holdFor > 0 {
			timer := time.NewTimer(v.holdFor)
			defer timer.Stop()
			late = timer.C
		}
		select {
		case <-v.hold.ended:
		case <-late:
		case <-h.base.Context().Done():
			return
		}
		_, _ = h.commit(h.base.Context(), t) // nobody waits for the result
	})
	if !started {
		v.hold.held.Done()
	}
}

// cloneTxn returns a copy of t that shares no memory with it.
func cloneTxn(t registry.Txn) registry.Txn {
	t.ID = t.ID.OrNew()
	t.If, t.Then = slices.Clone(t.If), slices.Clone(t.Then)
	for i := range t.Then {
		t.Then[i].Value = bytes.Clone(t.Then[i].Value)
	}
	return t
}

// Close is described in registry.Registry.
func (h *handle) Close(ctx context.Context) (err error) {
	_ = h.base.Close(ctx, func(ctx context.Context) { err = h.closeInner(ctx) })
	return err
}

// closeInner closes the sessions and the inner registry.
func (h *handle) closeInner(ctx context.Context) error {
	open := false
	h.mu.Lock()
	for s := range h.sessions { // all: a closed handle adds no session
		open = s.finish() || open
	}
	h.mu.Unlock()
	var unreached error
	if open {
		bounded, cancel := context.WithTimeout(ctx, CallTimeout)
		unreached = h.awaitLink(bounded, CloseSession, false)
		cancel()
	}
	if unreached != nil {
		unreached = fmt.Errorf("close: %w", backend.Unavailable(unreached))
		ended, cancel := context.WithCancel(ctx)
		cancel()
		ctx = ended // most backends then leave the sessions to expire
	}
	return errors.Join(unreached, h.inner.Close(ctx))
}
