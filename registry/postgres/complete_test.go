package postgres_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/postgres"
	"github.com/rota-dev/rota/registry/postgres/internal/pgserver"
)

// userTx is a transaction of a user, of one of the types that CompleteTx accepts.
type userTx struct {
	tx       any
	exec     func(sql string) error
	commit   func() error
	rollback func()
}

// drivers begin transactions of each type, as a role on a database.
var drivers = map[string]func(t *testing.T, s *pgserver.Server, database, role, level string) userTx{
	"pgx.Tx": func(t *testing.T, s *pgserver.Server, database, role, level string) userTx {
		ctx := t.Context()
		c, err := pgx.Connect(ctx, urlOf(s, database, role))
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close(context.Background()) })
		tx, err := c.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.TxIsoLevel(level)})
		require.NoError(t, err)
		return userTx{
			tx, func(sql string) error { _, err := tx.Exec(ctx, sql); return err },
			func() error { return tx.Commit(ctx) }, func() { _ = tx.Rollback(ctx) },
		}
	},
	"*sql.Tx": func(t *testing.T, s *pgserver.Server, database, role, level string) userTx {
		db := openSQL(t, s, database, role)
		levels := map[string]sql.IsolationLevel{"repeatable read": sql.LevelRepeatableRead, "serializable": sql.LevelSerializable}
		tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: levels[level]})
		require.NoError(t, err)
		return userTx{
			tx, func(sql string) error { _, err := tx.ExecContext(t.Context(), sql); return err },
			tx.Commit, func() { _ = tx.Rollback() },
		}
	},
}

func urlOf(s *pgserver.Server, database, role string) string {
	return fmt.Sprintf("postgres://%s@%s/%s?sslmode=disable", role, s.Addr(), database)
}

func openSQL(t *testing.T, s *pgserver.Server, database, role string) *sql.DB {
	config, err := pgx.ParseConfig(urlOf(s, database, role))
	require.NoError(t, err)
	db := stdlib.OpenDB(*config)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func begin(t *testing.T, s *pgserver.Server, level string) userTx {
	return drivers["pgx.Tx"](t, s, database, "rota", level)
}

// end is the end of work of a shard.
func end(work string, fence uint64) registry.RunEnd { return endsOf("0")(work, fence) }

func endsOf(shard string) func(work string, fence uint64) registry.RunEnd {
	return func(work string, fence uint64) registry.RunEnd {
		return registry.RunEnd{Shard: "ns/g/j/" + shard, Work: "ns/g/j/" + shard + "/" + work, Fence: fence}
	}
}

func fence(t *testing.T, c registry.Registry, e registry.RunEnd) registry.Completion {
	answer, err := registry.FenceRun(t.Context(), c, e)
	require.NoError(t, err)
	return answer
}

func TestCompleteRun(t *testing.T) {
	s := sharedServer(t)
	c := open(t, newRegistry(t, s))
	for driver, begin := range drivers {
		for _, level := range []string{"read committed", "repeatable read", "serializable"} {
			t.Run(driver+" "+level, func(t *testing.T) {
				ctx, end := t.Context(), endsOf(driver+level)
				begin := func() userTx { return begin(t, s, database, "rota", level) }

				tx := begin()
				require.NoError(t, c.CompleteRun(ctx, tx.tx, end("a", 5)))
				_, err := c.FenceRun(ctx, end("a", 6))
				require.ErrorIs(t, err, registry.ErrTxOpen)
				tx.rollback()
				require.Equal(t, registry.Completion{}, fence(t, c, end("a", 6)), "a rollback ends nothing")

				tx = begin()
				require.ErrorIs(t, c.CompleteRun(ctx, tx.tx, end("a", 5)), registry.ErrFenced, "of an attempt before the one that has asked")
				require.Error(t, tx.commit(), "the transaction has failed")

				tx = begin()
				e := end("a", 6)
				e.Checkpoint = []byte("here")
				require.NoError(t, c.CompleteRun(ctx, tx.tx, e))
				require.NoError(t, tx.commit())
				require.Equal(t, registry.Completion{Ended: true, Checkpoint: []byte("here")}, fence(t, c, end("a", 7)))

				tx = begin()
				require.ErrorIs(t, c.CompleteRun(ctx, tx.tx, end("a", 7)), registry.ErrRunEnded, "the work is done once")
				require.Error(t, tx.commit())

				tx = begin()
				require.NoError(t, c.CompleteRun(ctx, tx.tx, end("b", 7)))
				require.NoError(t, tx.commit())
				require.Equal(t, registry.Completion{Ended: true}, fence(t, c, end("a", 8)), "a checkpoint from before other work is not returned")
				require.Equal(t, registry.Completion{Ended: true}, fence(t, c, end("b", 8)))
			})
		}
	}
}

// TestCompleteRun_AfterTheSnapshot has a transaction with a snapshot from before a later attempt began, or ended.
func TestCompleteRun_AfterTheSnapshot(t *testing.T) {
	s := sharedServer(t)
	c := open(t, newRegistry(t, s))
	for _, level := range []string{"read committed", "repeatable read", "serializable"} {
		for _, overtaken := range []string{"first gate", "raised gate", "ended"} {
			t.Run(level+" "+overtaken, func(t *testing.T) {
				end := endsOf(level + overtaken)
				if overtaken != "first gate" {
					fence(t, c, end("a", 1))
				}
				tx := begin(t, s, level)
				require.NoError(t, tx.exec("SELECT 1"))
				fence(t, c, end("a", 9))
				if overtaken == "ended" {
					other := begin(t, s, level)
					require.NoError(t, c.CompleteRun(t.Context(), other.tx, end("a", 9)))
					require.NoError(t, other.commit())
				}
				err := c.CompleteRun(t.Context(), tx.tx, end("a", 5))
				if level == "read committed" {
					require.ErrorIs(t, err, registry.ErrFenced)
				} else {
					require.ErrorContains(t, err, "40001", "it names no run, as the snapshot has none")
				}
				require.Error(t, tx.commit())
			})
		}
	}
}

func TestCompleteRun_WaitsForNoOtherShard(t *testing.T) {
	s := sharedServer(t)
	o := newRegistry(t, s)
	c := open(t, o)
	ctx := t.Context()
	tx := begin(t, s, "")
	require.NoError(t, c.CompleteRun(ctx, tx.tx, end("a", 5)))
	create(t, c, "d/k") // the lock of the namespace is free
	other := registry.RunEnd{Shard: "ns/g/j/1", Work: "ns/g/j/1/a", Fence: 5}
	fence(t, c, other)
	second := begin(t, s, "")
	require.NoError(t, c.CompleteRun(ctx, second.tx, other))
	require.NoError(t, second.commit())
	for range 3 {
		_, err := c.FenceRun(ctx, end("a", 6))
		require.ErrorIs(t, err, registry.ErrTxOpen)
	}

	locks := begin(t, s, "")
	require.NoError(t, locks.exec(strings.ReplaceAll("SELECT rota.start_commit()", "rota.", o.Schema+".")))
	third := begin(t, s, "")
	require.NoError(t, c.CompleteRun(ctx, third.tx, registry.RunEnd{Shard: "ns/g/j/2", Work: "ns/g/j/2/a", Fence: 5}), "it does not wait for the lock of the namespace")
	require.NoError(t, third.commit())
	require.True(t, fence(t, c, registry.RunEnd{Shard: "ns/g/j/2", Work: "ns/g/j/2/a", Fence: 6}).Ended)
	locks.rollback()
	require.NoError(t, tx.commit())
}

func TestCompleteTx_RefusesWhatIsNoTransaction(t *testing.T) {
	s := sharedServer(t)
	c := open(t, newRegistry(t, s))
	db := openSQL(t, s, database, "rota")
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	defer conn.Close()
	plain, err := pgx.Connect(t.Context(), urlOf(s, database, "rota"))
	require.NoError(t, err)
	defer plain.Close(context.Background())
	for _, tx := range []any{nil, db, conn, plain, "tx", sql.Tx{}} {
		require.ErrorContains(t, c.CompleteRun(t.Context(), tx, end("a", 5)), fmt.Sprintf("%T is neither a pgx.Tx nor a *sql.Tx", tx))
		require.ErrorContains(t, postgres.CompleteTx(t.Context(), tx, nil), "is neither a pgx.Tx nor a *sql.Tx")
	}
}

func TestCompleteRun_RefusesAnotherDatabase(t *testing.T) {
	s := sharedServer(t)
	o := newRegistry(t, s)
	c := open(t, o)
	for _, name := range []string{"without_registry", "with_registry"} {
		t.Run(name, func(t *testing.T) {
			database := o.Schema + "_" + name
			exec(t, s, o, "CREATE DATABASE "+database)
			if name == "with_registry" {
				o := o
				o.Database = database
				require.NoError(t, postgres.Migrate(t.Context(), o))
			}
			for driver, begin := range drivers {
				tx := begin(t, s, database, "rota", "")
				err := c.CompleteRun(t.Context(), tx.tx, end("a", 5))
				require.ErrorContains(t, err, "the transaction is not on the database of the registry", driver)
				require.Error(t, tx.commit())
			}
		})
	}
}

// grantsOfStep are the rights that the step of the schema which creates a function names for a role with transactions of its own.
func grantsOfStep(t *testing.T, o postgres.Options, function string) []string {
	text, err := postgres.MigrationSQL(o.Schema)
	require.NoError(t, err)
	before, _, found := strings.Cut(text, "CREATE FUNCTION "+o.Schema+"."+function+"(")
	require.True(t, found)
	_, step, found := strings.Cut(before[strings.LastIndex(before, "GRANT USAGE"):], "GRANT")
	require.True(t, found)
	var all []string
	for line := range strings.Lines("--   GRANT" + step) {
		if grant, ok := strings.CutPrefix(strings.TrimSpace(line), "--   GRANT "); ok && strings.HasSuffix(grant, " TO app;") {
			all = append(all, "GRANT "+strings.TrimSuffix(grant, " TO app;"))
		}
	}
	return all
}

// requireGrants requires that a function works with the rights which its step of the schema names, and with none of them missing. call is
// given a number of its own each time.
func requireGrants(t *testing.T, s *pgserver.Server, o postgres.Options, function string, n int, call func(tx any, i int) error) {
	all := append(grantsOfStep(t, o, function), "GRANT EXECUTE ON FUNCTION "+o.Schema+"."+function)
	require.Len(t, all, n)
	for without := -1; without < n; without++ {
		sql := ""
		for i, g := range all {
			if i != without {
				sql += g + " TO $ROLE;"
			}
		}
		tx := drivers["*sql.Tx"](t, s, database, newRole(t, s, o, sql), "")
		err := call(tx.tx, without)
		if without >= 0 {
			require.ErrorIs(t, err, registry.ErrPermission, all[without])
			require.ErrorContains(t, err, "rota postgres migrate --print")
			tx.rollback()
			continue
		}
		require.NoError(t, err)
		require.NoError(t, tx.commit())
	}
}

func TestCompleteRun_NeedsNoMoreThanTheDocumentedRights(t *testing.T) {
	s := sharedServer(t)
	o := newRegistry(t, s)
	c := open(t, o)
	endOf := func(i int) registry.RunEnd {
		return registry.RunEnd{Shard: fmt.Sprint("s", i), Work: fmt.Sprint("w", i), Fence: 1}
	}
	requireGrants(t, s, o, "complete_run", 5, func(tx any, i int) error { return c.CompleteRun(t.Context(), tx, endOf(i)) })
	require.True(t, fence(t, c, endOf(-1)).Ended)
}

func TestCompleteRun_BelowAPrefix(t *testing.T) {
	s := sharedServer(t)
	c := open(t, newRegistry(t, s))
	a, b := registry.Prefix(c, "a"), registry.Prefix(c, "b")
	tx := begin(t, s, "")
	require.NoError(t, registry.CompleteRun(t.Context(), a, tx.tx, end("w", 5)))
	require.NoError(t, tx.commit())
	require.True(t, fence(t, a, end("w", 6)).Ended)
	require.False(t, fence(t, b, end("w", 6)).Ended, "fleets below different prefixes may have the same names")
	require.False(t, fence(t, c, end("w", 6)).Ended)
}

func TestFenceRun_OfManyShardsAtOnce(t *testing.T) {
	s := sharedServer(t)
	c := open(t, newRegistry(t, s))
	tx := begin(t, s, "")
	shard := func(i int) registry.RunEnd {
		return registry.RunEnd{Shard: fmt.Sprint("s", i), Work: fmt.Sprint("w", i), Fence: uint64(i) + 1}
	}
	for i := range 20 {
		require.NoError(t, c.CompleteRun(t.Context(), tx.tx, shard(i)), "a transaction may end several runs")
	}
	answers := make(chan error, 200)
	for i := range 200 {
		go func() {
			answer, err := c.FenceRun(t.Context(), shard(i))
			if answer.Ended {
				err = assert.AnError
			}
			answers <- err
		}()
	}
	open := 0
	for range 200 {
		if err := <-answers; err != nil {
			require.ErrorIs(t, err, registry.ErrTxOpen)
			open++
		}
	}
	require.Equal(t, 20, open)
	require.NoError(t, tx.commit())
	for i := range 20 {
		require.True(t, fence(t, c, shard(i)).Ended)
	}
}

func TestFenceRun_NeedsARightToWrite(t *testing.T) {
	o := newRegistry(t, sharedServer(t))
	o.ReadOnly = true
	_, err := open(t, o).FenceRun(t.Context(), end("a", 1))
	require.ErrorIs(t, err, registry.ErrReadOnly)
}

func TestPruneEnds(t *testing.T) {
	s := sharedServer(t)
	o := newRegistry(t, s)
	exec(t, s, o, `UPDATE rota.state SET lease = 1e15;
		INSERT INTO rota.ended SELECT 'w' || i, CASE WHEN i <= 2500 THEN 1e15 - 2592000000001 ELSE 1e15 - 2591000000000 END FROM generate_series(1, 2600) i;
		INSERT INTO rota.gate SELECT 's' || i, 1, NULL, NULL, CASE WHEN i <= 2500 THEN 1e15 - 2592000000001 ELSE 1e15 - 2591000000000 END FROM generate_series(1, 2600) i`)
	after, steps := "", 0
	for more := true; more || after != ""; steps++ {
		rows := exec(t, s, o, "SELECT next, more FROM rota.prune_ends('"+after+"')")
		after, more = rows[0][0], rows[0][1] == "t"
		require.Less(t, steps, 5, "each step is bounded")
	}
	require.Equal(t, 3, steps)
	require.Equal(t, [][]string{{"100", "100"}}, exec(t, s, o, "SELECT (SELECT count(*) FROM rota.ended), (SELECT count(*) FROM rota.gate)"))

	t.Run("does not wait for a transaction that holds a gate", func(t *testing.T) {
		tx := begin(t, s, "")
		require.NoError(t, tx.exec("SELECT FROM "+o.Schema+".gate FOR UPDATE"))
		exec(t, s, o, "UPDATE rota.state SET lease = 2e15")
		exec(t, s, o, "SET statement_timeout = 10000; SELECT rota.prune_ends('')")
		tx.rollback()
		exec(t, s, o, "SELECT rota.prune_ends('')")
		require.Equal(t, [][]string{{"0"}}, exec(t, s, o, "SELECT count(*) FROM rota.gate"))
	})
}
