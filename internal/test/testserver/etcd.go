package testserver

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rota-dev/rota/conformance/tcpproxy"
	"github.com/rota-dev/rota/internal/test/testserver/provision"
)

// EtcdOptions are the options of Etcd. The zero value is a single server without TLS and
// credentials.
type EtcdOptions struct {
	// Members is the number of servers. Zero means 1.
	Members int
	// DirectPeers connects members directly instead of through proxies, for measurements.
	// Such members cannot be isolated.
	DirectPeers bool
	// TLS selects the security of the client port.
	TLS TLS
	// Log receives a line about each slow step and each repeated start. Nil discards them.
	Log io.Writer
	// RootPassword, if not empty, is the password of the user root. The server then requires
	// credentials.
	RootPassword string
	// Election is the election timeout. Zero means 200 ms for a single server and 500 ms for
	// several. Above 650 ms, a lease of one second is extended to two.
	Election time.Duration
	// QuotaBytes is the amount of data above which a server refuses writes. Zero means 2
	// GiB.
	QuotaBytes int64
	// Compaction discards history older than this duration, at intervals of the same length.
	// Zero keeps all history.
	Compaction time.Duration
	// Flags are appended to the command line of each server.
	Flags []string
}

// Etcd starts etcd. It returns when all members serve.
func Etcd(ctx context.Context, o EtcdOptions) (*Cluster, error) {
	binary, err := provision.Etcd(ctx, o.Log)
	if err != nil {
		return nil, err
	}
	if o.Election == 0 {
		o.Election = 200 * time.Millisecond
		if o.Members > 1 {
			o.Election = 500 * time.Millisecond
		}
	}
	return start(ctx, &etcd{binary: binary, options: o}, common{o.Members, o.DirectPeers, o.TLS, o.Log})
}

type etcd struct {
	binary    string
	options   EtcdOptions
	entrances map[*Member]*tcpproxy.Proxy // to the peer port; none if direct
}

func (e *etcd) name() string { return "etcd" }

func (e *etcd) ports() []role { return []role{clients, admin, peers} }

// connectPeers gives each member one address at which all others reach it, as etcd
// requires.
func (e *etcd) connectPeers(c *Cluster) error {
	e.entrances = map[*Member]*tcpproxy.Proxy{}
	if c.network == nil || len(c.members) == 1 {
		return nil
	}
	for _, m := range c.members {
		p, err := c.network.newEntranceProxy(m, peers, m.others())
		if err != nil {
			return err
		}
		e.entrances[m] = p
	}
	return nil
}

func (e *etcd) prepare(*Member) error { return nil }

func (e *etcd) command(m *Member) *exec.Cmd {
	var members []string
	for _, other := range m.cluster.members {
		members = append(members, other.name+"="+e.peerURL(other))
	}
	flags := []string{
		"--name", m.name,
		"--data-dir", m.DataDir(),
		"--listen-client-urls", e.clientURL(m),
		"--advertise-client-urls", e.clientURL(m),
		"--listen-peer-urls", "http://" + m.port[peers].Addr(),
		"--initial-advertise-peer-urls", e.peerURL(m),
		"--listen-metrics-urls", e.adminURL(m),
		"--initial-cluster", strings.Join(members, ","),
		"--initial-cluster-token", filepath.Base(m.cluster.dir.path),
		"--heartbeat-interval", fmt.Sprint(e.options.Election.Milliseconds() / 10),
		"--election-timeout", fmt.Sprint(e.options.Election.Milliseconds()),
		"--unsafe-no-fsync",
		"--strict-reconfig-check=false", // which requires five seconds of stability before a membership change
		"--bcrypt-cost", "4",            // the minimum
		"--log-level", "warn",
	}
	if m.wasReplaced() {
		flags = append(flags, "--initial-cluster-state", "existing")
	}
	if certs := m.cluster.certs; certs != nil {
		flags = append(flags, "--cert-file", certs.server, "--key-file", certs.serverKey)
		if e.options.TLS == MutualTLS {
			flags = append(flags, "--client-cert-auth", "--trusted-ca-file", certs.authority)
		}
	}
	if e.options.QuotaBytes != 0 {
		flags = append(flags, "--quota-backend-bytes", fmt.Sprint(e.options.QuotaBytes))
	}
	if e.options.Compaction != 0 {
		flags = append(flags, "--auto-compaction-mode", "periodic",
			"--auto-compaction-retention", e.options.Compaction.String())
	}
	return exec.Command(e.binary, append(flags, e.options.Flags...)...)
}

func (e *etcd) clientURL(m *Member) string {
	if m.cluster.certs != nil {
		return "https://" + m.Addr()
	}
	return "http://" + m.Addr()
}

func (e *etcd) adminURL(m *Member) string { return "http://" + m.port[admin].Addr() }

// peerURL returns the URL at which the others reach m.
func (e *etcd) peerURL(m *Member) string {
	if p := e.entrances[m]; p != nil {
		return "http://" + p.Addr()
	}
	return "http://" + m.port[peers].Addr()
}

// probe checks for a leader before it sends a read: a read without a leader is lost, and
// is repeated only half a second later.
func (e *etcd) probe(ctx context.Context, m *Member) error {
	counters, err := e.counters(ctx, m)
	if err != nil {
		return err
	}
	if counters["etcd_server_has_leader"] != 1 {
		return fmt.Errorf("%s has no leader", m.name)
	}
	_, err = httpGet(ctx, e.adminURL(m)+"/readyz")
	return err
}

func (e *etcd) leads(ctx context.Context, m *Member) (bool, error) {
	counters, err := e.counters(ctx, m)
	return counters["etcd_server_is_leader"] == 1, err
}

// afterFirstStart enables authentication.
func (e *etcd) afterFirstStart(ctx context.Context, c *Cluster) error {
	if e.options.RootPassword == "" {
		return nil
	}
	m := c.members[0]
	for _, step := range []struct {
		path string
		in   any
	}{
		{"auth/user/add", map[string]string{"name": rootUser, "password": e.options.RootPassword}},
		{"auth/user/grant", map[string]string{"user": rootUser, "role": rootUser}},
		{"auth/enable", struct{}{}},
	} {
		if err := e.call(ctx, m, step.path, step.in, nil); err != nil {
			return err
		}
	}
	return nil
}

// expectEmpty removes m from the member list and adds it as a new member. It bounds and
// repeats each attempt: a membership change that is lost with a dying leader never
// returns.
func (e *etcd) expectEmpty(ctx context.Context, m *Member) error {
	for {
		try, cancel := context.WithTimeout(ctx, forgetTimeout)
		expected, err := e.expectEmptyOnce(try, m)
		cancel()
		if expected {
			return nil
		}
		select {
		case <-time.After(probeInterval):
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
}

const forgetTimeout = 2 * time.Second

// expectEmptyOnce performs the remaining steps and reports whether m is expected without
// data.
func (e *etcd) expectEmptyOnce(ctx context.Context, m *Member) (expected bool, err error) {
	at := m.others()[0]
	var list struct {
		Members []struct {
			ID       string
			Name     string // empty if it has never started
			PeerURLs []string
		}
	}
	if err := e.callAsRoot(ctx, at, "cluster/member/list", map[string]bool{"linearizable": true}, &list); err != nil {
		return false, err
	}
	for _, known := range list.Members {
		if !slices.Contains(known.PeerURLs, e.peerURL(m)) {
			continue
		}
		if known.Name == "" {
			return true, nil
		}
		if err := e.callAsRoot(ctx, at, "cluster/member/remove", map[string]string{"ID": known.ID}, nil); err != nil {
			return false, err
		}
	}
	err = e.callAsRoot(ctx, at, "cluster/member/add", map[string][]string{"peerURLs": {e.peerURL(m)}}, nil)
	return err == nil, err
}
