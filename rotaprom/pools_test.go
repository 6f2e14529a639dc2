package rotaprom

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/registry/memory"
)

func TestCollector_MeasuresPools(t *testing.T) {
	inBubble(t, "whose slots, runs and waiting runs are those of instances, and whose size the leader knows", func(t *testing.T, server *memory.Server) {
		long := job("long", 6, func(ctx context.Context, _ *executor.Run) error {
			<-ctx.Done()
			return nil
		})
		long.Pool, long.Timeout = "db", time.Hour
		forgotten := job("forgotten", 1, succeed)
		forgotten.Pool = "typo"
		a := start(t, server, "a", executor.Options{}, long)
		require.NoError(t, a.Operator().SetPool(t.Context(), "db", 4))
		require.NoError(t, a.Operator().SetPool(t.Context(), "unused", 7))
		time.Sleep(5 * time.Second)
		b := start(t, server, "b", executor.Options{}, long, forgotten)
		time.Sleep(90 * time.Second)
		sum := func(series string) float64 { return max(a.value(t, series), 0) + max(b.value(t, series), 0) }
		assert.Equal(t, 4.0, sum(`rota_pool_slots{pool="db"}`))
		assert.Equal(t, 4.0, sum(`rota_pool_runs{pool="db"}`))
		assert.Equal(t, 2.0, sum(`rota_pool_waiting{pool="db"}`))
		assert.Equal(t, []float64{4, -1}, []float64{a.value(t, `rota_pool_size{pool="db"}`), b.value(t, `rota_pool_size{pool="db"}`)}, "a leads")
		assert.Equal(t, 7.0, a.value(t, `rota_pool_size{pool="unused"}`))
		assert.Equal(t, -1.0, a.value(t, `rota_pool_size{pool="typo"}`))
		assert.Equal(t, 1.0, sum(`rota_pool_waiting{pool="typo"}`))
		require.NoError(t, a.Operator().SetPool(t.Context(), "db", 6))
		require.NoError(t, a.Operator().DeletePool(t.Context(), "unused"))
		time.Sleep(5 * time.Second)
		assert.Equal(t, 6.0, a.value(t, `rota_pool_size{pool="db"}`))
		assert.Equal(t, 6.0, sum(`rota_pool_runs{pool="db"}`))
		assert.Zero(t, sum(`rota_pool_waiting{pool="db"}`))
		assert.Equal(t, -1.0, a.value(t, `rota_pool_size{pool="unused"}`))
		require.NoError(t, a.Shutdown(t.Context()))
		time.Sleep(10 * time.Second)
		assert.Equal(t, 6.0, b.value(t, `rota_pool_size{pool="db"}`), "b leads now")
		require.NoError(t, b.Shutdown(t.Context()))
	})
	inBubble(t, "with series for 256 pools, and one for the others", func(t *testing.T, server *memory.Server) {
		var jobs []executor.Job
		for n := range 300 {
			j := job(fmt.Sprintf("job-%03d", n), 1, succeed)
			j.Pool = fmt.Sprintf("pool-%03d", n)
			jobs = append(jobs, j)
		}
		i := start(t, server, "a", executor.Options{}, jobs...)
		time.Sleep(70 * time.Second)
		assert.Equal(t, 44.0, i.value(t, `rota_pool_waiting{pool="_other"}`))
		n, err := testutil.GatherAndCount(i, "rota_pool_waiting")
		require.NoError(t, err)
		assert.Equal(t, 257, n)
		require.NoError(t, i.Shutdown(t.Context()))
	})
}
