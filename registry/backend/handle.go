package backend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/rota-dev/rota/registry"
)

// Config configures a Handle. The zero value is valid.
type Config struct {
	// CallTimeout bounds each call, in addition to the call's context; for a List that asks the store
	// for each key, the time between two answers: see NoteAnswer. 0 means DefaultCallTimeout.
	CallTimeout time.Duration
	// Limits are the sizes that the store accepts. Zero means registry.PortableLimits, so that
	// a transaction that is accepted here is accepted by every backend.
	Limits registry.Limits
	// ReadOnly makes each transaction and each new session fail with registry.ErrReadOnly, before
	// anything is sent. A transaction that only checks conditions is refused too: on some stores it
	// needs the right to write.
	ReadOnly bool
	// Logger receives changes of sessions' states and restarts of watches, at INFO. nil means
	// slog.Default().
	Logger *slog.Logger
}

// DefaultCallTimeout is the bound on a call if Config names none.
const DefaultCallTimeout = 5 * time.Second

// Handle is the part of a registry.Registry that does not depend on the store. Its methods may
// be called from many goroutines.
type Handle struct {
	config Config
	ctx    context.Context // ends with Close
	end    context.CancelCauseFunc
	closed chan struct{} // closed when Close is done

	mu       sync.Mutex
	closing  bool
	calls    map[*call]struct{}
	sessions map[*Session]struct{}
	watchers map[*Watcher]struct{}
	tasks    sync.WaitGroup
}

type call struct {
	cancel context.CancelCauseFunc
	bound  time.Duration
	timer  *time.Timer // ends the call
}

// NewHandle returns a Handle, which must be closed if any of its other methods was called.
func NewHandle(c Config) *Handle {
	c.CallTimeout = cmp.Or(c.CallTimeout, DefaultCallTimeout)
	if c.Limits == (registry.Limits{}) {
		c.Limits = registry.PortableLimits
	}
	c.Logger = cmp.Or(c.Logger, slog.Default())
	h := &Handle{
		config: c, closed: make(chan struct{}), calls: make(map[*call]struct{}),
		sessions: make(map[*Session]struct{}), watchers: make(map[*Watcher]struct{}),
	}
	h.ctx, h.end = context.WithCancelCause(context.Background())
	return h
}

// Limits returns Config.Limits.
func (h *Handle) Limits() registry.Limits { return h.config.Limits }

// Get makes the call registry.Registry.Get: it checks key, calls read with a bounded context,
// and copies the value to o.Buffer if it has room. read returns registry.ErrNotFound if there
// is no such key. If its error wraps none of the registry's errors, the error of Get wraps
// registry.ErrUnavailable.
func (h *Handle) Get(ctx context.Context, key registry.Key, o registry.ReadOptions, read func(ctx context.Context) (registry.Entry, error)) (registry.Entry, error) {
	if err := registry.CheckKey(key); err != nil {
		return registry.Entry{}, err
	}
	var e registry.Entry
	err := h.Call(ctx, func(ctx context.Context) (err error) {
		e, err = read(ctx)
		return err
	})
	if err != nil {
		return registry.Entry{}, fmt.Errorf("get %s: %w", key, err)
	}
	if o.Buffer != nil && cap(o.Buffer) >= len(e.Value) {
		e.Value = append(o.Buffer[:0], e.Value...)
	}
	return e, nil
}

// List makes the call registry.Registry.List: it checks dir and calls list with a bounded
// context. list returns the entries sorted by key. Errors are as those of Get.
func (h *Handle) List(ctx context.Context, dir registry.Key, list func(ctx context.Context) (registry.Listing, error)) (registry.Listing, error) {
	if err := registry.CheckDir(dir); err != nil {
		return registry.Listing{}, err
	}
	var l registry.Listing
	err := h.Call(ctx, func(ctx context.Context) (err error) {
		l, err = list(ctx)
		return err
	})
	if err != nil {
		return registry.Listing{}, fmt.Errorf("list %q: %w", dir, err)
	}
	return l, nil
}

// Txn makes the call registry.Registry.Txn: it checks t against the Limits, gives it an ID if it
// has none, and calls commit once, with a bounded context. commit must not keep the values of t
// after it has returned: the caller may change them. It returns
//
//   - registry.Conflict for the first item that did not hold;
//   - an error that wraps registry.ErrNotApplied, or another error of the registry, if nothing
//     was changed and nothing will be, see NotApplied;
//   - any other error if t may have been applied, or may yet be: the error of Txn then wraps
//     registry.ErrUnknownOutcome.
//
// Once the context has ended, an error that wraps registry.ErrNotApplied or
// registry.ErrUnknownOutcome also wraps its cause.
func (h *Handle) Txn(ctx context.Context, t registry.Txn, commit func(ctx context.Context, t registry.Txn) (registry.Rev, error)) (registry.Rev, error) {
	if err := registry.CheckTxn(t, h.config.Limits); err != nil {
		return registry.Rev{}, err
	}
	if err := h.CheckWritable(); err != nil {
		return registry.Rev{}, fmt.Errorf("commit: %w", err)
	}
	ctx, end, err := h.Begin(ctx)
	if err != nil {
		return registry.Rev{}, fmt.Errorf("commit: %w", definite(err))
	}
	defer end()
	t.ID = t.ID.OrNew()
	rev, err := commit(ctx, t)
	switch {
	case err == nil:
		return rev, nil
	case errors.As(err, new(*registry.ConflictError)):
		return registry.Rev{}, err
	case !IsClassified(err) || isClosedOnly(err): // the cause of ctx wraps ErrClosed, and proves nothing
		err = Unknown(CallError(ctx, err))
	case errors.Is(err, registry.ErrNotApplied) && ctx.Err() != nil && !errors.Is(err, context.Cause(ctx)):
		err = fmt.Errorf("%w (%w)", err, context.Cause(ctx))
	}
	return registry.Rev{}, fmt.Errorf("commit: %w", err)
}

// Call calls f with a context that ends with ctx, after Config.CallTimeout or with Close, for a
// call that is not a transaction. If the error of f wraps none of the registry's errors, the
// error of Call wraps registry.ErrUnavailable and, once the context has ended, its cause.
func (h *Handle) Call(ctx context.Context, f func(ctx context.Context) error) error {
	ctx, end, err := h.Begin(ctx)
	if err != nil {
		return Unavailable(err)
	}
	defer end()
	err = f(ctx)
	switch {
	case err == nil:
		return nil
	case !IsClassified(err):
		err = CallError(ctx, err)
	}
	return Unavailable(err)
}

// Begin registers a call, for those that Call and Txn do not fit. Its context ends with ctx,
// with end, after Config.CallTimeout, see NoteAnswer, or with Close and registry.ErrClosed as the cause. The
// caller must call end. The error is registry.ErrClosed after Close, or the cause of ctx if that
// has ended.
func (h *Handle) Begin(ctx context.Context) (bounded context.Context, end func(), err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closing {
		return nil, nil, ErrHandleClosed
	}
	if ctx.Err() != nil {
		return nil, nil, context.Cause(ctx)
	}
	bound := h.config.CallTimeout
	ctx, cancel := context.WithCancelCause(ctx)
	c := &call{cancel, bound, time.AfterFunc(bound, func() { cancel(noAnswer{bound}) })}
	h.calls[c] = struct{}{}
	return context.WithValue(ctx, callKey{}, c), func() {
		h.mu.Lock()
		delete(h.calls, c)
		h.mu.Unlock()
		c.timer.Stop()
		cancel(nil)
	}, nil
}

// NoteAnswer starts the time of Config.CallTimeout again, for a call that asks the store many times. ctx is of Begin, Call,
// Get, List or Txn.
func NoteAnswer(ctx context.Context) {
	if c, ok := ctx.Value(callKey{}).(*call); ok && ctx.Err() == nil {
		c.timer.Reset(c.bound)
	}
}

// callKey is the key of a *call in the context of a call.
type callKey struct{}

// CheckWritable returns registry.ErrReadOnly if Config.ReadOnly is set. Txn and OpenSession call it.
func (h *Handle) CheckWritable() error {
	if h.config.ReadOnly {
		return registry.ErrReadOnly
	}
	return nil
}

// Context ends when Close is called, with registry.ErrClosed as its cause.
func (h *Handle) Context() context.Context { return h.ctx }

// Go runs f in a goroutine that Close waits for. After Close it returns false instead. f must
// return soon after Context has ended.
func (h *Handle) Go(f func()) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closing {
		return false
	}
	h.tasks.Go(f)
	return true
}

// Close makes the call registry.Registry.Close: it ends pending calls and watchers, closes all
// sessions at the store until ctx ends, calls disconnect, which closes the connections, and
// returns when all goroutines have. disconnect may be nil; it must return soon after ctx has
// ended. A second Close waits for the first and returns nil.
func (h *Handle) Close(ctx context.Context, disconnect func(ctx context.Context)) error {
	h.mu.Lock()
	if h.closing {
		h.mu.Unlock()
		<-h.closed
		return nil
	}
	h.closing = true
	h.end(ErrHandleClosed)
	for c := range h.calls {
		c.cancel(ErrHandleClosed)
	}
	sessions, watchers := slices.Collect(maps.Keys(h.sessions)), slices.Collect(maps.Keys(h.watchers))
	h.mu.Unlock()
	defer close(h.closed)

	for _, w := range watchers {
		w.Fail(ErrHandleClosed)
	}
	err := closeAll(ctx, sessions)
	if disconnect != nil {
		disconnect(ctx)
	}
	h.tasks.Wait()
	if err != nil {
		return fmt.Errorf("close: %w", err)
	}
	return nil
}

func closeAll(ctx context.Context, sessions []*Session) error {
	errs := make([]error, len(sessions))
	var wg sync.WaitGroup
	for i, s := range sessions {
		wg.Go(func() { errs[i] = s.Close(ctx) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// OpenSession makes the call registry.Registry.OpenSession: it calls grant with a bounded
// context and the TTL that o asks for, or registry.DefaultSessionTTL, and begins the session.
// Errors are as those of Call.
func (h *Handle) OpenSession(ctx context.Context, o registry.SessionOptions, grant func(ctx context.Context, ttl time.Duration) (Grant, error)) (*Session, error) {
	ttl := o.TTL
	if ttl <= 0 {
		ttl = registry.DefaultSessionTTL
	}
	if err := h.CheckWritable(); err != nil {
		return nil, fmt.Errorf("open session: %w", err)
	}
	var s *Session
	err := h.Call(ctx, func(ctx context.Context) error {
		sent := Now()
		g, err := grant(ctx, ttl)
		if err != nil {
			return err
		}
		if g.Sent == (Instant{}) {
			g.Sent = sent
		}
		s, err = h.NewSession(g)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open session: %w", err)
	}
	return s, nil
}

// NewSession begins the client's side of a session that the store has granted. The error is
// registry.ErrClosed after Close, in which case the session is left to expire, or
// registry.ErrUnavailable if the session is lost already.
func (h *Handle) NewSession(g Grant) (*Session, error) {
	s := newSession(h, g, Now)
	if !h.addSession(s) {
		return nil, ErrHandleClosed
	}
	if err := s.Err(); err != nil {
		return nil, fmt.Errorf("%w: opening took longer than the TTL (%v)", registry.ErrUnavailable, err)
	}
	return s, nil
}

// addSession starts s. It reports false after Close. No session's lock may be taken here, since
// a session takes the handle's lock while it holds its own.
func (h *Handle) addSession(s *Session) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closing {
		return false
	}
	maps.DeleteFunc(h.sessions, func(old *Session, _ struct{}) bool { return old.isOver() })
	h.sessions[s] = struct{}{}
	h.tasks.Go(s.run)
	return true
}

// Disconnected reports to all sessions that the connection to the store has broken, for a
// backend whose sessions share it. See Session.Disconnected.
func (h *Handle) Disconnected() {
	for _, s := range h.openSessions() {
		s.Disconnected()
	}
}

// Reconnected reports to all sessions that there is a connection again. See
// Session.Reconnected.
func (h *Handle) Reconnected() {
	for _, s := range h.openSessions() {
		s.Reconnected()
	}
}

func (h *Handle) openSessions() []*Session {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Collect(maps.Keys(h.sessions))
}

// noAnswer is the cause of a context that Config.CallTimeout has ended.
type noAnswer struct{ bound time.Duration }

func (e noAnswer) Error() string { return fmt.Sprintf("no answer in %v", e.bound) }

// Is makes it a deadline error, like the end of a caller's own deadline.
func (e noAnswer) Is(target error) bool { return target == context.DeadlineExceeded }
