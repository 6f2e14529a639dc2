package etcdbackend

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// user may read and write keys with prefix, by a role of its own name.
type user struct{ name, password, prefix string }

// create and remove are idempotent, so that they can be retried.

func (u *user) create(ctx context.Context, c *clientv3.Client) error {
	_, err := c.UserAdd(ctx, u.name, u.password)
	if err != nil && !errors.Is(err, rpctypes.ErrUserAlreadyExist) {
		return err
	}
	_, err = c.RoleAdd(ctx, u.name)
	if err != nil && !errors.Is(err, rpctypes.ErrRoleAlreadyExist) {
		return err
	}
	if _, err = c.UserGrantRole(ctx, u.name, u.name); err != nil {
		return err
	}
	return u.grantAccess(ctx, c)
}

func (u *user) remove(ctx context.Context, c *clientv3.Client) error {
	_, err := c.UserDelete(ctx, u.name)
	if err != nil && !errors.Is(err, rpctypes.ErrUserNotFound) {
		return err
	}
	_, err = c.RoleDelete(ctx, u.name)
	if errors.Is(err, rpctypes.ErrRoleNotFound) {
		return nil
	}
	return err
}

func (u *user) grantAccess(ctx context.Context, c *clientv3.Client) error {
	_, err := c.RoleGrantPermission(ctx, u.name, u.prefix, clientv3.GetPrefixRangeEnd(u.prefix),
		clientv3.PermissionType(clientv3.PermReadWrite))
	return err
}

func (u *user) revokeAccess(ctx context.Context, c *clientv3.Client) error {
	_, err := c.RoleRevokePermission(ctx, u.name, u.prefix, clientv3.GetPrefixRangeEnd(u.prefix))
	if errors.Is(err, rpctypes.ErrPermissionNotGranted) {
		return nil // an earlier attempt was applied
	}
	return err
}
