package coordinator

import (
	"context"
	"fmt"

	"github.com/rota-dev/rota/registry"
)

// State returns the state that was last saved for the shard, by this or an earlier owner, or
// nil if none was saved. The read is linearizable, so it includes every successful Save of an
// earlier owner. The caller owns the returned slice.
//
// For an Owned that is a literal, State returns nil.
func (o Owned) State(ctx context.Context) ([]byte, error) {
	t := o.ownership
	if t == nil {
		return nil, nil
	}
	value, err := t.State(ctx)
	if err != nil {
		return nil, fmt.Errorf("read state of shard %d: %w", o.Shard, err)
	}
	return value, nil
}

// Save stores the state that State returns, and applies ops, in one transaction. So the
// registry's content and the saved position never diverge.
//
// Save may be called until Own returns. When the context of Own ends because the shard moves
// or Join ends, an owner can save its last state, with a ctx that is still alive, such as one
// from context.WithoutCancel. After Own has returned or the session is lost, Save fails with
// ErrNotOwner. No Save of an earlier owner takes effect after the next owner's Own was called.
//
// If ctx ends during the call, the error wraps registry.ErrUnknownOutcome. The shard does not
// move until the outcome is known or the session has ended.
//
// If a condition in ops fails, the error is a *registry.ConflictError whose Index counts
// within ops. If another writer has changed the state, the error wraps registry.ErrConflict,
// and Save fails until State has been called.
//
// For an Owned that is a literal, Save stores nothing and returns nil.
func (o Owned) Save(ctx context.Context, state []byte, ops ...registry.Op) error {
	t := o.ownership
	if t == nil {
		return nil
	}
	if err := t.Save(ctx, state, ops...); err != nil {
		return fmt.Errorf("save state of shard %d: %w", o.Shard, err)
	}
	return nil
}

// Commit applies ops in one transaction under the conditions of Save, without a new state. It
// returns the revision of the commit.
func (o Owned) Commit(ctx context.Context, ops ...registry.Op) (registry.Rev, error) {
	t := o.ownership
	if t == nil {
		return registry.Rev{}, nil
	}
	rev, err := t.Commit(ctx, ops...)
	if err != nil {
		return registry.Rev{}, fmt.Errorf("commit for shard %d: %w", o.Shard, err)
	}
	return rev, nil
}
