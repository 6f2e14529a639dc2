package registry_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/test/registrytest"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

// brittle is a registry whose watches fail. Watch returns the errors of refusals first. Then
// as many watchers as breaks counts fail after their first batch.
type brittle struct {
	registry.Registry
	refusals []error
	breaks   int
	opened   int
}

func (b *brittle) Watch(ctx context.Context, dir registry.Key, o registry.WatchOptions) (registry.Watcher, error) {
	if len(b.refusals) > 0 {
		err := b.refusals[0]
		b.refusals = b.refusals[1:]
		return nil, err
	}
	w, err := b.Registry.Watch(ctx, dir, o)
	b.opened++
	return &brittleWatcher{Watcher: w, b: b}, err
}

type brittleWatcher struct {
	registry.Watcher
	b    *brittle
	used bool
}

func (w *brittleWatcher) Next(ctx context.Context) (registry.Batch, error) {
	if w.used && w.b.breaks > 0 {
		w.b.breaks--
		return registry.Batch{}, registry.ErrUnavailable
	}
	w.used = true
	return w.Watcher.Next(ctx)
}

var errEnough = errors.New("enough")

func TestFollow_DeliversEveryBatchInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := client(t)
		var got []string
		err := registry.Follow(t.Context(), reg, "d", func(b registry.Batch) error {
			for _, e := range b.Puts {
				got = append(got, b.Kind.String()+" "+string(e.Key))
			}
			for _, key := range b.Deletes {
				got = append(got, "without "+string(key))
			}
			switch len(got) {
			case 0:
				registrytest.Commit(t, reg, registry.Create("d/a", nil))
			case 1:
				registrytest.Commit(t, reg, registry.Create("d/b", nil))
			case 2:
				registrytest.Commit(t, reg, registry.Delete("d/a", registrytest.Get(t, reg, "d/a").Modified))
			case 3:
				return errEnough
			}
			return nil
		})
		require.Equal(t, errEnough, err, "the error of f is returned unchanged")
		require.Equal(t, []string{"delta d/a", "delta d/b", "without d/a"}, got)
	})
}

func TestFollow_ClosesItsWatcher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		reg := registrytest.Client(t, s, "a")
		err := registry.Follow(t.Context(), reg, "d", func(registry.Batch) error { return errEnough })
		require.Equal(t, errEnough, err)
		require.Zero(t, s.Counts("a").Watches)
		require.Panics(t, func() {
			_ = registry.Follow(t.Context(), reg, "d", func(registry.Batch) error { panic("f") })
		})
		require.Zero(t, s.Counts("a").Watches)
	})
}

func TestFollow_OpensAnotherWatchWhenOneFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		b := &brittle{
			Registry: registrytest.Client(t, s, "a"),
			refusals: []error{registry.ErrUnavailable, errors.New("an error outside the contract"), registry.ErrUnavailable},
			breaks:   5,
		}
		registrytest.Commit(t, b, registry.Create("d/k", nil))
		snapshots := 0
		err := registry.Follow(t.Context(), b, "d", func(batch registry.Batch) error {
			assert.Equal(t, registry.Snapshot, batch.Kind)
			assert.Len(t, batch.Puts, 1)
			assert.Equal(t, 1, s.Counts("a").Watches, "the failed one is closed")
			if snapshots++; snapshots == 6 {
				return errEnough
			}
			return nil
		})
		require.Equal(t, errEnough, err)
		require.Equal(t, 6, b.opened)
	})
}

func TestFollow_PausesBetweenRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errEnough)
		defer cancel()
		refusals := make([]error, 10_000)
		for i := range refusals {
			refusals[i] = registry.ErrUnavailable
		}
		b := &brittle{Registry: client(t), refusals: refusals}
		err := registry.Follow(ctx, b, "d", func(registry.Batch) error { return nil })
		require.Equal(t, errEnough, err)
		tries := 10_000 - len(b.refusals)
		require.Less(t, tries, 300)
		require.Greater(t, tries, 100)
	})
}

func TestFollow_ShortensThePauseAfterABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refusals := make([]error, 20)
		for i := range refusals {
			refusals[i] = registry.ErrUnavailable
		}
		b := &brittle{Registry: client(t), refusals: refusals, breaks: 1}
		var first time.Time
		err := registry.Follow(t.Context(), b, "d", func(registry.Batch) error {
			if first.IsZero() {
				first = time.Now()
				return nil
			}
			return errEnough
		})
		require.Equal(t, errEnough, err)
		require.Less(t, time.Since(first), 10*time.Millisecond)
	})
}

func TestFollow_Returns(t *testing.T) {
	ignore := func(registry.Batch) error { return nil }

	t.Run("with the cause of its context", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Hour, errEnough)
			defer cancel()
			require.Equal(t, errEnough, registry.Follow(ctx, client(t), "d", ignore))
		})
	})

	t.Run("when the registry is closed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			reg := client(t)
			time.AfterFunc(time.Second, func() { _ = reg.Close(context.Background()) })
			require.ErrorIs(t, registry.Follow(t.Context(), reg, "d", ignore), registry.ErrClosed)
		})
	})

	t.Run("when the registry denies permission", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			for _, refusal := range []error{registry.ErrPermission, registry.ErrUnauthenticated} {
				b := &brittle{Registry: client(t), refusals: []error{refusal}}
				require.ErrorIs(t, registry.Follow(t.Context(), b, "d", ignore), refusal)
			}
		})
	})

	t.Run("when the directory is invalid", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			require.ErrorIs(t, registry.Follow(t.Context(), client(t), "~d", ignore), registry.ErrInvalidKey)
		})
	})
}
