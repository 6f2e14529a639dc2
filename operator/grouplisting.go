package operator

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/rota-dev/rota/internal/group/diagnosis"
	"github.com/rota-dev/rota/internal/parallel"
	"github.com/rota-dev/rota/registry"
)

// listGroup reads the records of the group but the claims: one list for each directory.
func (o *Operator) listGroup(ctx context.Context) (diagnosis.Records, error) {
	r := diagnosis.Records{Keys: o.keys, Compile: o.compile}
	meta, err := o.reg.Get(ctx, o.keys.Meta(), registry.ReadOptions{Fresh: true})
	switch {
	case err == nil:
		r.Meta = &meta
	case errors.Is(err, registry.ErrForeign):
		r.Foreign = append(r.Foreign, o.keys.Meta())
	case !errors.Is(err, registry.ErrNotFound):
		return r, err
	}
	for _, dir := range []struct {
		key registry.Key
		to  *[]registry.Entry
	}{
		{o.keys.Plans(), &r.Plans},
		{o.keys.Jobs(), &r.Jobs},
		{o.keys.Controls(), &r.Controls},
		{o.keys.Election(), &r.Election},
		{o.keys.Instances(), &r.Instances},
		{o.keys.Members(), &r.Members},
	} {
		listing, err := o.reg.List(ctx, dir.key, registry.ReadOptions{Fresh: true})
		if err != nil {
			return r, err
		}
		*dir.to = listing.Entries
	}
	return r, nil
}

// listClaims adds the claims records of all known incarnations, and their copies.
func (o *Operator) listClaims(ctx context.Context, r *diagnosis.Records) error {
	ends, err := o.reg.List(ctx, o.keys.Ends(), registry.ReadOptions{Fresh: true})
	if err != nil {
		return err
	}
	r.Ends = ends.Entries
	var mu sync.Mutex
	r.Claims = map[string][]registry.Entry{}
	return parallel.Each(ctx, parallelReads, r.Incarnations(), func(ctx context.Context, inc string) error {
		listing, err := o.reg.List(ctx, o.keys.ClaimsOf(inc), registry.ReadOptions{})
		mu.Lock()
		defer mu.Unlock()
		if err == nil && len(listing.Entries) > 0 {
			r.Claims[inc] = listing.Entries
		}
		return err
	})
}

// findForeign adds the keys that lists leave out, since another program wrote their values, of those
// that belong to a listed record.
func (o *Operator) findForeign(ctx context.Context, r *diagnosis.Records) error {
	var mu sync.Mutex
	err := parallel.Each(ctx, parallelReads, r.MissingCounterparts(), func(ctx context.Context, key registry.Key) error {
		_, err := o.reg.Get(ctx, key, registry.ReadOptions{})
		mu.Lock()
		defer mu.Unlock()
		if errors.Is(err, registry.ErrForeign) {
			r.Foreign = append(r.Foreign, key)
		} else if err != nil && !errors.Is(err, registry.ErrNotFound) {
			return err
		}
		return nil
	})
	slices.Sort(r.Foreign)
	return err
}
