package memory

import (
	"slices"
	"sync"
	"time"

	"github.com/rota-dev/rota/registry"
)

// Direction is one way of the link between a client and the server.
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

// Expire makes the server end all sessions of the clients of that name, as if it had not
// heard of them for their TTL. A client that can be told loses them at once, others when
// they run out on their own clock.
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
	x.unrest(now)
	s.dropSession(x)
	if s.pauses == 0 && x.client.machine.isolated == 0 {
		x.fly(flight{way: Replies, dead: true}, now)
	}
	x.run(now)
}

// Partition cuts the clients of that name off from the server, until heal. Their
// connections break: sessions are suspended at once, and what is under way is lost. A
// call waits for heal, its context or CallTimeout. Then a read that can still go on does,
// and a transaction has an unknown outcome; it was not applied unless it had reached the
// server before. Watchers go quiet, and go on with a Snapshot.
//
// Partitions and cuts add up: all have to be healed. Calling heal again does nothing.
func (s *Server) Partition(name string) (heal func()) {
	return s.impose(name, func(m *machine) {
		m.requests.cut()
		m.replies.cut()
		m.gap()
		for _, x := range m.sessions {
			if x.open() {
				x.become(registry.SessionSuspended)
			}
		}
	}, func(m *machine) {
		m.requests.cuts--
		m.replies.cuts--
		m.renew()
	})
}

// PartitionOneWay loses all that goes in one direction, until heal, and nobody is told.
// Losing Requests, the server hears nothing, while watchers go on. Losing Replies, it goes
// on hearing: transactions are applied and sessions renewed, until the client, which does
// not know it, gives them up. Losing both is a Partition that breaks no connection.
func (s *Server) PartitionOneWay(name string, d Direction) (heal func()) {
	return s.impose(name, func(m *machine) {
		if d == Replies {
			m.gap()
		}
		m.way(d).cut()
	}, func(m *machine) {
		m.way(d).cuts--
		m.renew()
	})
}

// Delay makes requests and replies of the clients of that name take so long, until it is
// called with zeros. What is under way keeps to the old times. Events are replies: the
// first that a watcher has not seen takes as long, those after it may come with it.
func (s *Server) Delay(name string, request, reply time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.machine(name)
	s.disturb(func() { m.requests.delay, m.replies.delay = max(request, 0), max(reply, 0) }, m)
}

// Starve keeps the clients of that name from renewing their sessions, until feed, as if
// their process got no processor for it. All else goes on.
func (s *Server) Starve(name string) (feed func()) {
	return s.impose(name, func(m *machine) {
		m.starved++
	}, func(m *machine) {
		m.starved--
		m.renew()
	})
}

// HoldWatch keeps events from the watchers of the clients of that name, until release:
// they are late, but none is lost. All else goes on.
func (s *Server) HoldWatch(name string) (release func()) {
	return s.impose(name, func(m *machine) { m.hushed++ }, func(m *machine) { m.hushed-- })
}

// impose changes the circumstances of the clients of that name, until undone.
func (s *Server) impose(name string, do, undo func(*machine)) (undone func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.machine(name)
	s.disturb(func() { do(m) }, m)
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.disturb(func() { undo(m) }, m)
	})
}

// Pause makes the server answer nobody, as a store without a quorum, until resume. What
// reaches it meanwhile is dealt with on resume, be the caller still waiting or not.
// Sessions do not expire, though clients may lose theirs; on resume each has its full TTL
// again, as after a change of leader.
func (s *Server) Pause() (resume func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.disturb(func() { s.pauses++ }, s.all()...)
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.disturb(s.resume, s.all()...)
	})
}

func (s *Server) resume() {
	s.pauses--
	if s.pauses > 0 {
		return
	}
	s.prolong()
	queue := s.queue
	s.queue = nil
	for _, g := range queue {
		g.arrive()
	}
}

// Restart stops the server and starts it with all that it had. Connections break and are
// made anew, so what is under way is lost and watchers begin again with a Snapshot.
// Sessions have their full TTL again.
func (s *Server) Restart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.disturb(func() {
		for _, g := range s.queue {
			g.lose()
		}
		s.queue = nil
		for _, m := range s.all() {
			m.requests.resets++
			m.replies.resets++
			m.gap()
		}
		s.prolong()
	}, s.all()...)
}

// prolong gives all sessions their full TTL, and has them renewed at once.
func (s *Server) prolong() {
	now := time.Now()
	for _, x := range s.sessions {
		x.expires = later(x.expires, now.Add(x.ttl))
	}
	for _, m := range s.machines {
		m.renew()
	}
}
