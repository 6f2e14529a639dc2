package memory_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

// concurrency is how many goroutines share the work of a benchmark.
var concurrency = []int{1, 8, 64}

// fill creates dirs directories of 100 keys with values of 100 bytes.
func fill(tb testing.TB, c *memory.Client, dirs int) []registry.Key {
	tb.Helper()
	var keys []registry.Key
	for i := range dirs {
		var t registry.Txn
		for j := range 100 {
			key := registry.Join("bench", fmt.Sprint(i), fmt.Sprint(j))
			keys = append(keys, key)
			t.Then = append(t.Then, registry.Create(key, make([]byte, 100)))
			if len(t.Then) == 50 {
				_, err := c.Txn(context.Background(), t)
				require.NoError(tb, err)
				t.Then = nil
			}
		}
	}
	return keys
}

// share runs f b.N times in n goroutines; each has a number and its own state.
func share(b *testing.B, n int, f func(worker, i int)) {
	var next atomic.Int64
	var wg sync.WaitGroup
	b.ResetTimer()
	for worker := range n {
		wg.Go(func() {
			const batch = 64 // so that the shared counter costs little
			for {
				to := int(next.Add(batch))
				for i := to - batch; i < min(to, b.N); i++ {
					f(worker, i)
				}
				if to >= b.N {
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
}

// BenchmarkGet reads keys in random order. With 100,000 keys it measures main memory, since
// no entry is in a CPU cache.
func BenchmarkGet(b *testing.B) {
	for _, dirs := range []int{10, 1000} {
		c := memory.New().Client("a")
		keys := fill(b, c, dirs)
		for _, n := range concurrency {
			b.Run(fmt.Sprintf("keys=%d/goroutines=%d", len(keys), n), func(b *testing.B) {
				benchmarkGet(b, c, keys, n)
			})
		}
	}
}

func benchmarkGet(b *testing.B, c *memory.Client, keys []registry.Key, goroutines int) {
	b.ReportAllocs()
	ctx := context.Background()
	bufs := make([][]byte, goroutines)
	for i := range bufs {
		bufs[i] = make([]byte, 128)
	}
	share(b, goroutines, func(worker, i int) {
		_, err := c.Get(ctx, keys[i*7919%len(keys)], registry.ReadOptions{Buffer: bufs[worker]})
		if err != nil {
			panic(err)
		}
	})
}

// BenchmarkTxn writes to one directory for each goroutine. Each directory has the watchers.
func BenchmarkTxn(b *testing.B) {
	for _, shape := range []struct {
		name       string
		conds, ops int
	}{{"ops=1", 0, 1}, {"conds=2,ops=3", 2, 3}} {
		for _, n := range concurrency {
			for _, watchers := range []int{0, 10, 100} {
				b.Run(fmt.Sprintf("%s/goroutines=%d/watchers=%d", shape.name, n, watchers), func(b *testing.B) {
					benchmarkTxn(b, shape.conds, shape.ops, n, watchers)
				})
			}
		}
	}
}

func benchmarkTxn(b *testing.B, conds, ops, goroutines, watchers int) {
	b.ReportAllocs()
	ctx, cancel := context.WithCancel(context.Background())
	var readers sync.WaitGroup
	defer readers.Wait()
	defer cancel()
	c := memory.New().Client("a")
	fill(b, c, max(goroutines, 1))
	for range watchers {
		for d := range goroutines {
			w, err := c.Watch(ctx, registry.Join("bench", fmt.Sprint(d)), registry.WatchOptions{})
			require.NoError(b, err)
			readers.Go(func() {
				for {
					if _, err := w.Next(ctx); err != nil {
						return
					}
				}
			})
		}
	}
	runtime.GC()

	writers := make([]writer, goroutines)
	for d := range writers {
		l, err := c.List(ctx, registry.Join("bench", fmt.Sprint(d)), registry.ReadOptions{})
		require.NoError(b, err)
		for i, e := range l.Entries[:conds+ops] {
			if i < conds {
				writers[d].t.If = append(writers[d].t.If, registry.At(e.Key, e.Modified))
			} else {
				writers[d].t.Then = append(writers[d].t.Then, registry.Set(e.Key, e.Modified, e.Value))
			}
		}
	}
	share(b, goroutines, func(worker, _ int) { writers[worker].write(ctx, c) })
}

// writer repeats a transaction, each time at the revision of the previous one.
type writer struct {
	t registry.Txn
	_ [64]byte
}

func (w *writer) write(ctx context.Context, c *memory.Client) {
	w.t.ID = registry.TxnID{}
	rev, err := c.Txn(ctx, w.t)
	if err != nil {
		panic(err)
	}
	for i := range w.t.Then {
		w.t.Then[i].Rev = rev
	}
}

func BenchmarkList(b *testing.B) {
	c := memory.New().Client("a")
	fill(b, c, 1000)
	b.ReportAllocs()
	for b.Loop() {
		l, err := c.List(context.Background(), "bench/7", registry.ReadOptions{})
		if err != nil || len(l.Entries) != 100 {
			b.Fatal(err, len(l.Entries))
		}
	}
}
