package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/rota-dev/rota/internal/group/explain"
	"github.com/rota-dev/rota/internal/group/pools"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// ErrTooManyPools means that the group has 256 pools.
var ErrTooManyPools = errors.New("too many pools")

// PoolStatus is the state of a pool.
type PoolStatus struct {
	Pool string `json:"name"`
	// Size is how many runs may run at once. Sized reports whether SetPool has said so; without a size there are no slots.
	Size  int  `json:"size"`
	Sized bool `json:"sized"`
	// Taken is how many slots instances have. They use them for their runs, and keep idle ones while no other instance waits.
	// It can exceed Size for a while after SetPool has lowered it.
	Taken int `json:"taken"`
	// Waiting is how many more slots instances want, as they have announced.
	Waiting int `json:"waiting"`
	// Instances are the instances that have or want slots, sorted by name.
	Instances []PoolInstance `json:"instances"`
}

// PoolInstance is the part of an instance in a pool.
type PoolInstance struct {
	Instance    string `json:"name"`
	Incarnation string `json:"incarnation"`
	Slots       int    `json:"slots"`
	Wants       int    `json:"wants"` // slots, those that it has included
	// Alive reports whether the session existed. Slots of an expired instance are dealt again when another one waits.
	Alive bool `json:"alive"`
}

// SetPool sets how many runs of the jobs with a Pool of that name may run at once in the group, up to 10,000. Zero holds all of
// them back. A group has 256 pools at most. Runs that have begun continue: a lower size is in force when enough of them have ended.
func (o *Operator) SetPool(ctx context.Context, pool string, size int) error {
	err := cmp.Or(record.CheckPool(pool), record.CheckPoolSize(size))
	if err != nil {
		return fmt.Errorf("set pool %.100q: %w", pool, invalidArgument(err))
	}
	err = o.changeGroupControl(ctx, func(c *record.GroupControl) (string, error) {
		was, sized := c.Pools[pool]
		switch {
		case sized && was == size:
			return "", ErrUnchanged
		case !sized && len(c.Pools) >= record.MaxPools:
			return "", ErrTooManyPools
		}
		c.Pools = maps.Clone(c.Pools)
		if c.Pools == nil {
			c.Pools = map[string]int{}
		}
		c.Pools[pool] = size
		return fmt.Sprintf("set pool %s to %d", pool, size), nil
	})
	if err != nil {
		return fmt.Errorf("set pool %q: %w", pool, err)
	}
	return nil
}

// DeletePool deletes the size of a pool. Runs that have begun continue. If jobs still name the pool, their runs wait until it has a size
// again: take the pool out of the jobs first.
func (o *Operator) DeletePool(ctx context.Context, pool string) error {
	err := o.changeGroupControl(ctx, func(c *record.GroupControl) (string, error) {
		if _, sized := c.Pools[pool]; !sized {
			return "", ErrUnchanged
		}
		c.Pools = maps.Clone(c.Pools)
		delete(c.Pools, pool)
		return "delete pool " + pool, nil
	})
	if err != nil {
		return fmt.Errorf("delete pool %q: %w", pool, err)
	}
	return nil
}

// Pools returns the pools of the group, sorted by name: those with a size, and those of which instances have or want slots.
func (o *Operator) Pools(ctx context.Context) ([]PoolStatus, error) {
	read, err := o.readPools(ctx)
	if err != nil {
		return nil, fmt.Errorf("pools: %w", err)
	}
	return read.status(), nil
}

// explainPools returns the records of pools for the job of a plan, nil if it has no pool.
func (o *Operator) explainPools(ctx context.Context, p *record.Plan) (*explain.Pools, error) {
	if p == nil || !p.HasPool() {
		return nil, nil
	}
	r, err := o.readPools(ctx)
	return &explain.Pools{Sizes: r.sizes, Slots: r.slots, Demands: r.demands}, err
}

// poolRecords are the records of the pools of a group.
type poolRecords struct {
	sizes   map[string]int
	slots   map[string]record.Slots
	demands map[string]record.Demand // by incarnation
	live    map[registry.SessionID]bool
}

// readPools reads the records of the pools. What cannot be read counts as missing; the leader logs it.
func (o *Operator) readPools(ctx context.Context) (poolRecords, error) {
	r := poolRecords{slots: map[string]record.Slots{}, demands: map[string]record.Demand{}, live: map[registry.SessionID]bool{}}
	group, err := o.readGroupControl(ctx)
	if err != nil {
		return r, err
	}
	r.sizes = group.Pools
	for _, dir := range []struct {
		key registry.Key
		add func(registry.Entry)
	}{
		{o.keys.Demands(), func(e registry.Entry) {
			if d, err := o.keys.DecodeDemandEntry(e); err == nil {
				r.demands[d.Incarnation] = d
			}
		}},
		{o.keys.Pools(), func(e registry.Entry) {
			if s, err := record.DecodeSlotsEntry(e); err == nil {
				r.slots[s.Pool] = s
			}
		}},
		{o.keys.Instances(), func(e registry.Entry) { r.live[e.Owner] = true }},
	} {
		listing, err := o.reg.List(ctx, dir.key, registry.ReadOptions{})
		if err != nil {
			return r, err
		}
		for _, e := range listing.Entries {
			dir.add(e)
		}
	}
	return r, nil
}

// status returns the state of all pools.
func (r *poolRecords) status() []PoolStatus {
	names := map[string]bool{}
	for name := range r.sizes {
		names[name] = true
	}
	for name := range r.slots {
		names[name] = true
	}
	for _, d := range r.demands {
		for name := range d.Pools {
			names[name] = true
		}
	}
	out := make([]PoolStatus, 0, len(names))
	for _, name := range slices.Sorted(maps.Keys(names)) {
		out = append(out, r.statusOf(name))
	}
	return out
}

// statusOf returns the state of one pool.
func (r *poolRecords) statusOf(name string) PoolStatus {
	size, sized := r.sizes[name]
	s := PoolStatus{Pool: name, Size: size, Sized: sized, Instances: []PoolInstance{}}
	incarnations := map[string]bool{}
	for inc := range r.slots[name].Grants {
		incarnations[inc] = true
	}
	for inc, d := range r.demands {
		if _, ok := d.Pools[name]; ok {
			incarnations[inc] = true
		}
	}
	for _, inc := range slices.Sorted(maps.Keys(incarnations)) {
		d := r.demands[inc].Pools[name]
		held, _ := pools.Held(r.slots[name].Grants[inc], d)
		i := PoolInstance{Instance: record.InstanceOf(inc), Incarnation: inc, Slots: held, Wants: d.Want, Alive: r.live[record.SessionOf(inc)]}
		if i.Slots == 0 && i.Wants == 0 {
			continue
		}
		s.Taken += i.Slots
		s.Waiting += max(i.Wants-i.Slots, 0)
		s.Instances = append(s.Instances, i)
	}
	return s
}
