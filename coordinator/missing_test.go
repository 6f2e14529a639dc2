package coordinator

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// healing is how long a fleet may take to heal from another hand: the grace, another one if
// the leader is hit as well, and the joining.
const healing = 3*missingGrace + ttl/4

// job is a definition of four shards.
const fourShards = `{"name":"job","shards":4}`

// removeAll deletes records by hand, all by one commit.
func (g *group) removeAll(keys ...registry.Key) {
	g.t.Helper()
	var ops []registry.Op
	for _, k := range keys {
		e, ok := g.get(k)
		require.True(g.t, ok, k)
		ops = append(ops, registry.Delete(k, e.Modified))
	}
	_, err := g.client().Txn(g.t.Context(), registry.Txn{Then: ops})
	require.NoError(g.t, err)
	synctest.Wait()
}

func (g *group) ownKeys(w *worker) (instance, member registry.Key) {
	g.t.Helper()
	return g.keys.Instance(w.Instance()), g.keys.Member(w.incarnation())
}

// requireHealed requires that both members share the job and that all four shards run.
func (g *group) requireHealed(a, b *worker) {
	g.t.Helper()
	require.Equal(g.t, map[string]int{"a": 2, "b": 2}, g.shares("job"))
	for _, w := range []*worker{a, b} {
		instance, member := g.ownKeys(w)
		_, ok := g.get(instance)
		require.True(g.t, ok, instance)
		_, ok = g.get(member)
		require.True(g.t, ok, member)
	}
	a.began()
	b.began()
	time.Sleep(time.Minute)
	synctest.Wait()
	require.Equal(g.t, once(4), merged(shards(a.began()), shards(b.began())))
}

func TestMissing(t *testing.T) {
	two := func(g *group) (a, b *worker) {
		a, b = g.start("a", fourShards), g.start("b", fourShards)
		require.Equal(g.t, a.incarnation(), g.leader().Incarnation)
		return a, b
	}
	for what, which := range map[string]func(instance, member registry.Key) []registry.Key{
		"the instance key":  func(i, _ registry.Key) []registry.Key { return []registry.Key{i} },
		"the member record": func(_, m registry.Key) []registry.Key { return []registry.Key{m} },
		"both records":      func(i, m registry.Key) []registry.Key { return []registry.Key{i, m} },
	} {
		for who, of := range map[string]func(a, b *worker) []*worker{
			"the leader":     func(a, _ *worker) []*worker { return []*worker{a} },
			"another member": func(_, b *worker) []*worker { return []*worker{b} },
			"all members":    func(a, b *worker) []*worker { return []*worker{a, b} },
		} {
			bubble(t, what+" of "+who+" is deleted: the instance joins again within seconds", func(t *testing.T, g *group) {
				a, b := two(g)
				var keys []registry.Key
				var before []string
				hit := of(a, b)
				for _, w := range hit {
					instance, member := g.ownKeys(w)
					keys, before = append(keys, which(instance, member)...), append(before, w.incarnation())
				}
				g.removeAll(keys...)
				time.Sleep(healing)
				synctest.Wait()
				logged := a.log.count("records of a live instance are missing or unreadable") + b.log.count("records of a live instance are missing or unreadable") +
					a.log.count("changed by another hand") + b.log.count("changed by another hand")
				assert.Positive(t, logged)
				for i, w := range hit {
					assert.NotEqual(t, before[i], w.incarnation())
					assert.Positive(t, w.log.count("joining again"))
				}
				g.requireHealed(a, b)
			})
		}
	}
	bubble(t, "a member that is killed after the leader's instance key was deleted is failed over", func(t *testing.T, g *group) {
		a, b := two(g)
		g.remove(g.keys.Instance("a"))
		g.server.Partition("b")
		time.Sleep(ttl + healing)
		synctest.Wait()
		require.Equal(t, 4, g.plan("job").Owners[a.incarnation()].Len())
		_ = b
	})
	bubble(t, "an unreadable member record counts as missing, and goes when its session has ended", func(t *testing.T, g *group) {
		a, b := two(g)
		_, member := g.ownKeys(b)
		g.spoil(member)
		time.Sleep(healing)
		synctest.Wait()
		g.requireHealed(a, b)
		_, ok := g.get(member)
		assert.False(t, ok)
	})
	bubble(t, "a member that owns nothing and lost both records is found by the next leader", func(t *testing.T, g *group) {
		a, b := two(g)
		c := g.start("c", `{"name":"other","shards":1}`)
		op, _ := g.operator()
		require.NoError(t, op.Disable(t.Context(), Scope{Instances: []string{"c"}}))
		time.Sleep(time.Second)
		instance, member := g.ownKeys(c)
		before := c.incarnation()
		a.goes() // while the commit below is the first that b leads with
		g.removeAll(instance, member)
		b.goes()
		time.Sleep(healing)
		synctest.Wait()
		assert.NotEqual(t, before, c.incarnation())
	})
	bubble(t, "an incarnation whose session has ended is not named", func(t *testing.T, g *group) {
		g.grace = time.Minute // so that its member record stays
		a, b := two(g)
		before := b.incarnation()
		g.server.Partition("b")
		time.Sleep(ttl + healing)
		synctest.Wait()
		_, ok := g.get(g.keys.Member(before))
		require.True(t, ok)
		assert.Zero(t, a.log.count("missing or unreadable"))
		e, _ := g.get(g.keys.Present())
		present, err := record.Decode[record.Present](e.Value)
		require.NoError(t, err)
		assert.Empty(t, present.Incomplete)
	})
	bubble(t, "asks the store about a dead incarnation once", func(t *testing.T, g *group) {
		g.grace = time.Minute
		_, b := two(g)
		before := b.incarnation()
		g.server.Partition("b")
		time.Sleep(ttl + healing)
		synctest.Wait()
		g.server.Record()
		time.Sleep(10 * missingGrace)
		for _, c := range g.server.Log() {
			assert.NotContains(t, c.If, registry.Alive(sessionOf(before)))
		}
	})
	bubble(t, "asks nothing about a member that left or died and was buried", func(t *testing.T, g *group) {
		_, b := two(g)
		c := g.start("c", fourShards)
		g.server.Record()
		c.goes()
		g.server.Partition("b")
		time.Sleep(ttl + healing)
		_ = b
		for _, e := range g.server.Log() {
			if e.Client == "a" && len(e.Then) == 0 && e.Opened == "" && e.Ended == "" {
				assert.Empty(t, e.If)
			}
		}
	})
	bubble(t, "a name that another process took meanwhile stays taken", func(t *testing.T, g *group) {
		a, b := two(g)
		g.remove(g.keys.Instance("b"))
		b2 := g.worker("b", nil, fourShards)
		b2.reg.Registry = g.server.Client("elsewhere")
		g.begin(b2)
		time.Sleep(ttl*2 + healing)
		synctest.Wait()
		require.Equal(t, 2, g.plan("job").Owners[b2.incarnation()].Len())
		require.Equal(t, 2, g.plan("job").Owners[a.incarnation()].Len())
		require.ErrorIs(t, b.err, ErrNameTaken)
		b.err = nil
	})
}

func TestHands(t *testing.T) {
	bubble(t, "a leader record that names a live member while another fills the office: that one leads", func(t *testing.T, g *group) {
		a, b := g.start("a", fourShards), g.start("b", fourShards)
		before := a.incarnation()
		g.put(g.keys.Leader(), `{"incarnation":"`+b.incarnation()+`","session":"`+string(b.session())+`"}`)
		time.Sleep(healing)
		synctest.Wait()
		assert.Equal(t, b.incarnation(), g.leader().Incarnation)
		assert.NotEqual(t, before, a.incarnation())
		assert.Positive(t, a.log.count("the leader record names another"))
		g.requireHealed(a, b)
	})
	bubble(t, "a leader record that names a session that has ended: one of the fleet leads", func(t *testing.T, g *group) {
		a, b := g.start("a", fourShards), g.start("b", fourShards)
		g.put(g.keys.Leader(), `{"incarnation":"c.C","session":"C"}`)
		time.Sleep(healing)
		synctest.Wait()
		assert.Contains(t, []string{a.incarnation(), b.incarnation()}, g.leader().Incarnation)
		g.requireHealed(a, b)
	})
	bubble(t, "an orderly hand-over of the office costs nobody its session", func(t *testing.T, g *group) {
		a, b := g.startWorking("a", takes(time.Hour), fourShards), g.start("b", fourShards)
		until(1)
		before := []string{a.incarnation(), b.incarnation()}
		require.NoError(t, a.Drain(t.Context()))
		time.Sleep(healing)
		assert.Equal(t, before, []string{a.incarnation(), b.incarnation()})
	})
	bubble(t, "a record of the namespace that cannot be read is named, and a process that lost its session waits for it", func(t *testing.T, g *group) {
		a, b := g.start("a", fourShards), g.start("b", fourShards)
		was := g.text(g.keys.Meta())
		g.spoil(g.keys.Meta())
		g.server.Expire("b")
		time.Sleep(time.Minute)
		assert.Equal(t, 1, b.log.count("cannot join again: the record of the namespace cannot be read"))
		assert.Contains(t, b.log.String(), "key="+string(g.keys.Meta()))
		g.put(g.keys.Meta(), was)
		time.Sleep(healing)
		synctest.Wait()
		g.requireHealed(a, b)
	})
	bubble(t, "a member record of another incarnation is none", func(t *testing.T, g *group) {
		a, b := g.start("a", fourShards), g.start("b", fourShards)
		_, member := g.ownKeys(b)
		g.put(member, `{"name":"x","session":"X","jobs":["",""],"weight":-5}`)
		time.Sleep(healing)
		synctest.Wait()
		g.requireHealed(a, b)
	})
	bubble(t, "claims of another job are unreadable, and the plan names them", func(t *testing.T, g *group) {
		a, b := g.start("a", fourShards), g.start("b", fourShards)
		until(1)
		claims := g.keys.Claims(b.incarnation(), "job")
		g.server.Partition("b")
		g.put(claims, `{"job":"x"}`)
		time.Sleep(ttl + time.Second)
		assert.Equal(t, string(claims)+" cannot be read", g.plan("job").Problem)
		g.remove(claims)
		time.Sleep(time.Second * 40)
		assert.Equal(t, 4, g.plan("job").Owners[a.incarnation()].Len())
	})
}
