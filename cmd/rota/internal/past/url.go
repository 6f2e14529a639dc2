package past

import (
	"database/sql"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver of PostgreSQL
	_ "modernc.org/sqlite"             // the driver of SQLite

	"github.com/rota-dev/rota/history"
)

// open opens the database at a URL: postgres://USER:PASSWORD@HOST/DATABASE, mysql://... or sqlite:FILE. It
// makes no connection. Errors do not include the password.
func open(text string) (*sql.DB, history.Dialect, error) {
	scheme, rest, _ := strings.Cut(text, ":")
	switch scheme {
	case "postgres", "postgresql":
		db, err := sql.Open("pgx", text)
		if err != nil {
			return nil, 0, fmt.Errorf("history %s: not a URL of PostgreSQL", redact(text))
		}
		return db, history.Postgres, nil
	case "mysql":
		dsn, err := mysqlDSN(text)
		if err != nil {
			return nil, 0, err
		}
		db, err := sql.Open("mysql", dsn)
		return db, history.MySQL, err
	case "sqlite":
		file := strings.TrimPrefix(rest, "//")
		if _, err := os.Stat(file); err != nil {
			return nil, 0, fmt.Errorf("history: %w", err) // the driver would create it
		}
		path := (&url.URL{Path: file}).EscapedPath()
		db, err := sql.Open("sqlite", "file:"+path+"?mode=ro&_pragma=busy_timeout(1000)")
		return db, history.SQLite, err
	}
	return nil, 0, fmt.Errorf("history %s: the URL must begin with postgres://, mysql:// or sqlite:FILE", redact(text))
}

// mysqlDSN returns the URL of a MySQL database in the form of the driver.
func mysqlDSN(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || len(u.Path) < 2 {
		return "", fmt.Errorf("history %s: not mysql://USER:PASSWORD@HOST[:PORT]/DATABASE", redact(text))
	}
	port := u.Port()
	if port == "" {
		port = "3306"
	}
	c := mysql.NewConfig()
	c.Net, c.Addr, c.DBName, c.User = "tcp", net.JoinHostPort(u.Hostname(), port), u.Path[1:], u.User.Username()
	c.Passwd, _ = u.User.Password()
	dsn := c.FormatDSN()
	if u.RawQuery != "" {
		separator := "?"
		if strings.Contains(dsn, "?") {
			separator = "&"
		}
		dsn += separator + u.RawQuery
	}
	if _, err := mysql.ParseDSN(dsn); err != nil {
		return "", fmt.Errorf("history %s: %w", redact(text), err)
	}
	return dsn, nil
}

// redact returns a URL without its password, or only its scheme if it cannot be parsed.
func redact(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		scheme, _, _ := strings.Cut(text, ":")
		return scheme + ":..."
	}
	u.RawQuery = "" // may have a password too
	return u.Redacted()
}
