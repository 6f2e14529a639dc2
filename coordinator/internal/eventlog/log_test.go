package eventlog

import (
	"context"
	"fmt"

	"github.com/rota-dev/rota/registry"
)

func (u *foreignUntilWrite) Txn(ctx context.Context, t registry.Txn) (registry.Rev, error) {
	u.applied = true
	return u.Registry.Txn(ctx, t)
}

func (u *foreignUntilWrite) Get(ctx context.Context, key registry.Key, o registry.ReadOptions) (registry.Entry, error) {
	if u.applied {
		return u.Registry.Get(ctx, key, o)
	}
	return registry.Entry{}, fmt.Errorf("get %s: %w", key, registry.ErrForeign)
}
