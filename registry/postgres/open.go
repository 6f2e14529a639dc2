package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/rota-dev/rota/internal/cleartext"
	"github.com/rota-dev/rota/registry"
)

// Open connects to the primary among o.Endpoints and returns a handle, which must be closed. The handle does not depend on ctx.
//
// Open tries each endpoint once; it takes a few seconds at worst, and ends with ctx. It fails with
//
//   - all problems of o, if there are any;
//   - registry.ErrUnavailable and one cause per endpoint, if no primary is reachable;
//   - registry.ErrUnauthenticated, if the credentials are rejected;
//   - registry.ErrPermission, if the role lacks a right to the tables or the functions of the schema;
//   - ErrNoSchema, if there is no database, or if Migrate has not created the schema, or only an earlier version of it;
//   - an error that names the setting, if the isolation level of the role is not READ COMMITTED.
func Open(ctx context.Context, o Options) (*Client, error) {
	o, err := o.complete()
	if err != nil {
		return nil, fmt.Errorf("open postgres: %w", err)
	}
	c := newClient(o)
	if o.Password != "" && o.TLS == nil {
		cleartext.WarnPassword(o.Logger, o.Endpoints)
	}
	if err := c.finishOpen(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("open postgres at %s: %w", o.endpoints(), err), c.Close(ctx))
	}
	return c, nil
}

func (c *Client) finishOpen(ctx context.Context) error {
	err := c.handle.Call(ctx, func(ctx context.Context) error {
		l, err := c.dial(ctx, c.options.Endpoints, func(string) {}, c.reads.dropEnded)
		var answer *pgconn.PgError
		switch {
		case errors.As(err, &answer) && answer.Code == codeNoDatabase:
			return setupError{fmt.Errorf("%w: %w: create the database, then call Migrate, or run rota postgres migrate", ErrNoSchema, err)}
		case err != nil:
			return err
		}
		c.reads.use(l)
		if err := c.checkSchema(ctx, l); err != nil || c.options.ReadOnly {
			return err
		}
		if err := c.readID(ctx, l); err != nil {
			return err
		}
		for _, s := range []*slot{c.writes, c.renewals} {
			if _, err := s.get(ctx); err != nil {
				return translate(err)
			}
		}
		return nil
	})
	if err != nil {
		return unwrapUnavailable(err)
	}
	if !c.options.ReadOnly {
		c.handle.Go(c.keepTime)
		c.handle.Go(c.pruneEnds)
	}
	c.handle.Go(c.poll)
	if !c.options.PollOnly {
		c.handle.Go(func() { _, _ = c.listener.get(c.handle.Context()) })
	}
	return nil
}

// ErrNoSchema is the error of Open if Migrate has to be called first.
var ErrNoSchema = errors.New("the schema of the registry is missing or of an earlier version")

// setupError is an error of Open that no retry heals.
type setupError struct{ error }

func (e setupError) Unwrap() error { return e.error }

// unwrapUnavailable returns a setupError without the registry.ErrUnavailable that a call has added.
func unwrapUnavailable(err error) error {
	var s setupError
	if errors.As(err, &s) {
		return s.error
	}
	return err
}

// requiredRights are the rights of a handle to tables.
var requiredRights = map[string][]string{
	"kv": {"SELECT", "INSERT", "UPDATE", "DELETE"}, "log": {"SELECT", "INSERT", "DELETE"},
	"session": {"SELECT", "INSERT", "UPDATE", "DELETE"}, "state": {"SELECT", "UPDATE"},
	"gate": {"SELECT", "INSERT", "UPDATE", "DELETE"}, "ended": {"SELECT", "DELETE"},
	"post": {"SELECT", "DELETE"},
}

// checkSchema checks the version of the schema, the rights of the role and the settings of the server, on a connection.
func (c *Client) checkSchema(ctx context.Context, l *conn) error {
	rows, err := l.do(ctx, statement{sql: "SELECT max(version)::bigint, current_setting('transaction_isolation'), current_setting('fsync') FROM " + c.options.Schema + ".version"})
	var answer *pgconn.PgError
	switch {
	case errors.As(err, &answer) && (answer.Code == codeNoSchema || answer.Code == codeNoTable):
		return setupError{fmt.Errorf("%w: there is no registry in schema %s: call Migrate, or run rota postgres migrate", ErrNoSchema, c.options.Schema)}
	case err != nil:
		return translate(err)
	case len(rows) != 1:
		return errors.New("an incomplete answer")
	}
	if version, want := rows[0].int8(0), int64(len(schemaSteps)); version < want {
		return setupError{fmt.Errorf("%w: schema %s has version %d, this program needs %d: call Migrate, or run rota postgres migrate", ErrNoSchema, c.options.Schema, version, want)}
	}
	if level := rows[0].text(1); level != "read committed" && !c.options.ReadOnly {
		return setupError{fmt.Errorf("the isolation level of the role or the database is %s: set default_transaction_isolation to 'read committed' for the role", level)}
	}
	if rows[0].text(2) == "off" {
		c.log.LogAttrs(ctx, slog.LevelWarn, "the server does not sync its disk", slog.String("address", l.address),
			slog.String("next", "a crash of its host may lose commits that were acknowledged"), slog.String("remedy", "set fsync to on"))
	}
	return c.checkRights(ctx, l)
}

// functionsToRead are the functions that a handle which only reads needs. Others need all but functionsOfUsers, since some call others.
var (
	functionsToRead  = []string{"get", "list", "changes", "last", "check_primary"}
	functionsOfUsers = []string{"complete_run", "post", "place_post"} // in transactions of users
)

// checkRights returns a registry.ErrPermission that names the rights that the role lacks.
func (c *Client) checkRights(ctx context.Context, l *conn) error {
	tables, rights, reads, users := textList(), textList(), textList(functionsToRead...), textList(functionsOfUsers...)
	for table, all := range requiredRights {
		for _, right := range all {
			if right == "SELECT" || !c.options.ReadOnly {
				tables.add([]byte(c.options.Schema + "." + table))
				rights.add([]byte(right))
			}
		}
	}
	rows, err := l.do(ctx, statement{
		`SELECT string_agg(r.p || ' on ' || r.t, ', ' ORDER BY r.t, r.p) FROM (
			SELECT t, p FROM unnest($1, $2) r (t, p) WHERE NOT has_table_privilege(t, p)
			UNION ALL
			SELECT 'function ' || n.nspname || '.' || f.proname, 'EXECUTE' FROM pg_proc f JOIN pg_namespace n ON n.oid = f.pronamespace
			WHERE n.nspname = $3 AND NOT has_function_privilege(f.oid, 'EXECUTE')
				AND CASE WHEN $4 THEN f.proname = ANY ($5) ELSE f.proname <> ALL ($6) END) r`,
		[]param{tables.param(), rights.param(), text(c.options.Schema), boolean(c.options.ReadOnly), reads.param(), users.param()},
	})
	switch {
	case err != nil:
		return translate(err)
	case len(rows) == 1 && rows[0][0] != nil:
		return fmt.Errorf("%w: the role lacks %s", registry.ErrPermission, rows[0].text(0))
	}
	return nil
}

// SchemaVersion is the version of the schema that this package needs.
func SchemaVersion() int { return len(schemaSteps) }
