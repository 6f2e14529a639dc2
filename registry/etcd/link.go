package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"

	"github.com/rota-dev/rota/registry/backend"
)

// link is a connection to one member, with a gRPC client of its own. A handle uses one link at
// a time, and replaces it when the connection breaks, when the member has no leader, or when
// the member is silent while another one answers. A single client for all members would spread
// the calls over them, and each call to a bad member would fail until TCP or a ping detects it.
type link struct {
	member    int  // index in Options.Endpoints
	hasOthers bool // other endpoints exist
	since     time.Time
	etcd      *clientv3.Client
	kv        pb.KVClient
	lease     pb.LeaseClient
	renewals  renewals
	ctx       context.Context // ends when the link is given up
	leave     context.CancelCauseFunc
	dialing   atomic.Bool
	goTask    func(func()) bool // backend.Handle.Go

	suspected chan struct{} // one slot: the member may be silent, look for another

	mu              sync.Mutex
	lastReceived    time.Time // time of the last received header, message or trailer
	unansweredSince time.Time // start of the first unanswered call since lastReceived
	onReceive       func()    // called after each receipt; may be nil
}

const (
	// dialTimeout bounds one attempt to connect to a member and to get an answer.
	dialTimeout = 2 * time.Second
	// Pings detect a peer that vanished without closing the connection. gRPC does not allow
	// shorter intervals, and etcd disconnects clients that ping more often.
	pingEvery   = 10 * time.Second
	pingTimeout = 3 * time.Second
	// stableAfter is the age at which the loss of a link no longer delays the next attempt.
	stableAfter = time.Second
)

// dialMember connects to a member, logs in if there are credentials, and makes a read to prove
// that the member is usable.
func (c *Client) dialMember(ctx context.Context, member int) (*link, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	l, err := c.connectLink(ctx, member)
	if err == nil {
		if err = c.checkRead(ctx, l); err == nil {
			l.since = time.Now()
			l.dialing.Store(false)
			return l, nil
		}
		l.close()
	}
	return nil, fmt.Errorf("%s: %w", c.endpoint(member), backend.CallError(ctx, c.addTLSHint(member, err)))
}

// addTLSHint adds the likely cause to the error of a client without TLS at a server with TLS,
// which closes the connection without a reason. The reverse needs no hint: package crypto/tls
// names the cause.
func (c *Client) addTLSHint(member int, err error) error {
	tls := c.options.TLS != nil || slices.Contains([]string{"https", "unixs"}, scheme(c.endpoint(member)))
	if tls || !strings.Contains(err.Error(), "error reading server preface") {
		return err
	}
	return fmt.Errorf("%w (the server may require TLS)", err)
}

func (c *Client) connectLink(ctx context.Context, member int) (*link, error) {
	o := &c.options
	l := &link{
		member:    member,
		hasOthers: len(o.Endpoints) > 1,
		goTask:    c.handle.Go,
		suspected: make(chan struct{}, 1),
		renewals:  renewals{held: make(chan struct{}, 1)},
	}
	l.dialing.Store(true)
	own := []grpc.DialOption{
		grpc.WithStatsHandler(l),
		grpc.WithIdleTimeout(0), // the default would close an idle connection
		grpc.WithChainUnaryInterceptor(l.failFastWhileDialing),
	}
	if o.TLS != nil && o.TLS.ServerName != "" {
		own = append(own, grpc.WithAuthority(o.TLS.ServerName)) // the default is the endpoint's name
	}
	l.ctx, l.leave = context.WithCancelCause(c.links.ctx)
	defer context.AfterFunc(ctx, func() { l.leave(context.Cause(ctx)) })() // ctx bounds the dial, not the life of the link
	etcd, err := clientv3.New(clientv3.Config{
		Context:              l.ctx,
		Endpoints:            []string{o.Endpoints[member]},
		TLS:                  o.TLS,
		Username:             o.Username,
		Password:             o.Password,
		DialKeepAliveTime:    pingEvery,
		DialKeepAliveTimeout: pingTimeout,
		// The library retries calls that ended with a context error, even if the context was
		// the server's, so it could send a transaction twice. callWithRetry retries the calls
		// that are idempotent.
		MaxUnaryRetries: 1,
		Logger:          zap.NewNop(), // the default logs to standard error
		DialOptions:     append(own, o.DialOptions...),
	})
	if err != nil {
		l.leave(err)
		return nil, translate(err)
	}
	l.etcd = etcd
	l.kv = pb.NewKVClient(etcd.ActiveConnection())
	l.lease = pb.NewLeaseClient(etcd.ActiveConnection())
	return l, nil
}

// failFastWhileDialing lets calls fail with the connection's error while the link is being
// dialed. Later calls wait for the connection.
func (l *link) failFastWhileDialing(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
	invoker grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	if l.dialing.Load() {
		opts = append(opts, grpc.WaitForReady(false))
	}
	return invoker(ctx, method, req, reply, cc, opts...)
}

// leaveWhenBroken gives the link up when its connection breaks.
func (l *link) leaveWhenBroken() {
	if waitUntilBroken(l.ctx, l.etcd.ActiveConnection()) {
		l.leave(errors.New("connection lost"))
	}
}

// stateConn is the part of grpc.ClientConn that waitUntilBroken needs.
type stateConn interface {
	GetState() connectivity.State
	WaitForStateChange(ctx context.Context, from connectivity.State) bool
}

// waitUntilBroken waits until conn, which has carried an answered call, breaks. It returns
// false if ctx ends first. gRPC uses a connection before it reports the state Ready, so conn
// may at first seem to be connecting.
func waitUntilBroken(ctx context.Context, conn stateConn) bool {
	for healthy := connectivity.Connecting; ; {
		state := conn.GetState()
		if state == connectivity.Ready {
			healthy = connectivity.Ready
		}
		if state != healthy {
			return true
		}
		if !conn.WaitForStateChange(ctx, state) {
			return false
		}
	}
}

// close ends all calls and streams of the link.
func (l *link) close() {
	l.leave(nil)
	_ = l.etcd.Close() // nothing depends on the outcome
}
