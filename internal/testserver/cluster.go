package testserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"time"
)

// Cluster is one or more servers that keep the same data.
type Cluster struct {
	kind    kind
	dir     *workDir
	log     io.Writer
	members []*Member
}

// kind is what etcd and ZooKeeper differ in.
type kind interface {
	name() string
	// ports are those that a member needs.
	ports() []role
	// prepare writes what m needs to start for the first time.
	prepare(m *Member) error
	command(m *Member) *exec.Cmd
	// probe returns nil if m serves clients.
	probe(ctx context.Context, m *Member) error
	// leads reports whether m says that it leads.
	leads(ctx context.Context, m *Member) (bool, error)
}

const (
	startTimeout = time.Minute // on a busy machine; a second is usual
	startTries   = 5           // each with other ports
)

// start starts n members. A port that was free may be taken when the server gets there.
func start(ctx context.Context, k kind, n int, log io.Writer) (*Cluster, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if log == nil {
		log = io.Discard
	}
	for try := 1; ; try++ {
		c, err := startOnce(ctx, k, max(n, 1), log)
		if err == nil {
			return c, nil
		}
		if !errors.Is(err, errPortTaken) || try == startTries {
			return nil, fmt.Errorf("start %s: %w", k.name(), err)
		}
	}
}

func startOnce(ctx context.Context, k kind, n int, log io.Writer) (c *Cluster, err error) {
	c = &Cluster{kind: k, log: log}
	defer func() {
		if err != nil {
			c.Stop()
		}
	}()
	if c.dir, err = newWorkDir(k.name()); err != nil {
		return c, err
	}
	for i := range n {
		if err := c.addMember(i); err != nil {
			return c, err
		}
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
	return c, c.each(func(m *Member) error { return m.await(ctx) })
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
		var leaders []*Member
		for _, m := range c.members {
			probe, cancel := context.WithTimeout(ctx, probeTimeout)
			if ok, err := c.kind.leads(probe, m); err == nil && ok {
				leaders = append(leaders, m)
			}
			cancel()
		}
		if len(leaders) == 1 {
			return leaders[0], nil
		}
		select {
		case <-time.After(probeInterval):
		case <-ctx.Done():
			return nil, fmt.Errorf("find leader: %d say they are: %w", len(leaders), context.Cause(ctx))
		}
	}
}

// Restart stops all members and starts them again with their data. It returns when all
// of them serve.
func (c *Cluster) Restart(ctx context.Context) error {
	for _, m := range c.members {
		m.Kill()
	}
	return c.each(func(m *Member) error { return m.Restart(ctx) })
}

// Stop kills the members and removes their data. Calling it twice is legal.
func (c *Cluster) Stop() {
	for _, m := range c.members {
		m.Kill()
		m.release()
	}
	if c.dir != nil {
		c.dir.remove()
	}
}

// each calls f for all members at once.
func (c *Cluster) each(f func(*Member) error) error {
	errs := make([]error, len(c.members))
	var wg sync.WaitGroup
	for i, m := range c.members {
		wg.Go(func() { errs[i] = f(m) })
	}
	wg.Wait()
	return errors.Join(errs...)
}
