package history

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
)

//go:embed migrations
var migrations embed.FS

// migration is one step of the schema. Its number is its place, from 1.
type migration struct {
	number int
	text   string
}

// readMigrations returns the migrations of a dialect in order.
func readMigrations(d Dialect) ([]migration, error) {
	if err := d.check(); err != nil {
		return nil, err
	}
	files, err := fs.Glob(migrations, "migrations/"+d.String()+"/*.sql") // sorted
	if err != nil {
		return nil, err
	}
	var all []migration
	for i, file := range files {
		text, err := migrations.ReadFile(file)
		if err != nil {
			return nil, err
		}
		if !strings.HasPrefix(file, fmt.Sprintf("migrations/%v/%03d_", d, i+1)) {
			return nil, fmt.Errorf("history: %s is not migration %d", file, i+1)
		}
		all = append(all, migration{i + 1, string(text)})
	}
	return all, nil
}

const createVersions = `CREATE TABLE IF NOT EXISTS rota_history_version (version integer NOT NULL PRIMARY KEY)`

// Migrate creates or updates the tables of history: rota_run, rota_fire_part and its view rota_fire, rota_log, and
// rota_history_version. It does nothing if they are up to date, or were created by a later version. Several processes
// may call it at once: a lock makes the others wait.
//
// On PostgreSQL the tables are created in the first schema of the search path.
func Migrate(ctx context.Context, db *sql.DB, d Dialect) (err error) {
	all, err := readMigrations(d)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("history: migrate: %w", err)
		}
	}()
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	unlock, err := d.lockMigrations(ctx, conn)
	if err != nil {
		return err
	}
	err = migrate(ctx, conn, all)
	if end := unlock(err); err == nil {
		err = end
	}
	return err
}

// migrate applies the migrations that are missing.
func migrate(ctx context.Context, conn *sql.Conn, all []migration) error {
	if _, err := conn.ExecContext(ctx, createVersions); err != nil {
		return err
	}
	var version sql.NullInt64
	if err := conn.QueryRowContext(ctx, "SELECT max(version) FROM rota_history_version").Scan(&version); err != nil {
		return err
	}
	for _, m := range all[min(int(version.Int64), len(all)):] {
		for _, statement := range append(splitStatements(m.text), insertVersion(m)) {
			if _, err := conn.ExecContext(ctx, statement); err != nil {
				return fmt.Errorf("migration %d: %w", m.number, err)
			}
		}
	}
	return nil
}

func insertVersion(m migration) string {
	return "INSERT INTO rota_history_version (version) VALUES (" + strconv.Itoa(m.number) + ")"
}

// splitStatements returns the statements of a file, each of which ends with a semicolon at the end of a line.
func splitStatements(text string) []string {
	var statements []string
	for s := range strings.SplitSeq(text, ";\n") {
		if s = strings.TrimSpace(s); s != "" {
			statements = append(statements, s)
		}
	}
	return statements
}

// MigrationSQL returns the statements that Migrate would execute in an empty database, for those who apply them with
// a tool of their own.
func MigrationSQL(d Dialect) (string, error) {
	all, err := readMigrations(d)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString(createVersions + ";\n")
	for _, m := range all {
		b.WriteString("\n" + m.text + "\n" + insertVersion(m) + ";\n")
	}
	return b.String(), nil
}
