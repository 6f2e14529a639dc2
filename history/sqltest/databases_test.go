package sqltest

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/rota-dev/rota/conformance/tcpproxy"
	"github.com/rota-dev/rota/history"
	"github.com/rota-dev/rota/internal/test/testserver/dbserver"
)

// database is a new, empty database.
type database struct {
	dialect history.Dialect
	server  *dbserver.Server // nil for SQLite
	name    string           // of the database, or the file
}

// newDatabase returns a new database on the server of that name.
func newDatabase(t *testing.T, name string, dialect history.Dialect) *database {
	if dialect == history.SQLite {
		return &database{dialect: dialect, name: filepath.Join(t.TempDir(), "history.db")}
	}
	server, err := servers[name]()
	require.NoError(t, err)
	text := lower(t.Name())
	d := &database{dialect: dialect, server: server, name: text[:min(len(text), 60)]}
	require.NoError(t, server.CreateDatabase(d.name))
	return d
}

// forEachDatabase runs a test on an empty database of each kind.
func forEachDatabase(t *testing.T, test func(t *testing.T, d *database)) {
	t.Run("PostgreSQL", func(t *testing.T) { test(t, newDatabase(t, "PostgreSQL", history.Postgres)) })
	t.Run("MariaDB", func(t *testing.T) { test(t, newDatabase(t, "MariaDB", history.MySQL)) })
	t.Run("SQLite", func(t *testing.T) { test(t, newDatabase(t, "", history.SQLite)) })
}

// open returns a handle, as another process would have it.
func (d *database) open(t testing.TB) *sql.DB {
	if d.server != nil {
		return d.openAt(t, d.server.Addr())
	}
	return d.openAt(t, "")
}

func (d *database) openAt(t testing.TB, addr string) *sql.DB {
	var db *sql.DB
	var err error
	if d.server != nil {
		db, err = d.server.Open(addr, d.name)
	} else {
		db, err = sql.Open("sqlite", "file:"+d.name+"?_pragma=busy_timeout(1000)&_pragma=journal_mode(wal)")
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

// migrated returns a handle on a database with the tables.
func (d *database) migrated(t testing.TB) *sql.DB {
	db := d.open(t)
	require.NoError(t, history.Migrate(t.Context(), db, d.dialect))
	return db
}

func (d *database) store(t testing.TB, db *sql.DB, o history.SQLOptions) *history.SQLStore {
	s, err := history.SQL(db, d.dialect, o)
	require.NoError(t, err)
	return s
}

// stop makes the database unavailable until resume: it kills the server, or locks the file.
func (d *database) stop(t testing.TB) (resume func()) {
	if d.server != nil {
		d.server.Stop()
		return func() { assert.NoError(t, d.server.Resume()) }
	}
	conn, err := d.control(t).Conn(context.Background())
	assert.NoError(t, err)
	_, err = conn.ExecContext(context.Background(), "BEGIN EXCLUSIVE")
	assert.NoError(t, err)
	return func() {
		_, err := conn.ExecContext(context.Background(), "ROLLBACK")
		assert.NoError(t, err)
		assert.NoError(t, conn.Close())
	}
}

// cutAfterCommits returns a handle of which connections are cut after the server has received a commit, before its
// reply arrives, n times.
func (d *database) cutAfterCommits(t *testing.T, n int64) (db *sql.DB, cuts func() int64) {
	proxy, err := tcpproxy.Listen(d.server.Addr())
	require.NoError(t, err)
	t.Cleanup(proxy.Close)
	var done atomic.Int64
	proxy.SetFilter(func() tcpproxy.Filter {
		var losing atomic.Bool
		return func(_ context.Context, dir tcpproxy.Direction, b []byte) ([]byte, error) {
			if dir == tcpproxy.ToServer {
				if bytes.Contains(bytes.ToLower(b), []byte("commit")) && done.Load() < n {
					losing.Store(true)
				}
				return b, nil
			}
			if losing.Load() {
				done.Add(1)
				return nil, errors.New("cut")
			}
			return b, nil
		}
	})
	return d.openAt(t, proxy.Addr()), done.Load
}

// control returns a handle of the test itself, which waits for others' transactions where the recorder gives up.
func (d *database) control(t testing.TB) *sql.DB {
	db := d.open(t)
	if d.dialect == history.SQLite {
		db.SetMaxOpenConns(1) // a PRAGMA is of a connection
		d.exec(t, db, "PRAGMA busy_timeout = 120000")
	}
	return db
}

func (d *database) exec(t testing.TB, db *sql.DB, text string) {
	_, err := db.Exec(text)
	require.NoError(t, err)
}

func count(t testing.TB, db *sql.DB, text string) (n int) {
	require.NoError(t, db.QueryRow(text).Scan(&n))
	return n
}

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// runOf returns a run of job "settle" that took so many milliseconds.
func runOf(fire, shard, took int, how history.Outcome) history.Run {
	at := start.Add(time.Duration(fire) * time.Second)
	return history.Run{
		Namespace: "billing", Group: "default", ID: fmt.Sprintf("settle/%d/%s/1", shard, at.Format(time.RFC3339)), Job: "settle", Fire: at, Shard: shard,
		Shards: 64, Attempt: 1, Reason: "scheduled", Instance: "a", Fence: uint64(fire + 1), Started: at.Add(5 * time.Millisecond),
		Ended: at.Add(time.Duration(5+took) * time.Millisecond), Outcome: how,
	}
}

func shutDown(t testing.TB, r *history.Recorder) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	require.NoError(t, r.Shutdown(ctx))
}

// sumOf returns the sum of all fires of job "settle".
func sumOf(t testing.TB, r history.Reader) (sum history.Fire, fires int) {
	all, err := r.Fires(context.Background(), history.FiresQuery{Job: "settle", Limit: 10_000_000})
	require.NoError(t, err)
	for _, f := range all {
		sum.OK += f.OK
		sum.Failed += f.Failed
		sum.Unfinished += f.Unfinished
	}
	return sum, len(all)
}

func failuresOf(t testing.TB, r history.Reader) int {
	runs, err := r.Failures(context.Background(), history.RunsQuery{Limit: 10_000_000})
	require.NoError(t, err)
	return len(runs)
}
