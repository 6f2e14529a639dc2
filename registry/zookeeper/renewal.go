package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/rota-dev/rota/registry"
)

// The figures of a session, as parts of the timeout that was granted.
//
// A follower tells its leader who was heard of only when the leader asks, every half tick;
// the shortest timeout is two ticks. So what the leader knows may be a quarter of a
// timeout old when a follower that has confirmed a renewal is cut off, and the leader
// would end the session three quarters of a timeout after that renewal. Two thirds leave
// room for clocks of different rates.
//
// Renewals that take half a timeout to be answered must not cost the session. They do not
// wait for each other, and are close enough together that one is confirmed in time. Six of
// them go unanswered before the session is suspended; what is left until it is lost is time
// to stop in.
const (
	spanOf     = 2.0 / 3
	patienceOf = 0.5
	intervalOf = 1.0 / 12
)

func part(of float64, d time.Duration) time.Duration { return time.Duration(of * float64(d)) }

// renew asks the leader, by way of the member: a member that was cut off from its leader
// answers all else by itself, for as long as it takes to notice.
func (s *session) renew(ctx context.Context) error {
	if !s.link.up() {
		return notSent{errors.New("disconnected")}
	}
	w := s.link.current()
	_, err := call(ctx, s.link, func(conn *zk.Conn) (string, error) { return conn.Sync(s.path) })
	if errors.Is(err, zk.ErrSessionExpired) || s.gone() {
		return fmt.Errorf("%w: %w", registry.ErrSessionLost, errExpiredHere)
	}
	if err == nil && s.seen.Load() != w {
		s.look(w)
	}
	return err
}

// look looks, on a new connection that carries the session, whether the session's znode is
// still there. A member leaves a connection open that was made while somebody else, who was
// connected to that member too, had the session ended; and what is asked on it is answered,
// Syncs and all. By the first of them the member has heard of that end.
func (s *session) look(w *wire) {
	s.c.calls.Go(func() {
		ctx, cancel := context.WithTimeout(s.c.calls.Context(), s.link.grant().Timeout)
		defer cancel()
		there, err := call(ctx, s.link, func(conn *zk.Conn) (bool, error) {
			there, _, err := conn.Exists(s.path)
			return there, err
		})
		switch {
		case err != nil: // the next renewal looks again
		case there:
			s.seen.Store(w)
		default:
			<-s.ready
			s.Vanished()
		}
	})
}
