package ownership

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/rota-dev/rota/internal/group/batch"
	"github.com/rota-dev/rota/internal/mutex"
	"github.com/rota-dev/rota/registry"
)

// ErrNotOwner is coordinator.ErrNotOwner.
var ErrNotOwner = errors.New("not the owner any more")

// writes commits transactions for the owner of a shard. Each has the condition that the
// session is alive, which refuses transactions that arrive after the session has expired. The
// shard is released after Close, so none arrives after a move.
type writes struct {
	session context.Context // ends with the session, or with all work of this process under it
	id      registry.SessionID
	reg     registry.Registry

	mu   mutex.Mutex
	over bool
	sent sync.WaitGroup // transactions whose outcome is not known
}

// newWrites returns Writes for the session id. Ctx must end with the session; for a Run, it
// is the context that Work.Start received.
func newWrites(ctx context.Context, reg registry.Registry, id registry.SessionID) *writes {
	return &writes{session: ctx, id: id, reg: reg}
}

// Commit applies ops in one transaction. After Close, or after the session has ended, it fails
// with ErrNotOwner. If ctx ends during the call, the error wraps registry.ErrUnknownOutcome,
// and Close waits until the outcome is known or the session has ended. The Index of a
// *registry.ConflictError counts within ops.
func (w *writes) Commit(ctx context.Context, ops ...registry.Op) (registry.Rev, error) {
	return w.commitThen(ctx, ops, func(registry.Rev, error) {})
}

// Close makes further commits fail, and waits for those in flight. It may be called again.
func (w *writes) Close() {
	w.mu.Lock()
	w.over = true
	w.mu.Unlock()
	w.sent.Wait()
}

// beginWrite reports whether a transaction may be sent. If so, the caller must call sent.Done
// when its outcome is known.
func (w *writes) beginWrite() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over || w.session.Err() != nil {
		return false
	}
	w.sent.Add(1)
	return true
}

// commitThen is Commit with a callback: settled is called once, when the outcome is known or
// can no longer become known. That may be after commitThen has returned.
func (w *writes) commitThen(ctx context.Context, ops []registry.Op, settled func(registry.Rev, error)) (registry.Rev, error) {
	var err error
	if !w.beginWrite() {
		err = ErrNotOwner
	} else if ctx.Err() != nil {
		w.sent.Done()
		err = fmt.Errorf("%w: %w", registry.ErrNotApplied, context.Cause(ctx))
	}
	if err != nil {
		settled(registry.Rev{}, err)
		return registry.Rev{}, err
	}
	type outcome struct {
		rev registry.Rev
		err error
	}
	known := make(chan outcome, 1)
	go func() { // Close waits for it
		defer w.sent.Done()
		rev, err := registry.Apply(w.session, w.reg, registry.Txn{If: []registry.Cond{registry.Alive(w.id)}, Then: ops})
		settled(rev, err)
		known <- outcome{rev, err}
	}()
	select {
	case o := <-known:
		return o.rev, w.explainWriteError(o.err)
	case <-ctx.Done():
		return registry.Rev{}, fmt.Errorf("%w: %w", registry.ErrUnknownOutcome, context.Cause(ctx))
	}
}

// explainWriteError translates the error of a transaction for the caller of Commit.
func (w *writes) explainWriteError(err error) error {
	refusal, refused := batch.FindConflict(err)
	switch {
	case err == nil, errors.Is(err, registry.ErrUnknownOutcome):
		return err
	case refused && refusal.Index == 0, w.session.Err() != nil:
		return fmt.Errorf("%w: %w", ErrNotOwner, err)
	case refused: // the caller counts its own operations only
		return &registry.ConflictError{Index: refusal.Index - 1, Item: refusal.Item}
	}
	return err
}
