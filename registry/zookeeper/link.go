package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/rota-dev/rota/internal/zkwire"
)

// link is one session of the server and the sequence of connections that carry it; the client
// library calls both a connection. A link is up or down until it is over, which is final.
type link struct {
	config         linkConfig
	ctx            context.Context // bounds dialing; ends when no connection is wanted any more
	stopDialing    context.CancelFunc
	library        *zk.Conn
	libraryDone    chan struct{} // closed when the library's goroutines have returned
	libraryIdle    chan struct{} // closed when the library asks for a member and none is wanted
	libraryClosing chan struct{} // closed when the library's Close has been called
	tasks          sync.WaitGroup

	mu            sync.Mutex
	state         linkState
	changed       chan struct{} // closed and replaced when state or roundErr change
	overClosed    chan struct{} // closed when state becomes linkOver
	roundErr      error         // why the last round over all members failed; nil after a success
	conn          *memberConn   // the current one, or the last
	address       string        // of conn
	granted       zkwire.Grant  // in the last greeting
	authenticated bool          // the library has the credentials
	downSince     time.Time     // when the link was last up; zero if it never was, or is
	ended         bool          // shutDown was called
}

type linkConfig struct {
	members     *members
	timeout     time.Duration // the requested session timeout
	dial        func(ctx context.Context, address string) (net.Conn, error)
	dialTimeout time.Duration
	auth        []credential
	logger      libraryLogger
	// oneConnection: the link is over at its first disconnection. This is required for watches:
	// the library re-registers them on a new connection and thereby misses a node that was
	// created and deleted in between.
	oneConnection bool
	// oneSession: the link is over when the server has ended the session. Otherwise the library
	// begins another session by itself and sends it the requests that were queued for the old
	// one.
	oneSession bool
	// verify checks a connection whose greeting named no zxid, before the link is up: the member may
	// be behind what the handle has observed, or the store may be another one. nil: nothing to check.
	verify       func(conn *zk.Conn, w *memberConn) error
	onWatchEvent func(zk.Event)  // for watch events; must not block
	onState      func(linkState) // called in order, from one goroutine; may be nil
	onMalformed  func(address string, err error)
}

type credential struct {
	scheme string
	data   []byte
}

type linkState int

const (
	linkDown linkState = iota
	linkUp
	linkOver
)

// Reasons why a request was not sent.
var (
	errLinkOver    = errors.New("the connection has been closed for good")
	errExpiredHere = errors.New("the server has ended the session")
)

// notSent wraps the reason why a request was certainly not sent.
type notSent struct{ cause error }

func (e notSent) Error() string { return "not sent: " + e.cause.Error() }
func (e notSent) Unwrap() error { return e.cause }

// newLink returns a link that is inactive until start.
func newLink(c linkConfig) *link {
	l := &link{
		config: c, libraryDone: make(chan struct{}), libraryIdle: make(chan struct{}), libraryClosing: make(chan struct{}),
		changed: make(chan struct{}), overClosed: make(chan struct{}),
	}
	l.ctx, l.stopDialing = context.WithCancel(context.Background())
	return l
}

// start begins to connect. If it was not called, or failed, shutDown is not needed.
func (l *link) start() error {
	c := &l.config
	r := &route{
		members: c.members, ctx: l.ctx, roundFailed: l.noteRoundFailed, maxPause: min(c.timeout/pausesPerTimeout, maxPause),
		idle: sync.OnceFunc(func() { close(l.libraryIdle) }), closing: l.libraryClosing,
	}
	dial := func(_, address string, _ time.Duration) (net.Conn, error) {
		conn, err := l.dialMember(address, r)
		if err != nil {
			r.addError(err)
		}
		return conn, err
	}
	l.mu.Lock() // blocks the library's callbacks until l.library is set
	defer l.mu.Unlock()
	conn, events, err := zk.Connect([]string{"one"}, roundUp(c.timeout),
		zk.WithHostProvider(r), zk.WithDialer(dial), zk.WithEventCallback(l.onEvent),
		zk.WithLogger(c.logger), zk.WithLogInfo(false))
	if err != nil {
		l.stopDialing()
		return err
	}
	l.library = conn
	go func() {
		defer close(l.libraryDone)
		for range events { // closed after all other goroutines have returned
		}
	}()
	if c.onState != nil {
		l.tasks.Go(l.publishStates)
	}
	return nil
}

// roundUp rounds d up to milliseconds, the unit of the protocol.
func roundUp(d time.Duration) time.Duration {
	return (d + time.Millisecond - 1).Truncate(time.Millisecond)
}

// dialMember connects to a member.
func (l *link) dialMember(address string, r *route) (net.Conn, error) {
	bound := min(l.config.dialTimeout, l.config.timeout/3)
	ctx, cancel := context.WithTimeout(l.ctx, bound)
	defer cancel()
	conn, err := l.config.dial(ctx, address)
	if err != nil {
		return nil, err
	}
	w := &memberConn{Conn: conn, greetingTimeout: bound, hideZxids: l.config.oneConnection, forgetZxid: l.isForgotten(), granted: l.setGranted, failed: func(err error) {
		if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
			err = fmt.Errorf("%w; or it refuses more connections of this host (maxClientCnxns, by default 60; a handle has up to 3)", err)
		}
		r.addError(fmt.Errorf("%s does not answer as a ZooKeeper server does: %w", address, err))
	}, malformed: func(err error) { l.config.onMalformed(address, err) }}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended || l.ctx.Err() != nil {
		conn.Close()
		return nil, errLinkOver
	}
	l.conn, l.address = w, address
	return w, nil
}

// isForgotten reports whether the link has been down for so long that its server session is over. A server
// refuses a greeting whose zxid is above its own, and so does each server of a store that was replaced.
// A link of one session never forgets: it ends with its session.
func (l *link) isForgotten() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	timeout := max(l.config.timeout, l.granted.Timeout)
	return l.config.verify != nil && !l.downSince.IsZero() && time.Since(l.downSince) > timeout
}

func (l *link) setGranted(g zkwire.Grant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.granted = g
}

// onEvent is the library's callback. It runs on the library's own goroutines and must not block
// them.
func (l *link) onEvent(e zk.Event) {
	if e.Type != zk.EventSession {
		if l.config.onWatchEvent != nil {
			l.config.onWatchEvent(e)
		}
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch e.State {
	case zk.StateHasSession:
		w := l.conn
		authenticate := len(l.config.auth) > 0 && !l.authenticated
		verify := l.config.verify != nil && !w.namedZxid.Load()
		if authenticate || verify {
			l.goLocked(func() { l.prepare(w, authenticate, verify) })
			return
		}
		l.setState(linkUp)
	case zk.StateExpired:
		w := l.conn
		l.goLocked(func() { w.Close() }) // the library leaves the connection open; with TLS, Close may block
		if l.config.oneSession {
			l.setState(linkOver)
		}
	case zk.StateDisconnected:
		if l.config.oneConnection {
			l.setState(linkOver)
		}
		l.setState(linkDown)
	}
}

// prepare makes the link up when w is authenticated and verified. It passes the credentials to the
// library, which sends them now and on each later connection.
func (l *link) prepare(w *memberConn, authenticate, verify bool) {
	defer time.AfterFunc(l.config.timeout, func() { w.Close() }).Stop() // a leader that was cut off never commits
	if authenticate {
		for _, a := range l.config.auth {
			if err := l.library.AddAuth(a.scheme, a.data); err != nil {
				w.Close()
				return
			}
		}
	}
	if verify {
		if err := l.config.verify(l.library, w); err != nil {
			w.Close()
			return
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.authenticated = l.authenticated || authenticate
	if l.conn == w && l.library.State() == zk.StateHasSession {
		l.setState(linkUp)
	}
}

func (l *link) setState(s linkState) {
	if l.state == s || l.state == linkOver {
		return
	}
	if l.state == linkUp {
		l.downSince = time.Now()
	}
	l.state = s
	switch s {
	case linkUp:
		l.roundErr, l.downSince = nil, time.Time{}
	case linkOver:
		l.stopDialing()
		close(l.overClosed)
	}
	l.notifyChanged()
}

func (l *link) notifyChanged() {
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *link) noteRoundFailed(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.roundErr = err
	l.notifyChanged()
}

// publishStates calls onState after changes of the state. Several changes may be merged into
// one call.
func (l *link) publishStates() {
	last := linkDown
	for {
		l.mu.Lock()
		s, changed := l.state, l.changed
		l.mu.Unlock()
		if s != last {
			last = s
			l.config.onState(s)
		}
		if s == linkOver {
			return
		}
		<-changed
	}
}

// awaitUp waits until the link is up. It returns errLinkOver if the link is over.
func (l *link) awaitUp(ctx context.Context) error {
	for {
		l.mu.Lock()
		s, changed := l.state, l.changed
		l.mu.Unlock()
		switch s {
		case linkUp:
			return nil
		case linkOver:
			return errLinkOver
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return l.withRoundErr(context.Cause(ctx))
		}
	}
}

// awaitFirstUp is awaitUp for a new link. It fails as soon as one round over all members has
// failed.
func (l *link) awaitFirstUp(ctx context.Context) error {
	for {
		l.mu.Lock()
		s, trouble, changed := l.state, l.roundErr, l.changed
		l.mu.Unlock()
		switch {
		case s == linkUp:
			return nil
		case trouble != nil:
			return trouble
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// withRoundErr adds the reason why there is no connection to the end of a call's context.
func (l *link) withRoundErr(cause error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.roundErr == nil {
		return cause
	}
	return fmt.Errorf("%w (%v)", cause, l.roundErr)
}

// isUp reports whether the link is up.
func (l *link) isUp() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state == linkUp
}

func (l *link) isOver() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state == linkOver
}

// awaitDisconnect waits until the library has noticed that the connection of a failed request
// is lost.
func (l *link) awaitDisconnect(ctx context.Context) error {
	l.mu.Lock()
	s, changed := l.state, l.changed
	l.mu.Unlock()
	if s != linkUp {
		return nil
	}
	select {
	case <-changed:
		return nil
	case <-time.After(libraryQueueTime): // the library has noticed it and connected again
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// currentConn returns the current connection of the link, or the last one if it is down.
func (l *link) currentConn() *memberConn {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.conn
}

// lastZxid returns the highest zxid in the replies on the current connection. The next answer
// is at least as new.
func (l *link) lastZxid() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn == nil {
		return 0
	}
	return l.conn.zxid.Load()
}

// memberAddress returns the address of the current member.
func (l *link) memberAddress() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.address
}

func (l *link) lastGrant() zkwire.Grant {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.granted
}

// goLocked runs f in a goroutine that shutDown waits for. l.mu is held.
func (l *link) goLocked(f func()) bool {
	if l.ended {
		return false
	}
	l.tasks.Go(f)
	return true
}

// callOnce waits until the link is up and calls f, which makes one request. Calls of the
// library cannot be canceled: if ctx ends first, f continues until it has its answer or the
// link breaks. The error is of type notSent if f was not called.
//
// When a connection breaks, the library answers all queued requests with an error. A request
// that is queued after that waits for the next connection, which a link that is over never
// makes; callOnce therefore gives up after libraryQueueTime.
func callOnce[T any](ctx context.Context, l *link, f func(*zk.Conn) (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	var none T
	if err := l.awaitUp(ctx); err != nil {
		return none, notSent{causeOr(ctx, err)}
	}
	answers := make(chan answer, 1)
	l.mu.Lock()
	begun := l.goLocked(func() {
		v, err := f(l.library)
		answers <- answer{v, err}
	})
	l.mu.Unlock()
	if !begun {
		return none, notSent{causeOr(ctx, errLinkOver)}
	}
	var never <-chan time.Time
	for isOver := l.overClosed; ; {
		select {
		case a := <-answers:
			switch {
			case errors.Is(a.err, zk.ErrNoServer): // never left the queue
				a.err = notSent{causeOr(ctx, a.err)}
			case a.err != nil && connectionLost(a.err):
				a.err = causeOr(ctx, a.err)
			}
			return a.value, a.err
		case <-isOver:
			isOver, never = nil, time.After(libraryQueueTime) // by then, the library has answered the requests in its queue
		case <-never:
			return none, causeOr(ctx, zk.ErrConnectionClosed)
		case <-ctx.Done():
			return none, context.Cause(ctx)
		}
	}
}

// causeOr returns the cause of ctx's end, or err if ctx has not ended. A link may end because
// its handle is closed, and then the error has to name the handle.
func causeOr(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// hangUp breaks the current connection. The library opens another one if one is wanted.
func (l *link) hangUp() {
	l.mu.Lock()
	w := l.conn
	l.mu.Unlock()
	if w != nil {
		w.Close()
	}
}

// markOver makes the link over: no further connection is made.
func (l *link) markOver() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.setState(linkOver)
}

// shutDown ends the link and waits for its goroutines. With endSession set, and if the link is
// up, it also ends the session at the server and waits for the confirmation until ctx ends.
// confirmed reports whether the server has confirmed it. shutDown may be called again.
func (l *link) shutDown(ctx context.Context, endSession bool) (confirmed bool) {
	l.mu.Lock()
	first, up, w := !l.ended, l.state == linkUp, l.conn
	l.ended = true
	l.stopDialing()
	l.mu.Unlock()
	if first && endSession && up {
		l.tasks.Go(l.library.Close)
		close(l.libraryClosing)
		select {
		case <-l.libraryDone:
		case <-ctx.Done():
		}
	}
	if w != nil {
		w.Close()
	}
	if first && !(endSession && up) {
		// Close the library only when it asks for the next member. Earlier, it would leave its
		// own last request in the queue and wait for the answer.
		select {
		case <-l.libraryIdle:
		case <-l.libraryDone:
		}
		l.tasks.Go(l.library.Close)
		close(l.libraryClosing)
	}
	<-l.libraryDone
	l.markOver()
	l.tasks.Wait()
	return w != nil && w.closed.Load()
}
