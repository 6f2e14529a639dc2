package memory

import (
	"fmt"
	"slices"
	"time"

	"github.com/rota-dev/rota/registry"
)

// interval is the time between renewals.
func (x *session) interval() time.Duration { return max(x.ttl/3, 1) }

// span is how long a confirmed renewal makes the session safe, from when it was sent. The
// tenth of the TTL that is left allows for clocks that run at different rates.
func (x *session) span() time.Duration { return x.ttl - x.ttl/10 }

// patience is how long after the last confirmed renewal the session is suspended. Two
// renewals, sent at 1/3 and 2/3 of the TTL, have gone unanswered by then, while answers
// that take half a TTL still come in time.
func (x *session) patience() time.Duration { return x.ttl - x.ttl/20*3 }

// A session rests while nothing can happen to it: each renewal gets through, in the same
// time, and is answered soon enough. Then none is made; confirmed and next tell where in
// time they lie. Whatever may put an end to that calls unrest before and run after.

// mayRest reports that the session can be left to itself, with the renewals that are
// under way.
func (x *session) mayRest() bool {
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
		if f.dead || f != m.flight(sent, f.way) {
			return false
		}
	}
	return x.next.Equal(sent.Add(x.interval()))
}

// renewed is when the last confirmed renewal was sent.
func (x *session) renewed(now time.Time) time.Time {
	m := x.client.machine
	return x.lastSent(now, m.requests.delay+m.replies.delay)
}

// lastSent is when the last renewal was sent that went as far, up to now, as takes d.
func (x *session) lastSent(now time.Time, d time.Duration) time.Time {
	if !x.resting {
		return x.confirmed
	}
	since := max(now.Sub(x.confirmed)-d, 0)
	return x.confirmed.Add(since - since%x.interval())
}

// unrest makes the renewals that fell due during rest.
func (x *session) unrest(now time.Time) {
	x.run(now)
	if !x.resting {
		return
	}
	m := x.client.machine
	received := x.lastSent(now, m.requests.delay)
	if received.After(x.confirmed) { // else expires tells
		x.expires = later(x.expires, received.Add(m.requests.delay+x.ttl))
	}
	x.confirmed = x.renewed(now)
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

// run makes happen what falls due up to now, in order, and sees to what comes later.
func (x *session) run(now time.Time) {
	for !x.resting {
		if x.mayRest() {
			x.resting = true
			break
		}
		at, step := x.upcoming()
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
		x.client.machine.forget(x)
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
		x.run(time.Now())
	})
}

// upcoming returns what happens next, and when. Of things that fall due together the one
// that is better for the session comes first.
func (x *session) upcoming() (at time.Time, step func(at time.Time)) {
	consider := func(t time.Time, f func(time.Time)) {
		if step == nil || t.Before(at) {
			at, step = t, f
		}
	}
	for i := range x.flights {
		consider(x.flights[i].due, func(at time.Time) { x.land(i, at) })
	}
	if x.open() {
		if x.client.machine.starved == 0 {
			consider(x.next, x.renew)
		}
		if x.state == registry.SessionConnected {
			consider(x.confirmed.Add(x.patience()), x.suspend)
		}
		consider(x.confirmed.Add(x.span()), x.expireHere)
	}
	if x.alive && x.server.pauses == 0 {
		consider(x.expires, x.expireThere)
	}
	return at, step
}

// open reports that the client counts on the session.
func (x *session) open() bool { return x.state != 0 && x.err == nil }

// flight is a renewal on its way, or the answer to it.
type flight struct {
	sent   time.Time // the renewal
	way    Direction
	due    time.Time // at the end of the way
	resets int       // of the way when it set out
	dead   bool      // the answer: there is no such session
}

// flight returns a renewal, or the answer to it, that has met with no change.
func (m *machine) flight(sent time.Time, d Direction) flight {
	f := flight{sent: sent, way: d, due: sent.Add(m.requests.delay), resets: m.way(d).resets}
	if d == Replies {
		f.due = f.due.Add(m.replies.delay)
	}
	return f
}

func (x *session) renew(at time.Time) {
	x.next = at.Add(x.interval())
	x.fly(flight{sent: at, way: Requests}, at)
}

func (x *session) fly(f flight, at time.Time) {
	w := x.client.machine.way(f.way)
	if w.cuts == 0 {
		f.due, f.resets = at.Add(w.delay), w.resets
		x.flights = append(x.flights, f)
	}
}

func (x *session) land(i int, at time.Time) {
	f := x.flights[i]
	x.flights = slices.Delete(x.flights, i, i+1)
	switch {
	case f.resets != x.client.machine.way(f.way).resets:
	case f.way == Replies:
		x.hear(f, at)
	case x.server.pauses == 0 && x.client.machine.isolated == 0:
		if x.alive {
			x.expires = later(x.expires, at.Add(x.ttl))
		}
		x.fly(flight{sent: f.sent, way: Replies, dead: !x.alive}, at)
	}
}

// hear takes the answer to a renewal in.
func (x *session) hear(f flight, at time.Time) {
	switch {
	case f.dead:
		x.told = true
		x.conclude(registry.SessionLost, fmt.Errorf("%w: the server has ended %s", registry.ErrSessionLost, x.id))
	case x.open():
		x.confirmed = later(x.confirmed, f.sent)
		if at.Before(x.confirmed.Add(x.patience())) {
			x.become(registry.SessionConnected)
		}
	}
}

func (x *session) suspend(time.Time) { x.become(registry.SessionSuspended) }

func (x *session) expireHere(time.Time) {
	x.conclude(registry.SessionLost, fmt.Errorf("%w: no renewal of %s was confirmed for %v",
		registry.ErrSessionLost, x.id, x.span()))
}

func (x *session) expireThere(time.Time) { x.server.dropSession(x) }

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
