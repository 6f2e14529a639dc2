package leader

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/elector"
	"github.com/rota-dev/rota/internal/group/feed"
	"github.com/rota-dev/rota/internal/group/pools"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// poolWorld is a leader beside a store, with a pool "db" of two slots, which instance a has, and instance b wants.
type poolWorld struct {
	*definedWorld
	rev     registry.Rev // of the slots
	demands uint64
}

func newPoolWorld(t *testing.T) *poolWorld {
	w := &poolWorld{definedWorld: newDefinedWorld(t)}
	l := w.l
	l.View.Group.Pools = map[string]int{"db": 2}
	l.View.Live = map[registry.SessionID]bool{"A": true, "B": true}
	l.pools = poolDealer{
		wanted: true, byName: map[string]*dealtPool{}, byKey: map[string]record.Demand{},
		slots:   feed.New(w.keys.Pools(), l.Log, record.DecodeSlotsEntry).NewReader(l.wakeUp),
		demands: feed.New(w.keys.Demands(), l.Log, w.keys.DecodeDemandEntry).NewReader(l.wakeUp),
	}
	for _, f := range []interface{ ApplyBatch(registry.Batch) }{l.pools.slots.Feed, l.pools.demands.Feed} {
		f.ApplyBatch(registry.Batch{Kind: registry.Snapshot})
	}
	w.demand("b.B", record.PoolDemand{Want: 2})
	return w
}

// give stores slots as an earlier leader has dealt them.
func (w *poolWorld) give(grants map[string]record.Grant) {
	s := record.Slots{Pool: "db", Deal: 1, Grants: grants}
	w.rev = w.put(w.keys.Slots("db"), w.rev, s)
	w.l.pools.slots.Feed.RecordWrite("db", w.rev, s)
}

// demand has the leader read a demand.
func (w *poolWorld) demand(inc string, d record.PoolDemand) {
	w.demands++
	w.l.pools.demands.Feed.RecordWrite("~"+inc, registry.Rev{Seq: w.demands}, record.Demand{Incarnation: inc, Pools: map[string]record.PoolDemand{"db": d}})
}

// step deals once.
func (w *poolWorld) step() error {
	var wg sync.WaitGroup
	defer wg.Wait()
	return w.l.stepPools(w.t.Context(), &wg)
}

// slots returns the stored slots, nil if there are none.
func (w *poolWorld) slots() *record.Slots {
	w.t.Helper()
	e, err := w.reg.Get(w.t.Context(), w.keys.Slots("db"), registry.ReadOptions{})
	if err != nil {
		require.ErrorIs(w.t, err, registry.ErrNotFound)
		return nil
	}
	s, err := record.DecodeSlotsEntry(e)
	require.NoError(w.t, err)
	return &s
}

func (w *poolWorld) dealtTo(inc string) int {
	s := w.slots()
	if s == nil {
		return 0
	}
	return s.Grants[inc].Slots
}

func TestDeals(t *testing.T) {
	two := map[string]record.Grant{"a.A": {Slots: 2, Deal: 1, Keep: 2}}
	for name, f := range map[string]func(t *testing.T, w *poolWorld){
		"slots are dealt at once": func(t *testing.T, w *poolWorld) {
			require.NoError(t, w.step())
			assert.Equal(t, 2, w.dealtTo("b.B"))
		},
		"a pool is dealt once a second": func(t *testing.T, w *poolWorld) {
			require.NoError(t, w.step())
			w.l.View.Group.Pools["db"] = 9
			w.demand("b.B", record.PoolDemand{Want: 9})
			require.NoError(t, w.step())
			assert.Equal(t, 2, w.dealtTo("b.B"))
			assert.Equal(t, pools.DealInterval, time.Until(w.l.nextDue()))
			time.Sleep(pools.DealInterval)
			require.NoError(t, w.step())
			assert.Equal(t, 9, w.dealtTo("b.B"))
		},
		"while the sizes cannot be read, what is dealt stays": func(t *testing.T, w *poolWorld) {
			w.l.View.Group.GroupControl = nil
			require.NoError(t, w.step())
			assert.Nil(t, w.slots())
		},
		"without a size the slots are taken back, and their record is deleted": func(t *testing.T, w *poolWorld) {
			w.give(two)
			delete(w.l.View.Group.Pools, "db")
			require.NoError(t, w.step())
			assert.Zero(t, w.slots().Grants["a.A"].Keep)
			time.Sleep(pools.DealInterval)
			w.demand("a.A", record.PoolDemand{Deal: 1})
			require.NoError(t, w.step())
			assert.Nil(t, w.slots())
		},
		"slots that another writer changed or deleted are restored": func(t *testing.T, w *poolWorld) {
			require.NoError(t, w.step())
			own := w.slots()
			for _, change := range []func(rev registry.Rev) registry.Rev{
				func(rev registry.Rev) registry.Rev {
					edited := record.Slots{Pool: "db", Deal: 9, Grants: map[string]record.Grant{"b.B": {Slots: 900, Deal: 9}}}
					rev = w.put(w.keys.Slots("db"), rev, edited)
					w.l.pools.slots.Feed.RecordWrite("db", rev, edited)
					return rev
				},
				func(rev registry.Rev) registry.Rev {
					_, err := w.reg.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Delete(w.keys.Slots("db"), rev)}})
					require.NoError(t, err)
					w.l.pools.slots.Feed.ApplyBatch(registry.Batch{Kind: registry.Snapshot, Rev: registry.Rev{Seq: rev.Seq + 1}})
					return registry.Rev{}
				},
			} {
				time.Sleep(pools.DealInterval)
				change(w.l.pools.byName["db"].rev)
				require.NoError(t, w.step())
				assert.Equal(t, own, w.slots())
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { f(t, newPoolWorld(t)) })
		})
	}
}

// TestDeals_Guards changes a record between a deal and its commit.
func TestDeals_Guards(t *testing.T) {
	session := func(t *testing.T, w *poolWorld) registry.Session {
		s, err := w.reg.OpenSession(t.Context(), registry.SessionOptions{TTL: time.Minute})
		require.NoError(t, err)
		return s
	}
	for name, f := range map[string]func(t *testing.T, w *poolWorld){
		"the term": func(t *testing.T, w *poolWorld) {
			w.put(w.keys.Leader(), w.l.View.Term, "next term")
			require.ErrorIs(t, w.step(), elector.ErrTermOver)
			assert.Nil(t, w.slots())
		},
		"the slots of a session that has not ended stay its own": func(t *testing.T, w *poolWorld) {
			s := session(t, w)
			inc := record.Incarnation("a", s.ID())
			w.give(map[string]record.Grant{inc: {Slots: 2, Deal: 1, Keep: 2}}) // the list of instances does not show it
			for range 3 {
				require.NoError(t, w.step())
				assert.Equal(t, 2, w.dealtTo(inc))
				time.Sleep(pools.DealInterval)
			}
			require.NoError(t, s.Close(t.Context()))
			for range 2 { // each other time the session counts as alive
				require.NoError(t, w.step())
				time.Sleep(pools.DealInterval)
			}
			assert.Zero(t, w.dealtTo(inc))
			assert.Equal(t, 2, w.dealtTo("b.B"))
		},
		"no slots": func(t *testing.T, w *poolWorld) {
			w.put(w.keys.Slots("db"), registry.Rev{}, record.Slots{Pool: "db", Deal: 1, Grants: map[string]record.Grant{"a.A": {Slots: 2, Deal: 1}}})
			require.NoError(t, w.step())
			assert.Zero(t, w.dealtTo("b.B"))
		},
		"the slots as read": func(t *testing.T, w *poolWorld) {
			w.give(map[string]record.Grant{})
			w.put(w.keys.Slots("db"), w.rev, record.Slots{Pool: "db", Deal: 1, Grants: map[string]record.Grant{"a.A": {Slots: 2, Deal: 1}}})
			require.NoError(t, w.step())
			assert.Zero(t, w.dealtTo("b.B"))
		},
		"the slots as read, if they are deleted": func(t *testing.T, w *poolWorld) {
			w.give(map[string]record.Grant{})
			delete(w.l.View.Group.Pools, "db")
			w.put(w.keys.Slots("db"), w.rev, record.Slots{Pool: "db", Deal: 1, Grants: map[string]record.Grant{"a.A": {Slots: 2, Deal: 1}}})
			require.NoError(t, w.step())
			assert.Equal(t, 2, w.dealtTo("a.A"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { f(t, newPoolWorld(t)) })
		})
	}
}
