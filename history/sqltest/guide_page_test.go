package sqltest

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
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

// TestGuide_GrantsTheRightsThatAreNeeded applies the statements of the page, then records, trims and reads under their roles.
func TestGuide_GrantsTheRightsThatAreNeeded(t *testing.T) {
	page, err := os.ReadFile("../../docs/guide/history.md")
	require.NoError(t, err)
	d := newDatabase(t, "PostgreSQL", history.Postgres)
	owner := d.migrated(t)
	exec := func(db *sql.DB, text string) {
		_, err := db.ExecContext(t.Context(), text)
		require.NoError(t, err)
	}
	exec(owner, "CREATE ROLE recorder; CREATE ROLE reader")
	for line := range strings.Lines(string(page)) {
		if strings.HasPrefix(line, "GRANT ") {
			exec(owner, line)
		}
	}
	as := func(role string) *sql.DB {
		db := d.open(t)
		db.SetMaxOpenConns(1)
		exec(db, "SET ROLE "+role)
		return db
	}
	store := d.store(t, as("recorder"), history.SQLOptions{RowsPerJob: 1})
	for n := range 3 { // also a record that replaces one
		r := runOf(n, 0, 1, history.Crashed)
		require.NoError(t, store.Write(t.Context(), history.Batch{Fires: []history.Fire{{Namespace: r.Namespace, Group: r.Group, Job: r.Job, Fire: r.Fire, Instance: r.Instance, Crashed: 1}}, Runs: []history.Run{r}}))
		require.NoError(t, store.WriteLogs(t.Context(), []history.Log{logOf(n, 0, 0, "x\n")}))
		r.Outcome = history.Failed
		require.NoError(t, store.Write(t.Context(), history.Batch{Runs: []history.Run{r}}))
	}
	_, err = store.Trim(t.Context(), time.Now())
	require.NoError(t, err)
	db := as("reader")
	reader := d.store(t, db, history.SQLOptions{}).Reader("billing", "default")
	_, err = reader.Last(t.Context(), "settle")
	require.NoError(t, err)
	logsOf(t, reader, history.LogQuery{Job: "settle"})
	exec(db, "SELECT * FROM rota_fire")
	_, err = db.ExecContext(t.Context(), "DELETE FROM rota_run")
	require.ErrorContains(t, err, "permission denied")
}
