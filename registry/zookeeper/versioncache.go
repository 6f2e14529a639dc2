package zookeeper

import (
	"sync"

	"github.com/rota-dev/rota/registry"
)

// memo remembers the versions of znodes, so that one who read a key, or wrote it, can
// write it without another read. What it says may be outdated, and is checked by the
// server; what it has forgotten is read again.
type memo struct {
	mu       sync.Mutex
	new, old map[registry.Key]fact
}

// fact is what was known of a znode. Its value is left out.
type fact struct {
	node
	// reaped is the count of reapings from before it was read. As long as that is the
	// count, the znode has not been taken away and made again, with versions from the
	// start.
	reaped int32
}

// memoSize is how many keys are remembered at least, of those that were used last.
const memoSize = 4096

func (m *memo) put(key registry.Key, n *node, reaped int32) {
	f := fact{*n, reaped}
	f.value = nil
	m.mu.Lock()
	defer m.mu.Unlock()
	m.putLocked(key, f)
}

func (m *memo) putLocked(key registry.Key, f fact) {
	if m.new == nil || len(m.new) >= memoSize {
		m.new, m.old = make(map[registry.Key]fact), m.new
	}
	m.new[key] = f
}

// get returns what is known of key if that goes for this count of reapings.
func (m *memo) get(key registry.Key, reaped int32) (fact, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f, ok := m.new[key]
	if !ok {
		if f, ok = m.old[key]; ok {
			m.putLocked(key, f)
		}
	}
	return f, ok && f.reaped == reaped
}

func (m *memo) drop(key registry.Key) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.new, key)
	delete(m.old, key)
}
