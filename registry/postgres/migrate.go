package postgres

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

//go:embed migrations/001_registry.sql
var step1 string

//go:embed migrations/002_complete.sql
var step2 string

//go:embed migrations/003_post.sql
var step3 string

//go:embed migrations/004_rights.sql
var step4 string

//go:embed migrations/005_sets.sql
var step5 string

// schemaSteps are the steps of the schema. The version of a schema is the number of its steps. A step keeps the functions that earlier
// programs call, so that a fleet can be updated one process after the other.
var schemaSteps = []string{step1, step2, step3, step4, step5}

// schemaName matches the name of the schema in the text of a step.
var schemaName = regexp.MustCompile(`\bSCHEMA rota\b|\brota\.`)

// stepSQL returns the statements of the step at i for a schema, with those that record it.
func stepSQL(schema string, i int) string {
	statements := schemaName.ReplaceAllStringFunc(schemaSteps[i], func(s string) string { return strings.Replace(s, "rota", schema, 1) })
	return fmt.Sprintf("%s\nINSERT INTO %s.version (version) VALUES (%d);\n", statements, schema, i+1)
}

// Migrate creates the schema of a registry, or updates it. It does nothing if the schema is up to date, or was created by a later version.
// Several processes may call it at once: a lock makes the others wait. It is one transaction.
//
// The role of o needs the right to create schemas in the database, or, if the schema exists, to create in that. It owns the tables; other roles need
// the rights that docs/stores.md lists.
func Migrate(ctx context.Context, o Options) error {
	o, err := o.complete()
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	if err := migrate(ctx, o); err != nil {
		return fmt.Errorf("migrate schema %s at %s: %w", o.Schema, o.endpoints(), translate(err))
	}
	return nil
}

func migrate(ctx context.Context, o Options) error {
	c, err := connectPrimary(ctx, o)
	if err != nil {
		return err
	}
	defer c.Close(context.WithoutCancel(ctx))
	version, err := readVersion(ctx, c, o.Schema)
	if err != nil || version >= len(schemaSteps) {
		return err
	}
	_, err = c.Exec(ctx, "BEGIN ISOLATION LEVEL READ COMMITTED;\n"+migration(o.Schema)+"COMMIT;\n").ReadAll()
	return err
}

// migration returns the statements that take the steps that a schema lacks, for one transaction. The lock makes concurrent callers wait, and each
// then sees the steps of the others. A step that waits for a long statement of others, such as a backup, would make a fleet wait behind it: it
// fails instead, and may be tried again.
func migration(schema string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "SELECT pg_advisory_xact_lock(1919906913, hashtext('%s'));\nSET LOCAL lock_timeout = '2s';\n", schema)
	fmt.Fprintf(&b, "DO $migrate$ BEGIN\nIF to_regnamespace('%s') IS NULL THEN CREATE SCHEMA %s; END IF;\n", schema, schema)
	fmt.Fprintf(&b, "CREATE TABLE IF NOT EXISTS %s.version (version integer NOT NULL PRIMARY KEY);\n", schema)
	for i := range schemaSteps {
		fmt.Fprintf(&b, "IF NOT EXISTS (SELECT FROM %s.version WHERE version = %d) THEN\nEXECUTE $step$%s$step$;\nEND IF;\n", schema, i+1, stepSQL(schema, i))
	}
	b.WriteString("END $migrate$;\n")
	return b.String()
}

// readVersion returns the version of a schema, 0 if there is none.
func readVersion(ctx context.Context, c *pgconn.PgConn, schema string) (int, error) {
	results, err := c.Exec(ctx, "SELECT to_regclass('"+schema+".version') IS NOT NULL").ReadAll()
	if err != nil || string(results[0].Rows[0][0]) == "f" {
		return 0, err
	}
	if results, err = c.Exec(ctx, "SELECT max(version) FROM "+schema+".version").ReadAll(); err != nil {
		return 0, err
	}
	if v := results[0].Rows[0][0]; v != nil {
		return strconv.Atoi(string(v))
	}
	return 0, nil
}

// connectPrimary connects to the first endpoint that is a primary.
func connectPrimary(ctx context.Context, o Options) (*pgconn.PgConn, error) {
	var errs []error
	for _, e := range o.Endpoints {
		config, err := o.config(e)
		if err != nil {
			return nil, err
		}
		config.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
		c, err := pgconn.ConnectConfig(ctx, config)
		if err == nil {
			return c, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// MigrationSQL returns the statements that Migrate executes, for those who apply them with a tool of their own: in one transaction, at READ
// COMMITTED. They create a schema or update it, and change nothing in one that is up to date. "" means DefaultSchema.
func MigrationSQL(schema string) (string, error) {
	if schema == "" {
		schema = DefaultSchema
	}
	if err := checkSchema(schema); err != nil {
		return "", err
	}
	return migration(schema), nil
}
