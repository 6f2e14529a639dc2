package registry

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// Prefix returns a handle on the keys below dir in reg. Its keys are those of reg without
// the leading "dir/", in entries, conflicts and batches too. The texts of other errors may
// contain the full key. Sessions are those of reg and have the same id in both.
//
// A key must also be valid with "dir/" before it. Limits are those of reg and count full
// keys: a transaction must stay below TxnBytes by len(dir)+1 for each key, else the error
// is ErrTooLarge. If dir is not a valid directory, every call with a key fails with
// ErrInvalidKey.
//
// Close ends the calls, watchers and sessions of the handle, as Registry.Close does, and
// does not close reg. A pending Txn that may have been applied returns an error that wraps
// ErrUnknownOutcome as well as ErrClosed. Closing reg ends the handle too.
func Prefix(reg Registry, dir Key) Registry {
	return &prefixed{reg: reg, dir: dir, calls: make(map[*prefixCall]struct{}), sessions: make(map[Session]struct{})}
}

type prefixed struct {
	reg Registry
	dir Key

	// mu is never held during a call of reg.
	mu       sync.Mutex
	closed   bool
	calls    map[*prefixCall]struct{}
	sessions map[Session]struct{} // those opened; ended ones are removed by the next OpenSession
}

// prefixCall is a pending call of reg, or an open watcher, which Close ends.
type prefixCall struct {
	p       *prefixed
	ctx     context.Context // ends with the caller's, or by Close with the cause ErrClosed
	cancel  context.CancelCauseFunc
	watcher Watcher     // nil for a call
	unhook  func() bool // stops the end of ctx from calling end
}

// begin registers a call; end removes it.
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

// callThrough returns the answer of f, a call of the registry below, or the zero answer and its error.
func callThrough[T any](ctx context.Context, p *prefixed, f func(ctx context.Context) (T, error)) (answer T, err error) {
	c, err := p.begin(ctx)
	if err != nil {
		return answer, err
	}
	defer c.end()
	found, err := f(c.ctx)
	if err != nil {
		return answer, c.closedError(err)
	}
	return found, nil
}

func (c *prefixCall) end() {
	c.p.mu.Lock()
	delete(c.p.calls, c)
	c.p.mu.Unlock()
	c.cancel(nil)
}

// closedError returns the error that Close promises if Close caused err, else err.
func (c *prefixCall) closedError(err error) error {
	if context.Cause(c.ctx) != ErrClosed || !Retryable(err) { // identity: the caller's cause may wrap another ErrClosed
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
	return callThrough(ctx, p, func(ctx context.Context) (Entry, error) {
		e, err := p.reg.Get(ctx, p.addPrefix(key), o)
		if err == nil {
			e.Key = p.trimPrefix(e.Key)
		}
		return e, err
	})
}

func (p *prefixed) List(ctx context.Context, dir Key, o ReadOptions) (Listing, error) {
	if err := CheckDir(dir); err != nil {
		return Listing{}, err
	}
	return callThrough(ctx, p, func(ctx context.Context) (Listing, error) {
		l, err := p.reg.List(ctx, p.addPrefix(dir), o)
		p.trimEntries(l.Entries)
		return l, err
	})
}

func (p *prefixed) Txn(ctx context.Context, t Txn) (Rev, error) {
	if err := CheckTxn(t, p.reg.Limits()); err != nil {
		return Rev{}, err
	}
	return callThrough(ctx, p, func(ctx context.Context) (Rev, error) {
		rev, err := p.reg.Txn(ctx, p.addPrefixToTxn(t))
		if conflict, ok := errors.AsType[*ConflictError](err); ok {
			err = Conflict(t, conflict.Index)
		}
		return rev, err
	})
}

func (p *prefixed) Watch(ctx context.Context, dir Key, o WatchOptions) (Watcher, error) {
	if err := CheckDir(dir); err != nil {
		return nil, err
	}
	c, err := p.begin(ctx)
	if err != nil {
		return nil, err
	}
	w, err := p.reg.Watch(c.ctx, p.addPrefix(dir), o)
	if err != nil {
		err = c.closedError(err)
		c.end()
		return nil, err
	}
	if !c.attachWatcher(w) {
		c.end()
		return nil, errors.Join(p.errClosed(), w.Close())
	}
	return &prefixWatcher{call: c, watcher: w}, nil
}

// attachWatcher keeps c registered until w is closed or the context of w ends. It returns
// false if the handle is closed already.
func (c *prefixCall) attachWatcher(w Watcher) bool {
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	if c.p.closed {
		return false
	}
	c.watcher = w
	c.unhook = context.AfterFunc(c.ctx, c.end)
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
	p.trimEntries(b.Puts)
	for i := range b.Deletes {
		b.Deletes[i] = p.trimPrefix(b.Deletes[i])
	}
	return b, nil
}

func (w *prefixWatcher) Close() error {
	err := w.watcher.Close()
	w.call.unhook()
	w.call.end()
	return err
}

func (p *prefixed) OpenSession(ctx context.Context, o SessionOptions) (Session, error) {
	s, err := callThrough(ctx, p, func(ctx context.Context) (Session, error) { return p.reg.OpenSession(ctx, o) })
	if err == nil && !p.addSession(s) {
		return nil, errors.Join(p.errClosed(), closeSession(ctx, s))
	}
	return s, err
}

// addSession registers s, which Close will close. It returns false if the handle is closed
// already.
func (p *prefixed) addSession(s Session) bool {
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
			c.unhook()
			errs = append(errs, c.watcher.Close())
		}
		c.cancel(ErrClosed)
	}
	for s := range sessions {
		errs = append(errs, s.Close(ctx))
	}
	return errors.Join(errs...)
}

// addPrefix returns the key in reg of a key or directory of p.
func (p *prefixed) addPrefix(key Key) Key { return Join(string(p.dir), string(key)) }

// trimPrefix is the inverse of addPrefix, for keys.
func (p *prefixed) trimPrefix(key Key) Key {
	if p.dir == "" {
		return key
	}
	return key[len(p.dir)+1:]
}

func (p *prefixed) trimEntries(entries []Entry) {
	for i := range entries {
		entries[i].Key = p.trimPrefix(entries[i].Key)
	}
}

func (p *prefixed) addPrefixToTxn(t Txn) Txn {
	w := Txn{ID: t.ID, If: make([]Cond, len(t.If)), Then: make([]Op, len(t.Then))}
	for i, c := range t.If {
		if c.Key != "" { // else it is a condition on a session
			c.Key = p.addPrefix(c.Key)
		}
		w.If[i] = c
	}
	for i, o := range t.Then {
		o.Key = p.addPrefix(o.Key)
		w.Then[i] = o
	}
	return w
}
