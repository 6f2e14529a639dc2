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

// The cost of fires excludes the reads by which a handle audits its watches. There are at
// most two per second, regardless of the number of watches and the audit interval.
func TestBudget_AuditsAreFew(t *testing.T) {
	onEach(t, func(t *testing.T, k kind) {
		if k.virtual {
			return // the memory registry makes no audits
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
			t.Logf("8 watched directories: %d reads in %v", n.reads, took.Round(time.Millisecond))
			assert.GreaterOrEqual(t, n.reads, 3)
			assert.LessOrEqual(t, float64(n.reads), 2*took.Seconds()+2)
			assert.Zero(t, n.txns)
		})
	})
}
