package etcdbackend

import (
	"context"
	"errors"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// user may read and write what begins with prefix, by a role of the same name.
type user struct{ name, password, prefix string }

func (u *user) create(ctx context.Context, c *clientv3.Client) error {
	_, userErr := c.UserAdd(ctx, u.name, u.password)
	_, roleErr := c.RoleAdd(ctx, u.name)
	_, grantErr := c.UserGrantRole(ctx, u.name, u.name)
	return errors.Join(userErr, roleErr, grantErr, u.allow(ctx, c))
}

func (u *user) remove(ctx context.Context, c *clientv3.Client) error {
	_, userErr := c.UserDelete(ctx, u.name)
	_, roleErr := c.RoleDelete(ctx, u.name)
	return errors.Join(userErr, roleErr)
}

func (u *user) allow(ctx context.Context, c *clientv3.Client) error {
	_, err := c.RoleGrantPermission(ctx, u.name, u.prefix, clientv3.GetPrefixRangeEnd(u.prefix),
		clientv3.PermissionType(clientv3.PermReadWrite))
	return err
}

func (u *user) deny(ctx context.Context, c *clientv3.Client) error {
	_, err := c.RoleRevokePermission(ctx, u.name, u.prefix, clientv3.GetPrefixRangeEnd(u.prefix))
	return err
}
