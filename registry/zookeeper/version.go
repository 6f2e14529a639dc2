package zookeeper

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"
)

// checkServer fails if the server is older than 3.5, the first version with the znode
// /zookeeper/config.
func (c *Client) checkServer(ctx context.Context) error {
	there, err := callWithRetry(ctx, c.base, func(conn *zk.Conn) (bool, error) {
		there, _, err := conn.Exists("/zookeeper/config")
		return there, err
	})
	if err != nil {
		return err
	}
	if !there {
		return errOldServer
	}
	return nil
}

var errOldServer = errors.New("the server is older than ZooKeeper 3.5")
