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

// Options say where the servers are and how to talk to them. Only Endpoints are required.
// They do not show Password when they are printed or logged.
type Options struct {
	// Endpoints are the addresses of the members, host:port. A name with several
	// addresses stands for all of them. Names are looked up anew whenever a connection
	// is to be made.
	Endpoints []string
	// InOrder has the endpoints tried in the order in which they are given, the nearest
	// first. Otherwise each handle draws an order of its own, which spreads them.
	InOrder bool

	// Namespace is the znode below which everything is kept, which is made if it is not
	// there: a path of segments as in registry.Key, with a slash before each. "" means
	// DefaultNamespace. Registries in different namespaces do not see each other; none may
	// be below another.
	Namespace string

	// Username and Password are added to each connection by the digest scheme.
	Username, Password string
	// ACL is that of each znode that is made. nil = all rights for the own credentials,
	// or for anyone if there are none.
	ACL []zk.ACL
	// TLS, if not nil, is used for each connection. The name of the server is that of its
	// endpoint unless it says another.
	TLS *tls.Config
	// Dial makes connections instead of a net.Dialer. TLS goes on top of it.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	// LookupHost returns the addresses of a name, instead of net.DefaultResolver.
	LookupHost func(ctx context.Context, host string) ([]string, error)

	// DialTimeout bounds the making of one connection. 0 = 2 s
	DialTimeout time.Duration
	// CallTimeout bounds each call whose context would let it wait longer. 0 = 5 s
	CallTimeout time.Duration
	// ReapAfter is how long the znode of a deleted key is kept, for the next key of that
	// name. 0 = 10 min, < 0 = for ever
	ReapAfter time.Duration
	// AuditEvery is how often a directory that is watched is compared with the store, for
	// events that the server failed to send. Comparisons are spread over time: a handle
	// makes two reads a second for them at most, however much it watches, and takes longer
	// where that is not enough. 0 = 1 min, < 0 = never
	AuditEvery time.Duration
	// Logger gets what the handle notices and no call returns: sessions that are suspended
	// or lost (INFO), foreign values, events that the server failed to send (WARN), and what
	// the client library reports (DEBUG). nil = slog.Default(). While the store answers,
	// nothing is logged at INFO or above.
	Logger *slog.Logger
}

// DefaultNamespace is where everything is kept if Options do not say otherwise.
const DefaultNamespace = "/rota"

const (
	defaultDialTimeout = 2 * time.Second
	defaultCallTimeout = 5 * time.Second
	defaultReapAfter   = 10 * time.Minute
	defaultAuditEvery  = time.Minute
)

// complete checks o and fills in what was left out. All problems come back at once.
func (o Options) complete() (Options, error) {
	errs := []error{checkEndpoints(o.Endpoints), checkNamespace(o.Namespace)}
	if (o.Username == "") != (o.Password == "") {
		errs = append(errs, errors.New("a user name and a password go together"))
	}
	for name, d := range map[string]time.Duration{"DialTimeout": o.DialTimeout, "CallTimeout": o.CallTimeout} {
		if d < 0 {
			errs = append(errs, fmt.Errorf("%s is %v", name, d))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return o, err
	}
	o.Endpoints = slices.Clone(o.Endpoints)
	or(&o.Namespace, DefaultNamespace)
	or(&o.DialTimeout, defaultDialTimeout)
	or(&o.CallTimeout, defaultCallTimeout)
	or(&o.ReapAfter, defaultReapAfter)
	or(&o.AuditEvery, defaultAuditEvery)
	or(&o.Logger, slog.Default())
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

func or[T comparable](v *T, otherwise T) {
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

// checkNamespace lets only what can be a key be a namespace, so that no rule of the
// server's has to be known here.
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
		return fmt.Errorf("namespace %q is the server's own", path)
	}
	return nil
}

// String names what o connects to.
func (o Options) String() string {
	return fmt.Sprintf("ZooKeeper at %s, namespace %s", o.endpoints(), o.Namespace)
}

// GoString is String, so that no way of printing shows the password.
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

// dialer returns how to connect to an address that h has found.
func (o *Options) dialer(h *hosts) func(ctx context.Context, address string) (net.Conn, error) {
	if o.TLS == nil {
		return func(ctx context.Context, address string) (net.Conn, error) { return o.Dial(ctx, "tcp", address) }
	}
	return func(ctx context.Context, address string) (net.Conn, error) {
		raw, err := o.Dial(ctx, "tcp", address)
		if err != nil {
			return nil, err
		}
		config := o.TLS.Clone()
		or(&config.ServerName, h.host(address))
		conn := tls.Client(raw, config)
		if err := conn.HandshakeContext(ctx); err != nil {
			raw.Close()
			return nil, fmt.Errorf("greet %s by TLS: %w", address, err)
		}
		return conn, nil
	}
}
