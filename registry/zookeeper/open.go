package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/rota-dev/rota/internal/cleartext"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/backend"
)

// linkTimeout is the session timeout of connections that carry no session of the registry. A
// silent member delays reads and writes for two thirds of it.
const linkTimeout = 6 * time.Second

// Open connects to a ZooKeeper ensemble and returns a handle once a member has answered and the
// namespace is readable and, without Options.ReadOnly, writable. It fails at once, with the cause, if no member is
// reachable, the credentials are insufficient, or the server is too old. It also ends with ctx
// and after Options.CallTimeout.
func Open(ctx context.Context, o Options) (*Client, error) {
	o, err := o.complete()
	if err != nil {
		return nil, fmt.Errorf("open zookeeper: %w", err)
	}
	c := &Client{
		options:  o,
		layout:   layout{o.Namespace},
		members:  newMembers(&o),
		handle:   backend.NewHandle(backend.Config{CallTimeout: o.CallTimeout, Limits: limits(), ReadOnly: o.ReadOnly, Logger: o.Logger}),
		sessions: make(map[registry.SessionID]*session),
		feeds:    make(map[registry.Key]*feed),
	}
	if o.Username != "" && o.TLS == nil {
		cleartext.WarnPassword(o.Logger, o.Endpoints)
	}
	c.base = newLink(c.completeLinkConfig(linkConfig{timeout: linkTimeout, onState: c.preferBaseMember, verify: c.verifyStore}))
	if err := c.base.start(); err != nil {
		return nil, fmt.Errorf("open zookeeper: %w", err)
	}
	if err := c.finishOpen(ctx); err != nil {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		_ = c.Close(ended)
		if !errors.Is(err, errOldServer) { // a retry would find the same version
			err = backend.Unavailable(err)
		}
		return nil, fmt.Errorf("open zookeeper at %s: %w", o.endpoints(), err)
	}
	if o.ReapAfter > 0 && !o.ReadOnly {
		c.handle.Go(c.reapLoop)
		c.handle.Go(c.sweepLoop)
	}
	return c, nil
}

// completeLinkConfig fills in the parts of the configuration that all links share.
func (c *Client) completeLinkConfig(l linkConfig) linkConfig {
	l.members = c.members
	l.dial = c.options.dialer(c.members)
	l.dialTimeout = c.options.DialTimeout
	l.auth = c.options.credentials()
	l.logger = libraryLogger{c.options.Logger}
	l.onMalformed = c.reportMalformed
	return l
}

// preferBaseMember makes the other connections of the handle use the member of the base
// connection, if there is one: that member has most likely seen every state that one of the
// connections has observed.
func (c *Client) preferBaseMember(s linkState) {
	if s == linkUp {
		c.members.prefer(c.base.memberAddress())
		return
	}
	c.members.prefer("")
}

func (c *Client) finishOpen(ctx context.Context) error {
	ctx, end, err := c.handle.Begin(ctx) // Call would take an old server for an unavailable one
	if err != nil {
		return err
	}
	defer end()
	if err := c.base.awaitFirstUp(ctx); err != nil {
		return err
	}
	if err := c.checkServer(ctx); err != nil {
		return err
	}
	if !c.options.ReadOnly {
		if err := c.createLayout(ctx); err != nil {
			return err
		}
	}
	if err := c.commitBarrier(ctx); err != nil { // fails without the right to read the root
		return fmt.Errorf("read %s: %w", c.layout.root, err)
	}
	c.noteSeen(c.base.lastZxid())
	c.warnOpenRoot(ctx)
	return c.readReapedCount(ctx)
}

// warnOpenRoot logs that everyone has rights to the namespace which the handle would not grant: znodes keep the ACL that
// they were created with, so credentials that are added later do not protect them. A user who may not read the ACL gets
// no warning.
func (c *Client) warnOpenRoot(ctx context.Context) {
	if c.options.Username == "" || c.options.ReadOnly {
		return
	}
	found, err := callWithRetry(ctx, c.base, func(conn *zk.Conn) ([]zk.ACL, error) {
		acl, _, err := conn.GetACL(c.layout.root)
		return acl, err
	})
	if err != nil || worldRights(found)&^worldRights(c.options.ACL) == 0 {
		return
	}
	c.options.Logger.LogAttrs(ctx, slog.LevelWarn, "everyone has rights to the namespace: its znodes were created without credentials",
		slog.String("znode", c.layout.root))
}

// worldRights returns the rights of everyone.
func worldRights(acl []zk.ACL) (rights int32) {
	for _, a := range acl {
		if a.Scheme == "world" {
			rights |= a.Perms
		}
	}
	return rights
}

// createLayout creates the znodes that are not keys.
func (c *Client) createLayout(ctx context.Context) error {
	for _, path := range []string{c.layout.sessionsPath(), c.layout.birthsPath(), c.layout.reapedPath(), c.layout.sweptPath()} {
		if err := c.createPath(ctx, path); err != nil {
			return err
		}
	}
	return nil
}

// createPath creates the znode at path, without a value, and those above it that are missing, unless they
// exist.
func (c *Client) createPath(ctx context.Context, path string) error {
	make := func() error {
		_, err := callWithRetry(ctx, c.base, func(conn *zk.Conn) (string, error) {
			return conn.Create(path, []byte(noValue), 0, c.options.ACL)
		})
		if errors.Is(err, zk.ErrNodeExists) {
			return nil
		}
		return err
	}
	err := make()
	if errors.Is(err, zk.ErrNoNode) && path != "/" {
		if path == c.layout.root && !c.options.openToAll() {
			return fmt.Errorf("%w: the znode %s above the namespace. Create it, with the right to create for all who are to "+
				"use it: here it would be for this user only", registry.ErrNotFound, parentPath(path))
		}
		if err = c.createPath(ctx, parentPath(path)); err == nil {
			err = make()
		}
	}
	if err != nil && !errors.Is(err, context.Cause(ctx)) {
		return fmt.Errorf("create znode %s: %w", path, err)
	}
	return err
}

// readReapedCount reads the count of commits that removed znodes.
func (c *Client) readReapedCount(ctx context.Context) error {
	if err := c.catchUp(ctx, c.base, c.base.lastZxid()); err != nil {
		return err
	}
	r, err := c.readZnode(ctx, c.base, c.layout.reapedPath())
	if err != nil {
		return fmt.Errorf("read %s: %w", c.layout.reapedPath(), err)
	}
	if r.stat != nil {
		c.reapedCount.Store(r.stat.Version)
	}
	return nil
}

// limits returns registry.PortableLimits of a store without a request that reads a directory.
func limits() registry.Limits {
	l := registry.PortableLimits
	l.ListByKey = true
	return l
}
