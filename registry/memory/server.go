package memory

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/rota-dev/rota/registry"
)

// Server is the store that clients share. It is made by New.
type Server struct {
	// mu guards everything that the server and its clients hold. Nothing waits, calls
	// back or logs while holding it: in a synctest bubble a wait for a mutex would stop
	// the clock.
	mu       sync.RWMutex
	seq      uint64 // of the last commit
	salt     uint64 // makes Rev.Aux
	nodes    map[registry.Key]*node
	dirs     map[registry.Key]*directory
	sessions map[registry.SessionID]*session // those that have not ended
	machines map[string]*machine

	pauses int
	queue  []*message // what arrived during a pause
	full   int        // nothing more can be stored

	numbers uint64 // that watchers and messages were given

	touched []*directory // those with something fresh

	recording bool
	log       []Commit
}

// New returns an empty server. It starts nothing and needs no closing.
func New() *Server {
	return &Server{
		seq:      1 + rand.Uint64N(1<<40), // so that nobody leans on the first commit being 1
		salt:     rand.Uint64() | 1<<63,
		nodes:    make(map[registry.Key]*node),
		dirs:     make(map[registry.Key]*directory),
		sessions: make(map[registry.SessionID]*session),
		machines: make(map[string]*machine),
	}
}

// Client returns a new handle on the server for the machine of that name, which must not
// be empty. Handles of one name are independent of each other, but what befalls the
// machine befalls them all.
func (s *Server) Client(name string) *Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &Client{
		server:   s,
		machine:  s.machine(name),
		closed:   make(chan struct{}),
		watchers: make(map[uint64]*watcher),
	}
}

// rev is the Rev of the last commit. Its Aux cannot be had from its Seq, so a Rev that
// was put together by hand, or stored without its Aux, names nothing here either.
func (s *Server) rev() registry.Rev {
	return registry.Rev{Seq: s.seq, Aux: s.seq ^ s.salt}
}

// number returns a number that nothing else has. Maps have numbers as keys, not pointers,
// whose values differ from process to process: a simulation whose random numbers are the
// same then wakes everybody in the same order.
func (s *Server) number() uint64 {
	s.numbers++
	return s.numbers
}

// node is a key that exists.
type node struct {
	dir   *directory
	entry *registry.Entry // never changed, only replaced: readers use it without the lock

	written time.Time // when the value was, see Client.WrittenAt
}

// directory is a place that has children or watchers.
type directory struct {
	path     registry.Key
	nodes    map[registry.Key]*node
	watchers map[uint64]*watcher // by number
	fresh    []change            // of the commit that is being made, for the watchers
}

// change is what a commit did to a key of a directory.
type change struct {
	key   registry.Key
	entry *registry.Entry // nil if it is gone
}

// dir returns the directory of that path, which it makes if need be. One that is left
// without children and watchers is to be given to dropDir.
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

// changed notes that key is now e, or gone if e is nil.
func (s *Server) changed(d *directory, key registry.Key, e *registry.Entry) {
	if len(d.watchers) == 0 {
		return
	}
	if len(d.fresh) == 0 {
		s.touched = append(s.touched, d)
	}
	d.fresh = append(d.fresh, change{key, e})
}

// publish tells the watchers of all changes of the commit s.seq.
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

// children returns what is in dir, in no order.
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
