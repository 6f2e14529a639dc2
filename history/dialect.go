package history

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Dialect is the language of a database.
type Dialect int

const (
	// Postgres is PostgreSQL from version 12. It is tested with 15.
	Postgres Dialect = iota + 1
	// MySQL is MySQL from version 8.0 and MariaDB from version 10.3. It is tested with MariaDB 10.11.
	MySQL
	// SQLite is SQLite from version 3.24. It is tested with modernc.org/sqlite.
	SQLite
)

// String returns the name of the dialect, such as "postgres".
func (d Dialect) String() string {
	switch d {
	case Postgres:
		return "postgres"
	case MySQL:
		return "mysql"
	case SQLite:
		return "sqlite"
	}
	return "Dialect(" + strconv.Itoa(int(d)) + ")"
}

func (d Dialect) check() error {
	if d < Postgres || d > SQLite {
		return fmt.Errorf("history: %v is no dialect", d)
	}
	return nil
}

// statement returns text with the placeholders of the dialect instead of question marks.
func (d Dialect) statement(text string) string {
	if d != Postgres {
		return text
	}
	var b strings.Builder
	for n := 1; ; n++ {
		before, after, found := strings.Cut(text, "?")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		b.WriteString("$" + strconv.Itoa(n))
		text = after
	}
}

// onConflict returns the clause by which a row that exists remains as it is. MySQL's INSERT IGNORE would ignore
// other errors too.
func (d Dialect) onConflict() string {
	if d == MySQL {
		return " ON DUPLICATE KEY UPDATE namespace = namespace"
	}
	return " ON CONFLICT DO NOTHING"
}

// replaceCrashed returns the clause by which a run replaces one of a leader, as Run.replaces does; otherwise a row that
// exists remains as it is.
func (d Dialect) replaceCrashed() string {
	key := primaryKeys["rota_run"]
	var set []string
	for _, column := range runColumns {
		switch {
		case column == "outcome" || slices.Contains(key, column):
		case d == MySQL:
			set = append(set, column+" = IF("+mysqlReplaces+", VALUES("+column+"), "+column+")")
		default:
			set = append(set, column+" = excluded."+column)
		}
	}
	if d == MySQL { // which assigns from left to right, so the column that the condition reads is the last
		set = append(set, "outcome = IF("+mysqlReplaces+", VALUES(outcome), outcome)")
		return " ON DUPLICATE KEY UPDATE " + strings.Join(set, ", ")
	}
	set = append(set, "outcome = excluded.outcome")
	return " ON CONFLICT (" + strings.Join(key, ", ") + ") DO UPDATE SET " + strings.Join(set, ", ") +
		" WHERE rota_run.outcome = '" + string(Crashed) + "' AND excluded.outcome <> '" + string(Crashed) + "'"
}

const mysqlReplaces = "outcome = '" + string(Crashed) + "' AND VALUES(outcome) <> '" + string(Crashed) + "'"

// lastRun returns the expression of lastRunOf. The outcome is compared byte by byte in each dialect.
func (d Dialect) lastRun() string {
	attempt := "attempt"
	if d == Postgres { // whose products are as narrow as the column
		attempt = "CAST(attempt AS bigint)"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s * %d + CASE outcome", attempt, cellOutcomeBase)
	for i, outcome := range cellOutcomes[:len(cellOutcomes)-1] {
		fmt.Fprintf(&b, " WHEN '%s' THEN %d", outcome, i)
	}
	fmt.Fprintf(&b, " ELSE %d END", len(cellOutcomes)-1)
	return b.String()
}

// useIndex returns the clause that makes MySQL use an index, whose estimates often favour another one and a sort of the table.
func (d Dialect) useIndex(name string) string {
	if d == MySQL {
		return " FORCE INDEX (" + name + ")"
	}
	return ""
}

// timeText is the form of times in SQLite and, without a zone that a driver might convert, in MySQL.
const timeText = "2006-01-02 15:04:05.000000"

// timeArgument returns t as an argument. The zero time is NULL.
func (d Dialect) timeArgument(t time.Time) any {
	switch {
	case t.IsZero():
		return nil
	case d == Postgres:
		return t.UTC()
	}
	return t.UTC().Format(timeText)
}

// timeColumn scans a time of any driver. NULL is the zero time.
type timeColumn struct {
	dialect Dialect
	into    *time.Time
}

// Scan implements sql.Scanner.
func (c timeColumn) Scan(v any) (err error) {
	switch v := v.(type) {
	case nil:
		*c.into = time.Time{}
	case time.Time:
		if c.dialect == Postgres {
			*c.into = v.UTC()
			return nil
		}
		// MySQL's driver has read the text as a time in the zone of its configuration; it is one in UTC.
		*c.into = time.Date(v.Year(), v.Month(), v.Day(), v.Hour(), v.Minute(), v.Second(), v.Nanosecond(), time.UTC)
	case string:
		*c.into, err = time.ParseInLocation("2006-01-02 15:04:05.999999", v, time.UTC)
	case []byte:
		*c.into, err = time.ParseInLocation("2006-01-02 15:04:05.999999", string(v), time.UTC)
	default:
		err = fmt.Errorf("a time is a %T", v)
	}
	return err
}

// lockMigrations makes conn the only connection that migrates, until unlock. On PostgreSQL and SQLite it begins a
// transaction, which unlock ends; MySQL has no transactions of definitions.
func (d Dialect) lockMigrations(ctx context.Context, conn *sql.Conn) (unlock func(err error) error, err error) {
	end := func(err error) error {
		text := "COMMIT"
		if err != nil {
			text = "ROLLBACK"
		}
		// ctx may have ended, but the connection goes back to its pool.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_, err = conn.ExecContext(ctx, text)
		return err
	}
	switch d {
	case Postgres:
		if _, err := conn.ExecContext(ctx, "BEGIN"); err != nil {
			return nil, err
		}
		if _, err = conn.ExecContext(ctx, "SELECT pg_advisory_xact_lock("+migrationLock+")"); err != nil {
			_ = end(err)
			return nil, err
		}
		return end, nil
	case MySQL:
		return lockMySQL(ctx, conn)
	}
	for {
		_, err := conn.ExecContext(ctx, "BEGIN IMMEDIATE")
		if err == nil {
			return end, nil
		}
		if !isSQLiteBusy(err) {
			return nil, err
		}
		select { // another process migrates, or writes
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return nil, err
		}
	}
}

// migrationLock is a number that no other program is likely to lock.
const migrationLock = "7957970893126218"

func lockMySQL(ctx context.Context, conn *sql.Conn) (unlock func(error) error, err error) {
	// Names of locks are global in a server, and have up to 64 characters.
	const name = "CONCAT('rota_history ', SHA1(DATABASE()))"
	for {
		var got sql.NullInt64
		if err := conn.QueryRowContext(ctx, "SELECT GET_LOCK("+name+", 1)").Scan(&got); err != nil {
			return nil, err
		}
		if got.Int64 == 1 {
			break
		}
		if !got.Valid {
			return nil, errors.New("GET_LOCK failed: is a database selected?")
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
	return func(error) error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_, err := conn.ExecContext(ctx, "DO RELEASE_LOCK("+name+")")
		return err
	}, nil
}

// isSQLiteBusy reports whether another connection holds the lock. Drivers have no error in common.
func isSQLiteBusy(err error) bool {
	text := strings.ToLower(err.Error())
	return strings.Contains(text, "locked") || strings.Contains(text, "busy")
}
