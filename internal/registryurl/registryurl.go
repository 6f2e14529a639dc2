// Package registryurl opens the registry that a URL names, for use in command lines.
package registryurl

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"strings"

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/etcd"
	"github.com/rota-dev/rota/registry/zookeeper"
)

// Open opens the registry at a URL:
//
//	etcd://host:port,host:port/namespace
//	zk://host:port,host:port/namespace
//
// Without the slash and the namespace, the backend's default namespace is used. The caller closes
// the registry.
func Open(ctx context.Context, text string, log *slog.Logger) (registry.Registry, error) {
	u, err := parseURL(text)
	if err != nil {
		return nil, err
	}
	if u.scheme == "etcd" {
		return asRegistry(etcd.Open(ctx, etcd.Options{Endpoints: u.endpoints, Namespace: u.namespace, Logger: log}))
	}
	return asRegistry(zookeeper.Open(ctx, zookeeper.Options{Endpoints: u.endpoints, Namespace: u.namespace, Logger: log}))
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
	scheme    string
	endpoints []string
	namespace string
}

func parseURL(text string) (parsed, error) {
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok || scheme != "etcd" && scheme != "zk" {
		return parsed{}, fmt.Errorf("registry %q: the scheme must be etcd:// or zk://", text)
	}
	hosts, namespace, _ := strings.Cut(rest, "/")
	p := parsed{scheme: scheme, endpoints: strings.Split(hosts, ",")}
	if namespace != "" {
		p.namespace = "/" + namespace
	}
	for _, e := range p.endpoints {
		u := url.URL{Host: e}
		if u.Hostname() == "" || u.Port() == "" || strings.ContainsAny(e, "@?# ") {
			return parsed{}, fmt.Errorf("registry %q: %q is not host:port", text, e)
		}
	}
	return p, nil
}
