package importing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/rota-dev/rota/cmd/rota/internal/exit"
)

// elasticJobAddress is a namespace of Elastic-Job in a ZooKeeper.
type elasticJobAddress struct {
	servers   []string
	namespace string // a path without its first slash
}

const defaultPort = "2181"

// parseElasticJobAddress reads zookeeper://HOST[:PORT],.../NAMESPACE.
func parseElasticJobAddress(text string) (a elasticJobAddress, err error) {
	rest, ok := strings.CutPrefix(text, "zookeeper://")
	if !ok {
		rest, ok = strings.CutPrefix(text, "zk://")
	}
	hosts, namespace, _ := strings.Cut(rest, "/")
	a.namespace = strings.Trim(namespace, "/")
	if !ok || hosts == "" || a.namespace == "" || strings.ContainsAny(text, "?#@ ") || strings.Contains(a.namespace, "//") {
		return a, exit.Usagef("%q is not of the form zookeeper://HOST[:PORT],HOST[:PORT]/NAMESPACE", text)
	}
	for host := range strings.SplitSeq(hosts, ",") {
		u := url.URL{Host: host}
		port := cmp.Or(u.Port(), defaultPort)
		if u.Hostname() == "" {
			return a, exit.Usagef("%q has a host without a name", text)
		}
		a.servers = append(a.servers, net.JoinHostPort(u.Hostname(), port))
	}
	return a, nil
}

// treeReader reads znodes. *zk.Conn implements it.
type treeReader interface {
	Get(path string) ([]byte, *zk.Stat, error)
	Children(path string) ([]string, *zk.Stat, error)
}

// A wrong address has to fail within seconds.
const (
	sessionTimeout = 10 * time.Second
	connectTimeout = 5 * time.Second
)

var errNoServer = fmt.Errorf("no server answered within %v: check the address, and that the servers run", connectTimeout)

// readElasticJob reads the jobs of a namespace. It writes nothing. Credentials are user:password, or
// empty.
func readElasticJob(ctx context.Context, a elasticJobAddress, credentials string) (*node, error) {
	conn, events, err := zk.Connect(a.servers, sessionTimeout, zk.WithLogger(silentLogger{}))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	connected := make(chan struct{})
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	go watchConnection(ctx, events, connected, end)
	defer context.AfterFunc(ctx, conn.Close)() // ends requests, which the library repeats for ever
	select {
	case <-connected:
	case <-ctx.Done():
		return nil, fmt.Errorf("connect to ZooKeeper at %s: %w", strings.Join(a.servers, ","), context.Cause(ctx))
	}
	if credentials != "" {
		if err := conn.AddAuth("digest", []byte(credentials)); err != nil {
			return nil, fmt.Errorf("authenticate: %w", err)
		}
	}
	root, err := readNamespace(conn, "/"+a.namespace)
	if ctx.Err() != nil {
		return nil, fmt.Errorf("read ZooKeeper at %s: %w", strings.Join(a.servers, ","), context.Cause(ctx))
	}
	return root, err
}

// watchConnection closes connected when there is a session, and calls end if there is no connection
// for connectTimeout.
func watchConnection(ctx context.Context, events <-chan zk.Event, connected chan<- struct{}, end func(error)) {
	timeout := time.NewTimer(connectTimeout)
	defer timeout.Stop()
	for {
		select {
		case e, ok := <-events:
			switch {
			case !ok:
				return
			case e.State == zk.StateHasSession:
				timeout.Stop()
				if connected != nil {
					close(connected)
					connected = nil
				}
			case e.State == zk.StateDisconnected && connected == nil:
				timeout.Reset(connectTimeout)
			}
		case <-timeout.C:
			end(errNoServer)
			return
		case <-ctx.Done():
			return
		}
	}
}

// parts are the nodes below a job that the import reads, with all that is below them. Others hold
// elections, barriers and triggers.
var parts = []string{"config", "servers", "sharding", "execution", "offset", "leader/failover/items"}

// readNamespace reads the jobs below root. A job that is deleted meanwhile is left out.
func readNamespace(r treeReader, root string) (*node, error) {
	n := &node{children: map[string]*node{}}
	jobs, _, err := r.Children(root)
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return nil, fmt.Errorf("there is no namespace %s", root)
	case err != nil:
		return nil, readError(root, err)
	}
	for _, name := range jobs {
		j, err := readJob(r, root+"/"+name)
		if err != nil {
			return nil, err
		}
		if j != nil {
			n.children[name] = j
		}
	}
	return n, nil
}

func readJob(r treeReader, path string) (*node, error) {
	value, _, err := r.Get(path)
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	if err != nil {
		return nil, readError(path, err)
	}
	j := &node{value: string(value)}
	for _, part := range parts {
		if err := readBelow(r, j, path, part); err != nil {
			return nil, err
		}
	}
	return j, nil
}

// readBelow adds the znode at a relative path, and those below it, to j.
func readBelow(r treeReader, j *node, root, path string) error {
	full := root + "/" + path
	value, stat, err := r.Get(full)
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	if err != nil {
		return readError(full, err)
	}
	j.set(path, string(value))
	if stat.NumChildren == 0 {
		return nil
	}
	children, _, err := r.Children(full)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return readError(full, err)
	}
	for _, name := range children {
		if err := readBelow(r, j, root, path+"/"+name); err != nil {
			return err
		}
	}
	return nil
}

func readError(path string, err error) error {
	if errors.Is(err, zk.ErrNoAuth) {
		return fmt.Errorf("read %s: %w: give the credentials of Elastic-Job's digest with --digest-file", path, err)
	}
	return fmt.Errorf("read %s: %w", path, err)
}

// readCredentials returns the first line of a file, or nothing without a file.
func readCredentials(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", exit.Usagef("--digest-file: %w", err)
	}
	line, _, _ := strings.Cut(string(text), "\n")
	line = strings.TrimSpace(line)
	if user, _, ok := strings.Cut(line, ":"); !ok || user == "" {
		return "", exit.Usagef("--digest-file: the first line of %s is not of the form USER:PASSWORD", file)
	}
	return line, nil
}

// silentLogger drops the log of the library: failures arrive as errors.
type silentLogger struct{}

func (silentLogger) Printf(string, ...any) {}
