// Package registryurl opens the registry that a URL names, for use in command lines.
package registryurl

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/url"
	"strings"

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/etcd"
	"github.com/rota-dev/rota/registry/zookeeper"
)

// Options are the credentials and the logger of a connection. A URL holds no secrets.
type Options struct {
	TLS                *tls.Config
	Username, Password string
	Logger             *slog.Logger
}

// Open opens the registry at a URL:
//
//	etcd://host:port,host:port/namespace
//	zookeeper://host:port,host:port/namespace
//
// The short form of zookeeper is zk. Without a port, the server's usual one is used. Without the
// slash and the namespace, the backend's default namespace is used. The caller closes the registry.
func Open(ctx context.Context, text string, log *slog.Logger) (registry.Registry, error) {
	return OpenWith(ctx, text, Options{Logger: log})
}

// OpenWith is Open with options.
func OpenWith(ctx context.Context, text string, o Options) (registry.Registry, error) {
	u, err := parseURL(text)
	if err != nil {
		return nil, err
	}
	if u.scheme == "etcd" {
		return asRegistry(etcd.Open(ctx, etcd.Options{
			Endpoints: u.endpoints, Namespace: u.namespace, TLS: o.TLS, Username: o.Username, Password: o.Password, Logger: o.Logger,
		}))
	}
	return asRegistry(zookeeper.Open(ctx, zookeeper.Options{
		Endpoints: u.endpoints, Namespace: u.namespace, TLS: o.TLS, Username: o.Username, Password: o.Password, Logger: o.Logger,
	}))
}

// asRegistry returns a nil interface on error, not one that holds a nil pointer.
func asRegistry[R registry.Registry](reg R, err error) (registry.Registry, error) {
	if err != nil {
		return nil, err
	}
	return reg, nil
}

// Check returns an error if Open could not parse the URL. It makes no connection.
func Check(text string) error {
	_, err := parseURL(text)
	return err
}

type parsed struct {
	scheme    string // etcd or zk
	endpoints []string
	namespace string
}

func parseURL(text string) (parsed, error) {
	scheme, rest, _ := strings.Cut(text, "://")
	if scheme == "zookeeper" {
		scheme = "zk"
	}
	defaultPort, ok := map[string]string{"etcd": "2379", "zk": "2181"}[scheme]
	if !ok || !strings.Contains(text, "://") {
		return parsed{}, fmt.Errorf("registry %q: the scheme must be etcd:// or zk://", text)
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
