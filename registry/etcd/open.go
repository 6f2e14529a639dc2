package etcd

import (
	"context"
	"errors"
	"fmt"

	"github.com/rota-dev/rota/internal/remote"
)

// Open returns a handle on the etcd cluster at o.Endpoints. It fails with all that is wrong
// with o; with registry.ErrUnavailable and a cause for each, if there is no member that can
// be connected to and has a leader; with registry.ErrUnauthenticated if the credentials are
// refused, and registry.ErrPermission if they lack the right to read or to write the keys of
// the namespace; and if a member's version is one that Options.AnyVersion tells of. It tries
// each member once, and takes a few seconds at worst, or as long as ctx lets it.
//
// The handle does not depend on ctx. It is to be closed.
func Open(ctx context.Context, o Options) (*Client, error) {
	o, err := o.complete()
	if err != nil {
		return nil, fmt.Errorf("open etcd: %w", err)
	}
	c := &Client{
		namespace: o.Namespace,
		options:   o,
		log:       o.Logger,
		calls:     remote.NewCalls(o.CallTimeout),
		links:     newLinks(),
		sessions:  make(map[*session]struct{}),
		watchers:  make(map[*watcher]struct{}),
	}
	if err := c.open(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("open etcd at %s: %w", o.endpoints(), err), c.Close(ctx))
	}
	return c, nil
}

func (c *Client) open(ctx context.Context) error {
	l, err := c.dialFirst(ctx, 0)
	if err != nil {
		return remote.Unavailable(err)
	}
	if err := c.checkVersions(ctx, l); err != nil {
		l.close()
		return err
	}
	c.links.set(l, nil)
	c.calls.Go(func() { c.steer(l) })
	if err := c.checkWrite(ctx); err != nil {
		return remote.Unavailable(err)
	}
	if c.options.CompactEvery > 0 {
		c.calls.Go(c.compact)
	}
	return nil
}
