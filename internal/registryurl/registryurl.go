// Package registryurl opens the registry that a URL names, for use in command lines.
package registryurl

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/etcd"
	"github.com/rota-dev/rota/registry/zookeeper"
)

// Options are the credentials of a connection, its logger, and the bound of a call. A URL holds no secrets.
type Options struct {
	TLS                *tls.Config
	Username, Password string
	Logger             *slog.Logger
	CallTimeout        time.Duration // zero: the backend's default
	ReadOnly           bool          // the registry is only read
}

// ErrCredentials is the error of a URL with a user or password. Its text has no part of the URL.
var ErrCredentials = errors.New("the address of the registry has a user or password, which it must not have, as others can read it")

// OpenFunc opens the registry at a URL, which begins with a scheme of Schemes.
type OpenFunc func(ctx context.Context, url string, o Options) (registry.Registry, error)

// Schemes are the schemes of URLs besides those of etcd and ZooKeeper. The zero value has none. The command adds postgres, whose driver this module does not
// depend on. postgresql is another name of it, and its URLs are checked for credentials like those of etcd.
type Schemes map[string]OpenFunc

// Open opens the registry at a URL of etcd or ZooKeeper, see Schemes.Open.
func Open(ctx context.Context, text string, log *slog.Logger) (registry.Registry, error) {
	return Schemes(nil).Open(ctx, text, Options{Logger: log})
}

// Open opens the registry at a URL: one whose scheme is in s, or
//
//	etcd://host:port,host:port/namespace
//	zookeeper://host:port,host:port/namespace
//
// The short form of zookeeper is zk. Without a port, the server's usual one is used. Without the
// slash and the namespace, the backend's default namespace is used. The caller closes the registry.
func (s Schemes) Open(ctx context.Context, text string, o Options) (registry.Registry, error) {
	if open, ok := s.find(text); ok {
		return open(ctx, text, o)
	}
	u, err := s.parseURL(text)
	if err != nil {
		return nil, err
	}
	if u.scheme == "etcd" {
		return asRegistry(etcd.Open(ctx, etcd.Options{
			Endpoints: u.endpoints, Namespace: u.namespace, TLS: o.TLS, Username: o.Username, Password: o.Password, Logger: o.Logger, CallTimeout: o.CallTimeout, ReadOnly: o.ReadOnly,
		}))
	}
	return asRegistry(zookeeper.Open(ctx, zookeeper.Options{
		Endpoints: u.endpoints, Namespace: u.namespace, TLS: o.TLS, Username: o.Username, Password: o.Password, Logger: o.Logger, CallTimeout: o.CallTimeout, ReadOnly: o.ReadOnly,
	}))
}

// asRegistry returns a nil interface on error, not one that holds a nil pointer.
func asRegistry[R registry.Registry](reg R, err error) (registry.Registry, error) {
	if err != nil {
		return nil, err
	}
	return reg, nil
}

// find returns the function for the scheme of a URL.
func (s Schemes) find(text string) (open OpenFunc, ok bool) {
	scheme, _, found := strings.Cut(text, "://")
	if scheme == "postgresql" {
		scheme = "postgres"
	}
	if strings.Contains(text, "@") && scheme == "postgres" {
		return nil, false // parseURL refuses it
	}
	open, ok = s[scheme]
	return open, found && ok
}

// Check returns an error if the scheme of the URL is unknown, or if Open could not parse a URL of etcd
// or ZooKeeper. It makes no connection.
func (s Schemes) Check(text string) error {
	if _, ok := s.find(text); ok {
		return nil
	}
	_, err := s.parseURL(text)
	return err
}

// validScheme matches a scheme in lower case.
var validScheme = regexp.MustCompile(`^[a-z][a-z0-9+.-]*$`)

// Validate returns an error for each scheme that cannot be used.
func (s Schemes) Validate() error {
	var errs []error
	for _, scheme := range slices.Sorted(maps.Keys(s)) {
		switch {
		case !validScheme.MatchString(scheme):
			errs = append(errs, fmt.Errorf("scheme %q: must be lower-case letters, digits and + . -, and begin with a letter", scheme))
		case slices.Contains([]string{"etcd", "zk", "zookeeper", "memory", "postgresql"}, scheme):
			errs = append(errs, fmt.Errorf("scheme %q: has a meaning already", scheme))
		case s[scheme] == nil:
			errs = append(errs, fmt.Errorf("scheme %q: has no function", scheme))
		}
	}
	return errors.Join(errs...)
}

// list returns all schemes in words.
func (s Schemes) list() string {
	all := []string{"etcd://", "zk://"}
	for _, scheme := range slices.Sorted(maps.Keys(s)) {
		all = append(all, scheme+"://")
	}
	last := len(all) - 1
	return strings.Join(all[:last], ", ") + " or " + all[last]
}

type parsed struct {
	scheme    string // etcd or zk
	endpoints []string
	namespace string
}

func (s Schemes) parseURL(text string) (parsed, error) {
	if strings.Contains(text, "@") {
		return parsed{}, ErrCredentials
	}
	scheme, rest, _ := strings.Cut(text, "://")
	if scheme == "zookeeper" {
		scheme = "zk"
	}
	defaultPort, ok := map[string]string{"etcd": "2379", "zk": "2181"}[scheme]
	if !ok || !strings.Contains(text, "://") {
		return parsed{}, fmt.Errorf("registry %q: the scheme must be %s", text, s.list())
	}
	hosts, namespace, _ := strings.Cut(rest, "/")
	p := parsed{scheme: scheme}
	if namespace != "" {
		p.namespace = "/" + namespace
	}
	for e := range strings.SplitSeq(hosts, ",") {
		u := url.URL{Host: e}
		if u.Port() == "" && !strings.HasSuffix(e, ":") {
			u.Host += ":" + defaultPort
		}
		if u.Hostname() == "" || u.Port() == "" || strings.ContainsAny(e, "@?# ") {
			return parsed{}, fmt.Errorf("registry %q: %q is not host:port", text, e)
		}
		p.endpoints = append(p.endpoints, u.Host)
	}
	return p, nil
}
