package elector

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// While its session lives, an incarnation has two records of its own: its instance key and its member
// record. One commit creates both. The instance key vanishes with the session; the member record
// stays until a leader reaps the incarnation. If one is missing or unreadable while the session
// lives, another writer edited it, and the incarnation is incomplete. Planning then treats it as
// expired, but the store refuses to fail it over. So the leader names it in the seat record, which
// all members watch, and the incarnation gives its session up and joins again. At rest that costs
// neither a read nor a write.

// MissingGrace is how long a record may be missing from a leader's view before the leader reads it
// from the store. Member records and instance keys arrive by different watches.
const MissingGrace = 2 * time.Second

// SetIncomplete sets the incarnations that the next PublishSeat names as incomplete.
func (e *Elector) SetIncomplete(incarnations []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.incomplete = incarnations
}

// HasPublishedIncomplete reports whether the seat record names all incomplete incarnations.
func (e *Elector) HasPublishedIncomplete() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Equal(e.incomplete, e.State.Incomplete)
}

// errDeposed means that another writer changed the leader record.
var errDeposed = fmt.Errorf("the leader record names another incarnation while this one holds the seat: %w", record.ErrEdited)

// checkDeposed finds out whether another writer made the leader record name another incarnation while
// this one holds the seat: no instance would lead. A resignation frees the seat by the same commit,
// so after one this state lasts only until the watch has delivered both changes. checkDeposed
// returns errDeposed if it lasts longer, and otherwise a channel that delivers when to check again.
func (e *Elector) checkDeposed(ctx context.Context) (again <-chan time.Time, err error) {
	e.mu.Lock()
	mine, named := e.State.Seat == e.Self.Session.ID(), e.State.Leader.Session
	if !mine || named == "" || named == e.Self.Session.ID() {
		e.deposedSince = time.Time{}
		e.mu.Unlock()
		return nil, nil
	}
	if e.deposedSince.IsZero() {
		e.deposedSince = time.Now()
	}
	left := MissingGrace - time.Since(e.deposedSince)
	e.mu.Unlock()
	if left > 0 {
		return time.After(left), nil
	}
	entry, err := e.Self.Reg.Get(ctx, e.Self.Keys.Seat(), Fresh)
	if err == nil && entry.Owner == e.Self.Session.ID() {
		return nil, errDeposed
	}
	return time.After(MissingGrace), nil
}

// errIncomplete means that the seat record names this incarnation as incomplete.
var errIncomplete = fmt.Errorf("a record of this instance is missing or unreadable: %w", record.ErrEdited)

// checkNamedIncomplete returns errIncomplete if the leader named this incarnation as incomplete.
func (e *Elector) checkNamedIncomplete() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if slices.Contains(e.State.Incomplete, e.Self.ID) {
		return errIncomplete
	}
	return nil
}

// foreignConflicts is the number of conflicts on one vacancy after which a candidate reads the election
// keys, to find foreign values.
const foreignConflicts = 10

// logForeignValues logs each election key that holds a foreign value. Until it is deleted, no instance
// can lead.
func (e *Elector) logForeignValues(ctx context.Context) {
	for _, key := range []registry.Key{e.Self.Keys.Leader(), e.Self.Keys.Seat()} {
		if _, err := e.Self.Reg.Get(ctx, key, Fresh); errors.Is(err, registry.ErrForeign) {
			e.Log.Error("no instance can lead: another program wrote an election key; delete the key", "key", string(key), "error", err)
		}
	}
}
