package record

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/rota-dev/rota/registry"
)

// The bounds of pools.
const (
	MaxPools    = 256    // of a group
	MaxPoolSize = 10_000 // slots
)

// CheckPool checks the name of a pool.
func CheckPool(name string) error { return CheckName(name) }

// CheckPoolSize checks the size of a pool. A pool of size 0 holds all runs back.
func CheckPoolSize(size int) error {
	if size < 0 || size > MaxPoolSize {
		return fmt.Errorf("size is %d, not between 0 and %d", size, MaxPoolSize)
	}
	return nil
}

// HasPool reports whether runs of an epoch need slots of a pool.
func (p *Plan) HasPool() bool {
	return slices.ContainsFunc(p.Epochs, func(e Epoch) bool { return e.Job().Pool != "" })
}

// checkPools checks the sizes of the pools of a group.
func checkPools(sizes map[string]int) error {
	if len(sizes) > MaxPools {
		return fmt.Errorf("pools: %d, at most %d", len(sizes), MaxPools)
	}
	for _, name := range slices.Sorted(maps.Keys(sizes)) {
		if err := errors.Join(CheckPool(name), CheckPoolSize(sizes[name])); err != nil {
			return fmt.Errorf("pools: %.100q: %w", name, err)
		}
	}
	return nil
}

// Slots is how the slots of a pool are dealt over the instances. Only leaders write it.
type Slots struct {
	Pool string `json:"pool"`
	// Deal grows with each version of the record that grants something. It numbers grants.
	Deal uint64 `json:"deal"`
	// Contended reports that an instance waits for slots, so that others return idle ones at once.
	Contended bool             `json:"contended,omitempty"`
	Grants    map[string]Grant `json:"grants,omitempty"` // by incarnation
}

// Grant is the slots of an incarnation: how many runs of the pool it may run at once.
type Grant struct {
	Slots int    `json:"slots"`
	Deal  uint64 `json:"deal"` // the Deal that last raised Slots
	Keep  int    `json:"keep"` // if below Slots, the incarnation is asked to return the others
}

// Demand is the demand of an incarnation for slots of pools. Its session owns the record.
type Demand struct {
	Incarnation string                `json:"incarnation"`
	Pools       map[string]PoolDemand `json:"pools,omitempty"`
}

// PoolDemand is the demand of an incarnation for slots of a pool.
type PoolDemand struct {
	Want int `json:"want"` // slots, those that it has included
	// The incarnation uses at most Cap slots by the grant that Deal raised last. For that grant it never raises Cap. A Deal of
	// zero means that it knows of no grant, and begins no run before it gets one.
	Cap  int    `json:"cap"`
	Deal uint64 `json:"deal,omitempty"`
}

// DecodeSlotsEntry decodes and checks the record of a pool's slots.
func DecodeSlotsEntry(e registry.Entry) (Slots, error) {
	s, err := Decode[Slots](e.Value)
	if err != nil {
		return Slots{}, err
	}
	if s.Pool != e.Key.Name() {
		return Slots{}, fmt.Errorf("record of pool %.100q at %s", s.Pool, e.Key)
	}
	if s.Deal > maxDealOfSlots {
		return Slots{}, fmt.Errorf("deal %d, at most %d", s.Deal, uint64(maxDealOfSlots))
	}
	if len(s.Grants) > MaxShards {
		return Slots{}, fmt.Errorf("grants: %d, at most %d", len(s.Grants), MaxShards)
	}
	for inc, g := range s.Grants {
		if err := checkIncarnation(inc); err != nil {
			return Slots{}, fmt.Errorf("grants: %w", err)
		}
		if g.Slots < 0 || g.Slots > MaxPoolSize || g.Keep < 0 || g.Keep > g.Slots || g.Deal == 0 || g.Deal > s.Deal {
			return Slots{}, fmt.Errorf("grants: %.100q: %d slots, of which to keep %d, by deal %d of %d", inc, g.Slots, g.Keep, g.Deal, s.Deal)
		}
	}
	return s, nil
}

// DecodeDemandEntry decodes and checks the demand of an incarnation.
func (k Keys) DecodeDemandEntry(e registry.Entry) (Demand, error) {
	d, err := Decode[Demand](e.Value)
	if err == nil {
		err = checkIncarnation(d.Incarnation)
	}
	if err == nil && (k.Demand(d.Incarnation) != e.Key || SessionOf(d.Incarnation) != e.Owner) {
		err = fmt.Errorf("demand of incarnation %.100q at %s", d.Incarnation, e.Key)
	}
	if err != nil {
		return Demand{}, err
	}
	if len(d.Pools) > maxDemandedPools {
		return Demand{}, fmt.Errorf("pools: %d, at most %d", len(d.Pools), maxDemandedPools)
	}
	for name, p := range d.Pools {
		if err := CheckPool(name); err != nil {
			return Demand{}, fmt.Errorf("pools: %w", err)
		}
		if p.Deal > maxDeal {
			return Demand{}, fmt.Errorf("pools: %.100q: deal %d, at most %d", name, p.Deal, uint64(maxDeal))
		}
		if p.Want < 0 || p.Want > MaxPoolSize || p.Cap < 0 || p.Cap > MaxPoolSize {
			return Demand{}, fmt.Errorf("pools: %.100q: wants %d and uses up to %d, not between 0 and %d", name, p.Want, p.Cap, MaxPoolSize)
		}
	}
	return d, nil
}

// The bounds of the numbers of deals in demands and in slots. Leaders count on from the greatest of both, so that a hostile
// number leaves room for deals.
const (
	maxDeal        = MaxNumber / 4
	maxDealOfSlots = MaxNumber / 2
)

// maxDemandedPools bounds the pools of a Demand. Jobs may name pools that have no size.
const maxDemandedPools = 1024
