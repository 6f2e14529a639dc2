package etcd

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/rota-dev/rota/registry/backend"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/stats"
)

// silenceTimeout is the time without any answer after which a member is suspected to be down.
const silenceTimeout = time.Second

var errSilent = errors.New("the member does not answer")

// A link observes its traffic as a gRPC stats.Handler.

func (l *link) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

func (l *link) HandleRPC(ctx context.Context, s stats.RPCStats) {
	switch s.(type) {
	case *stats.OutHeader:
		if d, ok := ctx.Value(deliveryKey{}).(*delivery); ok {
			d.begun.Store(true)
		}
	case *stats.InHeader, *stats.InPayload, *stats.InTrailer:
		l.noteReceived()
	}
}

func (l *link) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

func (l *link) HandleConn(context.Context, stats.ConnStats) {}

func (l *link) noteReceived() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lastReceived, l.unansweredSince = time.Now(), time.Time{}
	if l.onReceive != nil {
		l.onReceive()
	}
}

// setOnReceive sets the function to call after each receipt. It reports whether a call is still
// unanswered.
func (l *link) setOnReceive(f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.onReceive = f
	return !l.unansweredSince.IsZero()
}

// noteUnanswered records that a call made at that time got no answer, and suspects the member
// if nothing has been received for patience. The time adds up over several calls that were given
// up sooner.
func (l *link) noteUnanswered(made time.Time, patience time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.lastReceived.Before(made) {
		return
	}
	if l.unansweredSince.IsZero() {
		l.unansweredSince = made
	}
	if time.Since(l.unansweredSince) < patience {
		return
	}
	backend.Signal(l.suspected)
}

// beginCall starts to observe a call: without an answer within patience the member is
// suspected. The caller passes the call's translated error to over.
func (l *link) beginCall(patience time.Duration) (over func(err error)) {
	made := time.Now()
	timer := time.AfterFunc(patience, func() { l.noteUnanswered(made, patience) })
	return func(err error) {
		timer.Stop()
		l.leaveIfNoLeader(err)
		if err != nil && !answeredByServer(err) { // the call was given up
			l.noteUnanswered(made, patience)
		}
	}
}

// leaveIfNoLeader gives the link up if err shows that the member has no leader. With a single
// endpoint there is no better member, so the link waits for a leader.
func (l *link) leaveIfNoLeader(err error) {
	if l.hasOthers && errors.Is(err, rpctypes.ErrNoLeader) {
		l.leave(err)
	}
}

// delivery records whether a request may have left this process. Until gRPC has handed the
// headers to a connection, the server cannot have received anything.
type delivery struct{ begun atomic.Bool }

type deliveryKey struct{}

// withDelivery returns a context for one call and the delivery record of that call.
func withDelivery(ctx context.Context) (context.Context, *delivery) {
	d := &delivery{}
	return context.WithValue(ctx, deliveryKey{}, d), d
}
