package memory

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/rota-dev/rota/registry"
)

// Server is the store that clients share. It is made by New.
type Server struct {
	// mu guards the state of the server and of its clients. Code that holds it never waits,
	// calls back or logs: in a synctest bubble a wait for a mutex would stop the clock.
	mu       sync.RWMutex
	seq      uint64 // of the last commit
	salt     uint64 // combined with seq into Rev.Aux
	nodes    map[registry.Key]*node
	dirs     map[registry.Key]*directory
	sessions map[registry.SessionID]*session // without ended ones
	machines map[string]*machine

	pauses int
	queue  []*message // arrived during a pause
	full   int        // Fills in force

	clockOffset time.Duration // of the clock that writes are stamped with

	numbers uint64 // the last number given to a watcher or message

	touched []*directory // with changes in fresh

	recording bool
	log       []Commit
}

// New returns an empty server. It starts nothing and needs no closing.
func New() *Server {
	return &Server{
		seq:      1 + rand.Uint64N(1<<40), // so that no test relies on the first commit being 1
		salt:     rand.Uint64() | 1<<63,
		nodes:    make(map[registry.Key]*node),
		dirs:     make(map[registry.Key]*directory),
		sessions: make(map[registry.SessionID]*session),
		machines: make(map[string]*machine),
	}
}

// Client returns a new handle on the server for the machine of that name, which must not
// be empty. Handles of one name are independent of each other, but a fault of the machine
// affects them all.
func (s *Server) Client(name string) *Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &Client{
		server:   s,
		machine:  s.machine(name),
		closed:   make(chan struct{}),
		ended:    make(chan struct{}),
		watchers: make(map[uint64]*watcher),
	}
}

// rev returns the Rev of the last commit. Its Aux cannot be derived from its Seq, so that a
// Rev composed by a caller, or stored without its Aux, names no commit, as on other backends.
func (s *Server) rev() registry.Rev {
	return registry.Rev{Seq: s.seq, Aux: s.seq ^ s.salt}
}

// writeTime returns the time of a write, by the clock that StepClock moves.
func (s *Server) writeTime() time.Time { return time.Now().Add(s.clockOffset) }

// nextNumber returns a unique number. Maps have numbers as keys, not pointers, whose values
// differ from process to process: a simulation with the same random numbers then wakes
// goroutines in the same order.
func (s *Server) nextNumber() uint64 {
	s.numbers++
	return s.numbers
}

// node is a key that exists.
type node struct {
	dir   *directory
	entry *registry.Entry // replaced, never changed: readers use it without the lock

	written time.Time // when the value was written, see Client.WrittenAt
}

// directory is a path that has children or watchers.
type directory struct {
	path     registry.Key
	nodes    map[registry.Key]*node
	watchers map[uint64]*watcher // by number
	fresh    []change            // of the current commit, not yet published
}

// change is the change of one key by a commit.
type change struct {
	key   registry.Key
	entry *registry.Entry // nil if the key was deleted
}

// dir returns the directory of that path, which it creates if necessary. Call dropDir when
// the directory may have lost its last child or watcher.
func (s *Server) dir(path registry.Key) *directory {
	d := s.dirs[path]
	if d == nil {
		d = &directory{
			path:     path,
			nodes:    make(map[registry.Key]*node),
			watchers: make(map[uint64]*watcher),
		}
		s.dirs[path] = d
	}
	return d
}

// recordChange records for the watchers of d that key is now e, or was deleted if e is nil.
func (s *Server) recordChange(d *directory, key registry.Key, e *registry.Entry) {
	if len(d.watchers) == 0 {
		return
	}
	if len(d.fresh) == 0 {
		s.touched = append(s.touched, d)
	}
	d.fresh = append(d.fresh, change{key, e})
}

// publish delivers the recorded changes of the commit s.seq to the watchers.
func (s *Server) publish() {
	rev := s.rev()
	for _, d := range s.touched {
		for _, w := range d.watchers {
			w.merge(d.fresh, rev)
		}
		clear(d.fresh)
		d.fresh = d.fresh[:0]
	}
	clear(s.touched)
	s.touched = s.touched[:0]
}

func (s *Server) dropDir(d *directory) {
	if len(d.nodes) == 0 && len(d.watchers) == 0 {
		delete(s.dirs, d.path)
	}
}

// children returns the entries in dir, in no order.
func (s *Server) children(dir registry.Key) []*registry.Entry {
	d := s.dirs[dir]
	if d == nil {
		return nil
	}
	found := make([]*registry.Entry, 0, len(d.nodes))
	for _, n := range d.nodes {
		found = append(found, n.entry)
	}
	return found
}
