package member

import (
	"context"
	"errors"
)

// ErrLeft is why a member that was told to leave stops.
var ErrLeft = errors.New("left the group")

// Drain makes the member claim nothing more and lets its idle shards go, with a
// RestartGrace only when that has passed. A leader hands its office over first. Runs go on;
// the caller ends them or waits for them. Drain returns when the registry knows, or there
// is no session that could claim. If ctx ends first, the member drains all the same.
func (m *Member) Drain(ctx context.Context) error {
	defer m.logSlowShutdown("the record that this instance drains", true)()
	m.ChangeState(func() {
		m.Draining = true
		if m.current != nil {
			m.current.Claimer.StopClaiming() // it must not claim runs again that are handed back from now on
		}
	})
	return m.awaitCondition(ctx, func() bool { return m.current == nil || m.current.drainPublished })
}

// prepareDrain makes an incarnation ready to be known as draining: a leader takes its idle
// shards at once, so it must claim nothing more by then. If it leads, it hands over first.
func (in *Incarnation) prepareDrain(ctx context.Context) error {
	select {
	case <-in.Claimer.StopClaiming():
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	in.Elector.Resign(ctx)
	return nil
}

// Leave waits until nothing runs here and all shards have been taken over, or ctx ends,
// and then makes Run return. It is called after Drain. Shards that wait for a return
// (MemberOptions.RestartGrace) are not taken over: then only runs are waited for. Without a
// session there is nothing to wait for: what it had is failed over.
func (m *Member) Leave(ctx context.Context) error {
	stop := m.logSlowShutdown("the ends of runs on record, and other instances to take the shards over", false)
	err := m.awaitNoShards(ctx)
	stop()
	m.leaveOnce.Do(func() { close(m.leaveRequested) })
	return err
}

func (m *Member) awaitNoShards(ctx context.Context) error {
	for {
		m.mu.Lock()
		in, changed := m.current, m.changed
		m.mu.Unlock()
		if in == nil {
			return nil
		}
		select {
		case <-in.Claimer.notifyEmpty():
			return nil
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
