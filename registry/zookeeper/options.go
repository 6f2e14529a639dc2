package zookeeper

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/rota-dev/rota/registry"
)

// Options configure Open. Only Endpoints are required. Printing or logging Options does not
// reveal the Password.
type Options struct {
	// Endpoints are the addresses of the members, host:port. A name with several addresses
	// stands for all of them. Names are looked up again for each connection.
	Endpoints []string
	// InOrder makes a handle try the endpoints in the given order, for example the nearest
	// first. Otherwise each handle chooses a random order, which spreads the handles over the
	// members.
	InOrder bool

	// Namespace is the znode below which all data is stored: a path of segments as in
	// registry.Key, with a slash before each. Open creates it if needed, and the znodes above it
	// only if everyone has all rights to what it creates: with credentials or an ACL, they must
	// exist. "" means DefaultNamespace. Registries in different namespaces do not see each other; no namespace
	// may be below another.
	Namespace string

	// Username and Password authenticate each connection by the digest scheme. Set both or
	// neither.
	Username, Password string
	// ACL is the access control list of each znode that the handle creates. nil grants all
	// rights to the handle's user or, without credentials, to everyone.
	ACL []zk.ACL
	// TLS enables and configures TLS for each connection. An empty ServerName means the host
	// name of the endpoint.
	TLS *tls.Config
	// Dial replaces net.Dialer. TLS is applied to the connection that it returns.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	// LookupHost replaces net.DefaultResolver.
	LookupHost func(ctx context.Context, host string) ([]string, error)

	// DialTimeout bounds one attempt to connect. 0 means 2 s.
	DialTimeout time.Duration
	// CallTimeout bounds each call, in addition to the call's context. 0 means 5 s. A List makes a request for
	// each key: CallTimeout bounds the time between two answers.
	CallTimeout time.Duration
	// ReapAfter is the time after which the znode of a deleted key is removed, unless the key
	// is created again. 0 means 10 minutes; with a negative value it is never removed.
	ReapAfter time.Duration
	// AuditEvery is the interval at which each watched directory is compared with the store, to
	// detect events that the server failed to send. A handle makes at most two reads a second
	// for this, so with many directories or keys the interval becomes longer. 0 means 1 minute;
	// a negative value disables the audit.
	AuditEvery time.Duration
	// ReadOnly opens a handle that needs no right but to read: it creates no znodes, Txn and
	// OpenSession fail with registry.ErrReadOnly, and a Namespace that does not exist is empty.
	ReadOnly bool
	// Logger receives events that no call returns. At INFO: sessions that are suspended or
	// lost. At WARN: foreign values, events that the server failed to send. At DEBUG: messages
	// of the client library. While the store answers, nothing is logged at INFO or above. nil
	// means slog.Default().
	Logger *slog.Logger
}

// DefaultNamespace is the namespace if Options.Namespace is empty.
const DefaultNamespace = "/rota"

const (
	defaultDialTimeout = 2 * time.Second
	defaultCallTimeout = 5 * time.Second
	defaultReapAfter   = 10 * time.Minute
	defaultAuditEvery  = time.Minute
)

// complete returns o with defaults for zero values, or an error that lists all problems.
func (o Options) complete() (Options, error) {
	errs := []error{checkEndpoints(o.Endpoints), checkNamespace(o.Namespace)}
	if (o.Username == "") != (o.Password == "") {
		errs = append(errs, errors.New("set both Username and Password, or neither"))
	}
	for name, d := range map[string]time.Duration{"DialTimeout": o.DialTimeout, "CallTimeout": o.CallTimeout} {
		if d < 0 {
			errs = append(errs, fmt.Errorf("%s is negative: %v", name, d))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return o, err
	}
	o.Endpoints = slices.Clone(o.Endpoints)
	setDefault(&o.Namespace, DefaultNamespace)
	setDefault(&o.DialTimeout, defaultDialTimeout)
	setDefault(&o.CallTimeout, defaultCallTimeout)
	setDefault(&o.ReapAfter, defaultReapAfter)
	setDefault(&o.AuditEvery, defaultAuditEvery)
	setDefault(&o.Logger, slog.Default())
	if o.ACL == nil {
		o.ACL = zk.WorldACL(zk.PermAll)
		if o.Username != "" {
			o.ACL = zk.AuthACL(zk.PermAll)
		}
	}
	if o.Dial == nil {
		o.Dial = new(net.Dialer).DialContext
	}
	if o.LookupHost == nil {
		o.LookupHost = net.DefaultResolver.LookupHost
	}
	return o, nil
}

// openToAll reports whether everyone has all rights to what the handle creates.
func (o *Options) openToAll() bool { return slices.Equal(o.ACL, zk.WorldACL(zk.PermAll)) }

func setDefault[T comparable](v *T, otherwise T) {
	var zero T
	if *v == zero {
		*v = otherwise
	}
}

func checkEndpoints(all []string) error {
	if len(all) == 0 {
		return errors.New("no endpoints")
	}
	for _, e := range all {
		if host, port, err := net.SplitHostPort(e); err != nil || host == "" || port == "" {
			return fmt.Errorf("endpoint %q is not host:port", e)
		}
	}
	return nil
}

// checkNamespace accepts a path that is valid as a key, which implies the server's own rules.
func checkNamespace(path string) error {
	if path == "" {
		return nil
	}
	k, ok := strings.CutPrefix(path, "/")
	if !ok {
		return fmt.Errorf("namespace %q does not begin with a slash", path)
	}
	if err := registry.CheckDir(registry.Key(k)); err != nil {
		return fmt.Errorf("namespace %q: %w", path, err)
	}
	if first, _, _ := strings.Cut(k, "/"); first == "zookeeper" || first == "" {
		return fmt.Errorf("namespace %q is reserved by the server", path)
	}
	return nil
}

// String returns the endpoints and the namespace.
func (o Options) String() string {
	return fmt.Sprintf("ZooKeeper at %s, namespace %s", o.endpoints(), o.Namespace)
}

// GoString is String, so that no format verb reveals the password.
func (o Options) GoString() string { return o.String() }

// LogValue is String for package slog.
func (o Options) LogValue() slog.Value { return slog.StringValue(o.String()) }

func (o Options) endpoints() string { return strings.Join(o.Endpoints, ",") }

func (o *Options) credentials() []credential {
	if o.Username == "" {
		return nil
	}
	return []credential{{"digest", []byte(o.Username + ":" + o.Password)}}
}

// dialer returns the function that connects to an address which m has resolved.
func (o *Options) dialer(m *members) func(ctx context.Context, address string) (net.Conn, error) {
	if o.TLS == nil {
		return func(ctx context.Context, address string) (net.Conn, error) { return o.Dial(ctx, "tcp", address) }
	}
	return func(ctx context.Context, address string) (net.Conn, error) {
		raw, err := o.Dial(ctx, "tcp", address)
		if err != nil {
			return nil, err
		}
		config := o.TLS.Clone()
		setDefault(&config.ServerName, m.hostName(address))
		conn := tls.Client(raw, config)
		if err := conn.HandshakeContext(ctx); err != nil {
			raw.Close()
			return nil, fmt.Errorf("TLS handshake with %s: %w", address, err)
		}
		return conn, nil
	}
}
