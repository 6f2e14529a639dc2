package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/rota-dev/rota/registry"
)

// The times of a session, as fractions of the granted timeout.
//
// A follower reports to the leader which clients were active only when the leader asks,
// every half tick, and the shortest timeout is two ticks. When a follower is cut off after it
// has confirmed a renewal, the leader's information may be a quarter of the timeout old, and
// the leader may expire the session three quarters of the timeout after that renewal. A span of
// two thirds leaves room for clocks that run at different rates.
//
// A session must survive renewals that take half a timeout to be answered. Renewals therefore
// do not wait for each other and are sent often enough for one to be confirmed in time. Six of
// them are unanswered when the session is suspended. The time until it is lost is for stopping
// the work.
const (
	spanFraction     = 2.0 / 3
	patienceFraction = 0.5
	intervalFraction = 1.0 / 12
)

func fraction(of float64, d time.Duration) time.Duration { return time.Duration(of * float64(d)) }

// renew makes a request that the member passes on to its leader. A member that was cut off from
// its leader answers other requests by itself until it notices.
func (s *session) renew(ctx context.Context) error {
	if !s.link.isUp() {
		return notSent{errors.New("disconnected")}
	}
	w := s.link.currentConn()
	_, err := callOnce(ctx, s.link, func(conn *zk.Conn) (string, error) { return conn.Sync(s.path) })
	if errors.Is(err, zk.ErrSessionExpired) || s.endedByServer() {
		return fmt.Errorf("%w: %w", registry.ErrSessionLost, errExpiredHere)
	}
	if err == nil && s.znodeSeenOn.Load() != w {
		s.checkZnode(w)
	}
	return err
}

// checkZnode checks, on a new connection of the session, that the session's znode still exists.
// Another client may have ended the session at this member while the connection was being made.
// The member then leaves the connection open and answers requests on it, Sync included. After
// the first Sync it knows of the end, so the check comes after that.
func (s *session) checkZnode(w *memberConn) {
	s.client.handle.Go(func() {
		ctx, cancel := context.WithTimeout(s.client.handle.Context(), s.link.lastGrant().Timeout)
		defer cancel()
		there, err := callOnce(ctx, s.link, func(conn *zk.Conn) (bool, error) {
			there, _, err := conn.Exists(s.path)
			return there, err
		})
		switch {
		case err != nil: // the next renewal checks again
		case there:
			s.znodeSeenOn.Store(w)
		default:
			if <-s.ready; s.Session != nil { // nil if opening took longer than the TTL
				s.Vanished()
			}
		}
	})
}
