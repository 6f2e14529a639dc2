package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/rota-dev/rota/internal/zkwire"
)

// link is a session of the server's and the connections that carry it, one after another.
// The library calls both a connection. A link goes up and down until it is over, for good.
type link struct {
	c     linkConfig
	ctx   context.Context // of dialing; ends when no connection is wanted any more
	quit  context.CancelFunc
	conn  *zk.Conn
	gone  chan struct{} // closed when the library's goroutines have ended
	idle  chan struct{} // closed when the library only waits to be told to end
	told  chan struct{} // closed when it is
	tasks sync.WaitGroup

	mu      sync.Mutex
	state   linkState
	changed chan struct{} // closed, and replaced, when state or trouble change
	isOver  chan struct{} // closed when state is linkOver
	trouble error         // why the last round over all members failed; nil since it is up
	wire    *wire         // the current one, or the last
	address string        // of wire
	granted zkwire.Grant  // at the last greeting
	authed  bool          // the library knows the credentials
	ended   bool          // end was called
}

type linkConfig struct {
	hosts       *hosts
	timeout     time.Duration // asked for
	dial        func(ctx context.Context, address string) (net.Conn, error)
	dialTimeout time.Duration
	auth        []credential
	logger      printf
	// once: it is over at the first disconnection, and may have watches. A library that
	// connects again takes up old watches in a way that misses what came and went.
	once bool
	// bound: it is over when the server has ended the session. The library begins another
	// one then, by itself, and sends what was queued for the old one.
	bound bool
	event func(zk.Event)  // of watches. It must not block
	state func(linkState) // called in order, from one goroutine; may be nil
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

// Why a request was not sent.
var (
	errLinkOver    = errors.New("the connection was given up")
	errExpiredHere = errors.New("the server has ended the session")
)

// notSent wraps why a request was certainly not sent.
type notSent struct{ cause error }

func (e notSent) Error() string { return "not sent: " + e.cause.Error() }
func (e notSent) Unwrap() error { return e.cause }

// newLink returns a link that does nothing before start.
func newLink(c linkConfig) *link {
	l := &link{
		c: c, gone: make(chan struct{}), idle: make(chan struct{}), told: make(chan struct{}),
		changed: make(chan struct{}), isOver: make(chan struct{}),
	}
	l.ctx, l.quit = context.WithCancel(context.Background())
	return l
}

// start begins to connect. Without it, or if it fails, there is nothing to end.
func (l *link) start() error {
	c := &l.c
	r := &route{
		hosts: c.hosts, ctx: l.ctx, over: l.roundFailed, most: min(c.timeout/pausesIn, mostPause),
		idle: sync.OnceFunc(func() { close(l.idle) }), quit: l.told,
	}
	dial := func(_, address string, _ time.Duration) (net.Conn, error) {
		conn, err := l.dial(address, r)
		if err != nil {
			r.failed(err)
		}
		return conn, err
	}
	l.mu.Lock() // keeps the library's goroutines waiting until it is known
	defer l.mu.Unlock()
	conn, events, err := zk.Connect([]string{"one"}, roundUp(c.timeout),
		zk.WithHostProvider(r), zk.WithDialer(dial), zk.WithEventCallback(l.hear),
		zk.WithLogger(c.logger), zk.WithLogInfo(false))
	if err != nil {
		l.quit()
		return err
	}
	l.conn = conn
	go func() {
		defer close(l.gone)
		for range events { // closed when all else has ended
		}
	}()
	if c.state != nil {
		l.tasks.Go(l.tell)
	}
	return nil
}

// roundUp makes whole milliseconds of d, in which the protocol counts.
func roundUp(d time.Duration) time.Duration {
	return (d + time.Millisecond - 1).Truncate(time.Millisecond)
}

// dial connects to a member.
func (l *link) dial(address string, r *route) (net.Conn, error) {
	bound := min(l.c.dialTimeout, l.c.timeout/3)
	ctx, cancel := context.WithTimeout(l.ctx, bound)
	defer cancel()
	conn, err := l.c.dial(ctx, address)
	if err != nil {
		return nil, err
	}
	w := &wire{Conn: conn, bound: bound, veiled: l.c.once, granted: l.greet, failed: func(err error) {
		r.failed(fmt.Errorf("%s does not answer as a ZooKeeper server does: %w", address, err))
	}}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended || l.ctx.Err() != nil {
		conn.Close()
		return nil, errLinkOver
	}
	l.wire, l.address = w, address
	return w, nil
}

func (l *link) greet(g zkwire.Grant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.granted = g
}

// hear is the library's callback: it runs on the goroutines that it would hold up.
func (l *link) hear(e zk.Event) {
	if e.Type != zk.EventSession {
		if l.c.event != nil {
			l.c.event(e)
		}
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch e.State {
	case zk.StateHasSession:
		if len(l.c.auth) > 0 && !l.authed {
			l.goLocked(l.authenticate)
			return
		}
		l.become(linkUp)
	case zk.StateExpired:
		w := l.wire
		l.goLocked(func() { w.Close() }) // the library forgets to; TLS may take its time over it
		if l.c.bound {
			l.become(linkOver)
		}
	case zk.StateDisconnected:
		if l.c.once {
			l.become(linkOver)
		}
		l.become(linkDown)
	}
}

// authenticate gives the library the credentials, which it sends now and then by itself
// whenever it connects again.
func (l *link) authenticate() {
	for _, a := range l.c.auth {
		if err := l.conn.AddAuth(a.scheme, a.data); err != nil {
			l.hangUp()
			return
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.authed = true
	if l.conn.State() == zk.StateHasSession {
		l.become(linkUp)
	}
}

func (l *link) become(s linkState) {
	if l.state == s || l.state == linkOver {
		return
	}
	l.state = s
	switch s {
	case linkUp:
		l.trouble = nil
	case linkOver:
		l.quit()
		close(l.isOver)
	}
	l.notify()
}

func (l *link) notify() {
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *link) roundFailed(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.trouble = err
	l.notify()
}

// tell passes on changes of the state, of which some may be merged.
func (l *link) tell() {
	last := linkDown
	for {
		l.mu.Lock()
		s, changed := l.state, l.changed
		l.mu.Unlock()
		if s != last {
			last = s
			l.c.state(s)
		}
		if s == linkOver {
			return
		}
		<-changed
	}
}

// await returns when the link is up. The error of a link that is over is errLinkOver.
func (l *link) await(ctx context.Context) error {
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
			return l.why(context.Cause(ctx))
		}
	}
}

// greeted is await for a link that has not been up yet: it fails when no member could be
// connected to in a whole round.
func (l *link) greeted(ctx context.Context) error {
	for {
		l.mu.Lock()
		s, trouble, changed := l.state, l.trouble, l.changed
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

// why adds to the end of a call's context what kept the call from being made.
func (l *link) why(cause error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.trouble == nil {
		return cause
	}
	return fmt.Errorf("%w (%v)", cause, l.trouble)
}

// up reports whether the link is.
func (l *link) up() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state == linkUp
}

func (l *link) over() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state == linkOver
}

// outlive waits for the library to notice that the connection broke which a request was
// lost with.
func (l *link) outlive(ctx context.Context) error {
	l.mu.Lock()
	s, changed := l.state, l.changed
	l.mu.Unlock()
	if s != linkUp {
		return nil
	}
	select {
	case <-changed:
		return nil
	case <-time.After(endPause): // it did, and made another
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// current returns the connection that carries the link now, or did last.
func (l *link) current() *wire {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.wire
}

// zxid is how far the member's state had come when it last answered: what is asked next
// is answered no older.
func (l *link) zxid() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.wire == nil {
		return 0
	}
	return l.wire.zxid.Load()
}

// at returns the address of the member.
func (l *link) at() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.address
}

func (l *link) grant() zkwire.Grant {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.granted
}

// goLocked runs f in a goroutine that end waits for.
func (l *link) goLocked(f func()) bool {
	if l.ended {
		return false
	}
	l.tasks.Go(f)
	return true
}

// call has f make a request when the link is up. The library's calls cannot be ended: if
// ctx ends first, f goes on until it has its answer, or the link breaks. An error of the
// type notSent says that f was not called.
//
// When a connection breaks, the library answers the requests that it has queued. One that it
// queues after that waits for the next connection, which a link that is over does not make.
func call[T any](ctx context.Context, l *link, f func(*zk.Conn) (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	var none T
	if err := l.await(ctx); err != nil {
		return none, notSent{ended(ctx, err)}
	}
	answers := make(chan answer, 1)
	l.mu.Lock()
	begun := l.goLocked(func() {
		v, err := f(l.conn)
		answers <- answer{v, err}
	})
	l.mu.Unlock()
	if !begun {
		return none, notSent{ended(ctx, errLinkOver)}
	}
	var never <-chan time.Time
	for isOver := l.isOver; ; {
		select {
		case a := <-answers:
			switch {
			case errors.Is(a.err, zk.ErrNoServer): // it was in the queue all the time
				a.err = notSent{ended(ctx, a.err)}
			case a.err != nil && lost(a.err):
				a.err = ended(ctx, a.err)
			}
			return a.value, a.err
		case <-isOver:
			isOver, never = nil, time.After(endPause) // what the library has queued is answered by then
		case <-never:
			return none, ended(ctx, zk.ErrConnectionClosed)
		case <-ctx.Done():
			return none, context.Cause(ctx)
		}
	}
}

// ended returns err, or if ctx has ended, why: a link that ends with its handle is no news
// to one who is told that the handle was closed.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// hangUp breaks the current connection. The library makes another, if that is wanted.
func (l *link) hangUp() {
	l.mu.Lock()
	w := l.wire
	l.mu.Unlock()
	if w != nil {
		w.Close()
	}
}

// refuse makes the link over: there will be no other connection.
func (l *link) refuse() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.become(linkOver)
}

// end ends the link, and reports whether the server has confirmed the end of the session.
// It is told only if that is wanted and the link is up, and waited for until ctx ends. No
// goroutine is left when end returns. It may be called again.
func (l *link) end(ctx context.Context, tell bool) (confirmed bool) {
	l.mu.Lock()
	first, up, w := !l.ended, l.state == linkUp, l.wire
	l.ended = true
	l.quit()
	l.mu.Unlock()
	if first && tell && up {
		l.tasks.Go(l.conn.Close)
		close(l.told)
		select {
		case <-l.gone:
		case <-ctx.Done():
		}
	}
	if w != nil {
		w.Close()
	}
	if first && !(tell && up) {
		// Not before the library asks for the next member: between the two, it would leave
		// its own last request in the queue, and wait for an answer.
		select {
		case <-l.idle:
		case <-l.gone:
		}
		l.tasks.Go(l.conn.Close)
		close(l.told)
	}
	<-l.gone
	l.refuse()
	l.tasks.Wait()
	return w != nil && w.closed.Load()
}
