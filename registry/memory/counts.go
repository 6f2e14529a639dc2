package memory

import (
	"sync/atomic"

	"github.com/rota-dev/rota/registry"
)

// Counts are the numbers of operations that clients made the server execute.
type Counts struct {
	Commits   int // transactions that changed a key
	Checks    int // transactions without operations, whose conditions held
	Conflicts int // transactions that were refused
	Keys      int // operations of all Commits
	Bytes     int // keys and values of these operations
	MaxBytes  int // keys and values of the largest commit
	Reads     int // Get and List
	Events    int // entries and deletions delivered to watchers
	Watches   int // watchers open now
	Sessions  int // sessions that live at the server now
}

// counters are the counts of a machine. Reads and events are atomic, since readers hold the
// server's lock only for reading, or not at all.
type counters struct {
	txns   Counts
	reads  atomic.Int64
	events atomic.Int64
}

// Counts returns the counts since New or ResetCounts of the clients of that name, or of
// all if name is empty. A transaction counts when the server has executed it, a read when
// the server has answered it, even if the answer is lost.
func (s *Server) Counts(name string) Counts {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var sum Counts
	for _, m := range s.machines {
		if name == "" || name == m.name {
			sum.add(m.counts())
		}
	}
	return sum
}

// ResetCounts sets all counts to zero except Watches and Sessions.
func (s *Server) ResetCounts() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.machines {
		m.txns = Counts{}
		m.reads.Store(0)
		m.events.Store(0)
	}
}

func (m *machine) counts() Counts {
	n := m.txns
	n.Reads = int(m.reads.Load())
	n.Events = int(m.events.Load())
	n.Watches = len(m.watchers)
	for _, x := range m.sessions {
		if x.alive {
			n.Sessions++
		}
	}
	return n
}

func (n *Counts) add(o Counts) {
	n.Commits += o.Commits
	n.Checks += o.Checks
	n.Conflicts += o.Conflicts
	n.Keys += o.Keys
	n.Bytes += o.Bytes
	n.MaxBytes = max(n.MaxBytes, o.MaxBytes)
	n.Reads += o.Reads
	n.Events += o.Events
	n.Watches += o.Watches
	n.Sessions += o.Sessions
}

func (c *counters) countTxn(t registry.Txn, o outcome) {
	n := &c.txns
	switch {
	case o.failed >= 0 || o.refused != nil:
		n.Conflicts++
	case len(t.Then) == 0:
		n.Checks++
	default:
		bytes := 0
		for i := range t.Then {
			bytes += len(t.Then[i].Key) + len(t.Then[i].Value)
		}
		n.Commits++
		n.Keys += len(t.Then)
		n.Bytes += bytes
		n.MaxBytes = max(n.MaxBytes, bytes)
	}
}
