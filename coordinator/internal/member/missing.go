package member

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rota-dev/rota/coordinator/internal/batch"
	"github.com/rota-dev/rota/coordinator/internal/feed"
	"github.com/rota-dev/rota/coordinator/internal/planning"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// An incarnation has two records of its own while its session lives: the owned key of its
// instance and its member record. Both are created by one commit. The owned key goes with the
// session, the member record only when a leader buries the incarnation. If one is missing while the session lives, another
// hand deleted or spoiled it. Planning then takes the incarnation for dead, and the store
// refuses to fail it over. So the leader names it in the record that all members watch, and it
// gives its session up and joins again (R2). At rest that costs neither a read nor a write.

// MissingGrace is how long records may be missing from a leader's view before the leader asks
// the store: the records of members and of instances arrive by different watches.
const MissingGrace = 2 * time.Second

// maxSuspectWait bounds the time between two questions about the same incarnation.
const maxSuspectWait = time.Minute

// suspect is an incarnation that a leader's view lacks a record of.
type suspect struct {
	due     time.Time     // when to ask the store
	wait    time.Duration // until the question after that
	named   bool          // its session lived and a record was missing when the store was asked last
	expired bool          // its session has ended
}

// incompleteTracker is a leader's knowledge of incarnations that lack records.
type incompleteTracker struct {
	seen     map[string]bool // incarnations that were seen during the term, by any record that names them
	suspects map[string]*suspect

	unreadable map[string]registry.Rev // member records that cannot be read, by incarnation
}

// addIncarnation records that an incarnation exists.
func (s *incompleteTracker) addIncarnation(incarnation string) {
	if s.seen == nil {
		s.seen, s.suspects, s.unreadable = map[string]bool{}, map[string]*suspect{}, map[string]registry.Rev{}
	}
	s.seen[incarnation] = true
}

// observeMember records that a member record exists, went, or cannot be read.
func (s *incompleteTracker) observeMember(n feed.Update[record.Member]) {
	if !n.Deleted { // one that this leader buried stays forgotten
		s.addIncarnation(n.Name)
	}
	if delete(s.unreadable, n.Name); n.Unreadable {
		s.unreadable[n.Name] = n.Rev
	}
}

// removeIncarnation drops an incarnation of which nothing is left.
func (s *incompleteTracker) removeIncarnation(incarnation string) {
	delete(s.seen, incarnation)
	delete(s.suspects, incarnation)
	delete(s.unreadable, incarnation)
}

// updateSuspects updates the suspects. complete reports whether a view has both records of an
// incarnation.
func (s *incompleteTracker) updateSuspects(now time.Time, complete func(incarnation string) bool) {
	for inc := range s.seen {
		if complete(inc) {
			delete(s.suspects, inc)
		} else if s.suspects[inc] == nil {
			s.suspects[inc] = &suspect{due: now.Add(MissingGrace), wait: MissingGrace}
		}
	}
}

// dueSuspects returns the suspects to ask about now, sorted.
func (s *incompleteTracker) dueSuspects(now time.Time) []string {
	var due []string
	for inc, is := range s.suspects {
		if !is.expired && !now.Before(is.due) {
			due = append(due, inc)
		}
	}
	slices.Sort(due)
	return due
}

// nextDue returns when there is a question to ask; zero: never.
func (s *incompleteTracker) nextDue() (at time.Time) {
	for _, is := range s.suspects {
		if !is.expired && (at.IsZero() || is.due.Before(at)) {
			at = is.due
		}
	}
	return at
}

// namedIncomplete returns the incarnations that are to join again, sorted.
func (s *incompleteTracker) namedIncomplete() []string {
	var named []string
	for _, inc := range slices.Sorted(maps.Keys(s.suspects)) {
		if s.suspects[inc].named {
			named = append(named, inc)
		}
	}
	return named
}

// checkIncomplete asks the store about incarnations that have lacked a record for longer than
// missingGrace, and decides which to name.
func (l *Leader) checkIncomplete(ctx context.Context) error {
	for name, session := range l.instances.Feed.Values() {
		l.addIncarnation(record.Incarnation(strings.TrimPrefix(name, "~"), session))
	}
	now := time.Now()
	l.updateSuspects(now, l.View.HasBothRecords)
	for _, inc := range l.dueSuspects(now) {
		is := l.suspects[inc]
		is.due, is.wait = now.Add(is.wait), min(2*is.wait, maxSuspectWait)
		l.setTask("the search for missing records", inc)
		if err := l.readSuspect(ctx, inc, is); err != nil {
			return fmt.Errorf("look for the records of %s: %w", inc, err)
		}
		if is.expired {
			l.addExpired(inc)
		}
	}
	l.Elector.setIncomplete(l.namedIncomplete())
	return nil
}

// readSuspect asks the store whether a suspect lives and which of its records are missing.
func (l *Leader) readSuspect(ctx context.Context, inc string, is *suspect) error {
	var missing []string
	for _, r := range []struct {
		key   registry.Key
		valid func(registry.Entry) bool
	}{
		{l.M.Keys.Instance(record.InstanceOf(inc)), func(e registry.Entry) bool { return e.Owner == record.SessionOf(inc) }},
		{l.M.Keys.Member(inc), func(e registry.Entry) bool { _, err := record.DecodeMemberEntry(e); return err == nil }},
	} {
		e, err := l.M.Reg.Get(ctx, r.key, Fresh)
		switch {
		case errors.Is(err, registry.ErrNotFound), errors.Is(err, registry.ErrForeign), err == nil && !r.valid(e):
			missing = append(missing, string(r.key))
		case err != nil:
			return err
		}
	}
	if len(missing) == 0 {
		is.named = false // the watches have not delivered the records yet
		return nil
	}
	_, err := registry.Apply(ctx, l.M.Reg, registry.Txn{If: []registry.Cond{registry.Alive(record.SessionOf(inc))}})
	if _, refused := batch.Conflict(err); refused {
		is.expired, is.named = true, false
		return nil
	}
	if err != nil {
		return err
	}
	if !is.named {
		is.named, is.wait = true, MissingGrace
		l.Log.Warn("records of a live instance are missing or unreadable; it has to join again", "incarnation", inc, "keys", missing)
	}
	return nil
}

// addExpired lets planning bury a dead incarnation whose member record is missing or unreadable: its
// claims hold counts.
func (l *Leader) addExpired(inc string) {
	if _, known := l.View.Members[inc]; known {
		return
	}
	l.View.Members[inc] = planning.MemberRecord{Rev: l.unreadable[inc], Member: record.Member{Name: record.InstanceOf(inc), Session: record.SessionOf(inc)}}
	l.idle = false
}

// suspectOwner records that the store refused to fail an owner over because its session
// lives. Both of its records may be missing, so nothing but a plan may name it.
func (l *Leader) suspectOwner(segment string, s registry.SessionID) {
	for inc := range l.View.Plans[segment].Owners {
		if record.SessionOf(inc) == s {
			l.addIncarnation(inc)
		}
	}
}

// setIncomplete sets the incarnations that the next announcement names as incomplete.
func (o *Elector) setIncomplete(incarnations []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.incomplete = incarnations
}

// hasPublishedIncomplete reports whether all members can know which incarnations are incomplete.
func (o *Elector) hasPublishedIncomplete() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Equal(o.incomplete, o.State.Incomplete)
}

// errDeposed means that another hand wrote the leader record.
var errDeposed = fmt.Errorf("the leader record names another, and this instance fills the office: %w", errRecordEdited)

// checkDeposed finds out whether another hand made the leader record name another incarnation while
// this one fills the office: no instance would lead. A resignation frees the office by the same commit, so
// that lasts no longer than the watch takes to deliver both changes. It returns errDeposed if it
// lasts longer, and a channel that asks for another look.
func (o *Elector) checkDeposed(ctx context.Context) (again <-chan time.Time, err error) {
	o.mu.Lock()
	mine, named := o.State.Seat == o.In.Session.ID(), o.State.Leader.Session
	if !mine || named == "" || named == o.In.Session.ID() {
		o.deposedSince = time.Time{}
		o.mu.Unlock()
		return nil, nil
	}
	if o.deposedSince.IsZero() {
		o.deposedSince = time.Now()
	}
	left := MissingGrace - time.Since(o.deposedSince)
	o.mu.Unlock()
	if left > 0 {
		return time.After(left), nil
	}
	e, err := o.M.Reg.Get(ctx, o.M.Keys.Seat(), Fresh)
	if err == nil && e.Owner == o.In.Session.ID() {
		return nil, errDeposed
	}
	return time.After(MissingGrace), nil
}

// errIncomplete means that a leader found records of this incarnation missing.
var errIncomplete = fmt.Errorf("the leader misses a record of this instance: %w", errRecordEdited)

// checkNamedIncomplete returns errIncomplete if the leader named this incarnation.
func (o *Elector) checkNamedIncomplete() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if slices.Contains(o.State.Incomplete, o.In.ID) {
		return errIncomplete
	}
	return nil
}
