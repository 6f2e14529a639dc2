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

// A session rests while nothing can come between it and the server: each renewal is then
// confirmed the moment it is sent, and as good as made. confirmed and next tell only where
// in time the renewals lie. Whatever might change that calls unrest before and run after.

// renewed is when the last confirmed renewal was sent.
func (x *session) renewed(now time.Time) time.Time {
	if !x.resting {
		return x.confirmed
	}
	since := max(now.Sub(x.confirmed), 0)
	return x.confirmed.Add(since - since%x.interval())
}

// unrest makes the renewals that fell due during rest.
func (x *session) unrest(now time.Time) {
	x.run(now)
	if !x.resting {
		return
	}
	x.confirmed = x.renewed(now)
	x.next = x.confirmed.Add(x.interval())
	x.expires = x.confirmed.Add(x.ttl)
	x.resting = false
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

func (x *session) mayRest() bool {
	m := x.client.machine
	return x.alive && x.state == registry.SessionConnected && len(x.flights) == 0 &&
		m.calm && m.starved == 0 && x.server.pauses == 0 &&
		x.next.Equal(x.confirmed.Add(x.interval()))
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
	sent   time.Time
	way    Direction
	due    time.Time // at the end of the way
	resets int       // of the way when it set out
	dead   bool      // the answer: there is no such session
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
	case x.server.pauses == 0:
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
