package registry

import (
	"context"
	"errors"
)

// Completer is implemented by a Registry whose store is also a database of its users: they can record the end of a run in the
// transaction in which the run writes. So the work of a run takes effect with its end or not at all, also across a crash. See
// postgres.CompleteTx.
type Completer interface {
	// CompleteRun records end in tx, which the caller commits or rolls back. The type of tx is one of the backend. It takes no
	// lock that another shard waits for. It makes tx fail with
	//
	//   - ErrFenced, if FenceRun or CompleteRun has been called for the shard with a greater fence;
	//   - ErrRunEnded, if the end of the work is on record;
	//   - another error, if tx has a wrong type or belongs to another store.
	CompleteRun(ctx context.Context, tx any, end RunEnd) error

	// FenceRun makes CompleteRun fail from now on for all smaller fences of the shard, and then reports whether the end of the
	// work is on record. It does not wait for an open transaction in which CompleteRun was called for the shard: while
	// there is one, the error is ErrTxOpen. It ignores end.Checkpoint.
	FenceRun(ctx context.Context, end RunEnd) (Completion, error)
}

// RunEnd is the end of a run.
type RunEnd struct {
	Shard      string // the name of the shard; its runs exclude each other
	Work       string // the name of the work, equal for all runs that do it
	Fence      uint64 // greater than that of each earlier run of the shard, below 1<<63
	Checkpoint []byte // of the shard; nil leaves it as it is
}

// Completion is the answer of Completer.FenceRun.
type Completion struct {
	Ended      bool   // the end of the work is on record
	Checkpoint []byte // that of the end; nil if it had none, or if other work of the shard has ended since
}

// The errors of a Completer.
var (
	// ErrFenced: a later run of the shard has begun, or has ended.
	ErrFenced = errors.New("fenced: a later run of the shard has begun")
	// ErrRunEnded: an earlier run has done the work, and its transaction is committed.
	ErrRunEnded = errors.New("the work has been done in a transaction of an earlier run")
	// ErrTxOpen: a transaction that ends a run of the shard is open.
	ErrTxOpen = errors.New("a transaction that ends a run of the shard is open")
	// ErrNoCompleter: the registry is no Completer.
	ErrNoCompleter = errors.New("the registry cannot end a run in a transaction of its user")
)

// CompleteRun calls reg.CompleteRun, or returns ErrNoCompleter if reg is no Completer.
func CompleteRun(ctx context.Context, reg Registry, tx any, end RunEnd) error {
	if c, ok := reg.(Completer); ok {
		return c.CompleteRun(ctx, tx, end)
	}
	return ErrNoCompleter
}

// FenceRun calls reg.FenceRun, or returns ErrNoCompleter if reg is no Completer.
func FenceRun(ctx context.Context, reg Registry, end RunEnd) (Completion, error) {
	if c, ok := reg.(Completer); ok {
		return c.FenceRun(ctx, end)
	}
	return Completion{}, ErrNoCompleter
}

var _ Completer = (*prefixed)(nil)

// CompleteRun is described in Completer. It returns ErrNoCompleter if the registry below is none.
func (p *prefixed) CompleteRun(ctx context.Context, tx any, end RunEnd) error {
	_, err := callThrough(ctx, p, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, CompleteRun(ctx, p.reg, tx, p.addPrefixToEnd(end))
	})
	return err
}

// FenceRun is described in Completer. It returns ErrNoCompleter if the registry below is none.
func (p *prefixed) FenceRun(ctx context.Context, end RunEnd) (Completion, error) {
	return callThrough(ctx, p, func(ctx context.Context) (Completion, error) { return FenceRun(ctx, p.reg, p.addPrefixToEnd(end)) })
}

// addPrefixToEnd returns end with the names that it has in reg: fleets below different prefixes may have the same namespace.
func (p *prefixed) addPrefixToEnd(end RunEnd) RunEnd {
	if p.dir != "" {
		end.Shard, end.Work = string(p.dir)+"/"+end.Shard, string(p.dir)+"/"+end.Work
	}
	return end
}
