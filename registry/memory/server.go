package memory

import (
	"math/rand/v2"
	"sync"

	"github.com/rota-dev/rota/registry"
)

// Server is the store that clients share. It is made by New.
type Server struct {
	// mu guards everything the server and its clients hold. Nothing waits, calls back or
	// logs while holding it: in a synctest bubble a wait for a mutex stops the clock.
	mu       sync.RWMutex
	seq      uint64 // of the last commit
	salt     uint64 // makes Rev.Aux
	nodes    map[registry.Key]*node
	dirs     map[registry.Key]*directory
	sessions map[registry.SessionID]*session // those that live
	machines map[string]*machine
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
	c := &Client{
		server:   s,
		machine:  s.machineLocked(name),
		closed:   make(chan struct{}),
		watchers: make(map[*watcher]struct{}),
		sessions: make(map[*session]struct{}),
	}
	return c
}

// machine is what the handles of one name share.
type machine struct {
	name string
}

func (s *Server) machineLocked(name string) *machine {
	if name == "" {
		panic("memory: a client needs a name")
	}
	m := s.machines[name]
	if m == nil {
		m = &machine{name: name}
		s.machines[name] = m
	}
	return m
}

// rev is the Rev of the last commit. Aux cannot be had from Seq, so a Rev that was put
// together by hand, or stored without its Aux, names nothing.
func (s *Server) rev() registry.Rev {
	return registry.Rev{Seq: s.seq, Aux: s.seq ^ s.salt}
}

// node is a key that exists.
type node struct {
	dir   *directory
	entry *registry.Entry // never changed, only replaced: readers use it without the lock
}

// directory is a place that has children or watchers.
type directory struct {
	path     registry.Key
	nodes    map[registry.Key]*node
	watchers map[*watcher]struct{}
}

// dir returns the directory of that path, which it makes if need be. One left without
// children and watchers is to be given to dropDir.
func (s *Server) dir(path registry.Key) *directory {
	d := s.dirs[path]
	if d == nil {
		d = &directory{path: path, nodes: make(map[registry.Key]*node)}
		s.dirs[path] = d
	}
	return d
}

func (s *Server) dropDir(d *directory) {
	if len(d.nodes) == 0 && len(d.watchers) == 0 {
		delete(s.dirs, d.path)
	}
}
