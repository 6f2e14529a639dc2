package executor_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/schedule"
)

func TestNewerVersions(t *testing.T) {
	keys, err := record.NewKeys("test", "default")
	require.NoError(t, err)
	put := func(f *fleet, key registry.Key, value string) {
		f.t.Helper()
		op := registry.Create(key, []byte(value))
		for _, e := range f.server.Dump() {
			if e.Key == key {
				op = registry.Set(key, e.Modified, []byte(value))
			}
		}
		_, err := f.server.Client("later").Txn(f.t.Context(), registry.Txn{Then: []registry.Op{op}})
		require.NoError(f.t, err)
	}
	bubble(t, "that have made the namespace keep Start out, by name, and nothing is written", func(t *testing.T, f *fleet) {
		put(f, keys.Meta(), `{"format":99}`)
		before := f.server.Dump()
		a := f.executor("a", executor.Options{}, 2, takes(0))
		assert.ErrorIs(t, a.Start(t.Context()), executor.ErrNewerFormat)
		assert.Equal(t, before, f.server.Dump())
	})
	bubble(t, "that define a job in words of theirs have it for themselves, and its other fires wait for them", func(t *testing.T, f *fleet) {
		a := f.start("a", executor.Options{}, 2, takes(0))
		require.NoError(t, a.Register(executor.Job{
			Name: "other", Schedule: schedule.Every(time.Minute), Handler: takes(0),
		}))
		until(1)
		require.Len(t, f.began(1), 2)
		put(f, keys.Job("job"), `{"name":"job","revision":1,"shards":2,"schedule":"lunar 3","strategy":"sticky",`+
			`"max_attempts":3,"on_crash":"rerun elsewhere","on_misfire":"run once"}`)
		until(3)
		synctest.Wait()
		assert.Empty(t, f.began(3))
		o, err := operator.New(f.server.Client("console"), "test", "")
		require.NoError(t, err)
		job, err := o.Status(t.Context(), "job")
		require.NoError(t, err)
		assert.True(t, job.Members[0].Unsupported)
		assert.NotEmpty(t, job.Problem)
		other, err := o.Status(t.Context(), "other")
		require.NoError(t, err)
		assert.EqualValues(t, 3, other.Counts.Succeeded)
		assert.Empty(t, other.Problem)

		require.NoError(t, a.Register(executor.Job{
			Name: "job", Revision: 2, Schedule: schedule.Every(time.Minute), Shards: 2, Handler: takes(0),
		}))
		until(6)
		job, err = o.Status(t.Context(), "job")
		require.NoError(t, err)
		assert.Empty(t, job.Problem)
		assert.EqualValues(t, 2, job.InForce)
		assert.Equal(t, []int{0, 1}, job.Members[0].Shards)
	})
}
