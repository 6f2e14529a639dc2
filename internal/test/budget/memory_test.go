package budget_test

import (
	"testing"
	"time"

	"github.com/rota-dev/rota/internal/test/judge"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

type memoryStore struct {
	server *memory.Server
	delay  time.Duration        // of each request and each reply of instances opened from now on
	ended  map[string]time.Time // by instance: when its session ended, of the commits received
}

func newMemory() *memoryStore {
	s := &memoryStore{server: memory.New(), ended: map[string]time.Time{}}
	s.server.Record()
	return s
}

func (s *memoryStore) open(_ testing.TB, name string) registry.Registry {
	s.server.Delay(name, s.delay, s.delay)
	return s.server.Client(name)
}

func (s *memoryStore) silence(name string) (heal func()) { return s.server.Partition(name) }

func (s *memoryStore) follow() []judge.Commit {
	var all []judge.Commit
	for _, c := range s.server.Log() {
		if c.Ended != "" {
			s.ended[c.Client] = c.At
		}
		if c.Err == nil && len(c.Then) > 0 {
			all = append(all, judge.Commit{Rev: c.Rev, At: c.At, If: c.If, Then: c.Then})
		}
	}
	return all
}

func (s *memoryStore) count(testing.TB) counts {
	n := s.server.Counts("")
	s.server.ResetCounts()
	return counts{
		commits: s.follow(),
		txns:    n.Commits + n.Checks + n.Conflicts,
		reads:   n.Reads,
		events:  n.Events,
	}
}

func (s *memoryStore) pace() time.Duration { return time.Minute }

func (s *memoryStore) patience() time.Duration { return time.Hour }
