package coordinator

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/rota-dev/rota/internal/group/batch"
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

// Ownership is the access of the owner of a shard to the registry, while its call of Own or its
// run lasts: Owned and executor.Run are built on it.
type Ownership struct {
	*Writes
	reg registry.Registry
	key registry.Key // of the state

	turn      chan struct{} // one slot, filled while the state is read or saved; it guards:
	stateRead bool          // the state has been read
	rev       registry.Rev  // of the state; zero if there was none
}

// NewOwnership returns the Ownership under a session. Ctx is as for NewWrites. The state of the
// shard is the value of key.
func NewOwnership(ctx context.Context, reg registry.Registry, id registry.SessionID, key registry.Key) *Ownership {
	return &Ownership{Writes: NewWrites(ctx, reg, id), reg: reg, key: key, turn: make(chan struct{}, 1)}
}

// State is described in Owned.State.
func (t *Ownership) State(ctx context.Context) ([]byte, error) {
	if err := t.acquireTurn(ctx); err != nil {
		return nil, err
	}
	defer t.releaseTurn()
	return t.readState(ctx)
}

// acquireTurn waits until no other goroutine reads or saves the state.
func (t *Ownership) acquireTurn(ctx context.Context) error {
	select {
	case t.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", registry.ErrNotApplied, context.Cause(ctx))
	}
}

func (t *Ownership) releaseTurn() { <-t.turn }

// readState reads the state. The caller has acquired the turn.
func (t *Ownership) readState(ctx context.Context) ([]byte, error) {
	e, err := t.reg.Get(ctx, t.key, registry.ReadOptions{Fresh: true})
	if err != nil && !errors.Is(err, registry.ErrNotFound) {
		return nil, err
	}
	t.stateRead, t.rev = true, e.Modified
	return e.Value, nil
}

// Save is described in Owned.Save.
func (t *Ownership) Save(ctx context.Context, state []byte, ops ...registry.Op) error {
	if err := t.acquireTurn(ctx); err != nil {
		return err
	}
	if !t.stateRead {
		if _, err := t.readState(ctx); err != nil {
			t.releaseTurn()
			return fmt.Errorf("%w: %w", registry.ErrNotApplied, err)
		}
	}
	own := registry.Create(t.key, state)
	if !t.rev.IsZero() {
		own = registry.Set(t.key, t.rev, state)
	}
	_, err := t.commitThen(ctx, append(slices.Clone(ops), own), func(rev registry.Rev, err error) {
		if err == nil {
			t.rev = rev
		}
		t.releaseTurn()
	})
	if refusal, refused := batch.FindConflict(err); refused && refusal.Index == len(ops) {
		return fmt.Errorf("another writer has changed it: %w", err)
	}
	return err
}
