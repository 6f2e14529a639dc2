package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/rota-dev/rota/internal/zkwire"
)

// endSession ends a session of the server's on a connection made for it. It tries one
// member after another until one says that the session has ended, or ctx ends.
func (c *Client) endSession(ctx context.Context, g zkwire.Grant) error {
	dial := c.o.dialer(c.hosts)
	err := errors.New("no member was found")
	for {
		all, problem := c.hosts.resolve(ctx)
		if problem != nil {
			err = problem
		}
		for _, address := range all {
			if err = endOn(ctx, dial, address, g, c.o.DialTimeout); err == nil {
				return nil
			}
			if ctx.Err() != nil {
				return fmt.Errorf("%w (%w)", context.Cause(ctx), err)
			}
		}
		select {
		case <-time.After(firstPause):
		case <-ctx.Done():
			return fmt.Errorf("%w (%w)", context.Cause(ctx), err)
		}
	}
}

func endOn(ctx context.Context, dial func(context.Context, string) (net.Conn, error), address string, g zkwire.Grant, bound time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	conn, err := dial(ctx, address)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	return zkwire.EndSession(conn, g)
}
