package coordinator

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/rota-dev/rota/coordinator/internal/batch"
	"github.com/rota-dev/rota/registry"
)

// ErrNotOwner means that the call of Config.Own has returned, or the function of a run, or
// that the session has ended under which the shard was owned. Nothing was written.
var ErrNotOwner = errors.New("not the owner any more")

// Writes is what a process writes as the owner of a shard. Each write carries the condition
// that the session lives, which keeps out what arrives after a crash; and a shard is given
// up only after Close, which keeps out what arrives after a move.
type Writes struct {
	session context.Context // ends with the session, or with all that this process does under it
	id      registry.SessionID
	reg     registry.Registry

	mu   sync.Mutex
	over bool
	sent sync.WaitGroup // writes whose outcome is not known
}

// NewWrites returns Writes under a session. ctx ends with the session: for a Run, it is what
// Work.Start was given.
func NewWrites(ctx context.Context, reg registry.Registry, id registry.SessionID) *Writes {
	return &Writes{session: ctx, id: id, reg: reg}
}

// Commit applies ops in one transaction. After Close, or when the session has ended, it
// fails with ErrNotOwner. If ctx ends first, the error wraps registry.ErrUnknownOutcome, and
// Close waits until the outcome is known or the session is over. A registry.ConflictError
// counts items in ops.
func (w *Writes) Commit(ctx context.Context, ops ...registry.Op) (registry.Rev, error) {
	return w.commitThen(ctx, ops, func(registry.Rev, error) {})
}

// Close lets nothing be sent any more, and waits until nothing is on its way. It may be
// called again.
func (w *Writes) Close() {
	w.mu.Lock()
	w.over = true
	w.mu.Unlock()
	w.sent.Wait()
}

// begin asks to send a write, whose end is to be told to sent.
func (w *Writes) beginWrite() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over || w.session.Err() != nil {
		return false
	}
	w.sent.Add(1)
	return true
}

// commit is Commit. settled is called once, when the outcome is known or will not be; that
// may be after commit has returned.
func (w *Writes) commitThen(ctx context.Context, ops []registry.Op, settled func(registry.Rev, error)) (registry.Rev, error) {
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

// explain makes of the error of a write what its caller is told.
func (w *Writes) explainWriteError(err error) error {
	refusal, refused := batch.FindConflict(err)
	switch {
	case err == nil, errors.Is(err, registry.ErrUnknownOutcome):
		return err
	case refused && refusal.Index == 0, w.session.Err() != nil:
		return fmt.Errorf("%w: %w", ErrNotOwner, err)
	case refused: // as the caller counts: of its own operations
		return &registry.ConflictError{Index: refusal.Index - 1, Item: refusal.Item}
	}
	return err
}
