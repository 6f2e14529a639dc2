// Package fullstore makes the stores of tests refuse writes, as those without space do.
package fullstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// FillEtcd raises the alarm of a member that has no space, on which all members refuse writes.
func FillEtcd(ctx context.Context, c *clientv3.Client) error {
	now, err := c.Get(ctx, "fullstore", clientv3.WithCountOnly())
	if err != nil {
		return err
	}
	_, err = pb.NewMaintenanceClient(c.ActiveConnection()).Alarm(ctx, &pb.AlarmRequest{
		Action: pb.AlarmRequest_ACTIVATE, MemberID: now.Header.MemberId, Alarm: pb.AlarmType_NOSPACE,
	})
	return err
}

// FreeEtcd disarms all alarms.
func FreeEtcd(ctx context.Context, c *clientv3.Client) error {
	_, err := c.AlarmDisarm(ctx, &clientv3.AlarmMember{})
	return err
}

// SetEtcd makes the servers at some addresses full, or frees them. It may be repeated.
func SetEtcd(ctx context.Context, addrs []string, full bool) error {
	c, err := clientv3.New(clientv3.Config{Endpoints: addrs, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if full {
		return FillEtcd(ctx, c)
	}
	return FreeEtcd(ctx, c)
}

// EnforceQuota is the line of a ZooKeeper server's configuration with which it enforces quotas.
const EnforceQuota = "enforceQuota=true"

// FillZooKeeper sets a quota on a znode and all below that it already exceeds. It may be repeated.
func FillZooKeeper(conn *zk.Conn, root string) error {
	quota := quotaOf(root)
	create := func(path, data string) error {
		_, err := conn.Create(path, []byte(data), 0, zk.WorldACL(zk.PermAll))
		if err != nil && !errors.Is(err, zk.ErrNodeExists) {
			return fmt.Errorf("create %s: %w", path, err)
		}
		return nil
	}
	for i := 1; i <= len(quota); i++ {
		if i < len(quota) && quota[i] != '/' || strings.HasPrefix("/zookeeper/quota", quota[:i]) {
			continue
		}
		if err := create(quota[:i], ""); err != nil {
			return err
		}
	}
	if err := create(quota+"/zookeeper_limits", "count=-1,bytes=-1=;byteHardLimit=1;countHardLimit=1"); err != nil {
		return err
	}
	return create(quota+"/zookeeper_stats", "count=0,bytes=0")
}

// FreeZooKeeper removes the quota of FillZooKeeper. It may be repeated.
func FreeZooKeeper(conn *zk.Conn, root string) error {
	for _, name := range []string{"/zookeeper_limits", "/zookeeper_stats"} {
		if err := conn.Delete(quotaOf(root)+name, -1); err != nil && !errors.Is(err, zk.ErrNoNode) {
			return fmt.Errorf("delete %s of %s: %w", name, root, err)
		}
	}
	return nil
}

// SetZooKeeper makes a znode of the servers at some addresses full, with all below it, or frees it. It may be repeated.
func SetZooKeeper(ctx context.Context, addrs []string, root string, full bool) error {
	conn, _, err := zk.Connect(addrs, 10*time.Second, zk.WithLogger(silent{}))
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, conn.Close)
	defer stop()
	if full {
		return FillZooKeeper(conn, root)
	}
	return FreeZooKeeper(conn, root)
}

type silent struct{}

func (silent) Printf(string, ...any) {}

func quotaOf(root string) string { return "/zookeeper/quota" + root }
