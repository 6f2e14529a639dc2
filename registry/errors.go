package registry

import (
	"errors"
	"fmt"
	"slices"
)

// The errors of a registry, to be matched with errors.Is. Each error of a backend wraps
// one of them and keeps the cause.
var (
	// ErrNotFound: there is no such key.
	ErrNotFound = errors.New("not found")
	// ErrConflict: a condition did not hold; nothing was changed. See ConflictError.
	ErrConflict = errors.New("conflict")
	// ErrNotApplied: the transaction was not sent or was refused; nothing was changed.
	ErrNotApplied = errors.New("not applied")
	// ErrUnknownOutcome: the transaction may have been applied, may yet be, or never.
	ErrUnknownOutcome = errors.New("unknown outcome")
	// ErrUnavailable: the store cannot serve this read, watch or session call now.
	ErrUnavailable = errors.New("registry unavailable")
	// ErrSessionLost: the session has ended.
	ErrSessionLost = errors.New("session lost")
	// ErrInvalidKey: the key breaks a rule of Key. Nothing was sent.
	ErrInvalidKey = errors.New("invalid key")
	// ErrInvalidTxn: the transaction is malformed. Nothing was sent.
	ErrInvalidTxn = errors.New("invalid transaction")
	// ErrTooLarge: a value or transaction is over the Limits. Nothing was sent.
	ErrTooLarge = errors.New("too large")
	// ErrPermission: the credentials do not allow this.
	ErrPermission = errors.New("permission denied")
	// ErrUnauthenticated: the credentials were refused.
	ErrUnauthenticated = errors.New("unauthenticated")
	// ErrQuota: the store is full. Nothing was changed; retrying at once will not help. A
	// transaction that only deletes, on conditions At and Alive, needs no room.
	ErrQuota = errors.New("registry full")
	// ErrForeign: the value at the key was not written by this library, or is damaged.
	// Lists and watches leave such a key out.
	ErrForeign = errors.New("foreign value")
	// ErrReadOnly: the handle was opened for reading only. Nothing was sent.
	ErrReadOnly = errors.New("opened for reading only")
	// ErrClosed: the registry, watcher or session was closed by its owner.
	ErrClosed = errors.New("closed")
)

// ConflictError is an ErrConflict with the item that did not hold.
type ConflictError struct {
	Index int    // counts t.If first, then t.Then; the lowest that did not hold
	Item  string // the item in words
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("conflict: item %d does not hold: %s", e.Index, e.Item)
}

// Is makes errors.Is(err, ErrConflict) true.
func (e *ConflictError) Is(target error) bool { return target == ErrConflict }

// Conflict returns the ConflictError for item index of t.
func Conflict(t Txn, index int) error {
	if index < len(t.If) {
		return &ConflictError{Index: index, Item: t.If[index].String()}
	}
	return &ConflictError{Index: index, Item: t.Then[index-len(t.If)].String()}
}

// Retryable reports whether the same call may succeed if it is made again a little later. An error that also wraps one that lasts, as
// ErrClosed does, is not retryable. An ErrUnknownOutcome is for Apply to retry: only the same Txn may be sent again.
func Retryable(err error) bool { return isAny(err, passingErrors) && !isAny(err, finalErrors) }

var (
	// passingErrors are the errors of calls that the store has not answered, or not now.
	passingErrors = []error{ErrUnavailable, ErrNotApplied, ErrUnknownOutcome}

	// finalErrors are those that every retry of a call would return too.
	finalErrors = []error{
		ErrConflict, ErrSessionLost, ErrClosed, ErrPermission, ErrUnauthenticated, ErrQuota,
		ErrInvalidKey, ErrInvalidTxn, ErrTooLarge,
	}
)

// isAny reports whether err wraps one of some errors.
func isAny(err error, of []error) bool {
	return slices.ContainsFunc(of, func(one error) bool { return errors.Is(err, one) })
}
