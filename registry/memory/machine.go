package memory

import (
	"maps"
	"slices"
	"sync/atomic"
	"time"
)

// machine is what the handles of one name share. All of it but the counters of reads is
// guarded by the server's lock.
type machine struct {
	name     string
	requests way                  // to the server
	replies  way                  // from it
	starved  int                  // the sessions are not renewed
	hushed   int                  // watchers hear nothing
	isolated int                  // the member that it is connected to has no peers
	lagging  int                  // that member is behind
	revoked  int                  // its credentials allow nothing
	view     atomic.Pointer[view] // what plain reads see if the member is isolated or behind

	holds        []*hold
	loseRequests int
	loseReplies  int

	calm     bool // an exchange takes no time, gets through and is allowed
	missing  map[uint64]*message
	sessions []*session // in order of opening, until neither side has anything left to do
	watchers map[uint64]*watcher

	counters
}

// way is one direction of the link between a machine and the server.
type way struct {
	cuts   int // while not 0, all is lost
	resets int // grows when what is under way is lost
	delay  time.Duration
}

func (w *way) cut() {
	w.cuts++
	w.resets++
}

func (w *way) clear() bool { return w.cuts == 0 && w.delay == 0 }

func (m *machine) way(d Direction) *way {
	if d == Requests {
		return &m.requests
	}
	return &m.replies
}

// connected reports that both directions are open, and beyond them the way to all members.
func (m *machine) connected() bool {
	return m.requests.cuts == 0 && m.replies.cuts == 0 && m.isolated == 0
}

func (s *Server) machine(name string) *machine {
	if name == "" {
		panic("memory: a client needs a name")
	}
	m := s.machines[name]
	if m == nil {
		m = &machine{
			name:     name,
			calm:     true,
			missing:  make(map[uint64]*message),
			watchers: make(map[uint64]*watcher),
		}
		s.machines[name] = m
	}
	return m
}

// all returns all machines, in no order.
func (s *Server) all() []*machine { return slices.Collect(maps.Values(s.machines)) }

// disturb changes the circumstances of machines by f. Up to now their sessions go on under
// the old ones, from now on under the new.
func (s *Server) disturb(f func(), ms ...*machine) {
	now := time.Now()
	for _, m := range ms {
		for _, x := range slices.Clone(m.sessions) { // those that are through leave
			x.unrest(now)
		}
	}
	f()
	for _, m := range ms {
		m.calm = m.requests.clear() && m.replies.clear() && m.isolated == 0 && m.revoked == 0
		if m.connected() {
			m.reset()
		}
		for _, x := range slices.Clone(m.sessions) {
			x.run(now)
		}
		for _, w := range m.watchers {
			w.tune()
		}
	}
}

// reset tells those who wait for what was lost.
func (m *machine) reset() {
	for _, g := range m.missing {
		g.answer <- errReset
	}
	clear(m.missing)
}

// gap makes the watchers of m forget what they have not delivered: they begin again.
func (m *machine) gap() {
	for _, w := range m.watchers {
		w.restart()
	}
}

// renew makes the sessions of m send a renewal at once. It is for the end of a trouble.
func (m *machine) renew() {
	now := time.Now()
	for _, x := range m.sessions {
		if x.next.After(now) {
			x.next = now
		}
	}
}

func (m *machine) forget(x *session) {
	m.sessions = slices.DeleteFunc(m.sessions, func(y *session) bool { return y == x })
}
