package eventlog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

func TestOwnershipLog(t *testing.T) {
	inBubble := func(name string, f func(t *testing.T, o *OwnershipLog, reg *foreignUntilWrite, log *coordtest.Logbook)) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := &coordtest.Logbook{}
				reg := &foreignUntilWrite{Registry: memory.New().Client("a")}
				f(t, NewOwnershipLog(reg, slog.New(slog.NewTextHandler(log, nil))), reg, log)
			})
		})
	}
	inBubble("logs a burst when changes pause, at most two seconds after the first change", func(t *testing.T, o *OwnershipLog, reg *foreignUntilWrite, log *coordtest.Logbook) {
		for i := range 30 {
			o.SetOwned(fmt.Sprintf("job-%d", i), shardset.Of(i))
			time.Sleep(110 * time.Millisecond)
		}
		time.Sleep(time.Second)
		assert.Len(t, log.LinesWith(`msg="shards changed"`), 2)
		assert.Len(t, log.LinesWith("gained=19 "), 1)
		assert.Len(t, log.LinesWith("owned=30 "), 1)
	})
	inBubble("shortens long lists of shards", func(t *testing.T, o *OwnershipLog, reg *foreignUntilWrite, log *coordtest.Logbook) {
		var odd shardset.Set
		for i := range 5000 {
			odd.Add(2*i + 1)
		}
		o.SetOwned("job", odd)
		o.SetOwned("other", odd)
		o.Close()
		require.Len(t, log.LinesWith("gained=10000", "job 1,3,5", `...; and 1 job more"`), 1)
		assert.Less(t, len(log.String()), 700)
	})
	inBubble("logs nothing for shards gained and lost within a burst", func(t *testing.T, o *OwnershipLog, reg *foreignUntilWrite, log *coordtest.Logbook) {
		o.SetOwned("job", shardset.Of(1, 2))
		o.SetOwned("job", shardset.Set{})
		o.Close()
		assert.Empty(t, log.LinesWith())
	})
	inBubble("logs collected changes at once when it is closed", func(t *testing.T, o *OwnershipLog, reg *foreignUntilWrite, log *coordtest.Logbook) {
		o.SetOwned("job", shardset.Of(1, 2))
		o.Close()
		assert.Len(t, log.LinesWith(`gained_shards="job 1-2"`), 1)
		time.Sleep(time.Second)
		assert.Len(t, log.LinesWith(), 1)
	})
	inBubble("names key and reason when a plan cannot be decoded", func(t *testing.T, o *OwnershipLog, reg *foreignUntilWrite, log *coordtest.Logbook) {
		o.SetOwned("job", shardset.Of(1, 2))
		o.LosePlan(t.Context(), "job", "plans/job", nil)
		o.LosePlan(t.Context(), "job", "plans/job", nil)
		o.LosePlan(t.Context(), "another", "plans/another", errors.New("not owned"))
		synctest.Wait()
		lines := log.LinesWith("level=ERROR")
		require.Len(t, lines, 1)
		assert.Contains(t, lines[0], "claims none of the job's shards")
		assert.Contains(t, lines[0], "key=plans/job")
		assert.Contains(t, lines[0], registry.ErrForeign.Error())
		o.Close()
	})
	inBubble("reports a deleted plan that was stored again, as after Forget", func(t *testing.T, o *OwnershipLog, reg *foreignUntilWrite, log *coordtest.Logbook) {
		_, err := registry.Apply(t.Context(), reg, registry.Txn{Then: []registry.Op{registry.Create("plans/job", nil)}})
		require.NoError(t, err)
		o.SetOwned("job", shardset.Of(1, 2))
		o.LosePlan(t.Context(), "job", "plans/job", nil)
		synctest.Wait()
		assert.Len(t, log.LinesWith("level=INFO", `msg="plan was deleted, and stored again"`, "job=job shards=1-2"), 1)
		o.SetOwned("job", shardset.Of(1, 2))
		assert.Len(t, log.LinesWith(`msg="plan can be read again"`), 1)
		o.Close()
	})
}

// foreignUntilWrite is a registry that decodes no value until it has applied a transaction.
type foreignUntilWrite struct {
	registry.Registry
	applied bool
}

func (r *foreignUntilWrite) Txn(ctx context.Context, t registry.Txn) (registry.Rev, error) {
	r.applied = true
	return r.Registry.Txn(ctx, t)
}

func (r *foreignUntilWrite) Get(ctx context.Context, key registry.Key, o registry.ReadOptions) (registry.Entry, error) {
	if r.applied {
		return r.Registry.Get(ctx, key, o)
	}
	return registry.Entry{}, fmt.Errorf("get %s: %w", key, registry.ErrForeign)
}
