package acts

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/view"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/rotatest"
	"github.com/rota-dev/rota/schedule"
)

// epoch is when a bubble begins. Jobs fire each minute from then on.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// kit is a fleet in virtual time, and an operator of it.
type kit struct {
	*testing.T
	fleet *rotatest.Fleet
	op    *operator.Operator
}

// onFleet calls f a minute and a half after the start of two instances, a and b, on hosts of these names. The job settle succeeds,
// export fails, long runs until it is cancelled, and nobody offers gone. Jobs of the kind report succeed, or with the parameter "long" run
// until they are cancelled.
func onFleet(t *testing.T, f func(k *kit)) {
	rotatest.Run(t, func(fleet *rotatest.Fleet) {
		ok := executor.HandlerFunc(func(context.Context, *executor.Run) error { return nil })
		fails := executor.HandlerFunc(func(context.Context, *executor.Run) error { return errors.New("no disk") })
		lasts := executor.HandlerFunc(func(ctx context.Context, r *executor.Run) error {
			if r.Trigger > 0 {
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		})
		jobs := []executor.Job{
			{Name: "settle", Schedule: schedule.Every(time.Minute), Shards: 4, Handler: ok},
			{Name: "export", Schedule: schedule.Every(time.Minute), Shards: 2, Handler: fails},
			{Name: "long", Schedule: schedule.Every(time.Minute), Shards: 2, Handler: lasts},
		}
		a := fleet.Start("a", jobs...)
		b := fleet.Start("b", jobs...)
		for _, e := range []*executor.Executor{a, b} {
			require.NoError(fleet.T(), e.RegisterKind(executor.Kind{
				Name: "report", Revision: 2, Defaults: executor.Job{Timeout: time.Hour},
				Handler: executor.HandlerFunc(func(ctx context.Context, r *executor.Run) error {
					if r.Param == "long" {
						<-ctx.Done()
					}
					return ctx.Err()
				}),
			}))
		}
		fleet.Start("c", executor.Job{Name: "gone", Schedule: schedule.Every(time.Hour), Handler: ok})
		fleet.Stop("c")
		fleet.SleepUntil(epoch.Add(90 * time.Second))
		f(&kit{fleet.T(), fleet, a.Operator().As("kim", "quarter end")})
	})
}

// act does an act by the table.
func (k *kit) act(name string, on Target, r Request) (view.Done, error) {
	k.Helper()
	v, ok := Find(name, on)
	require.True(k, ok, "%s on %s", name, on)
	return v.Do(k.Context(), k.op, r)
}

// did does acts by the table that have to succeed.
func (k *kit) did(name string, on Target, r Request) {
	k.Helper()
	_, err := k.act(name, on, r)
	require.NoError(k, err, "%s on %s", name, on)
}

// recorded returns the texts of the acts on a job, or of those on all jobs. A job that is deleted, or about to be, has none.
func (k *kit) recorded(job string) (texts []string) {
	acts, err := k.op.Acts(k.Context(), job)
	if !errors.Is(err, operator.ErrDeleting) && !errors.Is(err, operator.ErrUnknownJob) {
		require.NoError(k, err)
	}
	for _, a := range acts {
		texts = append(texts, a.What)
	}
	return texts
}

// lose records that the store has lost records.
func (k *kit) lose() {
	reg := k.fleet.Server().Client("editor")
	keys, err := record.NewKeys(rotatest.Namespace, "default")
	require.NoError(k, err)
	e, err := reg.Get(k.Context(), keys.Meta(), registry.ReadOptions{})
	require.NoError(k, err)
	meta, err := record.DecodeMeta(e.Value)
	require.NoError(k, err)
	meta.Incident = &record.Incident{Kind: record.IncidentReplaced, Noticed: record.InstantOf(time.Now()), By: "a"}
	value, err := record.EncodeChecked(meta)
	require.NoError(k, err)
	_, err = registry.Apply(k.Context(), reg, registry.Txn{Then: []registry.Op{registry.Set(keys.Meta(), e.Modified, value)}})
	require.NoError(k, err)
}

func pointer(text string) *string { return &text }
