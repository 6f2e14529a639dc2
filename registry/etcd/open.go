package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/rota-dev/rota/internal/cleartext"
	"github.com/rota-dev/rota/registry/backend"
)

// Open connects to the etcd cluster at o.Endpoints and returns a handle, which must be closed.
// The handle does not depend on ctx.
//
// Open tries each member once; it takes a few seconds at worst, and ends with ctx. It fails
// with
//
//   - all problems of o, if there are any;
//   - registry.ErrUnavailable and one cause per member, if no member with a leader is reachable;
//   - registry.ErrUnauthenticated, if the credentials are rejected;
//   - registry.ErrPermission, if the user may not read the keys of the namespace or, without
//     Options.ReadOnly, not write them;
//   - an error that names the member and its version, if only Options.AnyVersion accepts it.
func Open(ctx context.Context, o Options) (*Client, error) {
	o, err := o.complete()
	if err != nil {
		return nil, fmt.Errorf("open etcd: %w", err)
	}
	c := &Client{
		namespace: o.Namespace,
		options:   o,
		log:       o.Logger,
		handle:    backend.NewHandle(backend.Config{CallTimeout: o.CallTimeout, ReadOnly: o.ReadOnly, Logger: o.Logger}),
		links:     newLinks(),
		sources:   make(map[*source]struct{}),
	}
	if o.Username != "" && o.TLS == nil {
		cleartext.WarnPassword(o.Logger, slices.DeleteFunc(slices.Clone(o.Endpoints), func(e string) bool {
			return slices.Contains([]string{"https", "unixs"}, scheme(e))
		}))
	}
	if err := c.finishOpen(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("open etcd at %s: %w", o.endpoints(), err), c.Close(ctx))
	}
	return c, nil
}

func (c *Client) finishOpen(ctx context.Context) error {
	l, err := c.dialFirst(ctx, 0)
	if err != nil {
		return backend.Unavailable(err)
	}
	if err := c.checkVersions(ctx, l); err != nil {
		l.close()
		return err
	}
	c.links.setLink(l, nil)
	c.handle.Go(func() { c.keepConnected(l) })
	if !c.options.ReadOnly {
		if err := c.handle.Call(ctx, c.checkWrite); err != nil {
			return err
		}
	}
	if c.options.CompactEvery > 0 {
		c.handle.Go(c.compactLoop)
	}
	return nil
}
