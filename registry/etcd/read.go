package etcd

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/rota-dev/rota/internal/remote"
	"github.com/rota-dev/rota/registry"
)

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
