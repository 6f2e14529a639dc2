package coordinator

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/registry"
)

// foreignKeys is a registry in which other programs wrote the values of some keys: lists and watches do
// not show them, Get fails, and a transaction that would make one conflicts.
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
	begin := func(g *group, key registry.Key) (*worker, *foreignKeys) {
		w := g.worker("a", nil, job, other)
		f := &foreignKeys{Registry: w.reg.Registry, keys: map[registry.Key]bool{key: true}}
		w.reg.Registry = f
		g.begin(w)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		return w, f
	}
	for what, key := range map[string]func(g *group) registry.Key{
		"plan":       func(g *group) registry.Key { return g.keys.Plan("job") },
		"definition": func(g *group) registry.Key { return g.keys.Job("job") },
	} {
		bubble(t, "at a "+what+" is named, holds up no other job, and heals when it is deleted", func(t *testing.T, g *group) {
			w, f := begin(g, key(g))
			assert.Positive(t, w.log.count("key="+string(key(g))))
			assert.Equal(t, 1, w.log.count("another program wrote"))
			w.began()
			time.Sleep(time.Minute)
			synctest.Wait()
			runs := w.began()
			assert.Len(t, of("other", runs), 1)
			assert.Empty(t, of("job", runs))
			f.set(key(g), false)
			if what == "definition" {
				w.Offer(offering(job))
			}
			time.Sleep(10 * time.Second)
			assert.Equal(t, 4, g.plan("job").Owners[w.incarnation()].Len())
		})
	}
	for what, key := range map[string]func(g *group) registry.Key{
		"the leader record": func(g *group) registry.Key { return g.keys.Leader() },
		"~present":          func(g *group) registry.Key { return g.keys.Present() },
		"an instance key":   func(g *group) registry.Key { return g.keys.Instance("a") },
	} {
		bubble(t, "at "+what+" is named once, and heals when it is deleted", func(t *testing.T, g *group) {
			w, f := begin(g, key(g))
			time.Sleep(time.Minute)
			require.Equal(t, 1, w.log.count("key="+string(key(g))))
			f.set(key(g), false)
			time.Sleep(10 * time.Second)
			synctest.Wait()
			assert.Equal(t, w.incarnation(), g.leader().Incarnation)
		})
	}
}
