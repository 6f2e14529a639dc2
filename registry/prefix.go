package registry

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// Prefix returns a handle on what is below dir in reg: its keys are those of reg without
// "dir/" before them, in entries, conflicts and batches too. The texts of other errors
// may name the whole key. Sessions are those of reg: they go by the same id in both.
//
// A key has to be valid with dir before it as well. Limits are those of reg, where keys
// count whole: a transaction has to stay below TxnBytes by len(dir)+1 for each key, else
// it is ErrTooLarge. If dir is not a directory, every call on a key is ErrInvalidKey.
//
// Close ends what was opened and is pending through the handle, as Registry.Close does,
// and leaves reg as it is. A pending Txn that may have been applied returns an error that
// wraps ErrUnknownOutcome as well as ErrClosed. Closing reg ends it all, too.
func Prefix(reg Registry, dir Key) Registry {
	return &prefixed{reg: reg, dir: dir, calls: make(map[*prefixCall]struct{}), sessions: make(map[Session]struct{})}
}

type prefixed struct {
	reg Registry
	dir Key

	// mu is never held while anything is waited for.
	mu       sync.Mutex
	closed   bool
	calls    map[*prefixCall]struct{}
	sessions map[Session]struct{} // those that were opened, until it is seen that they ended
}

// prefixCall is a call of reg that Close ends, or a watcher.
type prefixCall struct {
	p       *prefixed
	ctx     context.Context // ends with the caller's, or with ErrClosed as its cause by Close
	cancel  context.CancelCauseFunc
	watcher Watcher     // nil for a call
	forget  func() bool // keeps the end of ctx from taking the watcher off calls
}

// begin registers a call, which is to be ended by end.
func (p *prefixed) begin(ctx context.Context) (*prefixCall, error) {
	c := &prefixCall{p: p}
	c.ctx, c.cancel = context.WithCancelCause(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		c.cancel(nil)
		return nil, p.errClosed()
	}
	p.calls[c] = struct{}{}
	return c, nil
}

func (c *prefixCall) end() {
	c.p.mu.Lock()
	delete(c.p.calls, c)
	c.p.mu.Unlock()
	c.cancel(nil)
}

// failed returns err, or if it is due to Close, what Close promises.
func (c *prefixCall) failed(err error) error {
	if context.Cause(c.ctx) != ErrClosed || !transient(err) { // this very cause
		return err
	}
	for _, known := range []error{ErrUnknownOutcome, ErrNotApplied} {
		if errors.Is(err, known) {
			return fmt.Errorf("%w: %w", known, c.p.errClosed())
		}
	}
	return c.p.errClosed()
}

func (p *prefixed) errClosed() error {
	return fmt.Errorf("%w: the handle on %s", ErrClosed, p.dir)
}

func (p *prefixed) Get(ctx context.Context, key Key, o ReadOptions) (Entry, error) {
	if err := CheckKey(key); err != nil {
		return Entry{}, err
	}
	c, err := p.begin(ctx)
	if err != nil {
		return Entry{}, err
	}
	defer c.end()
	e, err := p.reg.Get(c.ctx, p.whole(key), o)
	if err != nil {
		return Entry{}, c.failed(err)
	}
	e.Key = p.short(e.Key)
	return e, nil
}

func (p *prefixed) List(ctx context.Context, dir Key, o ReadOptions) (Listing, error) {
	if err := CheckDir(dir); err != nil {
		return Listing{}, err
	}
	c, err := p.begin(ctx)
	if err != nil {
		return Listing{}, err
	}
	defer c.end()
	l, err := p.reg.List(c.ctx, p.whole(dir), o)
	if err != nil {
		return Listing{}, c.failed(err)
	}
	p.shorten(l.Entries)
	return l, nil
}

func (p *prefixed) Txn(ctx context.Context, t Txn) (Rev, error) {
	if err := CheckTxn(t, p.reg.Limits()); err != nil {
		return Rev{}, err
	}
	c, err := p.begin(ctx)
	if err != nil {
		return Rev{}, err
	}
	defer c.end()
	rev, err := p.reg.Txn(c.ctx, p.wholeTxn(t))
	var conflict *ConflictError
	switch {
	case err == nil:
		return rev, nil
	case errors.As(err, &conflict):
		return Rev{}, Conflict(t, conflict.Index)
	}
	return Rev{}, c.failed(err)
}

func (p *prefixed) Watch(ctx context.Context, dir Key, o WatchOptions) (Watcher, error) {
	if err := CheckDir(dir); err != nil {
		return nil, err
	}
	c, err := p.begin(ctx)
	if err != nil {
		return nil, err
	}
	w, err := p.reg.Watch(c.ctx, p.whole(dir), o)
	if err != nil {
		err = c.failed(err)
		c.end()
		return nil, err
	}
	if !c.watch(w) {
		c.end()
		return nil, errors.Join(p.errClosed(), w.Close())
	}
	return &prefixWatcher{call: c, watcher: w}, nil
}

// watch makes c the call of a watcher, which stays until the watcher is closed or its
// context ends. It returns false if Close came first.
func (c *prefixCall) watch(w Watcher) bool {
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	if c.p.closed {
		return false
	}
	c.watcher = w
	c.forget = context.AfterFunc(c.ctx, c.end)
	return true
}

type prefixWatcher struct {
	call    *prefixCall
	watcher Watcher
}

func (w *prefixWatcher) Next(ctx context.Context) (Batch, error) {
	b, err := w.watcher.Next(ctx)
	if err != nil {
		return Batch{}, err
	}
	p := w.call.p
	p.shorten(b.Puts)
	for i := range b.Deletes {
		b.Deletes[i] = p.short(b.Deletes[i])
	}
	return b, nil
}

func (w *prefixWatcher) Close() error {
	err := w.watcher.Close()
	w.call.forget()
	w.call.end()
	return err
}

func (p *prefixed) OpenSession(ctx context.Context, o SessionOptions) (Session, error) {
	c, err := p.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer c.end()
	s, err := p.reg.OpenSession(c.ctx, o)
	if err != nil {
		return nil, c.failed(err)
	}
	if !p.own(s) {
		return nil, errors.Join(p.errClosed(), closeSession(ctx, s))
	}
	return s, nil
}

// own has Close close s. It returns false if Close came first.
func (p *prefixed) own(s Session) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	for old := range p.sessions {
		if old.Err() != nil {
			delete(p.sessions, old)
		}
	}
	p.sessions[s] = struct{}{}
	return true
}

func (p *prefixed) Limits() Limits { return p.reg.Limits() }

func (p *prefixed) Close(ctx context.Context) error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	p.closed = true
	calls, sessions := p.calls, p.sessions
	p.calls, p.sessions = nil, nil
	p.mu.Unlock()

	var errs []error
	for c := range calls {
		if c.watcher != nil {
			c.forget()
			errs = append(errs, c.watcher.Close())
		}
		c.cancel(ErrClosed)
	}
	for s := range sessions {
		errs = append(errs, s.Close(ctx))
	}
	return errors.Join(errs...)
}

// whole returns the key in reg of a key or directory of p.
func (p *prefixed) whole(key Key) Key { return Join(string(p.dir), string(key)) }

// short is the inverse of whole, for keys.
func (p *prefixed) short(key Key) Key {
	if p.dir == "" {
		return key
	}
	return key[len(p.dir)+1:]
}

func (p *prefixed) shorten(entries []Entry) {
	for i := range entries {
		entries[i].Key = p.short(entries[i].Key)
	}
}

func (p *prefixed) wholeTxn(t Txn) Txn {
	w := Txn{ID: t.ID, If: make([]Cond, len(t.If)), Then: make([]Op, len(t.Then))}
	for i, c := range t.If {
		if c.Key != "" { // else it is a condition on a session
			c.Key = p.whole(c.Key)
		}
		w.If[i] = c
	}
	for i, o := range t.Then {
		o.Key = p.whole(o.Key)
		w.Then[i] = o
	}
	return w
}
