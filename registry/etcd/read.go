package etcd

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/backend"
)

func (c *Client) getEntry(ctx context.Context, key registry.Key) (registry.Entry, error) {
	resp, err := c.readRange(ctx, &pb.RangeRequest{Key: []byte(c.storedKey(key))})
	switch {
	case err != nil:
		return registry.Entry{}, err
	case len(resp.Kvs) == 0:
		return registry.Entry{}, registry.ErrNotFound
	}
	return decodeEntry(key, resp.Kvs[0])
}

func (c *Client) listDir(ctx context.Context, dir registry.Key) (*pb.RangeResponse, error) {
	prefix := c.childrenPrefix(dir)
	return c.readRange(ctx, &pb.RangeRequest{Key: []byte(prefix), RangeEnd: rangeEnd(prefix)})
}

func (c *Client) readRange(ctx context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	var resp *pb.RangeResponse
	err := c.callWithRetry(ctx, func(ctx context.Context, l *link) (err error) {
		resp, err = l.kv.Range(ctx, r, callOptions...)
		return err
	})
	return resp, err
}

// callOptions apply to every call. A call without a connection waits for one until its context
// ends.
var callOptions = []grpc.CallOption{
	grpc.WaitForReady(true),
	grpc.MaxCallRecvMsgSize(1<<31 - 1), // a directory may be large
}

// callWithRetry makes an idempotent call and repeats it until the outcome is definite or ctx
// ends. The error is translated.
func (c *Client) callWithRetry(ctx context.Context, call func(ctx context.Context, l *link) error) error {
	for pause := backend.NextPause(0); ; pause = backend.NextPause(pause) {
		l, err := c.links.waitForLink(ctx)
		if err != nil {
			return err
		}
		over := l.beginCall(silenceTimeout)
		err = translate(call(clientv3.WithRequireLeader(ctx), l))
		over(err)
		if err == nil || ctx.Err() == nil && !worthRetrying(err) {
			return err
		}
		if !backend.Sleep(ctx, pause) {
			return backend.CallError(ctx, err)
		}
	}
}
