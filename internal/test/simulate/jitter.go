package simulate

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/rota-dev/rota/registry"
)

// jittery is a registry that delays each request, reply and event by a random time. Events of each directory have
// delays of their own, so that views of two directories differ in age.
type jittery struct {
	registry.Registry
	most time.Duration

	mu  sync.Mutex
	rng *rand.Rand
}

func newJittery(reg registry.Registry, most time.Duration, seed uint64) *jittery {
	return &jittery{Registry: reg, most: most, rng: rand.New(rand.NewPCG(seed, 1))}
}

// wait waits for a random time, mostly short, and reports whether ctx lasted.
func (j *jittery) wait(ctx context.Context) bool {
	j.mu.Lock()
	d := time.Duration(j.rng.Float64() * float64(j.most))
	if j.rng.IntN(4) > 0 {
		d /= 20
	}
	j.mu.Unlock()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (j *jittery) Get(ctx context.Context, key registry.Key, o registry.ReadOptions) (registry.Entry, error) {
	if !j.wait(ctx) {
		return registry.Entry{}, fmt.Errorf("%w: %w", registry.ErrUnavailable, ctx.Err())
	}
	e, err := j.Registry.Get(ctx, key, o)
	j.wait(ctx)
	return e, err
}

func (j *jittery) List(ctx context.Context, dir registry.Key, o registry.ReadOptions) (registry.Listing, error) {
	if !j.wait(ctx) {
		return registry.Listing{}, fmt.Errorf("%w: %w", registry.ErrUnavailable, ctx.Err())
	}
	l, err := j.Registry.List(ctx, dir, o)
	j.wait(ctx)
	return l, err
}

func (j *jittery) Txn(ctx context.Context, t registry.Txn) (registry.Rev, error) {
	if !j.wait(ctx) {
		return registry.Rev{}, fmt.Errorf("%w: %w", registry.ErrNotApplied, ctx.Err())
	}
	rev, err := j.Registry.Txn(ctx, t)
	j.wait(ctx)
	return rev, err
}

func (j *jittery) Watch(ctx context.Context, dir registry.Key, o registry.WatchOptions) (registry.Watcher, error) {
	w, err := j.Registry.Watch(ctx, dir, o)
	if err != nil {
		return nil, err
	}
	return &jitteryWatcher{w, j}, nil
}

type jitteryWatcher struct {
	registry.Watcher
	by *jittery
}

func (w *jitteryWatcher) Next(ctx context.Context) (registry.Batch, error) {
	b, err := w.Watcher.Next(ctx)
	if err == nil {
		w.by.wait(ctx)
	}
	return b, err
}
