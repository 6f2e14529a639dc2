package registry

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// Apply commits t as Registry.Txn does, but stays with it until its outcome is known: it
// sends the same transaction again, with pauses of up to half a second, while the answer
// is ErrUnknownOutcome, ErrNotApplied or ErrUnavailable. It draws t.ID if that is zero. An
// ID that is given must be of this transaction alone, and t is not to be changed meanwhile.
//
// The first answer that is definite is returned as it is, at the cost of one Txn, unless
// an outcome before it was unknown. In that case a refusal, such as a conflict, may be the
// work of t itself, and Apply makes Fresh reads of the keys that t writes:
//
//   - One was written by t: t was applied, at the Rev that is returned.
//   - One shows that t has not been applied: a key of a Set not written, or a key of a
//     Delete not deleted, or a key of a Create there all along, since the latest Rev
//     that t names. The refusal is returned.
//   - All are gone and t only deletes: t counts as applied. The Rev is zero, as nothing
//     is left that could tell it, or whose hand it was.
//   - Anything else: t may have been applied, and what it wrote been overwritten or
//     deleted since. The error wraps ErrUnknownOutcome and the refusal.
//
// When ctx ends, the error wraps its cause, and ErrUnknownOutcome if a request was sent
// that may have been or may yet be applied, else ErrNotApplied. An error that wraps
// ErrUnknownOutcome says no more than that, whatever else it wraps.
//
// A transaction with a Set or a Delete is applied once or not at all, however often it was
// sent. One that only creates can be applied again after another has deleted what it made.
//
// When Apply returns, a request that the network has held up may still arrive. It does
// nothing if t was applied with a Set or a Delete, or was refused for an item that can
// never hold again: a Set, a Delete, an At, an Alive. A Create, an Absent or a Dead that was
// refused may hold by then. So add Alive of the own session to what creates: once that
// session has ended, nothing can land.
func Apply(ctx context.Context, reg Registry, t Txn) (Rev, error) {
	t.ID = t.ID.OrNew()
	var (
		pause   backoff
		unknown bool // an earlier request may have been applied, or may yet be
	)
	for {
		rev, err := reg.Txn(ctx, t)
		if err == nil {
			return rev, nil
		}
		unknown = unknown || mayBeApplied(t, err)
		if !transient(err) {
			if !unknown {
				return Rev{}, err
			}
			var settled bool
			if rev, settled, err = settle(ctx, reg, t, err); settled {
				return rev, err
			}
		}
		if cause := pause.wait(ctx); cause != nil {
			outcome := ErrNotApplied
			if unknown {
				outcome = ErrUnknownOutcome
			}
			// The last answer is about one request, not about t: it must not be matched.
			return Rev{}, fmt.Errorf("apply %s: %w: %w (last answer: %v)", t.ID, outcome, cause, err)
		}
	}
}

// mayBeApplied reports whether the request that was answered by err may have changed
// something, or may yet.
func mayBeApplied(t Txn, err error) bool {
	return len(t.Then) > 0 && Retryable(err) && !errors.Is(err, ErrNotApplied)
}

// transient reports whether the call that returned err is worth making again.
func transient(err error) bool {
	return Retryable(err) && !final(err)
}

// final reports whether err stays what it is, however often the call is made again.
func final(err error) bool {
	return slices.ContainsFunc(finalErrors, func(end error) bool { return errors.Is(err, end) })
}

var finalErrors = []error{
	ErrConflict, ErrSessionLost, ErrClosed, ErrPermission, ErrUnauthenticated, ErrQuota,
	ErrInvalidKey, ErrInvalidTxn, ErrTooLarge,
}

// settle finds out whether t, which was refused, had been applied by an earlier request.
// It returns t's Rev, or the refusal if t was not applied, or an error that wraps
// ErrUnknownOutcome and the refusal if that will never be told. It has settled nothing
// when the store cannot be read now; the error says why.
func settle(ctx context.Context, reg Registry, t Txn, refusal error) (rev Rev, settled bool, err error) {
	base := latestRev(t)
	applied := true // as long as all there is are deletes of keys that are gone
	for i := range t.Then {
		o := &t.Then[i]
		e, err := reg.Get(ctx, o.Key, ReadOptions{Fresh: true})
		switch {
		case errors.Is(err, ErrNotFound):
			applied = applied && o.Kind == OpDelete
		case transient(err):
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

// latestRev returns the latest commit that t names: t can only be applied after it.
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

// untouched reports whether e, which stands at the key of o, was there before any commit
// after base could have done o.
func untouched(o *Op, e Entry, base uint64) bool {
	if o.Kind == OpSet {
		return e.Modified.Seq <= base
	}
	return e.Created.Seq <= base // it was not deleted since, nor was there room to create it
}
