package memory

import (
	"maps"
	"slices"
	"sync/atomic"
	"time"
)

// machine is the state that all handles of one name share: the faults in force, the sessions
// and the watchers. The server's lock guards all of it except the atomic fields.
type machine struct {
	name     string
	requests link // to the server
	replies  link // from the server

	// Numbers of faults in force.
	starved     int // sessions are not renewed
	watchesHeld int // watchers receive no events
	isolated    int // the member that it is connected to has no peers
	lagging     int // that member is behind
	revoked     int // its credentials allow nothing

	view atomic.Pointer[view] // answers plain reads while the member is isolated or behind

	holds        []*hold
	loseRequests int
	loseReplies  int

	undisturbed bool                // a round trip takes no time, arrives and is allowed
	missing     map[uint64]*message // lost messages whose sender may still wait
	sessions    []*session          // in order of opening, until both sides have ended
	watchers    map[uint64]*watcher

	counters
}

// link is one direction of the connection between a machine and the server.
type link struct {
	cuts   int // partitions in force: while not 0, messages are lost
	resets int // grows when the messages under way are lost
	delay  time.Duration
}

func (l *link) cut() {
	l.cuts++
	l.resets++
}

func (l *link) clear() bool { return l.cuts == 0 && l.delay == 0 }

func (m *machine) link(d Direction) *link {
	if d == Requests {
		return &m.requests
	}
	return &m.replies
}

// connected reports whether both directions are open, and the member reaches its peers.
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
			name:        name,
			undisturbed: true,
			missing:     make(map[uint64]*message),
			watchers:    make(map[uint64]*watcher),
		}
		s.machines[name] = m
	}
	return m
}

// all returns all machines, in no order.
func (s *Server) all() []*machine { return slices.Collect(maps.Values(s.machines)) }

// changeFaults changes the faults of machines by f. Their sessions are simulated with the old
// faults up to now, and with the new ones from now on.
func (s *Server) changeFaults(f func(), ms ...*machine) {
	now := time.Now()
	for _, m := range ms {
		for _, x := range slices.Clone(m.sessions) { // ended sessions are removed meanwhile
			x.stopResting(now)
		}
	}
	f()
	for _, m := range ms {
		m.undisturbed = m.requests.clear() && m.replies.clear() && m.isolated == 0 && m.revoked == 0
		if m.connected() {
			m.failMissing()
		}
		for _, x := range slices.Clone(m.sessions) {
			x.runUntil(now)
		}
		for _, w := range m.watchers {
			w.updateFaults()
		}
	}
}

// failMissing answers the senders of lost messages with errReset.
func (m *machine) failMissing() {
	for _, g := range m.missing {
		g.answer <- errReset
	}
	clear(m.missing)
}

// restartWatchers makes the watchers of m drop pending changes and begin with a Snapshot.
func (m *machine) restartWatchers() {
	for _, w := range m.watchers {
		w.restart()
	}
}

// renewSessions makes the sessions of m send a renewal at once, when a fault ends. A renewal
// that was due while m was starved is sent now, not then.
func (m *machine) renewSessions() {
	now := time.Now()
	for _, x := range m.sessions {
		x.next = now
	}
}

func (m *machine) removeSession(x *session) {
	m.sessions = slices.DeleteFunc(m.sessions, func(y *session) bool { return y == x })
}
