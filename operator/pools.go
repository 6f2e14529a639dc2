package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rota-dev/rota/internal/group/snapshot"
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

// AddPools sets the sizes of those pools that have none, and returns the sizes of all pools then. Sizes that operators have set stay. It
// returns the error of SetPool for a size that is not allowed, and then sets none.
func (o *Operator) AddPools(ctx context.Context, sizes map[string]int) (inForce map[string]int, err error) {
	for _, pool := range slices.Sorted(maps.Keys(sizes)) {
		if err := cmp.Or(record.CheckPool(pool), record.CheckPoolSize(sizes[pool])); err != nil {
			return nil, fmt.Errorf("add pool %.100q: %w", pool, invalidArgument(err))
		}
	}
	err = o.changeGroupControl(ctx, func(c *record.GroupControl) (string, error) {
		all, added := map[string]int{}, []string{}
		maps.Copy(all, sizes)
		maps.Copy(all, c.Pools)
		for _, pool := range slices.Sorted(maps.Keys(sizes)) {
			if _, sized := c.Pools[pool]; !sized {
				added = append(added, fmt.Sprintf("%s to %d", pool, sizes[pool]))
			}
		}
		switch inForce = c.Pools; {
		case len(added) == 0:
			return "", ErrUnchanged
		case len(all) > record.MaxPools:
			return "", ErrTooManyPools
		}
		c.Pools, inForce = all, all
		return "set pool " + strings.Join(added, ", "), nil
	})
	if errors.Is(err, ErrUnchanged) {
		err = nil
	}
	if err != nil {
		return nil, fmt.Errorf("add pools: %w", err)
	}
	return maps.Clone(inForce), nil
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
	s, err := o.getReadable(ctx, o.keys.GroupControl())
	if err == nil {
		err = o.list(ctx, s, registry.ReadOptions{}, append(s.PoolDirectories(), o.keys.Instances())...)
	}
	if err != nil {
		return nil, fmt.Errorf("pools: %w", err)
	}
	return poolStatuses(s), nil
}

// listPools reads the records of pools into s if a job has one. What cannot be read counts as missing. It follows a fresh read, as getEach does.
func (o *Operator) listPools(ctx context.Context, s *snapshot.Snapshot) error {
	if !s.HasPool() {
		return nil
	}
	return o.list(ctx, s, registry.ReadOptions{}, s.PoolDirectories()...)
}

// poolStatuses returns the state of all pools.
func poolStatuses(s *snapshot.Snapshot) []PoolStatus {
	pools, names := s.Pools(), map[string]bool{}
	for name := range pools.Sizes {
		names[name] = true
	}
	for name := range pools.Slots {
		names[name] = true
	}
	for _, d := range pools.Demands {
		for name := range d.Pools {
			names[name] = true
		}
	}
	out := make([]PoolStatus, 0, len(names))
	for _, name := range slices.Sorted(maps.Keys(names)) {
		out = append(out, poolStatus(s, name))
	}
	return out
}

// poolStatus returns the state of one pool.
func poolStatus(s *snapshot.Snapshot, name string) PoolStatus {
	pools := s.Pools()
	size, sized := pools.Sizes[name]
	st := PoolStatus{Pool: name, Size: size, Sized: sized, Instances: []PoolInstance{}}
	incarnations := map[string]bool{}
	for inc := range pools.Slots[name].Grants {
		incarnations[inc] = true
	}
	for inc, d := range pools.Demands {
		if _, ok := d.Pools[name]; ok {
			incarnations[inc] = true
		}
	}
	for _, inc := range slices.Sorted(maps.Keys(incarnations)) {
		i := PoolInstance{
			Instance: record.InstanceOf(inc), Incarnation: inc, Slots: pools.Held(name, inc), Wants: pools.Demands[inc].Pools[name].Want,
			Alive: s.IsLive(record.SessionOf(inc)),
		}
		if i.Slots == 0 && i.Wants == 0 {
			continue
		}
		st.Taken += i.Slots
		st.Waiting += max(i.Wants-i.Slots, 0)
		st.Instances = append(st.Instances, i)
	}
	return st
}
