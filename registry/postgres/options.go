package postgres

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/rota-dev/rota/registry/backend"
)

// Options configure Open and Migrate. Only Endpoints are required. Printing or logging Options does not reveal the Password.
type Options struct {
	// Endpoints are the addresses of the primary and of the standbys that may become the primary: host:port, or host for port 5432. A
	// connection is made to all of them at once, and kept to the primary only. One may be that of a pooler.
	Endpoints []string

	// ListenEndpoints are the addresses of the servers themselves, if Endpoints are those of a pooler such as pgbouncer: in transaction
	// mode, a pooler does not forward notifications. Without them, a handle behind a pooler asks for changes twenty times a second. One
	// connection of each handle goes there. nil means Endpoints.
	ListenEndpoints []string

	// PollOnly makes this handle neither send nor receive notifications, for databases in which NOTIFY is not wanted: it asks for changes
	// twenty times a second. Set it for all handles of a schema; others would see the changes of this one up to a second later.
	PollOnly bool

	// Database is the database. "" means PGDATABASE, or the name of the user.
	Database string

	// Schema is the schema that Migrate has created: lower-case letters, digits and underscores. "" means DefaultSchema. Registries in
	// different schemas do not see each other.
	Schema string

	// Username and Password authenticate a role, which needs the rights that docs/stores.md lists. "" means PGUSER or the user of the
	// process, and PGPASSWORD or the password file.
	Username, Password string

	// TLS configures connections with TLS, including the client certificate if the server asks for one. The host of an endpoint is the
	// ServerName if that is empty. nil means no TLS.
	TLS *tls.Config

	// CallTimeout bounds each call, in addition to the call's context. 0 means 5 s.
	CallTimeout time.Duration

	// ReadOnly opens a handle that needs only the right to read: Txn and OpenSession fail with registry.ErrReadOnly.
	ReadOnly bool

	// Logger receives events that no call returns. At INFO: sessions that are suspended or lost, and watches that restart. At
	// WARN: notifications that do not arrive, a server that does not sync its disk. nil means slog.Default().
	Logger *slog.Logger

	// DialContext, if not nil, makes the network connections. It receives the host of an endpoint unresolved.
	DialContext func(ctx context.Context, network, address string) (net.Conn, error)
}

// DefaultSchema is the schema if Options name none.
const DefaultSchema = "rota"

const defaultPort = "5432"

// validSchema matches names that need no quotes. The channel of notifications is this name and a few letters more, of 63.
var validSchema = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,49}$`)

func checkSchema(schema string) error {
	if !validSchema.MatchString(schema) || strings.HasPrefix(schema, "pg_") {
		return fmt.Errorf("schema %q must be lower-case letters, digits and underscores, at most 50, and not begin with a digit or pg_", schema)
	}
	return nil
}

// complete returns o with defaults for zero values, or an error that lists all problems.
func (o Options) complete() (Options, error) {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if len(o.Endpoints) == 0 {
		fault("no endpoints")
	}
	o.Endpoints = withPorts(o.Endpoints, fault)
	o.ListenEndpoints = withPorts(o.ListenEndpoints, fault)
	if len(o.ListenEndpoints) == 0 {
		o.ListenEndpoints = o.Endpoints
	}
	if o.Schema == "" {
		o.Schema = DefaultSchema
	}
	if err := checkSchema(o.Schema); err != nil {
		faults = append(faults, err)
	}
	if o.CallTimeout < 0 {
		fault("CallTimeout is negative: %v", o.CallTimeout)
	}
	if o.CallTimeout == 0 {
		o.CallTimeout = backend.DefaultCallTimeout
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.TLS != nil {
		o.TLS = o.TLS.Clone()
	}
	return o, errors.Join(faults...)
}

// withPorts returns endpoints as host:port.
func withPorts(endpoints []string, fault func(format string, args ...any)) []string {
	endpoints = slices.Clone(endpoints)
	for i, e := range endpoints {
		host, port, err := net.SplitHostPort(e)
		if err != nil {
			host, port = strings.Trim(e, "[]"), defaultPort
		}
		if host == "" || strings.ContainsAny(e, " ,@/?") || strings.Trim(port, "0123456789") != "" || port == "" {
			fault("endpoint %q is not host:port", e)
		}
		endpoints[i] = net.JoinHostPort(host, port)
	}
	return endpoints
}

// config returns the driver's configuration of an endpoint. Settings of the session are left to the server, since a pooler knows
// no others: so PGOPTIONS has no effect.
func (o Options) config(endpoint string) (*pgconn.Config, error) {
	host, port, err := net.SplitHostPort(endpoint)
	if err != nil {
		return nil, err
	}
	settings := fmt.Sprintf("host=%s port=%s sslmode=disable target_session_attrs=any", quoteSetting(host), port)
	for _, s := range []struct{ key, value string }{{"dbname", o.Database}, {"user", o.Username}, {"password", o.Password}} {
		if s.value != "" {
			settings += " " + s.key + "=" + quoteSetting(s.value)
		}
	}
	c, err := pgconn.ParseConfig(settings)
	if err != nil {
		return nil, fmt.Errorf("configure %s: invalid settings", endpoint) // the error would contain the settings
	}
	c.RuntimeParams = map[string]string{"application_name": "rota"}
	if o.TLS != nil {
		c.TLSConfig = o.TLS.Clone()
		if c.TLSConfig.ServerName == "" {
			c.TLSConfig.ServerName = host
		}
	}
	c.ConnectTimeout = dialTimeout
	c.DialFunc = (&net.Dialer{KeepAliveConfig: keepAlive}).DialContext
	if o.DialContext != nil {
		c.DialFunc = o.DialContext
		c.LookupFunc = func(_ context.Context, host string) ([]string, error) { return []string{host}, nil }
	}
	return c, nil
}

// keepAlive finds the end of an idle connection in some seconds.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3}

func quoteSetting(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(s) + "'"
}

// String returns the endpoints, the database and the schema.
func (o Options) String() string {
	return fmt.Sprintf("postgres at %s, database %q, schema %s", o.endpoints(), o.Database, o.Schema)
}

// GoString is String, so that no format verb reveals the password.
func (o Options) GoString() string { return o.String() }

// LogValue is String for package slog.
func (o Options) LogValue() slog.Value { return slog.StringValue(o.String()) }

func (o Options) endpoints() string { return strings.Join(o.Endpoints, ",") }
