package etcd

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/stats"
)

// silentFor is how long calls are unanswered, and nothing else is heard, until a member is
// doubted.
const silentFor = time.Second

var errSilent = errors.New("it does not answer")

// A link listens to what is sent and heard on it, as a stats.Handler.

func (l *link) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

func (l *link) HandleRPC(ctx context.Context, s stats.RPCStats) {
	switch s.(type) {
	case *stats.OutHeader:
		if d, ok := ctx.Value(deliveryKey{}).(*delivery); ok {
			d.begun.Store(true)
		}
	case *stats.InHeader, *stats.InPayload, *stats.InTrailer:
		l.hear()
	}
}

func (l *link) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

func (l *link) HandleConn(context.Context, stats.ConnStats) {}

func (l *link) hear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heard, l.asked = time.Now(), time.Time{}
	if l.tell != nil {
		l.tell()
	}
}

// whenHeard has f called when something is heard. It reports false if nothing is missed any
// more.
func (l *link) whenHeard(f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tell = f
	return !l.asked.IsZero()
}

// doubt is for a call that was made then and got no answer. Calls that were given up sooner
// than after patience count together.
func (l *link) doubt(made time.Time, patience time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.heard.Before(made) {
		return
	}
	if l.asked.IsZero() {
		l.asked = made
	}
	if time.Since(l.asked) < patience {
		return
	}
	select {
	case l.doubted <- struct{}{}:
	default: // it is about to be asked
	}
}

// begin is for a call that is made now, and has the link doubted if it is not answered
// within patience. over has to be called with what came of it, translated.
func (l *link) begin(patience time.Duration) (over func(err error)) {
	made := time.Now()
	timer := time.AfterFunc(patience, func() { l.doubt(made, patience) })
	return func(err error) {
		timer.Stop()
		l.leaderless(err)
		if err != nil && !served(err) { // it was given up
			l.doubt(made, patience)
		}
	}
}

// leaderless leaves the link if err is that of a member without a leader. If there is no
// other, one is waited for here.
func (l *link) leaderless(err error) {
	if l.others && errors.Is(err, rpctypes.ErrNoLeader) {
		l.leave(err)
	}
}

// delivery is the knowledge whether a request may have left this process. While not even
// its headers have been handed to a connection, the server cannot have heard of it.
type delivery struct{ begun atomic.Bool }

type deliveryKey struct{}

// withDelivery returns a context for one call, and what becomes known of it.
func withDelivery(ctx context.Context) (context.Context, *delivery) {
	d := &delivery{}
	return context.WithValue(ctx, deliveryKey{}, d), d
}
