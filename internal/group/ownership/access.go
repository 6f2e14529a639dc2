// Package ownership is the access of the owner of a shard to the registry while it owns the shard. No write of it arrives after a move.
package ownership

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/rota-dev/rota/internal/group/batch"
	"github.com/rota-dev/rota/registry"
)

// Access is the access of the owner of a shard, while its call of Own or its run lasts: coordinator.Owned and executor.Run are built
// on it.
type Access struct {
	*writes
	reg registry.Registry
	key registry.Key // of the state

	turn      chan struct{} // one slot, filled while the state is read or saved; it guards:
	stateRead bool          // the state has been read
	rev       registry.Rev  // of the state; zero if there was none
}

// NewAccess returns the Access under the session id. Ctx must end with the session; for a claimer.Run, it
// is the context that Work.Start received. The state of the shard is the value of key.
func NewAccess(ctx context.Context, reg registry.Registry, id registry.SessionID, key registry.Key) *Access {
	return &Access{writes: newWrites(ctx, reg, id), reg: reg, key: key, turn: make(chan struct{}, 1)}
}

// State is described in coordinator.Owned.State.
func (t *Access) State(ctx context.Context) ([]byte, error) {
	if err := t.acquireTurn(ctx); err != nil {
		return nil, err
	}
	defer t.releaseTurn()
	return t.readState(ctx)
}

// acquireTurn waits until no other goroutine reads or saves the state.
func (t *Access) acquireTurn(ctx context.Context) error {
	select {
	case t.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", registry.ErrNotApplied, context.Cause(ctx))
	}
}

func (t *Access) releaseTurn() { <-t.turn }

// readState reads the state. The caller has acquired the turn.
func (t *Access) readState(ctx context.Context) ([]byte, error) {
	e, err := t.reg.Get(ctx, t.key, registry.ReadOptions{Fresh: true})
	if err != nil && !errors.Is(err, registry.ErrNotFound) {
		return nil, err
	}
	t.stateRead, t.rev = true, e.Modified
	return e.Value, nil
}

// Save is described in coordinator.Owned.Save.
func (t *Access) Save(ctx context.Context, state []byte, ops ...registry.Op) error {
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
