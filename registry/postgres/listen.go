package postgres

import (
	"context"
	"log/slog"
	"time"

	"github.com/rota-dev/rota/registry/backend"
)

// The intervals at which watchers ask for changes without being notified.
const (
	pollListening = time.Second           // beside notifications: a lost one delays a change by so much
	pollAlone     = 50 * time.Millisecond // without notifications
)

// poll wakes all watchers again and again, until the handle is closed.
func (c *Client) poll() {
	for {
		every := pollAlone
		if c.watchers.isListening() {
			every = pollListening
		}
		if !backend.Sleep(c.handle.Context(), backend.Jittered(every)) {
			return
		}
		c.watchers.wakeAll()
	}
}

// signsOfLife is the interval at which the connection that receives notifications is asked for an answer: it may have broken silently.
const signsOfLife = 2 * time.Second

// listen makes the server send notifications to a connection, and supervises it until it ends.
func (c *Client) listen(l *conn) {
	if l.pooled {
		c.log.LogAttrs(c.ctx, slog.LevelWarn, "a pooler does not forward the notifications of the registry", slog.String("address", l.address),
			slog.String("next", "watchers ask for changes twenty times a second"), slog.String("remedy", "set ListenEndpoints to the servers"))
		return
	}
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	if _, err := l.do(ctx, statement{sql: `LISTEN "` + c.options.Schema + `.changes"`}); err != nil {
		l.end(err)
		return
	}
	c.watchers.setListening(l, true)
	defer c.watchers.setListening(l, false)
	c.watchers.wakeAll() // for what happened before
	beat := time.NewTicker(signsOfLife)
	defer beat.Stop()
	for {
		select {
		case <-beat.C:
			go func() { _, _ = l.do(ctx, statement{sql: "SELECT 1"}) }()
			_, _ = c.listener.get(ctx) // replaces a silent connection
		case <-l.ended:
			return
		case <-ctx.Done():
			return
		}
	}
}

func (s *watchers) setListening(l *conn, listening bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if listening {
		s.listening = l
	} else if s.listening == l {
		s.listening = nil
	}
}

// isListening reports whether notifications arrive, as far as is known.
func (s *watchers) isListening() bool {
	s.mu.Lock()
	l := s.listening
	s.mu.Unlock()
	return l != nil && l.silence() < readSilence
}
