package member

import (
	"context"
	"errors"
)

// ErrLeft is the reason for which a member ends after Leave.
var ErrLeft = errors.New("left the group")

// StopClaiming makes the member claim nothing more, as the first step of Drain. Runs that are handed
// back after it has returned are not claimed here again.
func (m *Member) StopClaiming() {
	m.changeState(func() {
		m.Draining = true
	})
	if in := m.presentIncarnation(); in != nil {
		in.Claimer.StopClaiming()
	}
}

// Drain makes the member claim nothing more and gives up its idle shards, which move at once or
// after the RestartGrace. A leader resigns first. Runs continue; the caller cancels them or waits
// for them. Drain returns when the member record shows that the member drains, or when there is
// no session under which it could claim. If ctx ends earlier, the member drains nevertheless.
func (m *Member) Drain(ctx context.Context) error {
	defer m.logSlowShutdown("the record that this instance drains", true)()
	m.StopClaiming() // at once: it must not claim runs that are handed back from now on
	return m.awaitCondition(ctx, func() bool { return m.current == nil || m.current.drainPublished })
}

// prepareDrain stops claims and resigns, before the member record shows that the incarnation
// drains: a leader that reads the record reassigns idle shards at once.
func (in *Incarnation) prepareDrain(ctx context.Context) error {
	select {
	case <-in.Claimer.StopClaiming():
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	in.Elector.Resign(ctx)
	return nil
}

// Leave waits until nothing runs here and all shards are reassigned, or ctx ends, and then makes
// Run return. It is called after Drain. With a RestartGrace, shards wait for the instance's
// return, so Leave waits for runs only. Without a session it does not wait, since the shards are
// failed over.
func (m *Member) Leave(ctx context.Context) error {
	stop := m.logSlowShutdown("the ends of runs to be recorded, and the shards to be reassigned", false)
	err := m.awaitNoShards(ctx)
	stop()
	m.leaveOnce.Do(func() { close(m.leaveRequested) })
	return err
}

// awaitNoShards waits until the present incarnation has no runs and no shards, or is over.
func (m *Member) awaitNoShards(ctx context.Context) error {
	for {
		m.mu.Lock()
		in, changed := m.current, m.changed
		m.mu.Unlock()
		if in == nil {
			return nil
		}
		select {
		case <-in.Claimer.NotifyEmpty():
			return nil
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
