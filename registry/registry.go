package registry

import (
	"context"
	"time"
)

// Registry is a handle on a store. Handles of one process that share a store are
// independent: each has its own connection, and only a session ties calls together.
//
// All methods may be called from many goroutines. Each call ends when ctx ends or
// when the backend's own bound on a call is reached, whichever is first; no call
// waits for ever on a silent server. If ctx ends first, the error wraps the cause of ctx; it
// also wraps ErrUnavailable or, of a Txn, ErrNotApplied or ErrUnknownOutcome, unless that cause
// is an error of this package. Keys are checked before anything is sent.
//
// The promises hold while the store keeps what it has committed. If it is wiped, replaced or set back
// to an earlier state, a handle continues with the state that it finds: Revs may be lower than before,
// reads go back once, and watchers receive a Snapshot. A session survives only if the store still
// has it.
type Registry interface {
	// Get returns the entry at key, or ErrNotFound. The value is the caller's.
	//
	// A plain read never goes back in time on one handle, whichever keys it reads, and sees
	// the handle's own writes; it may miss recent writes of others. A Fresh read sees every write that
	// completed, on any handle, before Get was called.
	Get(ctx context.Context, key Key, o ReadOptions) (Entry, error)

	// List returns the immediate children of dir that hold a value, in bytewise order.
	// A directory that is empty or never existed has no children; that is not an error.
	// The root is the empty Key.
	//
	// Each entry is a state that was committed. Listing.Atomic reports whether all of
	// them existed at one commit; a decision that needs them together repeats its reads as
	// conditions of a Txn.
	List(ctx context.Context, dir Key, o ReadOptions) (Listing, error)

	// Txn commits all of t.Then if all of t.If and the conditions that the operations
	// imply hold, at one Rev, or changes nothing. A Txn without operations only checks
	// its conditions; the Rev that it returns names no commit of its own.
	//
	// It is sent at most once. The error classifies the outcome:
	//
	//   - *ConflictError (ErrConflict): nothing was changed; Index names the first item
	//     that did not hold.
	//   - ErrSessionLost: nothing was changed; a CreateOwned names a session that ended. If
	//     an item does not hold either, one of the two errors is returned, whichever it is.
	//   - ErrNotApplied, ErrTooLarge, ErrInvalidKey, ErrInvalidTxn: nothing was changed.
	//   - ErrUnknownOutcome: the reply was lost, or ctx ended after sending. It may have
	//     been applied, may be applied later, or never. Apply settles this.
	Txn(ctx context.Context, t Txn) (Rev, error)

	// Watch follows the immediate children of dir. The first batch is a Snapshot of
	// what exists; Deltas follow, and a later Snapshot replaces everything seen so far.
	// dir need not exist.
	//
	// Changes to one key may be merged: a reader sees the latest state, possibly not
	// every state before it, and never an older one after a newer. The last state is
	// never skipped, and a slow reader delays no writer. A dropped connection does not end
	// the watcher: it pauses, then catches up, with a Snapshot if it missed changes. It
	// ends with ctx or Close. Batches are the reader's to keep.
	//
	// A client may receive its own change from a watcher before or after the reply to the
	// Txn that made it.
	Watch(ctx context.Context, dir Key, o WatchOptions) (Watcher, error)

	// OpenSession begins a session, whose owned keys and guards live until it ends. Its
	// granted TTL may be longer than the one asked for, never shorter. A session outlives
	// ctx: it ends by its Close, or when the store has received no renewal for its TTL.
	OpenSession(ctx context.Context, o SessionOptions) (Session, error)

	// Limits returns the sizes that this backend accepts; none is below PortableLimits.
	Limits() Limits

	// Close ends the handle: pending calls and watchers return ErrClosed, its sessions
	// are closed as by Session.Close, and all its goroutines have returned when Close does.
	// The error of a pending Txn also wraps ErrNotApplied or ErrUnknownOutcome.
	// If ctx ends first, sessions that could not be closed at the store are left to expire, and
	// Close returns an error.
	// Closing twice is legal.
	Close(ctx context.Context) error
}

// Rev names a commit.
type Rev struct {
	// Seq is the place of the commit in the order of all commits to the store. It is
	// comparable across keys and handles, grows, may have gaps, and is the number to
	// fence with. It is at least 1 and below 1<<63.
	Seq uint64
	// Aux is opaque to all but the backend. Two Revs name the same commit of a key when
	// both fields are equal.
	Aux uint64
}

// IsZero reports whether r names no commit.
func (r Rev) IsZero() bool { return r == Rev{} }

// SessionID names a session. It is never used again. Its text is a key segment without
// dots, so that a name and an id joined by a dot can be split again.
type SessionID string

// Entry is a key with its value, as of Modified.
type Entry struct {
	Key      Key
	Value    []byte
	Created  Rev       // when the key was created; differs after a delete and a create
	Modified Rev       // when Value was written
	Owner    SessionID // the session an owned key lives with; empty for others
	Txn      TxnID     // the transaction that wrote Value
}

// Listing is the answer to List.
type Listing struct {
	Entries []Entry // sorted by Key
	Rev     Rev     // no entry is newer
	Atomic  bool    // all entries existed together at Rev
}

// ReadOptions are options of Get and List. The zero value is a plain read.
type ReadOptions struct {
	// Fresh asks for a linearizable read.
	Fresh bool
	// Buffer, if its capacity suffices for the value, receives it, and Entry.Value is a slice
	// of it: a Get that allocates nothing. List ignores it.
	Buffer []byte
}

// WatchOptions are options of Watch. There are none so far.
type WatchOptions struct{}

// Watcher delivers the changes of one directory.
type Watcher interface {
	// Next waits for the next batch. It returns an error when ctx ends (the watcher
	// lives on), when the watcher or the registry is closed (ErrClosed), when the context
	// given to Watch has ended (ErrClosed and the cause), or when the backend refuses to go on
	// (ErrPermission).
	// It is to be called by one goroutine at a time.
	Next(ctx context.Context) (Batch, error)
	// Close ends the watcher and wakes Next. Closing twice is legal.
	Close() error
}

// BatchKind is the relation of a Batch to the batches before it.
type BatchKind int

const (
	// Snapshot batches hold the whole directory: a key that is absent does not exist.
	Snapshot BatchKind = iota + 1
	// Delta batches hold changes to the state delivered before.
	Delta
)

func (k BatchKind) String() string {
	switch k {
	case Snapshot:
		return "snapshot"
	case Delta:
		return "delta"
	}
	return "unknown"
}

// Batch is a set of changes, at most one per key.
type Batch struct {
	Kind    BatchKind
	Rev     Rev     // no put or delete in it is newer; a plain read on the same handle is at least as new
	Puts    []Entry // created or written, sorted by Key
	Deletes []Key   // deleted, sorted, possibly without a Put before; none in a Snapshot
}

// SessionOptions are options of OpenSession.
type SessionOptions struct {
	// TTL is how long the store waits for a renewal before it ends the session.
	// Zero means DefaultSessionTTL.
	TTL time.Duration
}

// DefaultSessionTTL is the TTL asked for when SessionOptions name none.
const DefaultSessionTTL = 10 * time.Second

// SessionState is the state of a session as its own process knows it.
type SessionState int

const (
	// SessionConnected: renewals are answered.
	SessionConnected SessionState = iota + 1
	// SessionSuspended: two renewals went unanswered, or the connection is gone. The
	// session may become Connected again; until then, begin no work that needs it.
	SessionSuspended
	// SessionLost: the session has ended, by its own clock or as the store reported. Final.
	SessionLost
	// SessionClosed: the session was closed by its owner. Final.
	SessionClosed
)

func (s SessionState) String() string {
	switch s {
	case SessionConnected:
		return "connected"
	case SessionSuspended:
		return "suspended"
	case SessionLost:
		return "lost"
	case SessionClosed:
		return "closed"
	}
	return "unknown"
}

// Session is a lease on the store, renewed by the backend. It stays alive while the store
// answers each renewal within half of the TTL.
//
// A Session becomes Lost on its own clock, at its safe-until, before the store can grant
// anything that it owned to another client, provided that clocks run at nearly the same
// rate. Requests that were sent earlier are not stopped: only a condition (Alive, At)
// stops them.
type Session interface {
	ID() SessionID
	// TTL returns the granted TTL.
	TTL() time.Duration
	// State returns the state and the safe-until, an instant that renewals extend: before
	// it the store cannot have ended the session. It is counted from when the last
	// confirmed renewal was sent.
	State() (SessionState, time.Time)
	// Changed returns a channel that is closed at the next change of state. Call it
	// before State to miss none.
	Changed() <-chan struct{}
	// Lost is closed once the session is Lost or Closed.
	Lost() <-chan struct{}
	// Err returns nil while the session lives, then the reason of its end, which wraps
	// ErrSessionLost, or is ErrClosed if Close ended it.
	Err() error
	// Close ends the session. When it returns nil, its owned keys are deleted. Otherwise the
	// store was not reached and deletes them when the TTL has run out. Closing twice is
	// legal. A session that is Lost by its own clock is ended at the store too.
	Close(ctx context.Context) error
}
