package memory

import (
	"fmt"
	"slices"
	"time"

	"github.com/rota-dev/rota/registry"
)

// interval is the time between renewals.
func (x *session) interval() time.Duration { return max(x.ttl/3, 1) }

// span is how long a confirmed renewal keeps the session safe, from when it was sent. The
// remaining tenth of the TTL allows for clocks that run at different rates.
func (x *session) span() time.Duration { return x.ttl - x.ttl/10 }

// patience is the time from the last confirmed renewal until the session is suspended. Two
// renewals, sent at 1/3 and 2/3 of the TTL, have gone unanswered by then, while answers
// that take half a TTL still arrive in time.
func (x *session) patience() time.Duration { return x.ttl - x.ttl/20*3 }

// A session rests while nothing can happen to it: each renewal arrives, after the same time,
// and is answered soon enough. Then no renewal is simulated, and no timer runs; their times
// are computed from confirmed. Any change that could end this state calls stopResting before
// it and runUntil after it.

// canRest reports whether the session can rest, with the renewals that are under way.
func (x *session) canRest() bool {
	m := x.client.machine
	if !x.alive || x.state != registry.SessionConnected || x.server.pauses > 0 ||
		!m.connected() || m.starved > 0 ||
		m.requests.delay > x.patience()-x.interval()-m.replies.delay { // their sum may overflow
		return false
	}
	slices.SortFunc(x.flights, func(f, g flight) int { return f.sent.Compare(g.sent) })
	sent := x.confirmed
	for _, f := range x.flights {
		sent = sent.Add(x.interval())
		if f != m.flight(sent, f.way) {
			return false
		}
	}
	return x.next.Equal(sent.Add(x.interval()))
}

// lastConfirmed returns when the last confirmed renewal was sent.
func (x *session) lastConfirmed(now time.Time) time.Time {
	m := x.client.machine
	return x.lastSent(now, m.requests.delay+m.replies.delay)
}

// lastSent returns when the last renewal was sent that has been under way for d or longer.
func (x *session) lastSent(now time.Time, d time.Duration) time.Time {
	if !x.resting {
		return x.confirmed
	}
	since := max(now.Sub(x.confirmed)-d, 0)
	return x.confirmed.Add(since - since%x.interval())
}

// stopResting simulates the renewals that became due while the session rested.
func (x *session) stopResting(now time.Time) {
	x.runUntil(now)
	if !x.resting {
		return
	}
	m := x.client.machine
	received := x.lastSent(now, m.requests.delay)
	if received.After(x.confirmed) { // else expires is up to date
		x.expires = later(x.expires, received.Add(m.requests.delay+x.ttl))
	}
	x.confirmed = x.lastConfirmed(now)
	x.resting = false
	x.flights = nil
	for x.next = x.confirmed.Add(x.interval()); !x.next.After(now); x.next = x.next.Add(x.interval()) {
		way := Requests
		if !x.next.After(received) {
			way = Replies
		}
		x.flights = append(x.flights, m.flight(x.next, way))
	}
}

// runUntil simulates the events that are due up to now, in order, and sets a timer for the
// next one.
func (x *session) runUntil(now time.Time) {
	for !x.resting {
		if x.canRest() {
			x.resting = true
			break
		}
		at, step := x.nextEvent()
		if step == nil {
			break
		}
		if at.After(now) {
			x.wakeIn(at.Sub(now))
			return
		}
		step(at)
	}
	if x.timer != nil {
		x.timer.Stop()
	}
	if !x.alive && x.err != nil {
		x.client.machine.removeSession(x)
	}
}

func (x *session) wakeIn(d time.Duration) {
	if x.timer != nil {
		x.timer.Reset(d)
		return
	}
	x.timer = time.AfterFunc(d, func() {
		x.server.mu.Lock()
		defer x.server.mu.Unlock()
		x.runUntil(time.Now())
	})
}

// nextEvent returns the next event, and its time. Of events at the same time, the one that
// favours the session comes first.
func (x *session) nextEvent() (at time.Time, step func(at time.Time)) {
	consider := func(t time.Time, f func(time.Time)) {
		if step == nil || t.Before(at) {
			at, step = t, f
		}
	}
	for i := range x.flights {
		consider(x.flights[i].due, func(at time.Time) { x.deliverFlight(i, at) })
	}
	if x.isOpen() {
		if x.client.machine.starved == 0 {
			consider(x.next, x.sendRenewal)
		}
		if x.state == registry.SessionConnected {
			consider(x.confirmed.Add(x.patience()), x.suspend)
		}
		consider(x.confirmed.Add(x.span()), x.expireAtClient)
	}
	if x.alive && x.server.pauses == 0 {
		consider(x.expires, x.expireAtServer)
	}
	return at, step
}

// isOpen reports whether the client uses the session: it was granted and has not ended there.
func (x *session) isOpen() bool { return x.state != 0 && x.err == nil }

// flight is a renewal under way, or the answer to it.
type flight struct {
	sent   time.Time // when the renewal was sent
	way    Direction
	due    time.Time // when it arrives
	resets int       // of the link at departure
	dead   bool      // the answer is that the session does not exist
}

// flight returns a renewal, or the answer to it, as it is if no fault has changed since.
func (m *machine) flight(sent time.Time, d Direction) flight {
	f := flight{sent: sent, way: d, due: sent.Add(m.requests.delay), resets: m.link(d).resets}
	if d == Replies {
		f.due = f.due.Add(m.replies.delay)
	}
	return f
}

func (x *session) sendRenewal(at time.Time) {
	x.next = at.Add(x.interval())
	x.sendFlight(flight{sent: at, way: Requests}, at)
}

func (x *session) sendFlight(f flight, at time.Time) {
	l := x.client.machine.link(f.way)
	if l.cuts == 0 {
		f.due, f.resets = at.Add(l.delay), l.resets
		x.flights = append(x.flights, f)
	}
}

func (x *session) deliverFlight(i int, at time.Time) {
	f := x.flights[i]
	x.flights = slices.Delete(x.flights, i, i+1)
	switch {
	case f.resets != x.client.machine.link(f.way).resets:
	case f.way == Replies:
		x.handleAnswer(f, at)
	case x.server.pauses == 0 && x.client.machine.isolated == 0:
		if x.alive {
			x.expires = later(x.expires, at.Add(x.ttl))
		}
		x.sendFlight(flight{sent: f.sent, way: Replies, dead: !x.alive}, at)
	}
}

// handleAnswer handles the answer to a renewal at the client.
func (x *session) handleAnswer(f flight, at time.Time) {
	switch {
	case f.dead:
		x.endKnown = true
		x.setFinalState(registry.SessionLost, fmt.Errorf("%w: the server has ended %s", registry.ErrSessionLost, x.id))
	case x.isOpen():
		x.confirmed = later(x.confirmed, f.sent)
		if at.Before(x.confirmed.Add(x.patience())) {
			x.setState(registry.SessionConnected)
		}
	}
}

func (x *session) suspend(time.Time) { x.setState(registry.SessionSuspended) }

func (x *session) expireAtClient(time.Time) {
	x.setFinalState(registry.SessionLost, fmt.Errorf("%w: no renewal of %s was confirmed for %v",
		registry.ErrSessionLost, x.id, x.span()))
}

func (x *session) expireAtServer(time.Time) { x.server.dropSession(x) }

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
