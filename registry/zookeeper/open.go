package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/rota-dev/rota/internal/remote"
	"github.com/rota-dev/rota/registry"
)

// linkTimeout is asked for where no session of the registry's is concerned. Two thirds of
// it is how long a member that has fallen silent holds up reads and writes.
const linkTimeout = 6 * time.Second

// Open connects to a store and returns a handle on it, when a member has answered and what
// is kept below the root can be read and written. It fails at once, and says why, if no
// member can be connected to, the credentials do not suffice, or the server is too old;
// and in any case when ctx ends or Options.CallTimeout is over.
func Open(ctx context.Context, o Options) (*Client, error) {
	o, err := o.complete()
	if err != nil {
		return nil, fmt.Errorf("open zookeeper: %w", err)
	}
	c := &Client{
		o:        o,
		layout:   layout{o.Namespace},
		hosts:    newHosts(&o),
		calls:    remote.NewCalls(o.CallTimeout),
		sessions: make(map[registry.SessionID]*session),
		feeds:    make(map[registry.Key]*feed),
		closing:  make(chan struct{}),
	}
	c.base = newLink(c.link(linkConfig{timeout: linkTimeout, state: c.pin}))
	if err := c.base.start(); err != nil {
		return nil, fmt.Errorf("open zookeeper: %w", err)
	}
	if err := c.open(ctx); err != nil {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		_ = c.Close(ended)
		if !errors.Is(err, errOldServer) { // which will be as old the next time
			err = remote.Unavailable(err)
		}
		return nil, fmt.Errorf("open zookeeper at %s: %w", o.endpoints(), err)
	}
	if o.ReapAfter > 0 {
		c.calls.Go(c.reap)
		c.calls.Go(c.sweep)
	}
	return c, nil
}

// link completes the configuration of a link.
func (c *Client) link(l linkConfig) linkConfig {
	l.hosts = c.hosts
	l.dial = c.o.dialer(c.hosts)
	l.dialTimeout = c.o.DialTimeout
	l.auth = c.o.credentials()
	l.logger = printf{c.o.Logger}
	return l
}

// pin has the other connections of the handle made to the member that the base one is at,
// or to any if it is at none: what one of them has told of, the others mostly know then.
func (c *Client) pin(s linkState) {
	if s == linkUp {
		c.hosts.prefer(c.base.at())
		return
	}
	c.hosts.prefer("")
}

func (c *Client) open(ctx context.Context) error {
	ctx, end, err := c.calls.Begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	if err := c.base.greeted(ctx); err != nil {
		return err
	}
	if err := c.checkServer(ctx); err != nil {
		return err
	}
	if err := c.makeLayout(ctx); err != nil {
		return err
	}
	if err := c.barrier(ctx); err != nil { // the root is one that can be read
		return fmt.Errorf("read %s: %w", c.layout.root, err)
	}
	c.saw(c.base.zxid())
	return c.countReaped(ctx)
}

// makeLayout makes the znodes that are not keys.
func (c *Client) makeLayout(ctx context.Context) error {
	for _, path := range []string{c.layout.sessions(), c.layout.births(), c.layout.reaped(), c.layout.swept()} {
		if err := c.makePath(ctx, path); err != nil {
			return err
		}
	}
	return nil
}

// makePath makes znodes without values at path and all above it, unless they are there.
func (c *Client) makePath(ctx context.Context, path string) error {
	make := func() error {
		_, err := ask(ctx, c.base, func(conn *zk.Conn) (string, error) {
			return conn.Create(path, []byte(noValue), 0, c.o.ACL)
		})
		if errors.Is(err, zk.ErrNodeExists) {
			return nil
		}
		return err
	}
	err := make()
	if errors.Is(err, zk.ErrNoNode) && path != "/" {
		if err = c.makePath(ctx, parent(path)); err == nil {
			err = make()
		}
	}
	if err != nil && !errors.Is(err, context.Cause(ctx)) {
		return fmt.Errorf("make znode %s: %w", path, err)
	}
	return err
}

// countReaped learns how often znodes have been taken away.
func (c *Client) countReaped(ctx context.Context) error {
	if err := c.catchUp(ctx, c.base, c.base.zxid()); err != nil {
		return err
	}
	r, err := c.readRaw(ctx, c.base, c.layout.reaped())
	if err != nil {
		return fmt.Errorf("read %s: %w", c.layout.reaped(), err)
	}
	if r.stat != nil {
		c.reaped.Store(r.stat.Version)
	}
	return nil
}
