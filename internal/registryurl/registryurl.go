// Package registryurl opens a registry that is named by a URL, for commands that are told
// on their command line which one to use.
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
// The namespace may be left out, with its slash: it is the backend's own then. The
// registry is to be closed.
func Open(ctx context.Context, text string, log *slog.Logger) (registry.Registry, error) {
	u, err := parse(text)
	if err != nil {
		return nil, err
	}
	if u.scheme == "etcd" {
		return opened(etcd.Open(ctx, etcd.Options{Endpoints: u.endpoints, Namespace: u.namespace, Logger: log}))
	}
	return opened(zookeeper.Open(ctx, zookeeper.Options{Endpoints: u.endpoints, Namespace: u.namespace, Logger: log}))
}

// opened keeps a nil pointer from becoming a registry.
func opened[R registry.Registry](reg R, err error) (registry.Registry, error) {
	if err != nil {
		return nil, err
	}
	return reg, nil
}

// Check returns what is wrong with a URL, or nil. It asks nobody.
func Check(text string) error {
	_, err := parse(text)
	return err
}

type parsed struct {
	scheme    string
	endpoints []string
	namespace string
}

func parse(text string) (parsed, error) {
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok || scheme != "etcd" && scheme != "zk" {
		return parsed{}, fmt.Errorf("registry %q: begins neither with etcd:// nor with zk://", text)
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
