package testserver

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/rota-dev/rota/internal/testserver/provision"
)

// EtcdOptions are those of Etcd. The zero value is a single server without TLS and
// credentials.
type EtcdOptions struct {
	// Members is how many servers there are: 1 if not said.
	Members int
	// Log gets what is worth telling; nil discards it.
	Log io.Writer
	// Flags are added to the command line of each server.
	Flags []string
}

// Etcd starts etcd. It returns when all members serve.
func Etcd(ctx context.Context, o EtcdOptions) (*Cluster, error) {
	binary, err := provision.Etcd(ctx)
	if err != nil {
		return nil, err
	}
	return start(ctx, &etcd{binary, o}, o.Members, o.Log)
}

type etcd struct {
	binary  string
	options EtcdOptions
}

func (e *etcd) name() string { return "etcd" }

func (e *etcd) ports() []role { return []role{clients, admin, peers} }

func (e *etcd) prepare(*Member) error { return nil }

func (e *etcd) command(m *Member) *exec.Cmd {
	var initial []string
	for _, other := range m.cluster.members {
		initial = append(initial, other.name+"="+peerURL(other))
	}
	flags := []string{
		"--name", m.name,
		"--data-dir", filepath.Join(m.dir, "data"),
		"--listen-client-urls", "http://" + m.port[clients].Addr(),
		"--advertise-client-urls", "http://" + m.port[clients].Addr(),
		"--listen-peer-urls", "http://" + m.port[peers].Addr(),
		"--initial-advertise-peer-urls", peerURL(m),
		"--listen-metrics-urls", "http://" + m.port[admin].Addr(),
		"--initial-cluster", strings.Join(initial, ","),
		"--initial-cluster-token", filepath.Base(m.cluster.dir.path),
		// Quick elections, and leases of a second, which need an election timeout below 650 ms.
		"--heartbeat-interval", "20",
		"--election-timeout", "200",
		"--unsafe-no-fsync",
		"--log-level", "warn",
	}
	return exec.Command(e.binary, append(flags, e.options.Flags...)...)
}

func peerURL(m *Member) string { return "http://" + m.port[peers].Addr() }

func (e *etcd) probe(ctx context.Context, m *Member) error {
	_, err := get(ctx, "http://"+m.port[admin].Addr()+"/readyz")
	return err
}

func (e *etcd) leads(ctx context.Context, m *Member) (bool, error) {
	page, err := get(ctx, "http://"+m.port[admin].Addr()+"/metrics")
	if err != nil {
		return false, err
	}
	lines := bufio.NewScanner(bytes.NewReader(page))
	for lines.Scan() {
		if value, ok := strings.CutPrefix(lines.Text(), "etcd_server_is_leader "); ok {
			return value == "1", nil
		}
	}
	return false, fmt.Errorf("%s does not say whether it leads", m.name)
}

// get leaves no connection behind.
func get(ctx context.Context, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("get %s: %s: %s", url, resp.Status, body)
	}
	return body, err
}
