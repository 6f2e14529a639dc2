package eventlog

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/coordinator/internal/coordtest"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

func TestOwnership(t *testing.T) {
	bubbled := func(name string, f func(t *testing.T, o *OwnershipLog, reg *foreignUntilWrite, log *coordtest.Logbook)) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := &coordtest.Logbook{}
				reg := &foreignUntilWrite{Registry: memory.New().Client("a")}
				f(t, NewOwnershipLog(reg, slog.New(slog.NewTextHandler(log, nil))), reg, log)
			})
		})
	}
	bubbled("is logged when changes have paused, two seconds after the first at the latest", func(t *testing.T, o *OwnershipLog, reg *foreignUntilWrite, log *coordtest.Logbook) {
		for i := range 30 {
			o.SetOwned(fmt.Sprintf("job-%d", i), shardset.Of(i))
			time.Sleep(110 * time.Millisecond)
		}
		time.Sleep(time.Second)
		assert.Len(t, log.Having(`msg="shards changed"`), 2)
		assert.Len(t, log.Having("gained=19 "), 1)
		assert.Len(t, log.Having("owned=30 "), 1)
	})
	bubbled("of many shards is cut", func(t *testing.T, o *OwnershipLog, reg *foreignUntilWrite, log *coordtest.Logbook) {
		var odd shardset.Set
		for i := range 5000 {
			odd.Add(2*i + 1)
		}
		o.SetOwned("job", odd)
		o.SetOwned("other", odd)
		o.Close()
		require.Len(t, log.Having("gained=10000", "job 1,3,5", `...; and 1 jobs more"`), 1)
		assert.Less(t, len(log.String()), 700)
	})
	bubbled("that comes and goes is not logged", func(t *testing.T, o *OwnershipLog, reg *foreignUntilWrite, log *coordtest.Logbook) {
		o.SetOwned("job", shardset.Of(1, 2))
		o.SetOwned("job", shardset.Set{})
		o.Close()
		assert.Empty(t, log.Having())
	})
	bubbled("is logged at the end at once", func(t *testing.T, o *OwnershipLog, reg *foreignUntilWrite, log *coordtest.Logbook) {
		o.SetOwned("job", shardset.Of(1, 2))
		o.Close()
		assert.Len(t, log.Having(`gained_shards="job 1-2"`), 1)
		time.Sleep(time.Second)
		assert.Len(t, log.Having(), 1)
	})
	bubbled("that ends with a plan of another's making names the key and the reason", func(t *testing.T, o *OwnershipLog, reg *foreignUntilWrite, log *coordtest.Logbook) {
		o.SetOwned("job", shardset.Of(1, 2))
		o.LosePlan(t.Context(), "job", "plans/job", nil)
		o.LosePlan(t.Context(), "job", "plans/job", nil)
		o.LosePlan(t.Context(), "another", "plans/another", errors.New("not owned"))
		synctest.Wait()
		lines := log.Having("level=ERROR")
		require.Len(t, lines, 1)
		assert.Contains(t, lines[0], "stand still here")
		assert.Contains(t, lines[0], "key=plans/job")
		assert.Contains(t, lines[0], registry.ErrForeign.Error())
		o.Close()
	})
	bubbled("that ends with a plan which is there again by then is a warning", func(t *testing.T, o *OwnershipLog, reg *foreignUntilWrite, log *coordtest.Logbook) {
		_, err := registry.Apply(t.Context(), reg, registry.Txn{Then: []registry.Op{registry.Create("plans/job", nil)}})
		require.NoError(t, err)
		o.SetOwned("job", shardset.Of(1, 2))
		o.LosePlan(t.Context(), "job", "plans/job", nil)
		synctest.Wait()
		assert.Len(t, log.Having("level=WARN", "deleted by another hand", "job=job shards=1-2"), 1)
		o.SetOwned("job", shardset.Of(1, 2))
		assert.Len(t, log.Having(`msg="plan can be read again"`), 1)
		o.Close()
	})
}

// undecodable is a registry that can decode no value, until a transaction has been applied.
type foreignUntilWrite struct {
	registry.Registry
	applied bool
}
