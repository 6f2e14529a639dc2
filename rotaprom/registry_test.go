package rotaprom

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

func TestRegistry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memory.New()
		reg := NewRegistry(server.Client("a"))
		defer reg.Close(context.Background())
		i := &instance{Registry: prometheus.NewPedanticRegistry()}
		require.NoError(t, i.Registry.Register(reg))
		requests := func(op, result string) float64 {
			return i.value(t, `rota_registry_requests_total{op="`+op+`",result="`+result+`"}`)
		}
		assert.Zero(t, requests("txn", "error"), "before the first operation")

		ctx := t.Context()
		put := registry.Txn{Then: []registry.Op{registry.Create("dir/key", []byte("value"))}}
		_, err := reg.Txn(ctx, put)
		require.NoError(t, err)
		_, err = reg.Txn(ctx, put)
		require.ErrorIs(t, err, registry.ErrConflict)
		free := server.Fill()
		_, err = reg.Txn(ctx, registry.Txn{Then: []registry.Op{registry.Create("dir/other", nil)}})
		require.ErrorIs(t, err, registry.ErrQuota)
		free()
		for result, want := range map[string]float64{"ok": 1, "conflict": 1, "error": 1, "cancelled": 0} {
			assert.Equal(t, want, requests("txn", result), result)
		}

		_, err = reg.Get(ctx, "dir/none", registry.ReadOptions{})
		require.ErrorIs(t, err, registry.ErrNotFound)
		e, err := reg.Get(ctx, "dir/key", registry.ReadOptions{Fresh: true})
		require.NoError(t, err)
		assert.Equal(t, "value", string(e.Value))
		_, err = reg.List(ctx, "dir", registry.ReadOptions{})
		require.NoError(t, err)
		_, err = registry.WrittenAt(ctx, reg, "dir/key")
		require.NoError(t, err, "the clock of the store")
		w, err := reg.Watch(ctx, "dir", registry.WatchOptions{})
		require.NoError(t, err)
		require.NoError(t, w.Close())
		s, err := reg.OpenSession(ctx, registry.SessionOptions{})
		require.NoError(t, err)
		require.NoError(t, s.Close(ctx))
		for op, want := range map[string]float64{"get": 2, "get_fresh": 1, "list": 1, "list_fresh": 0, "watch": 1, "open_session": 1} {
			assert.Equal(t, want, requests(op, "ok"), op)
		}

		server.Delay("a", time.Second, time.Second)
		over, cancel := context.WithCancel(ctx)
		time.AfterFunc(time.Second, cancel)
		_, err = reg.Get(over, "dir/key", registry.ReadOptions{})
		require.ErrorIs(t, err, context.Canceled)
		assert.Equal(t, 1.0, requests("get", "cancelled"))
		_, err = reg.Get(ctx, "dir/key", registry.ReadOptions{})
		require.NoError(t, err)
		families, err := i.Gather()
		require.NoError(t, err)
		for _, f := range families {
			for _, m := range f.Metric {
				if seriesName(f, m) == `rota_registry_request_duration_seconds{op="get"}` {
					assert.EqualValues(t, 3, m.Histogram.GetSampleCount(), "without the cancelled one")
					assert.InDelta(t, 2, m.Histogram.GetSampleSum(), 0.01)
				}
			}
		}
	})
}

func TestRegistry_ServesAFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := NewRegistry(memory.New().Client("a"))
		ex, err := executor.New(reg, "billing", executor.Options{Instance: "a", Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		ran := 0
		require.NoError(t, ex.Register(job("settle", 1, func(context.Context, *executor.Run) error {
			ran++
			return nil
		})))
		i := &instance{Registry: prometheus.NewPedanticRegistry()}
		require.NoError(t, i.Registry.Register(reg))
		require.NoError(t, i.Registry.Register(Collector(ex)), "the metrics have different names")
		require.NoError(t, ex.Start(t.Context()))
		time.Sleep(2*time.Minute + time.Second)
		require.NoError(t, ex.Shutdown(t.Context()))
		assert.Equal(t, 2, ran)
		assert.Positive(t, i.value(t, `rota_registry_requests_total{op="txn",result="ok"}`))
		assert.Zero(t, i.value(t, `rota_registry_requests_total{op="txn",result="error"}`))
		require.NoError(t, reg.Close(t.Context()))
	})
}
