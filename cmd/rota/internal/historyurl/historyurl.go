// Package historyurl opens the databases of package history by URL: postgres://HOST/DATABASE, mysql://HOST/DATABASE
// or sqlite:FILE.
package historyurl

import (
	"cmp"
	"context"
	"crypto/tls"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"modernc.org/sqlite"

	"github.com/rota-dev/rota/history"
)

// Options are the settings of a connection beside its URL. The zero value has none.
type Options struct {
	// ReadOnly opens a file of SQLite for reading. It must exist then.
	ReadOnly bool
	// User and Password replace those of the URL unless they are empty.
	User, Password string
	// TLS is the configuration of connections to a server. Nil means that of the URL.
	TLS *tls.Config
}

// Open opens the database at a URL. It makes no connection. Errors do not include the password.
func Open(text string, o Options) (*sql.DB, history.Dialect, error) {
	switch scheme, _, _ := strings.Cut(text, ":"); scheme {
	case "postgres", "postgresql":
		c, err := postgresConfig(text, o)
		if err != nil {
			return nil, 0, err
		}
		return stdlib.OpenDB(*c), history.Postgres, nil
	case "mysql":
		c, err := mysqlConfig(text, o)
		if err != nil {
			return nil, 0, err
		}
		connector, err := mysql.NewConnector(c)
		if err != nil {
			return nil, 0, fmt.Errorf("history %s: %w", Redact(text), err)
		}
		return sql.OpenDB(connector), history.MySQL, nil
	case "sqlite":
		parameters := "_pragma=busy_timeout(5000)"
		if o.ReadOnly {
			if _, err := os.Stat(File(text)); err != nil {
				return nil, 0, fmt.Errorf("history: %w", err) // the driver would create it
			}
			parameters = "mode=ro&_pragma=busy_timeout(1000)"
		}
		c := &sqliteConnector{dsn: "file:" + (&url.URL{Path: File(text)}).EscapedPath() + "?" + parameters}
		if !o.ReadOnly {
			c.create = File(text)
		}
		return sql.OpenDB(c), history.SQLite, nil
	}
	return nil, 0, fmt.Errorf("history %s: the URL must begin with postgres://, mysql:// or sqlite:FILE", Redact(text))
}

// sqliteConnector opens a file of SQLite, whose directory may appear later than the process.
type sqliteConnector struct {
	driver      sqlite.Driver
	dsn, create string // the file to create if it does not exist; empty: none
}

// Driver implements driver.Connector.
func (c *sqliteConnector) Driver() driver.Driver { return &c.driver }

// Connect implements driver.Connector.
func (c *sqliteConnector) Connect(context.Context) (driver.Conn, error) {
	if c.create != "" {
		if err := createPrivately(c.create); err != nil {
			return nil, err
		}
	}
	return c.driver.Open(c.dsn)
}

// createPrivately creates a file, unless it exists, that only its user may read: it has the output of programs. SQLite gives the
// files beside it the same mode.
func createPrivately(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return f.Close()
}

// File returns the path of a URL of the form SCHEME:FILE.
func File(text string) string {
	_, rest, _ := strings.Cut(text, ":")
	return strings.TrimPrefix(rest, "//")
}

// postgresConfig returns the configuration of a PostgreSQL database.
func postgresConfig(text string, o Options) (*pgx.ConnConfig, error) {
	c, err := pgx.ParseConfig(text)
	if err != nil {
		// The text of other errors may have a part of the password.
		var missing *fs.PathError
		if errors.As(err, &missing) {
			return nil, fmt.Errorf("history %s: %w", Redact(text), missing)
		}
		return nil, fmt.Errorf("history %s: not a URL of PostgreSQL", Redact(text))
	}
	if o.User != "" {
		c.User = o.User
	}
	if o.Password != "" {
		c.Password = o.Password
	}
	if o.TLS != nil {
		c.TLSConfig = tlsForHost(o.TLS, c.Host)
		for _, f := range c.Fallbacks {
			f.TLSConfig = tlsForHost(o.TLS, f.Host)
		}
	}
	return c, nil
}

// tlsForHost returns the configuration for one of several hosts, nil for the directory of a Unix socket.
func tlsForHost(config *tls.Config, host string) *tls.Config {
	if strings.HasPrefix(host, "/") {
		return nil
	}
	config = config.Clone()
	config.ServerName = cmp.Or(config.ServerName, host)
	return config
}

// mysqlConfig returns the configuration of a MySQL database.
func mysqlConfig(text string, o Options) (*mysql.Config, error) {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || len(u.Path) < 2 {
		return nil, fmt.Errorf("history %s: not mysql://USER:PASSWORD@HOST[:PORT]/DATABASE", Redact(text))
	}
	port := cmp.Or(u.Port(), "3306")
	dsn := mysql.NewConfig()
	dsn.Net, dsn.Addr, dsn.DBName = "tcp", net.JoinHostPort(u.Hostname(), port), u.Path[1:]
	separator := "?"
	if strings.Contains(dsn.FormatDSN(), "?") {
		separator = "&"
	}
	c, err := mysql.ParseDSN(dsn.FormatDSN() + separator + u.RawQuery)
	if err != nil {
		return nil, fmt.Errorf("history %s: %w", Redact(text), err)
	}
	c.Logger = &mysql.NopLogger{} // calls return the errors; the logger of the driver writes to stderr
	c.User = u.User.Username()
	c.Passwd, _ = u.User.Password()
	if o.User != "" {
		c.User = o.User
	}
	if o.Password != "" {
		c.Passwd = o.Password
	}
	if o.TLS != nil {
		c.TLS = tlsForHost(o.TLS, u.Hostname())
	}
	return c, nil
}

// ErrPassword is the error of CheckWithoutPassword for a URL with a password.
var ErrPassword = errors.New("has a password, which the URL must not have: use password_env or password_file")

// CheckWithoutPassword returns an error if a URL has a password or is of no database, without a connection.
func CheckWithoutPassword(text string) error {
	scheme, rest, _ := strings.Cut(text, ":")
	switch scheme {
	case "sqlite":
		if File(text) == "" {
			return errors.New("names no file: write sqlite:FILE")
		}
		return nil
	case "postgres", "postgresql", "mysql":
	default:
		return fmt.Errorf("is %q, not the URL of a database", Redact(text))
	}
	// A password may have characters that end the authority, so the last "@" counts.
	user, _ := strings.CutPrefix(rest[:strings.LastIndex(rest, "@")+1], "//")
	_, query, _ := strings.Cut(rest, "?")
	values, err := url.ParseQuery(query)
	switch {
	case strings.Contains(user, ":") || values.Has("password") || values.Has("sslpassword"):
		return ErrPassword
	case err != nil:
		return errors.New("has parameters that are not of the form NAME=VALUE&NAME=VALUE")
	case !strings.HasPrefix(rest, "//"):
		return fmt.Errorf("is %q, not %s://HOST/DATABASE", text, scheme)
	case scheme == "mysql":
		if _, err := mysqlConfig(text, Options{}); err != nil {
			return fmt.Errorf("is %q, not mysql://HOST[:PORT]/DATABASE", text)
		}
	default:
		// PostgreSQL has lists of hosts, which package url does not parse.
		hosts, _, _ := strings.Cut(strings.TrimPrefix(rest[len(user):], "//"), "/")
		if u, err := url.Parse(text); err != nil && !strings.Contains(hosts, ",") || err == nil && u.Fragment != "" {
			return fmt.Errorf("is %q, not postgres://HOST[:PORT]/DATABASE", text)
		}
	}
	return nil
}

// Redact returns a URL without its password, or only its scheme if it cannot be parsed. A text that is no URL may be a
// password, or have one in the notation of a driver.
func Redact(text string) string {
	u, err := url.Parse(text)
	scheme, _, _ := strings.Cut(text, ":")
	switch isFile := scheme == "sqlite" || scheme == "jsonl"; {
	case err == nil && (u.Host != "" || isFile):
		u.RawQuery = "" // may have a password too
		return u.Redacted()
	case isFile || slices.Contains([]string{"postgres", "postgresql", "mysql"}, scheme):
		return scheme + ":..."
	}
	return "..."
}
