package sqltest

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/conformance/child"
	"github.com/rota-dev/rota/history"
)

// migrateVariable makes the test binary migrate a database and exit: number of the dialect, driver and data source,
// separated by spaces.
const migrateVariable = "ROTA_SQLTEST_MIGRATE"

// migrateAsProcess is the main function of a process that only migrates.
func migrateAsProcess(setting string) error {
	var dialect history.Dialect
	var driver, source string
	if _, err := fmt.Sscan(setting, &dialect, &driver, &source); err != nil {
		return err
	}
	db, err := sql.Open(driver, source)
	if err != nil {
		return err
	}
	defer db.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return history.Migrate(ctx, db, dialect)
}

// setting returns the value of migrateVariable.
func (d *database) setting() string {
	switch d.dialect {
	case history.Postgres:
		return fmt.Sprintf("%d pgx postgres://rota@%s/%s?sslmode=disable", d.dialect, d.server.Addr(), d.name)
	case history.MySQL:
		return fmt.Sprintf("%d mysql root@tcp(%s)/%s", d.dialect, d.server.Addr(), d.name)
	}
	return fmt.Sprintf("%d sqlite file:%s", d.dialect, d.name) // without a busy timeout
}

func (d *database) requireUsable(t *testing.T, db *sql.DB) {
	store := d.store(t, db, history.SQLOptions{})
	require.NoError(t, store.Write(t.Context(), history.Batch{Runs: []history.Run{runOf(0, 0, 1, history.Failed)}}))
	require.Equal(t, 1, failuresOf(t, store.Reader("billing", "")))
	require.NoError(t, store.WriteLogs(t.Context(), []history.Log{logOf(0, 0, 0, "x\n")}))
	require.Equal(t, d.migrations(t), count(t, db, "SELECT count(*) FROM rota_history_version"))
}

// migrations returns the number of migrations.
func (d *database) migrations(t *testing.T) int {
	text, err := history.MigrationSQL(d.dialect)
	require.NoError(t, err)
	return strings.Count(text, "INSERT INTO rota_history_version")
}

func TestMigrate_IsSafeInSeveralProcesses(t *testing.T) {
	forEachDatabase(t, func(t *testing.T, d *database) {
		var wg sync.WaitGroup
		errs := make(chan error, 10)
		for range 4 {
			wg.Go(func() {
				cmd := exec.Command(os.Args[0])
				cmd.Env = append(os.Environ(), migrateVariable+"="+d.setting())
				cmd.Stderr = os.Stderr
				errs <- child.Run(t.Context(), cmd)
			})
			db := d.open(t)
			wg.Go(func() { errs <- history.Migrate(t.Context(), db, d.dialect) })
		}
		wg.Wait()
		close(errs)
		for err := range errs {
			require.NoError(t, err)
		}
		d.requireUsable(t, d.open(t))
	})
}

func TestMigrate_ContinuesAfterACrash(t *testing.T) {
	forEachDatabase(t, func(t *testing.T, d *database) {
		text, err := history.MigrationSQL(d.dialect)
		require.NoError(t, err)
		statements := strings.Split(text, ";\n")
		db := d.open(t)
		for n := range statements[:len(statements)-1] {
			if d.dialect != history.MySQL && n > 1 {
				break // a migration of these is one transaction
			}
			for _, s := range statements[:n] {
				d.exec(t, db, s)
			}
			require.NoError(t, history.Migrate(t.Context(), db, d.dialect), "after %d statements", n)
			require.NoError(t, history.Migrate(t.Context(), db, d.dialect), "again")
			d.exec(t, db, "DROP TABLE rota_history_version")
			d.exec(t, db, "DROP VIEW rota_fire")
			d.exec(t, db, "DROP TABLE rota_run")
			d.exec(t, db, "DROP TABLE rota_fire_part")
			d.exec(t, db, "DROP TABLE rota_log")
		}
	})
}

func TestMigrate_AcceptsTheSQLThatItPrints(t *testing.T) {
	forEachDatabase(t, func(t *testing.T, d *database) {
		text, err := history.MigrationSQL(d.dialect)
		require.NoError(t, err)
		db := d.open(t)
		for s := range strings.SplitSeq(text, ";\n") {
			if strings.TrimSpace(s) != "" {
				d.exec(t, db, s)
			}
		}
		require.NoError(t, history.Migrate(t.Context(), db, d.dialect))
		d.requireUsable(t, db)
	})
}

func TestMigrate_LeavesALaterVersion(t *testing.T) {
	forEachDatabase(t, func(t *testing.T, d *database) {
		db := d.migrated(t)
		d.exec(t, db, "INSERT INTO rota_history_version (version) VALUES (1000)")
		require.NoError(t, history.Migrate(t.Context(), db, d.dialect))
		require.Equal(t, d.migrations(t)+1, count(t, db, "SELECT count(*) FROM rota_history_version"))
	})
}

func TestMigrate_KeepsTheRowsOfTheFirstVersion(t *testing.T) {
	forEachDatabase(t, func(t *testing.T, d *database) {
		text, err := history.MigrationSQL(d.dialect)
		require.NoError(t, err)
		first, _, _ := strings.Cut(text, "INSERT INTO rota_history_version (version) VALUES (1);\n")
		db := d.open(t)
		for s := range strings.SplitSeq(first, ";\n") {
			if strings.TrimSpace(s) != "" {
				d.exec(t, db, s)
			}
		}
		d.exec(t, db, "INSERT INTO rota_history_version (version) VALUES (1)")
		d.exec(t, db, `INSERT INTO rota_fire_part (namespace, grp, job, fire, trigger_no, instance, part, shards, ok, failed, unfinished, crashed, skipped,
			repeated, max_late_us, max_us, sum_us, failed_shards, skipped_shards)
			VALUES ('billing', 'default', 'settle', '2026-03-01 03:00:00', 0, 'a', 1, 3, 3, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0)`)
		require.NoError(t, history.Migrate(t.Context(), db, d.dialect))
		fires, err := d.store(t, db, history.SQLOptions{}).Reader("billing", "").Fires(t.Context(), history.FiresQuery{Job: "settle"})
		require.NoError(t, err)
		require.Len(t, fires, 1)
		require.Equal(t, []int64{3, 2}, []int64{fires[0].OK, fires[0].Skipped})
		require.Zero(t, fires[0].SkippedBy)
		d.requireUsable(t, db)
	})
}

func TestMigrate_EndsWithItsContext(t *testing.T) {
	d := &database{dialect: history.SQLite, name: filepath.Join(t.TempDir(), "history.db")}
	defer d.stop(t)()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	require.ErrorContains(t, history.Migrate(ctx, d.open(t), d.dialect), "history: migrate: ")
}
