package testserver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"sync"
	"time"
)

// Cluster is one or more servers that replicate the same data. Its methods and those of
// its members are safe for concurrent use, except that at most one goroutine may start or
// stop members.
type Cluster struct {
	kind    kind
	dir     *workDir
	members []*Member
	network *network      // nil if members reach each other directly
	certs   *certificates // nil without TLS
}

// common holds the options that EtcdOptions and ZooKeeperOptions share.
type common struct {
	members int
	direct  bool
	tls     TLS
	log     io.Writer
}

// kind abstracts the differences between etcd and ZooKeeper.
type kind interface {
	name() string
	// ports returns the roles of the ports that a member needs.
	ports() []role
	// connectPeers creates the proxies between the members in c.network, unless that is nil.
	connectPeers(c *Cluster) error
	// prepare writes the files that m needs to start without data.
	prepare(m *Member) error
	command(m *Member) *exec.Cmd
	// probe returns nil if m serves clients.
	probe(ctx context.Context, m *Member) error
	// afterFirstStart runs once all members serve for the first time.
	afterFirstStart(ctx context.Context, c *Cluster) error
	// leads reports whether m claims to lead.
	leads(ctx context.Context, m *Member) (bool, error)
	// expectEmpty makes the other members expect m to start without data.
	expectEmpty(ctx context.Context, m *Member) error
	counters(ctx context.Context, m *Member) (map[string]float64, error)
}

const (
	startTimeout = time.Minute // for a busy machine; a second is typical
	startTries   = 5           // each with new ports
)

// start starts the members. It retries if a reserved port was taken by another process
// meanwhile.
func start(ctx context.Context, k kind, o common) (*Cluster, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for try := 1; ; try++ {
		c, err := startOnce(ctx, k, o)
		if err == nil {
			return c, nil
		}
		c.Stop()
		if !errors.Is(err, errPortTaken) || try == startTries {
			return nil, fmt.Errorf("start %s: %w", k.name(), err)
		}
		if o.log != nil {
			fmt.Fprintf(o.log, "starting %s again: %v\n", k.name(), err)
		}
	}
}

// startOnce returns a cluster that the caller stops, even if it fails.
func startOnce(ctx context.Context, k kind, o common) (c *Cluster, err error) {
	c = &Cluster{kind: k}
	if c.dir, err = newWorkDir(k.name()); err != nil {
		return c, err
	}
	if o.tls != NoTLS {
		if c.certs, err = newCertificates(c.dir.path); err != nil {
			return c, err
		}
	}
	for i := range max(o.members, 1) {
		if err := c.addMember(i); err != nil {
			return c, err
		}
	}
	if !o.direct {
		c.network = &network{}
	}
	if err := k.connectPeers(c); err != nil {
		return c, err
	}
	for _, m := range c.members {
		if err := k.prepare(m); err != nil {
			return c, err
		}
	}
	for _, m := range c.members {
		if err := m.spawn(); err != nil {
			return c, err
		}
	}
	if err := c.forEachMember(func(m *Member) error { return m.awaitServing(ctx) }); err != nil {
		return c, err
	}
	return c, k.afterFirstStart(ctx, c)
}

// TLS returns a client's configuration for the client ports: the trusted authority and a
// client certificate. It is nil without TLS. The caller may modify it.
func (c *Cluster) TLS() *tls.Config {
	if c.certs == nil {
		return nil
	}
	return c.certs.client.Clone()
}

// Members returns the servers, always in the same order.
func (c *Cluster) Members() []*Member { return c.members }

// Addrs returns the members' Addr.
func (c *Cluster) Addrs() []string {
	var addrs []string
	for _, m := range c.members {
		addrs = append(addrs, m.Addr())
	}
	return addrs
}

// Leader returns the leading member and waits for an election in progress. A single
// server leads itself. While two members claim to lead, as after the isolation of a
// leader, Leader waits.
func (c *Cluster) Leader(ctx context.Context) (*Member, error) {
	for {
		leading := make([]bool, len(c.members))
		_ = c.forEachMember(func(m *Member) error {
			ctx, cancel := context.WithTimeout(ctx, leadsTimeout)
			defer cancel()
			ok, err := c.kind.leads(ctx, m)
			leading[m.index] = ok && err == nil
			return nil
		})
		if i := slices.Index(leading, true); i >= 0 && !slices.Contains(leading[i+1:], true) {
			return c.members[i], nil
		}
		select {
		case <-time.After(probeInterval):
		case <-ctx.Done():
			return nil, fmt.Errorf("find leader: %w", context.Cause(ctx))
		}
	}
}

// Restart kills all members and starts them with their data. It returns when all of them
// serve.
func (c *Cluster) Restart(ctx context.Context) error {
	for _, m := range c.members {
		m.Kill()
	}
	return c.forEachMember(func(m *Member) error { return m.Restart(ctx) })
}

// AwaitServing returns when all members serve. A busy machine may delay members for so long that they elect again, during which none of
// them answers.
func (c *Cluster) AwaitServing(ctx context.Context) error {
	return c.forEachMember(func(m *Member) error { return m.awaitServing(ctx) })
}

// Stop kills the members and removes their data. Calling it twice is legal.
func (c *Cluster) Stop() {
	for _, m := range c.members {
		m.Kill()
		m.release()
	}
	if c.network != nil {
		c.network.close()
	}
	if c.dir != nil {
		c.dir.remove()
	}
}

// forEachMember calls f for all members concurrently.
func (c *Cluster) forEachMember(f func(*Member) error) error {
	errs := make([]error, len(c.members))
	var wg sync.WaitGroup
	for i, m := range c.members {
		wg.Go(func() { errs[i] = f(m) })
	}
	wg.Wait()
	return errors.Join(errs...)
}
