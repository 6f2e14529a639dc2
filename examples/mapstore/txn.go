package mapstore

import (
	"context"
	"fmt"

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/backend"
)

// A document shows from here:

// Txn implements registry.Registry.
func (c *Client) Txn(ctx context.Context, t registry.Txn) (registry.Rev, error) {
	return c.handle.Txn(ctx, t, c.commit)
}

// commit sends t once. It returns NotApplied only while t has certainly not left the process, or
// if the store has refused it. Any other error, such as a broken connection, is returned as it is:
// Handle.Txn reports an unknown outcome then.
func (c *Client) commit(ctx context.Context, t registry.Txn) (registry.Rev, error) {
	if err := c.send(ctx); err != nil {
		return registry.Rev{}, backend.NotApplied(err) // this store gets t after send
	}
	revision, err := c.store.update(func(x *tx) error {
		if err := check(x, t); err != nil {
			return err
		}
		for i := range t.Then {
			apply(x, &t.Then[i], t.ID)
		}
		return nil
	})
	return revOf(revision), err
}

// To here.

// check returns the error of the first item that does not hold: conditions first, then what the
// operations imply.
func check(x *tx, t registry.Txn) error {
	for i := range t.If {
		if !condHolds(x, &t.If[i]) {
			return registry.Conflict(t, i)
		}
	}
	for i := range t.Then {
		o := &t.Then[i]
		if o.Kind == registry.OpCreateOwned && !x.leaseExists(string(o.Session)) {
			return fmt.Errorf("%w: %s", registry.ErrSessionLost, o)
		}
		if !opHolds(x, o) {
			return registry.Conflict(t, len(t.If)+i)
		}
	}
	return nil
}

func condHolds(x *tx, c *registry.Cond) bool {
	switch c.Kind {
	case registry.CondAbsent:
		return isAbsent(x, c.Key)
	case registry.CondAt:
		return isAt(x, c.Key, c.Rev)
	case registry.CondAlive:
		return x.leaseExists(string(c.Session))
	default: // CondDead; Handle.Txn rejects other kinds
		return !x.leaseExists(string(c.Session))
	}
}

func opHolds(x *tx, o *registry.Op) bool {
	switch o.Kind {
	case registry.OpSet, registry.OpDelete:
		return isAt(x, o.Key, o.Rev)
	default: // OpCreate, OpCreateOwned
		return isAbsent(x, o.Key)
	}
}

func isAbsent(x *tx, key registry.Key) bool {
	_, exists := x.get(string(key))
	return !exists
}

func isAt(x *tx, key registry.Key, rev registry.Rev) bool {
	r, exists := x.get(string(key))
	return exists && revOf(r.modified) == rev
}

func apply(x *tx, o *registry.Op, id registry.TxnID) {
	key := string(o.Key)
	switch o.Kind {
	case registry.OpDelete:
		x.delete(key)
	case registry.OpSet:
		r, _ := x.get(key)
		x.put(key, backend.EncodeValue(id, o.Value), r.lease) // an owned key stays with its owner
	case registry.OpCreateOwned:
		x.put(key, backend.EncodeValue(id, o.Value), string(o.Session))
	default:
		x.put(key, backend.EncodeValue(id, o.Value), "")
	}
}
