package budget_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/registry"
)

// The reads that are left out of what fires cost: those by which a handle makes sure that
// it has missed nothing. There are two a second at most, whatever it watches and however
// often that is to be compared.
func TestBudget_AuditsAreFew(t *testing.T) {
	onEach(t, func(t *testing.T, k kind) {
		if k.virtual {
			return // it has nothing to make sure of
		}
		k.on(t, func(t *testing.T, s store) {
			server := s.(*serverStore)
			ctx := t.Context()
			reg, err := server.dial(ctx, server.server.Addr(), server.root, time.Millisecond)
			require.NoError(t, err)
			defer func() { assert.NoError(t, reg.Close(context.Background())) }()
			for i := range 8 {
				dir := registry.Key(fmt.Sprint("dir", i))
				_, err := reg.Txn(ctx, registry.Txn{Then: []registry.Op{registry.Create(dir.Join("a"), nil), registry.Create(dir.Join("b"), nil)}})
				require.NoError(t, err)
				w, err := reg.Watch(ctx, dir, registry.WatchOptions{})
				require.NoError(t, err)
				_, err = w.Next(ctx)
				require.NoError(t, err)
			}
			s.count(t)
			began := time.Now()
			time.Sleep(5 * time.Second)
			n := s.count(t)
			took := time.Since(began)
			t.Logf("8 directories are watched: %d reads in %v", n.reads, took.Round(time.Millisecond))
			assert.GreaterOrEqual(t, n.reads, 3)
			assert.LessOrEqual(t, float64(n.reads), 2*took.Seconds()+2)
			assert.Zero(t, n.txns)
		})
	})
}
