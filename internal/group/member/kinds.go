package member

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"github.com/rota-dev/rota/internal/group/feed"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// OfferKinds offers all jobs of kinds, those that are defined later included. The record of a kind is stored if there is none,
// or one of a lower revision.
func (m *Member) OfferKinds(kinds ...record.Kind) {
	m.changeState(func() {
		if m.kinds == nil {
			m.kinds = map[string]record.Kind{}
		}
		for _, k := range kinds {
			m.kinds[k.Name] = k
		}
		m.offerVersion++
	})
}

// WithdrawKinds stops offering the jobs of kinds until the next OfferKinds of them. Their shards are reassigned.
func (m *Member) WithdrawKinds(names ...string) {
	m.changeState(func() {
		for _, name := range names {
			delete(m.kinds, name)
		}
	})
}

// storeKinds stores the records of kinds that are newer than the stored ones.
func (m *Member) storeKinds(ctx context.Context, kinds map[string]record.Kind) error {
	for _, name := range slices.Sorted(maps.Keys(kinds)) {
		for {
			again, err := m.TryStoreKind(ctx, kinds[name])
			if err != nil {
				return fmt.Errorf("store kind %q: %w", name, err)
			}
			if !again {
				break
			}
			if !sleepContext(ctx, readRetryDelay) {
				return context.Cause(ctx)
			}
		}
	}
	return nil
}

// TryStoreKind makes one attempt to store the record of a kind, and reports whether to make another one.
func (m *Member) TryStoreKind(ctx context.Context, k record.Kind) (again bool, err error) {
	key := m.Keys.Kind(k.Name)
	value, err := record.Encode(&k)
	if err != nil {
		return false, err
	}
	op := registry.Create(key, value)
	e, err := m.Reg.Get(ctx, key, Fresh)
	switch {
	case errors.Is(err, registry.ErrNotFound):
	case errors.Is(err, registry.ErrForeign):
		m.Log.Error("record left alone: another program wrote its value; delete the key", "key", string(key), "error", err)
		return false, nil
	case registry.Retryable(err):
		return true, nil
	case err != nil:
		return false, err
	default:
		stored, err := record.DecodeKind(e.Value)
		if err != nil {
			feed.LogUnreadable(m.Log, slog.LevelError, key, err)
			return false, nil
		}
		if stored.Revision >= k.Revision {
			if stored.Revision == k.Revision && !bytes.Equal(stored.Defaults, k.Defaults) {
				m.Log.Warn("stored defaults of the kind differ and stay in force; raise Revision to replace them", "kind", k.Name, "revision", k.Revision)
			}
			return false, nil
		}
		op = registry.Set(key, e.Modified, value)
	}
	_, err = registry.Apply(ctx, m.Reg, registry.Txn{Then: []registry.Op{op}})
	if errors.Is(err, registry.ErrConflict) {
		return true, nil // another instance stores the same kind: compare again
	}
	return false, err
}
