package coordinator

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/rota-dev/rota/coordinator/internal/batch"
	"github.com/rota-dev/rota/registry"
)

// State returns what was last saved for the shard, by whichever owner: where to go on. It
// is nil if nothing was. It is read from the store itself, so that it is never older than
// what the last owner left.
//
// Of an Owned written by hand it is nil.
func (o Owned) State(ctx context.Context) ([]byte, error) {
	t := o.ownership
	if t == nil {
		return nil, nil
	}
	if err := t.acquireTurn(ctx); err != nil {
		return nil, fmt.Errorf("read state of shard %d: %w", o.Shard, err)
	}
	defer t.releaseTurn()
	value, err := t.readState(ctx)
	if err != nil {
		return nil, fmt.Errorf("read state of shard %d: %w", o.Shard, err)
	}
	return value, nil
}

// Save stores what State will return, and applies ops with it, all in one transaction: what
// was done to the registry and how far it has come cannot part.
//
// It may be called until Own returns, also after its context has ended because the shard
// is to move or Join is to end: that is when an owner saves for the last time, with a ctx
// that does not end with that one, such as context.WithoutCancel gives. Once Own has
// returned or the session has ended, it fails with ErrNotOwner. No Save of an earlier owner
// takes effect after the next one has begun.
//
// If ctx ends first, the error wraps registry.ErrUnknownOutcome; the shard does not move
// before the outcome is known or the session is over. A registry.ConflictError counts items
// in ops. If another hand has changed the state, Save fails with a registry.ErrConflict that
// says so, until State has been called.
//
// An Owned written by hand saves nothing and returns nil.
func (o Owned) Save(ctx context.Context, state []byte, ops ...registry.Op) error {
	t := o.ownership
	if t == nil {
		return nil
	}
	if err := t.saveState(ctx, state, ops); err != nil {
		return fmt.Errorf("save state of shard %d: %w", o.Shard, err)
	}
	return nil
}

// Commit applies ops in one transaction, as Save does, and leaves the state alone.
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

// tenure is what the owner of a shard may read and write while its call lasts.
type ownership struct {
	*Writes
	reg registry.Registry
	key registry.Key // of the state

	turn      chan struct{} // one slot, taken by whoever reads or saves the state, for:
	stateRead bool          // the state has been read
	rev       registry.Rev  // of the state; zero: there was none
}

func newOwnership(ctx context.Context, reg registry.Registry, id registry.SessionID, key registry.Key) *ownership {
	return &ownership{Writes: NewWrites(ctx, reg, id), reg: reg, key: key, turn: make(chan struct{}, 1)}
}

// take waits for the turn to read or save the state.
func (t *ownership) acquireTurn(ctx context.Context) error {
	select {
	case t.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", registry.ErrNotApplied, context.Cause(ctx))
	}
}

func (t *ownership) releaseTurn() { <-t.turn }

// read reads the state. The turn is the caller's.
func (t *ownership) readState(ctx context.Context) ([]byte, error) {
	e, err := t.reg.Get(ctx, t.key, registry.ReadOptions{Fresh: true})
	if err != nil && !errors.Is(err, registry.ErrNotFound) {
		return nil, err
	}
	t.stateRead, t.rev = true, e.Modified
	return e.Value, nil
}

func (t *ownership) saveState(ctx context.Context, state []byte, ops []registry.Op) error {
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
		return fmt.Errorf("another hand has changed it: %w", err)
	}
	return err
}
