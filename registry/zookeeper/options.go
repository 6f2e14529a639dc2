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

// Options say where the servers are and how to talk to them. Endpoints are required, and
// the zero value of all else works.
type Options struct {
	// Endpoints are the addresses of the members, host:port. A name with several
	// addresses stands for all of them. Names are looked up anew whenever a connection
	// is to be made.
	Endpoints []string
	// Root is the znode below which everything is kept; handles with different roots see
	// nothing of each other. It is made if it is not there. "" = "/rota"
	Root string

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

	// DialTimeout bounds the making of one connection. 0 = 2 s
	DialTimeout time.Duration
	// CallTimeout bounds each call whose context would let it wait longer. 0 = 5 s
	CallTimeout time.Duration
	// ReapAfter is how long the znode of a deleted key is kept, for the next key of that
	// name. 0 = 10 min, < 0 = for ever
	ReapAfter time.Duration
	// Logger is told of sessions that change and of what is found damaged. nil = slog.Default()
	Logger *slog.Logger
}

const (
	defaultRoot        = "/rota"
	defaultDialTimeout = 2 * time.Second
	defaultCallTimeout = 5 * time.Second
	defaultReapAfter   = 10 * time.Minute
)

// complete checks o and fills in what was left out. All problems come back at once.
func (o Options) complete() (Options, error) {
	errs := []error{checkEndpoints(o.Endpoints), checkRoot(o.Root)}
	if o.Password != "" && o.Username == "" {
		errs = append(errs, errors.New("a password without a username"))
	}
	for name, d := range map[string]time.Duration{"DialTimeout": o.DialTimeout, "CallTimeout": o.CallTimeout} {
		if d < 0 {
			errs = append(errs, fmt.Errorf("%s is negative", name))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return o, err
	}
	o.Endpoints = slices.Clone(o.Endpoints)
	or(&o.Root, defaultRoot)
	or(&o.DialTimeout, defaultDialTimeout)
	or(&o.CallTimeout, defaultCallTimeout)
	or(&o.ReapAfter, defaultReapAfter)
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

// checkRoot lets only what can be a key be a root, so that no rule of the server's has to
// be known here.
func checkRoot(root string) error {
	if root == "" {
		return nil
	}
	k, ok := strings.CutPrefix(root, "/")
	if !ok {
		return fmt.Errorf("root %q does not begin with a slash", root)
	}
	if err := registry.CheckKey(registry.Key(k)); err != nil {
		return fmt.Errorf("root %q: %w", root, err)
	}
	if first, _, _ := strings.Cut(k, "/"); first == "zookeeper" {
		return fmt.Errorf("root %q: the server keeps that for itself", root)
	}
	return nil
}

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
