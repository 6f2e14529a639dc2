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

	"github.com/rota-dev/rota/internal/remote"
)

// link is a connection to one member, with a client of its own. A handle has one at a time
// and leaves it for the next member when it breaks, when the member has no leader, or when
// it is silent and another member is not: the client library would spread calls over all
// members, and let each fail that came to a bad one, until TCP or a ping finds out.
type link struct {
	member   int  // its place in Options.Endpoints
	others   bool // there are other members to go to
	since    time.Time
	etcd     *clientv3.Client
	kv       pb.KVClient
	lease    pb.LeaseClient
	renewals renewals
	ctx      context.Context // ends when the link is left
	leave    context.CancelCauseFunc
	dialing  atomic.Bool
	spawn    func(func()) bool // of remote.Calls

	doubted chan struct{} // one slot: it is to be asked whether another member is better

	mu    sync.Mutex
	heard time.Time // when anything was heard last
	asked time.Time // when the first call was made since then that was given up
	tell  func()    // is called when something is heard; or nil
}

const (
	// dialTimeout bounds the attempt to get an answer out of a member.
	dialTimeout = 2 * time.Second
	// Pings find a connection whose other end has vanished. gRPC does not make more of
	// them, and etcd shows the door to clients that do.
	pingEvery   = 10 * time.Second
	pingTimeout = 3 * time.Second
	// settled is how long a link has to last for the next one to be tried without a pause.
	settled = time.Second
)

// dial connects to a member, logs in if there are credentials, and makes a read that shows
// whether it is of use.
func (c *Client) dial(ctx context.Context, member int) (*link, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	l, err := c.connect(ctx, member)
	if err == nil {
		if err = c.probe(ctx, l); err == nil {
			l.since = time.Now()
			l.dialing.Store(false)
			return l, nil
		}
		l.close()
	}
	return nil, fmt.Errorf("%s: %w", c.endpoint(member), remote.Ended(ctx, c.hint(member, err)))
}

// hint adds the likely cause to what a client without TLS gets from a server with TLS, which
// hangs up on it. The reverse needs no hint, as package crypto/tls names the cause.
func (c *Client) hint(member int, err error) error {
	tls := c.options.TLS != nil || slices.Contains([]string{"https", "unixs"}, scheme(c.endpoint(member)))
	if tls || !strings.Contains(err.Error(), "error reading server preface") {
		return err
	}
	return fmt.Errorf("%w: does it want TLS?", err)
}

func (c *Client) connect(ctx context.Context, member int) (*link, error) {
	o := &c.options
	l := &link{
		member:   member,
		others:   len(o.Endpoints) > 1,
		spawn:    c.calls.Go,
		doubted:  make(chan struct{}, 1),
		renewals: renewals{turn: make(chan struct{}, 1)},
	}
	l.dialing.Store(true)
	own := []grpc.DialOption{
		grpc.WithStatsHandler(l),
		grpc.WithIdleTimeout(0), // else it would break the connection
		grpc.WithChainUnaryInterceptor(l.hurry),
	}
	if o.TLS != nil && o.TLS.ServerName != "" {
		own = append(own, grpc.WithAuthority(o.TLS.ServerName)) // else the endpoint's name would count
	}
	l.ctx, l.leave = context.WithCancelCause(c.links.ctx)
	defer context.AfterFunc(ctx, func() { l.leave(context.Cause(ctx)) })() // it outlives ctx, but its making does not
	etcd, err := clientv3.New(clientv3.Config{
		Context:              l.ctx,
		Endpoints:            []string{o.Endpoints[member]},
		TLS:                  o.TLS,
		Username:             o.Username,
		Password:             o.Password,
		DialKeepAliveTime:    pingEvery,
		DialKeepAliveTimeout: pingTimeout,
		// The library repeats what was answered by the end of a context, be it the server's:
		// a transaction could be sent twice. What may be repeated, ask repeats.
		MaxUnaryRetries: 1,
		Logger:          zap.NewNop(), // else it would log to the standard error
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

// hurry makes calls fail for lack of a connection, and tell why, while there is none yet.
func (l *link) hurry(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
	invoker grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	if l.dialing.Load() {
		opts = append(opts, grpc.WaitForReady(false))
	}
	return invoker(ctx, method, req, reply, cc, opts...)
}

// watch leaves the link when its connection breaks.
func (l *link) watch() {
	if breaks(l.ctx, l.etcd.ActiveConnection()) {
		l.leave(errors.New("the connection broke"))
	}
}

// connection is what breaks needs of a grpc.ClientConn.
type connection interface {
	GetState() connectivity.State
	WaitForStateChange(ctx context.Context, from connectivity.State) bool
}

// breaks waits until conn, over which a call was answered, breaks. It returns false if ctx
// ends before that. gRPC uses a connection before it reports it as ready, so conn may seem
// to be still connecting at first.
func breaks(ctx context.Context, conn connection) bool {
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
	_ = l.etcd.Close() // there is nobody whom an error could concern
}
