package member

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/rota-dev/rota/internal/group/event"
	"github.com/rota-dev/rota/internal/group/eventlog"
	"github.com/rota-dev/rota/registry"
)

const (
	slowJoin     = 5 * time.Second // a first join that takes longer is logged
	slowShutdown = time.Second     // a step of a shutdown that takes longer is logged
)

// logJoined logs that an incarnation has joined the group.
func (m *Member) logJoined(log *slog.Logger, offered []string) {
	m.mu.Lock()
	away := m.lostAt
	m.mu.Unlock()
	attrs := []any{"jobs", len(offered), "names", eventlog.JoinJobs(offered)}
	if away.IsZero() {
		log.Info("joined the fleet", attrs...)
		return
	}
	log.Info("joined again", append(attrs, "away", time.Since(away).Round(time.Millisecond))...)
}

// reportIncarnationEnd records the end of an incarnation that had joined, and logs a lost session. It
// is called when the loops of the incarnation have ended; functions of runs may not have returned.
func (m *Member) reportIncarnationEnd(log *slog.Logger, in *Incarnation, cause error) {
	m.mu.Lock()
	m.lostAt = time.Now()
	m.mu.Unlock()
	if errors.Is(cause, ErrLeft) || errors.Is(cause, context.Canceled) {
		event.Report(m.events.Session, event.Session{ID: in.Session.ID(), State: event.SessionLeft})
	} else {
		event.Report(m.events.Session, event.Session{ID: in.Session.ID(), State: event.SessionLost, Err: cause})
	}
	if errors.Is(cause, registry.ErrSessionLost) {
		log.Warn("session lost", "runs", in.Claimer.CountCutShort(), "shards", in.Claimer.CountOwned(), "error", cause,
			"next", "the contexts of these runs are canceled; other instances get the shards and make the runs again; this instance joins again under another session")
	}
}

// logLeft logs that Run returns because of Leave. The caller of Run handles other reasons.
func (m *Member) logLeft(cause error) {
	m.mu.Lock()
	joined := m.hasJoined
	m.mu.Unlock()
	if joined && errors.Is(cause, ErrLeft) {
		m.Log.Info("left the fleet")
	}
}

// reportSessionStates logs and reports each suspension of the session and its end, until ctx ends.
func (m *Member) reportSessionStates(ctx context.Context, log *slog.Logger, in *Incarnation) error {
	var since time.Time // zero: not suspended
	for {
		changed := in.Session.Changed()
		switch state, safe := in.Session.State(); {
		case state == registry.SessionSuspended && since.IsZero():
			since = time.Now()
			event.Report(m.events.Session, event.Session{ID: in.Session.ID(), State: event.SessionSuspended, SafeUntil: safe})
			log.Warn("store unreachable", "since", since, "safe_until", safe,
				"next", "no run begins until the store answers; if it has not answered by safe_until, the session is lost and the contexts of runs are canceled")
		case state == registry.SessionConnected && !since.IsZero():
			event.Report(m.events.Session, event.Session{ID: in.Session.ID(), State: event.SessionResumed})
			log.Info("store reachable again", "after", time.Since(since).Round(time.Millisecond))
			since = time.Time{}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changed:
		}
	}
}

// setJoinStep records the present step of joining, for the log.
func (m *Member) setJoinStep(step string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.joinStep = step
}

// logSlowJoin logs once if the first join takes longer than slowJoin.
func (m *Member) logSlowJoin() (stop func() bool) {
	began := time.Now()
	return time.AfterFunc(slowJoin, func() {
		m.mu.Lock()
		joined, step := m.hasJoined, m.joinStep
		m.mu.Unlock()
		if !joined {
			m.Log.Warn("joining takes long", "since", began, "waits_for", step)
		}
	}).Stop
}

// logSlowShutdown logs once if a step of the shutdown takes longer than slowShutdown. With
// onlyStore the step waits for the store alone; otherwise it waits for other instances as long as
// the store answers.
func (m *Member) logSlowShutdown(step string, onlyStore bool) (stop func() bool) {
	began := time.Now()
	return time.AfterFunc(slowShutdown, func() {
		in := m.presentIncarnation()
		state := registry.SessionLost
		if in != nil {
			state, _ = in.Session.State()
		}
		if onlyStore || state != registry.SessionConnected {
			m.Log.Warn("shutdown waits for the store", "waits_for", step, "since", began, "session", state.String())
			return
		}
		m.Log.Info("shutdown waits for other instances", "waits_for", step, "since", began)
	}).Stop
}
