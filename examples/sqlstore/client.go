// Package sqlstore is a complete backend on a SQL database, as a template: it passes the conformance suite on PostgreSQL, and another
// database needs other statements and codes of errors. Each call is one statement, and so one transaction: a process that stops between
// two lines holds no lock of the database.
//
// It is short rather than fast. Package registry/postgres, which has the same design, adds:
//
//   - commits that wait together as one statement; here each waits for the disk alone
//   - notifications; here watchers poll every 20 ms
//   - pipelined connections, for many sessions on slow links
//   - fail-over to standbys, and restores from backups; here the server loses no confirmed commit
//   - poolers, quotas, versions of the schema, and the time at which a value was written
package sqlstore

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"net"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/backend"
)

// Client is a handle on a store.
type Client struct {
	handle   *backend.Handle
	calls    *sql.DB
	renewals *sql.DB       // separate, so that renewals never wait for calls
	reserve  chan struct{} // has one slot, for the goroutine that reserves connections
	hangUp   func()        // breaks all connections
	watched  watched
}

var _ registry.Registry = (*Client)(nil)

//go:embed schema.sql
var schema string

// Create creates the tables and functions of a store, in the schema that search_path names, which has none.
func Create(ctx context.Context, config *pgx.ConnConfig) error {
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.PgConn().Exec(ctx, schema).ReadAll()
	return err
}

// Open returns a handle on a store. It fails if it cannot connect.
func Open(ctx context.Context, config *pgx.ConnConfig) (*Client, error) {
	config, hangUp := prepare(config)
	c := &Client{
		handle: backend.NewHandle(backend.Config{}), hangUp: hangUp, reserve: make(chan struct{}, 1),
		calls: stdlib.OpenDB(*config),
		// A ping would double the time that a renewal takes.
		renewals: stdlib.OpenDB(*config, stdlib.OptionShouldPing(func(context.Context, stdlib.ShouldPingParams) bool { return false })),
	}
	for _, db := range []*sql.DB{c.calls, c.renewals} {
		db.SetMaxOpenConns(maxConns)
		db.SetMaxIdleConns(maxConns) // or each burst of renewals would dial again, and the server start processes
	}
	err := c.handle.Call(ctx, func(ctx context.Context) error {
		return translate(c.calls.QueryRowContext(ctx, "SELECT max(seq) FROM log").Scan(&c.watched.reached))
	})
	if err != nil {
		_ = c.Close(ctx)
		return nil, fmt.Errorf("open: %w", err)
	}
	c.handle.Go(c.keepTime)
	return c, nil
}

const (
	maxConns = 16 // of one kind
	reserved = 3  // connections that are kept for the renewals that wait for their answers at the same time
)

// prepare returns the configuration of connections, and a function that breaks all of them: pgx cancels a call whose context has ended in a
// goroutine of its own, which would outlive the handle by up to 15 s.
func prepare(config *pgx.ConnConfig) (prepared *pgx.ConnConfig, hangUp func()) {
	broken, hangUp := context.WithCancel(context.Background())
	prepared = config.Copy()
	prepared.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(broken, cancel)()
		conn, err := config.DialFunc(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return dialed{conn, context.AfterFunc(broken, func() { conn.Close() })}, nil
	}
	// A call is one message to the server and one answer.
	prepared.DefaultQueryExecMode = pgx.QueryExecModeExec
	prepared.RuntimeParams = maps.Clone(config.RuntimeParams)
	maps.Copy(prepared.RuntimeParams, map[string]string{
		"synchronous_commit":            "on",
		"default_transaction_isolation": "read committed", // or a commit would judge its conditions by the past
		"lock_timeout":                  "4s",             // below the bound on calls, so that a commit that cannot begin is refused
	})
	return prepared, hangUp
}

// dialed is a connection that hangUp breaks.
type dialed struct {
	net.Conn
	forget func() bool
}

func (d dialed) Close() error {
	d.forget()
	return d.Conn.Close()
}

// Get implements registry.Registry. Every read is Fresh: there is one server, and it shows a commit before it confirms it.
func (c *Client) Get(ctx context.Context, key registry.Key, o registry.ReadOptions) (registry.Entry, error) {
	return c.handle.Get(ctx, key, o, func(ctx context.Context) (e registry.Entry, err error) {
		err = retry(ctx, func() error {
			var r row
			err := c.calls.QueryRowContext(ctx, "SELECT value, created, modified, owner FROM kv WHERE dir = $1 AND name = $2", key.Dir(), key.Name()).
				Scan(&r.value, &r.created, &r.modified, &r.owner)
			switch {
			case errors.Is(err, sql.ErrNoRows):
				return registry.ErrNotFound
			case err != nil:
				return err
			}
			e, err = r.entry(key)
			return err
		})
		return e, err
	})
}

// List implements registry.Registry.
func (c *Client) List(ctx context.Context, dir registry.Key, _ registry.ReadOptions) (registry.Listing, error) {
	return c.handle.List(ctx, dir, func(ctx context.Context) (registry.Listing, error) {
		entries, rev, err := c.children(ctx, dir)
		return registry.Listing{Entries: entries, Rev: rev, Atomic: true}, err
	})
}

// children returns the entries of a directory, sorted, and the Rev of that state. The statement has one snapshot, so they belong together.
func (c *Client) children(ctx context.Context, dir registry.Key) (entries []registry.Entry, rev registry.Rev, err error) {
	err = retry(ctx, func() error {
		rows, err := c.query(ctx, `
			SELECT l.first, l.last, k.name, k.modified, k.value, k.created, k.modified, k.owner
			FROM (SELECT min(seq) AS first, max(seq) AS last FROM log) l LEFT JOIN kv k ON k.dir = $1 ORDER BY k.name`, dir)
		if err != nil {
			return err
		}
		entries, rev = nil, revOf(rows[0].last)
		for _, r := range rows {
			if !r.name.Valid {
				continue // there are no entries
			}
			if e, err := r.entry(dir.Join(r.name.String)); err == nil { // a foreign value is skipped; log it
				entries = append(entries, e)
			}
		}
		return nil
	})
	return entries, rev, err
}

// row is a row of a directory. The columns of a name, and of an entry, are null if there is none.
type row struct {
	first, last       int64 // of the log
	name              sql.NullString
	seq               sql.NullInt64 // the last change of the name
	value             []byte
	created, modified sql.NullInt64
	owner             sql.NullString
}

// query returns one row at least, since each query of this package outer-joins the log.
func (c *Client) query(ctx context.Context, query string, args ...any) (all []row, err error) {
	rows, err := c.calls.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var r row
		if err := rows.Scan(&r.first, &r.last, &r.name, &r.seq, &r.value, &r.created, &r.modified, &r.owner); err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, rows.Err()
}

func (r row) entry(key registry.Key) (registry.Entry, error) {
	id, value, err := backend.DecodeValue(key, r.value)
	if err != nil {
		return registry.Entry{}, err
	}
	return registry.Entry{
		Key: key, Value: value, Created: revOf(r.created.Int64), Modified: revOf(r.modified.Int64),
		Owner: registry.SessionID(r.owner.String), Txn: id,
	}, nil
}

func revOf(seq int64) registry.Rev { return registry.Rev{Seq: uint64(seq)} }

// Limits implements registry.Registry.
func (c *Client) Limits() registry.Limits { return c.handle.Limits() }

// Close implements registry.Registry.
func (c *Client) Close(ctx context.Context) error {
	return c.handle.Close(ctx, func(context.Context) {
		_ = c.calls.Close()
		_ = c.renewals.Close()
		c.hangUp()
	})
}

// retry repeats a request that may be sent twice until it is answered, or ctx ends.
func retry(ctx context.Context, request func() error) error {
	for pause := backend.NextPause(0); ; pause = backend.NextPause(pause) {
		err := translate(request())
		if err == nil || backend.IsClassified(err) || !backend.Sleep(ctx, pause) {
			return backend.CallError(ctx, err)
		}
	}
}

// translate returns the registry's error for one of the server.
func translate(err error) error {
	var answer *pgconn.PgError
	if !errors.As(err, &answer) {
		return err
	}
	switch code := answer.Code; { // SQLSTATE
	case code == "42501":
		return fmt.Errorf("%w: %w", registry.ErrPermission, err)
	case strings.HasPrefix(code, "28"):
		return fmt.Errorf("%w: %w", registry.ErrUnauthenticated, err)
	case code == "53100": // the disk is full
		return fmt.Errorf("%w: %w", registry.ErrQuota, err)
	}
	return err
}
