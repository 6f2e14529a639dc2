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

// Cluster is one or more servers that keep the same data. Its methods and those of its
// members may be called from several goroutines, but what starts and stops a member only
// from one at a time.
type Cluster struct {
	kind    kind
	dir     *workDir
	members []*Member
	network *network      // nil if members reach each other directly
	certs   *certificates // nil without TLS
}

// common are the options that etcd and ZooKeeper share, as they are documented there.
type common struct {
	members int
	direct  bool
	tls     TLS
	log     io.Writer
}

// kind is what etcd and ZooKeeper differ in.
type kind interface {
	name() string
	// ports are those that a member needs.
	ports() []role
	// connect makes the proxies between the members in c.network, unless that is nil.
	connectPeers(c *Cluster) error
	// prepare writes what m needs to start without data.
	prepare(m *Member) error
	command(m *Member) *exec.Cmd
	// probe returns nil if m serves clients.
	probe(ctx context.Context, m *Member) error
	// finish does what has to be done when all members serve for the first time.
	afterFirstStart(ctx context.Context, c *Cluster) error
	// leads reports whether m says that it leads.
	leads(ctx context.Context, m *Member) (bool, error)
	// forget makes the others expect m to come without data.
	expectEmpty(ctx context.Context, m *Member) error
	counters(ctx context.Context, m *Member) (map[string]float64, error)
}

const (
	startTimeout = time.Minute // on a busy machine; a second is usual
	startTries   = 5           // each with other ports
)

// start starts the members. A port that was free may be taken when a server gets there.
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

// startOnce returns a cluster to be stopped also when it fails.
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

// TLS returns what a client needs for the clients' port: whom to trust and a certificate
// of its own. It is nil without TLS, and the caller's to keep.
func (c *Cluster) TLS() *tls.Config {
	if c.certs == nil {
		return nil
	}
	return c.certs.client.Clone()
}

// Members returns the servers, in an order that stays.
func (c *Cluster) Members() []*Member { return c.members }

// Addrs returns the members' Addr.
func (c *Cluster) Addrs() []string {
	var addrs []string
	for _, m := range c.members {
		addrs = append(addrs, m.Addr())
	}
	return addrs
}

// Leader returns the member that leads, and waits for an election that is going on. A
// single server leads itself. Of two that say so, as right after a leader was cut off,
// there is none.
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

// Restart stops all members and starts them again with their data. It returns when all
// of them serve.
func (c *Cluster) Restart(ctx context.Context) error {
	for _, m := range c.members {
		m.Kill()
	}
	return c.forEachMember(func(m *Member) error { return m.Restart(ctx) })
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

// forEachMember calls f for all members at once.
func (c *Cluster) forEachMember(f func(*Member) error) error {
	errs := make([]error, len(c.members))
	var wg sync.WaitGroup
	for i, m := range c.members {
		wg.Go(func() { errs[i] = f(m) })
	}
	wg.Wait()
	return errors.Join(errs...)
}
