package etcd

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/rota-dev/rota/internal/remote"
	"github.com/rota-dev/rota/registry"
)

// Client is a handle on etcd. It is made by Open.
type Client struct {
	namespace string
	options   Options
	log       *slog.Logger
	calls     *remote.Calls
	links     *links
	foreign   foreign

	mu       sync.Mutex
	closing  bool
	auditing bool
	sessions map[*session]struct{} // until they have ended
	watchers map[*watcher]struct{}
}

var _ registry.Registry = (*Client)(nil)

// Limits returns registry.PortableLimits, so that what passes here passes anywhere.
func (c *Client) Limits() registry.Limits { return registry.PortableLimits }

// Get is described in registry.Registry. Plain reads are Fresh, too: a read of one member
// alone costs nearly as much and may go back in time when the next one asks another.
func (c *Client) Get(ctx context.Context, key registry.Key, o registry.ReadOptions) (registry.Entry, error) {
	if err := registry.CheckKey(key); err != nil {
		return registry.Entry{}, err
	}
	e, err := c.get(ctx, key)
	if err != nil {
		return registry.Entry{}, fmt.Errorf("get %s: %w", key, remote.Unavailable(err))
	}
	if cap(o.Buffer) >= len(e.Value) && o.Buffer != nil {
		e.Value = append(o.Buffer[:0], e.Value...)
	}
	return e, nil
}

func (c *Client) get(ctx context.Context, key registry.Key) (registry.Entry, error) {
	resp, err := c.read(ctx, &pb.RangeRequest{Key: []byte(c.stored(key))})
	switch {
	case err != nil:
		return registry.Entry{}, err
	case len(resp.Kvs) == 0:
		return registry.Entry{}, registry.ErrNotFound
	}
	return entry(key, resp.Kvs[0])
}

// List is described in registry.Registry. It is Fresh and atomic.
func (c *Client) List(ctx context.Context, dir registry.Key, _ registry.ReadOptions) (registry.Listing, error) {
	if err := registry.CheckDir(dir); err != nil {
		return registry.Listing{}, err
	}
	resp, err := c.list(ctx, dir)
	if err != nil {
		return registry.Listing{}, fmt.Errorf("list %s: %w", dir, remote.Unavailable(err))
	}
	return registry.Listing{
		Entries: c.readChildren(dir, c.children(dir), resp.Kvs), // in etcd's order, which is ours
		Rev:     revOf(resp.Header.Revision),
		Atomic:  true,
	}, nil
}

func (c *Client) list(ctx context.Context, dir registry.Key) (*pb.RangeResponse, error) {
	prefix := c.children(dir)
	return c.read(ctx, &pb.RangeRequest{Key: []byte(prefix), RangeEnd: after(prefix)})
}

func (c *Client) read(ctx context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	ctx, end, err := c.calls.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	var resp *pb.RangeResponse
	err = c.ask(ctx, func(ctx context.Context, l *link) (err error) {
		resp, err = l.kv.Range(ctx, r, callOptions...)
		return err
	})
	return resp, err
}

// callOptions go with every call. Without a connection it waits for one, as long as its
// context lets it.
var callOptions = []grpc.CallOption{
	grpc.WaitForReady(true),
	grpc.MaxCallRecvMsgSize(1<<31 - 1), // a directory may be large
}

// ask makes a call that may be made twice, until the answer is definite or ctx ends. The
// error is translated.
func (c *Client) ask(ctx context.Context, call func(ctx context.Context, l *link) error) error {
	for pause := pauseLow; ; pause = longer(pause) {
		l, err := c.links.get(ctx)
		if err != nil {
			return err
		}
		over := l.begin(silentFor)
		err = translate(call(clientv3.WithRequireLeader(ctx), l))
		over(err)
		if err == nil || ctx.Err() == nil && !passing(err) {
			return err
		}
		if !remote.Sleep(ctx, pause) {
			return remote.Ended(ctx, err)
		}
	}
}

// Close is described in registry.Registry. When ctx ends, sessions are left to expire. The
// connection is closed all the same, which takes some seconds at worst.
func (c *Client) Close(ctx context.Context) error {
	if !c.calls.Close() {
		return nil
	}
	c.mu.Lock()
	c.closing = true
	sessions, watchers := c.sessions, c.watchers
	c.sessions, c.watchers = nil, nil
	c.mu.Unlock()

	for w := range watchers {
		w.finish(remote.ErrHandleClosed)
	}
	err := closeSessions(ctx, sessions)
	c.links.end()
	c.calls.Wait()
	if err != nil {
		return fmt.Errorf("close: %w", err)
	}
	return nil
}
