package leader

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rota-dev/rota/internal/group/batch"
	"github.com/rota-dev/rota/internal/group/feed"
	"github.com/rota-dev/rota/internal/group/pools"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// poolDealer deals the slots of pools. It belongs to the goroutine of its leader, and costs nothing until a job has a pool.
type poolDealer struct {
	wanted  bool // a job has a pool, or a pool has a size
	slots   *feed.Reader[record.Slots]
	demands *feed.Reader[record.Demand]
	byName  map[string]*dealtPool
	byKey   map[string]record.Demand // as delivered, by the name of the key
	next    time.Time                // when a pool may be dealt that has to wait; zero: none has
}

// dealtPool is the state of a pool in a leader.
type dealtPool struct {
	name      string
	rev       registry.Rev  // of the record; zero: there is none
	slots     *record.Slots // nil: there is none, or it cannot be read
	own       bool          // slots is of this leader
	edited    bool          // another writer has changed or deleted the record since
	demands   map[string]pools.Demand
	undead    map[string]bool // count as alive at the next decision, since the store has refused a deal of their slots
	notBefore time.Time       // of the next version of the record
	dirty     bool            // to be decided on
}

// notePools has the leader follow pools once a job or the group has one.
func (l *Leader) notePools(job record.Job) {
	l.pools.wanted = l.pools.wanted || job.Pool != ""
}

// PoolSizes are the sizes of pools as the leader knows them, nil if it does not. They are shared and must not be changed.
type PoolSizes = atomic.Pointer[map[string]int]

// noteSizes is called when the sizes of pools may have changed.
func (l *Leader) noteSizes() {
	if g := l.View.Group.GroupControl; g != nil {
		l.pools.wanted = l.pools.wanted || len(g.Pools) > 0
		l.poolSizes.Store(&g.Pools)
	} else {
		l.poolSizes.Store(nil)
	}
	l.pools.markAll()
}

// markAll has all pools decided on.
func (d *poolDealer) markAll() {
	for _, p := range d.byName {
		p.dirty = true
	}
}

// pool returns the state of a pool, which is to be decided on.
func (d *poolDealer) pool(name string) *dealtPool {
	p := d.byName[name]
	if p == nil {
		p = &dealtPool{name: name, demands: map[string]pools.Demand{}, undead: map[string]bool{}}
		d.byName[name] = p
	}
	p.dirty = true
	return p
}

// updatePools applies the updates of slots and demands, and reports whether both have delivered a snapshot.
func (l *Leader) updatePools(ctx context.Context, wg *sync.WaitGroup) bool {
	d := &l.pools
	if !d.wanted {
		return false
	}
	if d.slots == nil {
		d.byName, d.byKey = map[string]*dealtPool{}, map[string]record.Demand{}
		d.slots = followDirectory(ctx, wg, l, l.Self.Keys.Pools(), record.DecodeSlotsEntry)
		d.demands = followDirectory(ctx, wg, l, l.Self.Keys.Demands(), l.Self.Keys.DecodeDemandEntry)
	}
	synced := d.slots.Drain(func(n feed.Update[record.Slots]) {
		l.LastCommit = max(l.LastCommit, n.Rev.Seq)
		d.pool(n.Name).observeSlots(n, l.Log)
	})
	return d.demands.Drain(d.observeDemand) && synced
}

// observeSlots applies a version of the record. If another writer has written it, the version of this leader stays the truth.
func (p *dealtPool) observeSlots(n feed.Update[record.Slots], log *slog.Logger) {
	if n.Deleted && p.rev.IsZero() || n.Rev.Seq != 0 && n.Rev.Seq <= p.rev.Seq {
		return
	}
	p.rev = n.Rev
	if n.Deleted {
		p.rev = registry.Rev{}
	}
	if p.own {
		p.edited = true
		log.Warn("another writer changed the slots of a pool; restoring them", "pool", p.name)
		return
	}
	p.slots = nil
	if !n.Deleted && !n.Unreadable {
		p.slots = &n.Value
	}
}

// observeDemand applies a version of a demand.
func (d *poolDealer) observeDemand(n feed.Update[record.Demand]) {
	before := d.byKey[n.Name]
	delete(d.byKey, n.Name)
	for pool := range before.Pools {
		if _, stays := n.Value.Pools[pool]; !stays || n.Deleted || n.Unreadable {
			delete(d.pool(pool).demands, before.Incarnation)
		}
	}
	if n.Deleted || n.Unreadable {
		return
	}
	d.byKey[n.Name] = n.Value
	for pool, wants := range n.Value.Pools {
		p := d.pool(pool)
		old, known := p.demands[n.Value.Incarnation]
		since := old.Since
		if !known || !p.waits(n.Value.Incarnation, old) {
			since = n.Rev.Seq
		}
		p.demands[n.Value.Incarnation] = pools.Demand{PoolDemand: wants, Since: since}
	}
}

// waits reports whether an incarnation wants more slots than it has.
func (p *dealtPool) waits(inc string, d pools.Demand) bool {
	var g record.Grant
	if p.slots != nil {
		g = p.slots.Grants[inc]
	}
	held, _ := pools.Held(g, d.PoolDemand)
	return d.Want > held
}

// deal is a version of the record of a pool to write.
type deal struct {
	pools.Output
	*dealtPool
	items batch.Items
}

// stepPools deals the slots of pools for which something has changed, each at most once in pools.DealInterval.
func (l *Leader) stepPools(ctx context.Context, wg *sync.WaitGroup) error {
	group := l.View.Group.GroupControl
	if !l.updatePools(ctx, wg) || group == nil { // while the sizes cannot be read, grants stay
		return nil
	}
	d, now := &l.pools, time.Now()
	d.next = time.Time{}
	var deals []deal
	for _, name := range slices.Sorted(maps.Keys(d.byName)) {
		p := d.byName[name]
		switch {
		case !p.dirty:
		case now.Before(p.notBefore):
			d.next = earliest(d.next, p.notBefore)
		default:
			p.dirty = len(p.undead) > 0
			next, err := l.decideDeal(p, group.Pools[name])
			if err != nil {
				l.Log.Error("slots of a pool cannot be written", "pool", name, "error", err)
			} else if len(next.items.Ops) > 0 {
				deals = append(deals, next)
			}
			if p.dirty {
				p.notBefore = now.Add(pools.DealInterval)
				d.next = earliest(d.next, p.notBefore)
			}
		}
	}
	if len(deals) == 0 {
		return nil
	}
	return l.commitDeals(ctx, deals)
}

// decideDeal decides how the slots of a pool are dealt. The result has no operation if nothing has to be written.
func (l *Leader) decideDeal(p *dealtPool, size int) (next deal, err error) {
	out := pools.Deal(pools.Input{Pool: p.name, Size: size, Slots: p.slots, Demands: p.demands, Alive: l.View.Alive, Undead: p.undead})
	clear(p.undead)
	next = deal{Output: out, dealtPool: p}
	if out.Slots == nil && !out.Delete && p.edited {
		next.Slots = p.slots
	}
	for _, inc := range out.Dead {
		next.items.Conds = append(next.items.Conds, registry.Dead(record.SessionOf(inc)))
	}
	key := l.Self.Keys.Slots(p.name)
	switch {
	case next.Delete && !p.rev.IsZero():
		next.items.Ops = []registry.Op{registry.Delete(key, p.rev)}
		return next, nil
	case next.Slots == nil:
		p.forgetIfUnused(l)
		return next, nil
	}
	value, err := record.Encode(next.Slots)
	if err != nil {
		return next, err
	}
	if p.rev.IsZero() {
		next.items.Ops = []registry.Op{registry.Create(key, value)}
	} else {
		next.items.Ops = []registry.Op{registry.Set(key, p.rev, value)}
	}
	return next, nil
}

// forgetIfUnused drops a pool of which nothing is known any more.
func (p *dealtPool) forgetIfUnused(l *Leader) {
	if p.rev.IsZero() && len(p.demands) == 0 {
		delete(l.pools.byName, p.name)
	}
}

// commitDeals commits deals in as few transactions as possible.
func (l *Leader) commitDeals(ctx context.Context, deals []deal) error {
	l.Progress.SetTask("writes", "slots of pools")
	term := []registry.Cond{registry.At(l.Self.Keys.Leader(), l.View.Term)}
	refused, err := applyParts(ctx, l, term, deals, func(d deal) batch.Items { return d.items }, l.recordDeal)
	if err != nil {
		return fmt.Errorf("deal the slots of pools: %w", err)
	}
	now := time.Now()
	for _, d := range refused { // another writer has changed the record, or a session has not ended
		for _, inc := range d.Dead {
			d.undead[inc] = true
		}
		d.dirty, d.notBefore = true, now.Add(pools.DealInterval)
		l.pools.next = earliest(l.pools.next, d.notBefore)
	}
	return nil
}

// recordDeal applies a committed deal without waiting for its event.
func (l *Leader) recordDeal(d deal, rev registry.Rev) {
	p := d.dealtPool
	p.own, p.edited, p.notBefore = true, false, time.Now().Add(pools.DealInterval)
	if d.Delete {
		p.slots, p.rev, p.own = nil, registry.Rev{}, false
		return
	}
	p.slots, p.rev = d.Slots, rev
	l.pools.slots.Feed.RecordWrite(p.name, rev, *d.Slots)
	for _, inc := range d.Raised { // if it waits for more, it has had its turn
		wants := p.demands[inc]
		wants.Since = rev.Seq
		p.demands[inc] = wants
	}
}
