package executor_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/schedule"
)

func TestSpread(t *testing.T) {
	bubble(t, "each run begins once, at the instant of its shard", func(t *testing.T, f *fleet) {
		const shards = 8
		schedule := schedule.Every(time.Minute).Spread(30 * time.Second)
		want := map[int][]time.Duration{}
		for shard := range shards {
			offset := schedule.Offset("job", shard)
			want[shard] = []time.Duration{offset, offset}
		}
		got := map[int][]time.Duration{}
		job := f.job(shards, nil)
		job.Schedule = schedule
		job.Handler = executor.HandlerFunc(func(_ context.Context, r *executor.Run) error {
			f.mu.Lock()
			defer f.mu.Unlock()
			got[r.Shard] = append(got[r.Shard], time.Since(r.FireTime).Round(100*time.Millisecond))
			return nil
		})
		for shard := range shards {
			for i := range want[shard] {
				want[shard][i] = want[shard][i].Round(100 * time.Millisecond)
			}
		}
		e, err := executor.New(f.server.Client("a"), "test", executor.Options{Instance: "a", Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		f.members = append(f.members, e)
		require.NoError(t, e.Register(job))
		require.NoError(t, e.Start(t.Context()))
		until(3)
		f.mu.Lock()
		defer f.mu.Unlock()
		assert.Equal(t, want, got)
	})
}
