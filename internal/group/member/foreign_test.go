package member_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/membertest"
	"github.com/rota-dev/rota/registry"
)

// foreignKeys is a registry in which another program wrote the values of some keys: lists and watches
// leave these keys out, Get fails, and a transaction that creates one conflicts.
type foreignKeys struct {
	registry.Registry
	mu   sync.Mutex
	keys map[registry.Key]bool
}

func (f *foreignKeys) set(key registry.Key, is bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.keys[key] = is
}

func (f *foreignKeys) has(key registry.Key) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.keys[key]
}

func (f *foreignKeys) Get(ctx context.Context, key registry.Key, o registry.ReadOptions) (registry.Entry, error) {
	if f.has(key) {
		return registry.Entry{}, fmt.Errorf("%s: %w", key, registry.ErrForeign)
	}
	return f.Registry.Get(ctx, key, o)
}

func (f *foreignKeys) Txn(ctx context.Context, t registry.Txn) (registry.Rev, error) {
	for i, c := range t.If {
		if c.Kind == registry.CondAbsent && f.has(c.Key) {
			return registry.Rev{}, registry.Conflict(t, i)
		}
	}
	for i, op := range t.Then {
		if f.has(op.Key) {
			return registry.Rev{}, registry.Conflict(t, len(t.If)+i)
		}
	}
	return f.Registry.Txn(ctx, t)
}

func TestForeign(t *testing.T) {
	const job, other = `{"name":"job","shards":4}`, `{"name":"other","shards":1}`
	// begin begins a member of a store with a foreign key.
	begin := func(g *membertest.Group, key registry.Key) (*membertest.Worker, *foreignKeys) {
		w := g.NewWorker("a", nil, job, other)
		f := &foreignKeys{Registry: w.Reg.Registry, keys: map[registry.Key]bool{key: true}}
		w.Reg.Registry = f
		g.RunWorker(w)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		return w, f
	}
	for what, key := range map[string]func(g *membertest.Group) registry.Key{
		"plan":       func(g *membertest.Group) registry.Key { return g.Keys.Plan("job") },
		"definition": func(g *membertest.Group) registry.Key { return g.Keys.Job("job") },
	} {
		membertest.RunBubble(t, "value at a "+what+" is logged, holds up no other job, and has no effect once deleted", func(t *testing.T, g *membertest.Group) {
			w, f := begin(g, key(g))
			assert.Positive(t, w.Log.Count("key="+string(key(g))))
			assert.Equal(t, 1, w.Log.Count("another program wrote"))
			w.TakeRuns()
			time.Sleep(time.Minute)
			synctest.Wait()
			runs := w.TakeRuns()
			assert.Len(t, selectJob("other", runs), 1)
			assert.Empty(t, selectJob("job", runs))
			f.set(key(g), false)
			if what == "definition" {
				w.Offer(membertest.DefinitionsByName(job))
			}
			time.Sleep(10 * time.Second)
			assert.Equal(t, 4, g.ReadPlan("job").Owners[w.Incarnation()].Len())
		})
	}
	for what, key := range map[string]func(g *membertest.Group) registry.Key{
		"the leader record": func(g *membertest.Group) registry.Key { return g.Keys.Leader() },
		"the seat":          func(g *membertest.Group) registry.Key { return g.Keys.Seat() },
		"an instance key":   func(g *membertest.Group) registry.Key { return g.Keys.Instance("a") },
	} {
		membertest.RunBubble(t, "value at "+what+" is logged once, and has no effect once deleted", func(t *testing.T, g *membertest.Group) {
			w, f := begin(g, key(g))
			time.Sleep(time.Minute)
			require.Equal(t, 1, w.Log.Count("key="+string(key(g))))
			f.set(key(g), false)
			time.Sleep(10 * time.Second)
			synctest.Wait()
			assert.Equal(t, w.Incarnation(), g.ReadLeader().Incarnation)
		})
	}
}
