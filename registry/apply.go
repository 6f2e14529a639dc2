package registry

import (
	"context"
	"errors"
	"fmt"

	"github.com/rota-dev/rota/internal/backoff"
)

// Apply commits t as Registry.Txn does, but retries until the outcome is known: while the
// answer is ErrUnknownOutcome, ErrNotApplied or ErrUnavailable, it sends the same
// transaction again, with pauses of up to half a second. It draws t.ID if that is zero. A
// given ID must belong to this transaction alone. The caller must not change t meanwhile.
//
// The first definite answer is returned unchanged, at the cost of one Txn, unless an
// earlier outcome was unknown. In that case t itself may have caused a refusal, such as a
// conflict, and Apply makes Fresh reads of the keys that t writes:
//
//   - A key was written by t: t was applied, and its Rev is returned.
//   - A key shows that t was not applied, since the latest Rev that t names: the key of a
//     Set was not written, that of a Delete was not deleted, or that of a Create existed
//     throughout. The refusal is returned.
//   - No key exists and t only deletes: t counts as applied. The Rev is zero, because no
//     record of the commit, or of its author, is left.
//   - Otherwise t may have been applied, and its values overwritten or deleted since. The
//     error wraps ErrUnknownOutcome and the refusal.
//
// When ctx ends, the error wraps its cause, and ErrUnknownOutcome if a request was sent
// that may have been or may yet be applied, else ErrNotApplied. If an error wraps
// ErrUnknownOutcome, the outcome is unknown, whatever else it wraps.
//
// A transaction with a Set or a Delete is applied at most once, however often it is sent.
// One that only creates can be applied again after another client deletes its keys.
//
// When Apply returns, a request that the network delayed may still arrive. It has no
// effect if t was applied with a Set or a Delete, or was refused for an item that can
// never hold again: a Set, a Delete, an At, an Alive. A refused Create, Absent or Dead may
// hold by then. So give a transaction that creates keys the condition Alive of its own
// session: once that session has ended, no delayed request can be applied.
func Apply(ctx context.Context, reg Registry, t Txn) (Rev, error) {
	t.ID = t.ID.OrNew()
	var (
		pause   backoff.Backoff
		unknown bool // a request may have been applied, or may yet be
	)
	for {
		rev, err := reg.Txn(ctx, t)
		if err == nil {
			return rev, nil
		}
		unknown = unknown || mayBeApplied(t, err)
		if !Retryable(err) {
			if !unknown {
				return Rev{}, err
			}
			var settled bool
			if rev, settled, err = settle(ctx, reg, t, err); settled {
				return rev, err
			}
		}
		if cause := pause.Wait(ctx); cause != nil {
			outcome := ErrNotApplied
			if unknown {
				outcome = ErrUnknownOutcome
			}
			// The last answer is about one request, not about t: errors.Is must not match it.
			return Rev{}, fmt.Errorf("apply %s: %w: %w (last answer: %v)", t.ID, outcome, cause, err)
		}
	}
}

// mayBeApplied reports whether the request that was answered by err may have been applied,
// or may yet be.
func mayBeApplied(t Txn, err error) bool {
	return len(t.Then) > 0 && isAny(err, passingErrors) && !errors.Is(err, ErrNotApplied)
}

// settle determines whether t, which was refused, had been applied by an earlier request.
// It returns t's Rev, or the refusal if t was not applied, or an error that wraps
// ErrUnknownOutcome and the refusal if the outcome can no longer be determined. If the
// store cannot be read now, it returns the error of the read, and false for settled.
func settle(ctx context.Context, reg Registry, t Txn, refusal error) (rev Rev, settled bool, err error) {
	base := latestRev(t)
	applied := true // while t only deletes, and its keys do not exist
	for i := range t.Then {
		o := &t.Then[i]
		e, err := reg.Get(ctx, o.Key, ReadOptions{Fresh: true})
		switch {
		case errors.Is(err, ErrNotFound):
			applied = applied && o.Kind == OpDelete
		case Retryable(err):
			return Rev{}, false, err
		case err != nil:
			return Rev{}, true, fmt.Errorf("apply %s: %w: %w (settle it: %w)", t.ID, ErrUnknownOutcome, refusal, err)
		case e.Txn == t.ID:
			return e.Modified, true, nil
		case untouched(o, e, base):
			return Rev{}, true, refusal
		default:
			applied = false
		}
	}
	if applied {
		return Rev{}, true, nil
	}
	return Rev{}, true, fmt.Errorf("apply %s: %w: %w", t.ID, ErrUnknownOutcome, refusal)
}

// latestRev returns the Seq of the latest commit that t names: t can only be applied after it.
func latestRev(t Txn) uint64 {
	var seq uint64
	for i := range t.If {
		seq = max(seq, t.If[i].Rev.Seq)
	}
	for i := range t.Then {
		seq = max(seq, t.Then[i].Rev.Seq)
	}
	return seq
}

// untouched reports whether e, the entry at the key of o, shows that no commit after base
// has applied o.
func untouched(o *Op, e Entry, base uint64) bool {
	if o.Kind == OpSet {
		return e.Modified.Seq <= base
	}
	return e.Created.Seq <= base // the key has existed since: neither deleted nor created
}
