package sqltest

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/history"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
	"github.com/rota-dev/rota/schedule"
)

// A document shows from here:

func run(ctx context.Context, reg registry.Registry, db *sql.DB, jobs ...executor.Job) error {
	if err := history.Migrate(ctx, db, history.SQLite); err != nil {
		return err
	}
	store, err := history.SQL(db, history.SQLite, history.SQLOptions{Retention: 14 * 24 * time.Hour})
	if err != nil {
		return err
	}
	recorder := history.New(store, history.Options{Namespace: "billing"})
	ex, err := executor.New(reg, "billing", executor.Options{Observer: recorder.Observer()})
	if err == nil {
		err = ex.Register(jobs...)
	}
	if err == nil {
		err = ex.Run(ctx)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return errors.Join(err, recorder.Shutdown(ctx)) // after the executor
}

// To here.

func TestGuidePage(t *testing.T) {
	d := &database{dialect: history.SQLite, name: filepath.Join(t.TempDir(), "history.db")}
	db := d.open(t)
	ctx, stop := context.WithCancel(t.Context())
	job := executor.Job{Name: "settle", Schedule: schedule.Every(time.Second), Handler: executor.HandlerFunc(func(context.Context, *executor.Run) error {
		stop()
		return errors.New("ledger is locked")
	})}
	require.NoError(t, run(ctx, memory.New().Client("a"), db, job))
	runs, err := d.store(t, db, history.SQLOptions{}).Reader("billing", "").Failures(t.Context(), history.RunsQuery{})
	require.NoError(t, err)
	require.Len(t, runs, 1)
	require.Equal(t, "ledger is locked", runs[0].Error)
}
