package lock_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/lock"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

// BenchmarkLock measures one Acquire and Release. With two contenders or more, each joins
// the queue again before the next one has released the lock.
func BenchmarkLock(b *testing.B) {
	for _, n := range []int{1, 2, 8} {
		b.Run(fmt.Sprintf("contenders=%d", n), func(b *testing.B) { benchmarkHolds(b, n) })
	}
}

func benchmarkHolds(b *testing.B, contenders int) {
	ctx := context.Background()
	s := memory.New()
	var (
		all  sync.WaitGroup
		left atomic.Int64
	)
	left.Store(int64(b.N))
	for i := range contenders {
		reg := s.Client(nameOf(i))
		session, err := reg.OpenSession(ctx, registry.SessionOptions{})
		require.NoError(b, err)
		lock := lock.New(reg, lockDir)
		h, err := lock.Acquire(ctx, session) // opens the watch
		require.NoError(b, err)
		require.NoError(b, h.Release(ctx))
		defer reg.Close(ctx)  //nolint:errcheck // the server is dropped too
		defer lock.Close(ctx) //nolint:errcheck // no context, no error
		all.Go(func() {
			for left.Add(-1) >= 0 {
				h, err := lock.Acquire(ctx, session)
				if err == nil {
					err = h.Release(ctx)
				}
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	s.ResetCounts()
	b.ResetTimer()
	b.ReportAllocs()
	all.Wait()
	b.StopTimer()
	c := s.Counts("")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "holds/s")
	b.ReportMetric(float64(c.Commits)/float64(b.N), "commits/op")
	b.ReportMetric(float64(c.Conflicts)/float64(b.N), "conflicts/op")
	b.ReportMetric(float64(c.Reads)/float64(b.N), "reads/op")
}
