package snapshot

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/registry"
)

// kind is a kind of record, with one that can be read. Has reports whether a snapshot has its decoded form.
type kind struct {
	key   registry.Key
	value any
	has   func(*Snapshot) bool
	alone string // the reason why the record cannot be read at the key of another; empty if it names no job or member
}

func newKeys(t *testing.T) record.Keys {
	t.Helper()
	keys, err := record.NewKeys("test", "default")
	require.NoError(t, err)
	return keys
}

// kindsOf returns a record of each kind for a job and an incarnation.
func kindsOf(t *testing.T, keys record.Keys, job, name string) map[string]kind {
	t.Helper()
	session := registry.SessionID("s" + name)
	inc := record.Incarnation(name, session)
	def := json.RawMessage(coordtest.Def(job, 1, 2, ""))
	epoch, err := record.NewEpoch(1, coordtest.Start, def)
	require.NoError(t, err)
	plan := &record.Plan{Format: record.Format, Job: job, Epochs: []record.Epoch{epoch}, Owners: map[string]shardset.Set{inc: shardset.Range(0, 2)}}
	of := func(what, job string) string { return fmt.Sprintf("record of %s %q at ", what, job) }
	return map[string]kind{
		"the namespace":     {keys.Meta(), record.Meta{Format: record.Format}, func(s *Snapshot) bool { return s.Meta != nil }, ""},
		"the leader":        {keys.Leader(), record.Leader{Incarnation: inc}, func(s *Snapshot) bool { return s.Leader.Leader != nil }, ""},
		"the group control": {keys.GroupControl(), &record.GroupControl{Paused: true}, func(s *Snapshot) bool { return s.Group.GroupControl != nil }, ""},
		"a member":          {keys.Member(inc), record.Member{Name: name, Session: session}, func(s *Snapshot) bool { return s.Members[inc].Name != "" }, of("incarnation", inc)},
		"slots of a pool":   {keys.Slots("of-" + name), record.Slots{Pool: "of-" + name}, func(s *Snapshot) bool { return s.Slots["of-"+name].Pool != "" }, of("pool", "of-"+name)},
		"a demand":          {keys.Demand(inc), record.Demand{Incarnation: inc}, func(s *Snapshot) bool { return s.Demands[inc].Incarnation != "" }, fmt.Sprintf("demand of incarnation %q at ", inc)},
		"a definition":      {keys.Job(job), def, func(s *Snapshot) bool { return s.Jobs[job].Name != "" }, of("job", job)},
		"a control record":  {keys.Control(job), &record.Control{Job: job}, func(s *Snapshot) bool { return s.Control[job].Control != nil }, of("job", job)},
		"a plan":            {keys.Plan(job), plan, func(s *Snapshot) bool { return s.Plans[job].Plan != nil }, of("job", job)},
		"claims":            {keys.Claims(inc, job), record.Claims{Job: job}, func(s *Snapshot) bool { return s.Claims[job][inc].Job != "" }, of("job", job)},
	}
}

func entryOf(t *testing.T, key registry.Key, v any) registry.Entry {
	t.Helper()
	value, err := record.Encode(v)
	require.NoError(t, err)
	e := registry.Entry{Key: key, Value: value, Modified: registry.Rev{Seq: 7}}
	if d, owned := v.(record.Demand); owned {
		e.Owner = record.SessionOf(d.Incarnation)
	}
	return e
}

func TestSnapshot_Put(t *testing.T) {
	keys := newKeys(t)
	others := kindsOf(t, keys, "other", "b")
	for name, k := range kindsOf(t, keys, "job", "a") {
		t.Run(name+" is decoded, replaced and removed", func(t *testing.T) {
			s := New(keys)
			good := entryOf(t, k.key, k.value)
			s.Put(good)
			assert.True(t, k.has(s))
			require.NoError(t, s.Check(k.key))

			s.Put(registry.Entry{Key: k.key, Value: []byte("spoilt")})
			assert.False(t, k.has(s), "the earlier record is not there any more")
			require.ErrorContains(t, s.Check(k.key), "read "+string(k.key)+": ")
			assert.Equal(t, []registry.Key{k.key}, slices.Collect(maps.Keys(s.Unreadable)))

			s.Put(good)
			assert.True(t, k.has(s))
			assert.Empty(t, s.Unreadable)
			s.Remove(k.key)
			assert.Equal(t, New(keys), s)
		})
		t.Run(name+" of another program is neither there nor damaged", func(t *testing.T) {
			s := New(keys)
			s.Put(entryOf(t, k.key, k.value))
			foreign := fmt.Errorf("get %s: %w", k.key, registry.ErrForeign)
			s.PutForeign(k.key, foreign)
			assert.False(t, k.has(s))
			assert.True(t, s.Has(k.key))
			assert.Equal(t, []registry.Key{k.key}, s.Foreign())
			assert.Empty(t, s.Damaged(k.key.Dir()))
			assert.Equal(t, foreign, s.Check(k.key), "it names the key already")
			assert.Equal(t, foreign, s.CheckForeign())
			s.Put(entryOf(t, k.key, k.value))
			assert.True(t, k.has(s))
			require.NoError(t, s.CheckForeign())
		})
		if k.alone == "" {
			continue
		}
		t.Run(name+" at the key of another cannot be read", func(t *testing.T) {
			s := New(keys)
			key := others[name].key
			s.Put(entryOf(t, key, k.value))
			require.EqualError(t, s.Unreadable[key], k.alone+string(key))
			assert.Equal(t, []registry.Key{key}, s.Damaged(key.Dir()))
			assert.False(t, k.has(s))
		})
	}
	t.Run("a seat and an instance that cannot be read are there", func(t *testing.T) {
		s := New(keys)
		s.Put(registry.Entry{Key: keys.Seat(), Value: []byte("spoilt")})
		s.Put(registry.Entry{Key: keys.Instance("a"), Value: []byte("spoilt"), Owner: "s1"})
		assert.Equal(t, &record.Seat{}, s.Seat)
		assert.True(t, s.IsLive("s1"))
		assert.Len(t, s.Unreadable, 2)
		s.Put(entryOf(t, keys.Leader(), record.Leader{Incarnation: "a.s1"}))
		leader, term := s.ReadLeader()
		assert.Equal(t, "a.s1", leader)
		assert.EqualValues(t, 7, term)
	})
	t.Run("the session of an instance is that of its newest record", func(t *testing.T) {
		s := New(keys)
		s.Put(registry.Entry{Key: keys.Instance("a"), Value: []byte("{}"), Owner: "s1"})
		s.Put(registry.Entry{Key: keys.Instance("a"), Value: []byte("{}"), Owner: "s2"})
		assert.False(t, s.IsLive("s1"))
		assert.True(t, s.IsLive("s2"))
	})
	t.Run("the copy of a claims record is only checked, and other keys are ignored", func(t *testing.T) {
		s := New(keys)
		s.Put(entryOf(t, keys.EndsOf("a.1", "job"), record.Ends{}))
		s.Put(registry.Entry{Key: keys.Data("job", 1), Value: []byte("anything")})
		assert.Equal(t, New(keys), s)
		s.Put(registry.Entry{Key: keys.EndsOf("a.1", "job"), Value: []byte("spoilt")})
		assert.Len(t, s.Damaged(keys.Ends()), 1)
	})
}

func TestSnapshot_Incarnations(t *testing.T) {
	keys := newKeys(t)
	s := New(keys)
	s.Put(entryOf(t, keys.Member("a.1"), record.Member{Name: "a", Session: "1"}))
	s.Put(registry.Entry{Key: keys.Member("b.2"), Value: []byte("spoilt")})
	s.PutForeign(keys.Member("c.3"), registry.ErrForeign)
	for _, job := range []string{"job", "other"} {
		s.Put(entryOf(t, keys.Plan(job), kindsOf(t, keys, job, "d")["a plan"].value))
	}
	assert.Equal(t, []string{"a.1", "b.2", "d.sd"}, s.Incarnations(), "members, also unreadable ones, and owners")
	assert.Equal(t, []string{"a.1", "d.sd"}, s.ClaimantsOf("job"))
	s.Remove(keys.Plan("job"))
	assert.Contains(t, s.Incarnations(), "d.sd", "it owns shards of the other job")
	assert.Equal(t, []string{"a.1"}, s.ClaimantsOf("job"))
	s.Remove(keys.Plan("other"))
	assert.Equal(t, []string{"a.1", "b.2"}, s.Incarnations())
}

func TestSnapshot_Definition(t *testing.T) {
	keys := newKeys(t)
	s, of := New(keys), kindsOf(t, keys, "job", "a")
	assert.Empty(t, s.Definition("job").Name)
	s.Put(entryOf(t, keys.Plan("job"), of["a plan"].value))
	assert.Equal(t, 1, s.Definition("job").Revision, "that of the plan")
	s.Put(entryOf(t, keys.Job("job"), json.RawMessage(coordtest.Def("job", 2, 2, ""))))
	assert.Equal(t, 2, s.Definition("job").Revision, "the stored one")
	s.Put(registry.Entry{Key: keys.Job("job"), Value: []byte("spoilt")})
	assert.Equal(t, 1, s.Definition("job").Revision)
	assert.Equal(t, map[string]bool{"job": true}, maps.Collect(func(yield func(string, bool) bool) {
		for segment := range s.Segments() {
			if !yield(segment, true) {
				return
			}
		}
	}))
}

// TestSnapshot_UpdatesEqualAFreshRead puts, damages and removes records in random order. After each step the snapshot equals
// a new one of the records that are left, put in another order.
func TestSnapshot_UpdatesEqualAFreshRead(t *testing.T) {
	keys := newKeys(t)
	var all []registry.Entry
	for _, job := range []string{"job", "other"} {
		for _, name := range []string{"a", "b"} {
			for _, k := range kindsOf(t, keys, job, name) {
				all = append(all, entryOf(t, k.key, k.value))
			}
			all = append(all, registry.Entry{Key: keys.Instance(name), Value: []byte("{}"), Owner: registry.SessionID("s" + name)})
		}
	}
	all = append(all, entryOf(t, keys.Seat(), record.Seat{}))
	slices.SortStableFunc(all, func(a, b registry.Entry) int { return cmp.Compare(a.Key, b.Key) })
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 0))
		s, stored := New(keys), map[registry.Key]registry.Entry{}
		for step := range 100 {
			e := all[rng.IntN(len(all))]
			e.Modified.Seq = uint64(step)
			switch rng.IntN(5) {
			case 0:
				s.Remove(e.Key)
				delete(stored, e.Key)
				continue
			case 1:
				e.Value = []byte("spoilt")
			case 2:
				e.Value = all[rng.IntN(len(all))].Value
			}
			s.Put(e)
			stored[e.Key] = e
			fresh := New(keys)
			fresh.PutAll(slices.Collect(maps.Values(stored)))
			require.Equal(t, fresh, s, "seed %d, step %d", seed, step)
			for key := range stored {
				isClaims := key.Dir().Dir() == keys.ClaimsOf("x").Dir()
				require.True(t, isClaims || s.Has(key), "seed %d, step %d, %s", seed, step, key)
			}
		}
	}
}

func TestSnapshot_AwaitedPool(t *testing.T) {
	keys := newKeys(t)
	s := New(keys)
	putPlan := func(pool string) {
		epoch, err := record.NewEpoch(1, coordtest.Start, json.RawMessage(coordtest.Def("job", 1, 2, pool)))
		require.NoError(t, err)
		owners := map[string]shardset.Set{"a.1": shardset.Of(0), "b.2": shardset.Of(1)}
		s.Put(entryOf(t, keys.Plan("job"), &record.Plan{Format: record.Format, Job: "job", Epochs: []record.Epoch{epoch}, Owners: owners}))
	}
	assert.Empty(t, s.AwaitedPool("job"), "no plan")
	putPlan("")
	assert.False(t, s.HasPool())
	assert.Empty(t, s.AwaitedPool("job"))
	putPlan(`,"pool":"db"`)
	putPlan(`,"pool":"db"`)
	assert.True(t, s.HasPool())
	assert.Equal(t, "db", s.AwaitedPool("job"), "no slots are dealt")
	s.Put(entryOf(t, keys.Slots("db"), record.Slots{Pool: "db", Deal: 1, Grants: map[string]record.Grant{"a.1": {Slots: 1, Deal: 1}, "b.2": {Slots: 1, Deal: 1}}}))
	assert.Empty(t, s.AwaitedPool("job"))
	s.Put(entryOf(t, keys.Demand("b.2"), record.Demand{Incarnation: "b.2", Pools: map[string]record.PoolDemand{"db": {Want: 2, Cap: 1, Deal: 1}}}))
	assert.Equal(t, "db", s.AwaitedPool("job"))
	pools := s.Pools()
	assert.Equal(t, map[string]int{"a.1": 1, "b.2": 1}, pools.Holders("db"))
	s.Remove(keys.Demand("b.2"))
	assert.Empty(t, s.AwaitedPool("job"))
	putPlan("")
	assert.False(t, s.HasPool())
}
