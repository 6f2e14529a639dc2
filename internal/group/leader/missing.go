package leader

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rota-dev/rota/internal/group/batch"
	"github.com/rota-dev/rota/internal/group/elector"
	"github.com/rota-dev/rota/internal/group/feed"
	"github.com/rota-dev/rota/internal/group/planning"
	"github.com/rota-dev/rota/internal/parallel"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// maxSuspectWait bounds the time between two reads of the same suspect's records.
const maxSuspectWait = time.Minute

// suspect is an incarnation of which a leader's view lacks a record.
type suspect struct {
	due     time.Time     // when to read its records
	wait    time.Duration // from then to the next time
	named   bool          // the last read found its session alive and a record missing
	expired bool          // its session has ended
}

// incompleteTracker tracks incarnations that lack records. A round costs as much as has changed since
// the last one.
type incompleteTracker struct {
	seen     map[string]bool               // incarnations that any record named during the term
	changed  map[string]bool               // those of seen whose records may have changed since updateSuspects
	sessions map[string]registry.SessionID // by the name of an instance key: its owner
	suspects map[string]*suspect

	unreadable map[string]registry.Rev // member records that cannot be read, by incarnation
}

// addIncarnation records that an incarnation exists.
func (s *incompleteTracker) addIncarnation(incarnation string) {
	if s.seen == nil {
		s.seen, s.changed, s.sessions = map[string]bool{}, map[string]bool{}, map[string]registry.SessionID{}
		s.suspects, s.unreadable = map[string]*suspect{}, map[string]registry.Rev{}
	}
	s.seen[incarnation], s.changed[incarnation] = true, true
}

// markChanged has updateSuspects check an incarnation, unless it was removed.
func (s *incompleteTracker) markChanged(incarnation string) {
	if s.seen[incarnation] {
		s.changed[incarnation] = true
	}
}

// observeInstance records an update of an instance key.
func (s *incompleteTracker) observeInstance(n feed.Update[registry.SessionID]) {
	instance := strings.TrimPrefix(n.Name, "~")
	if before, known := s.sessions[n.Name]; known {
		s.markChanged(record.Incarnation(instance, before))
	}
	if delete(s.sessions, n.Name); !n.Deleted {
		s.addIncarnation(record.Incarnation(instance, n.Value))
		s.sessions[n.Name] = n.Value
	}
}

// observeMember records an update of a member record.
func (s *incompleteTracker) observeMember(n feed.Update[record.Member]) {
	if n.Deleted {
		s.markChanged(n.Name) // if this leader reaped it, it was removed
	} else {
		s.addIncarnation(n.Name)
	}
	if delete(s.unreadable, n.Name); n.Unreadable {
		s.unreadable[n.Name] = n.Rev
	}
}

// removeIncarnation drops an incarnation whose records were reaped.
func (s *incompleteTracker) removeIncarnation(incarnation string) {
	delete(s.seen, incarnation)
	delete(s.changed, incarnation)
	delete(s.suspects, incarnation)
	delete(s.unreadable, incarnation)
}

// updateSuspects updates the suspects by the incarnations that have changed. complete reports whether
// the view has both records of an incarnation.
func (s *incompleteTracker) updateSuspects(now time.Time, complete func(incarnation string) bool) {
	for inc := range s.changed {
		if complete(inc) {
			delete(s.suspects, inc)
		} else if s.suspects[inc] == nil {
			s.suspects[inc] = &suspect{due: now.Add(elector.MissingGrace), wait: elector.MissingGrace}
		}
	}
	clear(s.changed)
}

// dueSuspects returns the suspects whose records are to be read now, sorted.
func (s *incompleteTracker) dueSuspects(now time.Time) []string {
	var incs []string
	for inc, is := range s.suspects {
		if !is.expired && !now.Before(is.due) {
			incs = append(incs, inc)
		}
	}
	slices.Sort(incs)
	return incs
}

// nextDue returns when the next suspect is due; zero: never.
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

// checkIncomplete reads the records of incarnations that have been incomplete in the view for longer
// than MissingGrace, and decides which to name.
func (l *Leader) checkIncomplete(ctx context.Context) error {
	now := time.Now()
	l.incomplete.updateSuspects(now, l.View.HasBothRecords)
	due := l.incomplete.dueSuspects(now)
	err := l.readSuspects(ctx, now, due)
	for _, inc := range due {
		if l.incomplete.suspects[inc].expired { // also if another one could not be read: an expired suspect is not due again
			l.addExpired(inc)
		}
	}
	if err != nil {
		return err
	}
	l.Elector.SetIncomplete(l.incomplete.namedIncomplete())
	return nil
}

// readSuspects reads the records of the suspects, several at once: incarnations that expired before
// the term are suspects together until they are reaped, and all shards wait for the round meanwhile.
func (l *Leader) readSuspects(ctx context.Context, now time.Time, incarnations []string) error {
	if len(incarnations) == 0 {
		return nil
	}
	l.Progress.SetTask("the search for missing records", strings.Join(incarnations, ", "))
	var mu sync.Mutex
	var failed []error // an unreadable suspect does not keep the others from being read
	err := parallel.Each(ctx, parallelReads, incarnations, func(ctx context.Context, inc string) error {
		is := l.incomplete.suspects[inc]
		is.due, is.wait = now.Add(is.wait), min(2*is.wait, maxSuspectWait)
		if err := l.readSuspect(ctx, inc, is); err != nil {
			mu.Lock()
			defer mu.Unlock()
			failed = append(failed, fmt.Errorf("read the records of %s: %w", inc, err))
		}
		return nil
	})
	return errors.Join(append(failed, err)...)
}

// readSuspect finds out from the store which records of a suspect are missing, and whether its session
// lives.
func (l *Leader) readSuspect(ctx context.Context, inc string, is *suspect) error {
	var missing []string
	for _, r := range []struct {
		key   registry.Key
		valid func(registry.Entry) bool
	}{
		{l.Self.Keys.Instance(record.InstanceOf(inc)), func(e registry.Entry) bool { return e.Owner == record.SessionOf(inc) }},
		{l.Self.Keys.Member(inc), func(e registry.Entry) bool { _, err := record.DecodeMemberEntry(e); return err == nil }},
	} {
		e, err := l.Self.Reg.Get(ctx, r.key, elector.Fresh)
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
	_, err := registry.Apply(ctx, l.Self.Reg, registry.Txn{If: []registry.Cond{registry.Alive(record.SessionOf(inc))}})
	if _, refused := batch.FindConflict(err); refused {
		is.expired, is.named = true, false
		return nil
	}
	if err != nil {
		return err
	}
	if !is.named {
		is.named, is.wait = true, elector.MissingGrace
		l.Log.Warn("records of a live instance were deleted or damaged by another writer; it joins again", "incarnation", inc, "keys", missing)
	}
	return nil
}

// addExpired adds an expired incarnation whose member record is missing or unreadable to the view, so
// that planning reaps it and keeps the counts of its claims.
func (l *Leader) addExpired(inc string) {
	if _, known := l.View.Members[inc]; known {
		return
	}
	l.View.Members[inc] = planning.MemberRecord{Rev: l.incomplete.unreadable[inc], Member: record.Member{Name: record.InstanceOf(inc), Session: record.SessionOf(inc)}}
	l.idle = false
}

// suspectOwner records that the store refused to fail over an owner, because its session lives. If
// both of its records are missing, no record but the plan names it.
func (l *Leader) suspectOwner(segment string, s registry.SessionID) {
	for inc := range l.View.Plans[segment].Owners {
		if record.SessionOf(inc) == s {
			l.incomplete.addIncarnation(inc)
		}
	}
}
