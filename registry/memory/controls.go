package memory

import (
	"slices"
	"sync"
	"time"

	"github.com/rota-dev/rota/registry"
)

// Direction is a direction of the link between a client and the server.
type Direction int

// The directions.
const (
	Requests Direction = iota + 1 // to the server
	Replies                       // and events, from the server
)

func (d Direction) String() string {
	switch d {
	case Requests:
		return "requests"
	case Replies:
		return "replies"
	}
	return "unknown"
}

// Expire makes the server end all sessions of the clients of that name, as if it had received
// no renewal for their TTL. A client that the server can reach loses them at once, another
// one when they run out on its own clock.
func (s *Server) Expire(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range slices.Clone(s.machine(name).sessions) {
		s.expire(x)
	}
}

// ExpireSession is Expire for one session. It does nothing if the session has ended.
func (s *Server) ExpireSession(id registry.SessionID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := s.sessions[id]; x != nil {
		s.expire(x)
	}
}

func (s *Server) expire(x *session) {
	now := time.Now()
	x.stopResting(now)
	s.dropSession(x)
	if s.pauses == 0 && x.client.machine.isolated == 0 {
		x.sendFlight(flight{way: Replies, dead: true}, now)
	}
	x.runUntil(now)
}

// Partition disconnects the clients of that name from the server, until heal is called. Their
// connections break: sessions are suspended at once, and messages under way are lost. A call
// waits for heal, its context or CallTimeout, whichever is first. After heal, a read
// continues. A transaction has an unknown outcome; it was not applied unless it had reached
// the server before. Watchers pause, and continue with a Snapshot.
//
// Partitions add up, in each direction: all have to be healed. Calling heal twice is legal.
func (s *Server) Partition(name string) (heal func()) {
	return s.startFault(name, func(m *machine) {
		m.requests.cut()
		m.replies.cut()
		m.restartWatchers()
		for _, x := range m.sessions {
			if x.isOpen() {
				x.setState(registry.SessionSuspended)
			}
		}
	}, func(m *machine) {
		m.requests.cuts--
		m.replies.cuts--
		m.renewSessions()
	})
}

// PartitionOneWay drops all messages in one direction, until heal is called, and breaks no
// connection. Without Requests, the server receives nothing, while watchers continue. Without
// Replies, the server still applies transactions and renews sessions, until the client gives
// its sessions up, since it receives no answer. Both together are a Partition without broken
// connections.
func (s *Server) PartitionOneWay(name string, d Direction) (heal func()) {
	return s.startFault(name, func(m *machine) {
		if d == Replies {
			m.restartWatchers()
		}
		m.link(d).cut()
	}, func(m *machine) {
		m.link(d).cuts--
		m.renewSessions()
	})
}

// Delay sets the latency of requests and replies of the clients of that name, until the next
// call; zeros remove it. Requests and replies under way keep the old latency. Events are
// replies: the first pending event of a watcher takes that long, and later ones may arrive with
// it. Without a latency, pending events arrive at once.
func (s *Server) Delay(name string, request, reply time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.machine(name)
	s.changeFaults(func() { m.requests.delay, m.replies.delay = max(request, 0), max(reply, 0) }, m)
}

// Starve stops the clients of that name from renewing their sessions, until feed is called,
// as if their process got no CPU time for it. Calls and watchers continue.
func (s *Server) Starve(name string) (feed func()) {
	return s.startFault(name, func(m *machine) {
		m.starved++
	}, func(m *machine) {
		m.starved--
		m.renewSessions()
	})
}

// HoldWatch holds back the events of all watchers of the clients of that name, until release
// is called: events are late, but none is lost. Calls and sessions continue.
func (s *Server) HoldWatch(name string) (release func()) {
	return s.startFault(name, func(m *machine) { m.watchesHeld++ }, func(m *machine) { m.watchesHeld-- })
}

// StepClock moves the clock that Client.WrittenAt reports by d, until restore is called. Steps
// add up. TTLs are measured by another clock, which is never set.
func (s *Server) StepClock(d time.Duration) (restore func()) {
	step := func(d time.Duration) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.clockOffset += d
	}
	step(d)
	return sync.OnceFunc(func() { step(-d) })
}

// startFault applies start to the machine of that name. The returned function applies stop,
// once.
func (s *Server) startFault(name string, start, stop func(*machine)) (stopOnce func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.machine(name)
	s.changeFaults(func() { start(m) }, m)
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.changeFaults(func() { stop(m) }, m)
	})
}

// Pause makes the server answer no request until resume is called, like a store without a
// quorum. On resume it executes the requests that arrived meanwhile, even those whose callers
// have given up. No session expires at the server, though clients may lose theirs. On resume
// each session has its full TTL again, as after a change of leader.
func (s *Server) Pause() (resume func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changeFaults(func() { s.pauses++ }, s.all()...)
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.changeFaults(s.resume, s.all()...)
	})
}

func (s *Server) resume() {
	s.pauses--
	if s.pauses > 0 {
		return
	}
	s.extendSessions()
	queue := s.queue
	s.queue = nil
	for _, g := range queue {
		g.arrive()
	}
}

// Restart stops the server and starts it with the same data. Connections break and are
// restored, so messages under way are lost and watchers begin again with a Snapshot. Sessions
// have their full TTL again.
func (s *Server) Restart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changeFaults(func() {
		for _, g := range s.queue {
			g.lose()
		}
		s.queue = nil
		for _, m := range s.all() {
			m.requests.resets++
			m.replies.resets++
			m.restartWatchers()
		}
		s.extendSessions()
	}, s.all()...)
}

// extendSessions gives all sessions their full TTL, and makes clients renew them at once.
func (s *Server) extendSessions() {
	now := time.Now()
	for _, x := range s.sessions {
		x.expires = later(x.expires, now.Add(x.ttl))
	}
	for _, m := range s.machines {
		m.renewSessions()
	}
}
