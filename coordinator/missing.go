package coordinator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// An incarnation has two records of its own while its session lives: the owned key of its
// instance and its member record. Both are created by one commit. The owned key goes with the
// session, the member record only when a leader buries the incarnation. If one is missing while the session lives, another
// hand deleted or spoiled it. Planning then takes the incarnation for dead, and the store
// refuses to fail it over. So the leader names it in the record that all members watch, and it
// gives its session up and joins again (R2). At rest that costs neither a read nor a write.

// missingGrace is how long records may be missing from a leader's view before the leader asks
// the store: the records of members and of instances arrive by different watches.
const missingGrace = 2 * time.Second

// missingAgain bounds the time between two questions about the same incarnation.
const missingAgain = time.Minute

// suspect is an incarnation that a leader's view lacks a record of.
type suspect struct {
	due   time.Time     // when to ask the store
	wait  time.Duration // until the question after that
	named bool          // its session lived and a record was missing when the store was asked last
	dead  bool          // its session has ended
}

// missing is a leader's knowledge of incarnations that lack records.
type missing struct {
	met      map[string]bool // incarnations that were seen during the term, by any record that names them
	suspects map[string]*suspect

	unreadable map[string]registry.Rev // member records that cannot be read, by incarnation
}

// meet records that an incarnation exists.
func (s *missing) meet(incarnation string) {
	if s.met == nil {
		s.met, s.suspects, s.unreadable = map[string]bool{}, map[string]*suspect{}, map[string]registry.Rev{}
	}
	s.met[incarnation] = true
}

// observe records that a member record exists, went, or cannot be read.
func (s *missing) observe(n news[record.Member]) {
	if !n.gone { // one that this leader buried stays forgotten
		s.meet(n.name)
	}
	if delete(s.unreadable, n.name); n.broken {
		s.unreadable[n.name] = n.rev
	}
}

// forget drops an incarnation of which nothing is left.
func (s *missing) forget(incarnation string) {
	delete(s.met, incarnation)
	delete(s.suspects, incarnation)
	delete(s.unreadable, incarnation)
}

// review updates the suspects. complete reports whether a view has both records of an
// incarnation.
func (s *missing) review(now time.Time, complete func(incarnation string) bool) {
	for inc := range s.met {
		if complete(inc) {
			delete(s.suspects, inc)
		} else if s.suspects[inc] == nil {
			s.suspects[inc] = &suspect{due: now.Add(missingGrace), wait: missingGrace}
		}
	}
}

// due returns the suspects to ask about now, sorted.
func (s *missing) due(now time.Time) []string {
	var due []string
	for inc, is := range s.suspects {
		if !is.dead && !now.Before(is.due) {
			due = append(due, inc)
		}
	}
	slices.Sort(due)
	return due
}

// next returns when there is a question to ask; zero: never.
func (s *missing) next() (at time.Time) {
	for _, is := range s.suspects {
		if !is.dead && (at.IsZero() || is.due.Before(at)) {
			at = is.due
		}
	}
	return at
}

// named returns the incarnations that are to join again, sorted.
func (s *missing) named() []string {
	var named []string
	for _, inc := range slices.Sorted(maps.Keys(s.suspects)) {
		if s.suspects[inc].named {
			named = append(named, inc)
		}
	}
	return named
}

// complete reports whether the view has both records of an incarnation.
func (v *view) complete(incarnation string) bool {
	_, known := v.members[incarnation]
	return known && v.alive(incarnation)
}

// checkMissing asks the store about incarnations that have lacked a record for longer than
// missingGrace, and decides which to name.
func (l *leader) checkMissing(ctx context.Context) error {
	for name, session := range l.instances.feed.byName() {
		l.meet(record.Incarnation(strings.TrimPrefix(name, "~"), session))
	}
	now := time.Now()
	l.review(now, l.view.complete)
	for _, inc := range l.due(now) {
		is := l.suspects[inc]
		is.due, is.wait = now.Add(is.wait), min(2*is.wait, missingAgain)
		l.do("the search for missing records", inc)
		if err := l.ask(ctx, inc, is); err != nil {
			return fmt.Errorf("look for the records of %s: %w", inc, err)
		}
		if is.dead {
			l.mourn(inc)
		}
	}
	l.office.setIncomplete(l.named())
	return nil
}

// ask asks the store whether a suspect lives and which of its records are missing.
func (l *leader) ask(ctx context.Context, inc string, is *suspect) error {
	var missing []string
	for _, r := range []struct {
		key   registry.Key
		valid func(registry.Entry) bool
	}{
		{l.m.keys.Instance(instanceOf(inc)), func(e registry.Entry) bool { return e.Owner == sessionOf(inc) }},
		{l.m.keys.Member(inc), func(e registry.Entry) bool { _, err := decodeMember(e); return err == nil }},
	} {
		e, err := l.m.reg.Get(ctx, r.key, fresh)
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
	_, err := registry.Apply(ctx, l.m.reg, registry.Txn{If: []registry.Cond{registry.Alive(sessionOf(inc))}})
	if _, refused := conflict(err); refused {
		is.dead, is.named = true, false
		return nil
	}
	if err != nil {
		return err
	}
	if !is.named {
		is.named, is.wait = true, missingGrace
		l.log.Warn("records of a live instance are missing or unreadable; it has to join again", "incarnation", inc, "keys", missing)
	}
	return nil
}

// mourn lets planning bury a dead incarnation whose member record is missing or unreadable: its
// claims hold counts.
func (l *leader) mourn(inc string) {
	if _, known := l.view.members[inc]; known {
		return
	}
	l.view.members[inc] = memberItem{rev: l.unreadable[inc], Member: record.Member{Name: instanceOf(inc), Session: sessionOf(inc)}}
	l.content = false
}

// suspectOwner records that the store refused to fail an owner over because its session
// lives. Both of its records may be missing, so nothing but a plan may name it.
func (l *leader) suspectOwner(segment string, s registry.SessionID) {
	for inc := range l.view.plans[segment].Owners {
		if sessionOf(inc) == s {
			l.meet(inc)
		}
	}
}

// setIncomplete sets the incarnations that the next announcement names as incomplete.
func (o *officeLoop) setIncomplete(incarnations []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.incomplete = incarnations
}

// announced reports whether all members can know which incarnations are incomplete.
func (o *officeLoop) announced() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Equal(o.incomplete, o.office.incomplete)
}

// errDeposed means that another hand wrote the leader record.
var errDeposed = fmt.Errorf("the leader record names another, and this instance fills the office: %w", errForeign)

// deposed finds out whether another hand made the leader record name another incarnation while
// this one fills the office: no instance would lead. A resignation frees the office by the same commit, so
// that lasts no longer than the watch takes to deliver both changes. It returns errDeposed if it
// lasts longer, and a channel that asks for another look.
func (o *officeLoop) deposed(ctx context.Context) (again <-chan time.Time, err error) {
	o.mu.Lock()
	mine, named := o.office.present == o.in.session.ID(), o.office.leader.Session
	if !mine || named == "" || named == o.in.session.ID() {
		o.since = time.Time{}
		o.mu.Unlock()
		return nil, nil
	}
	if o.since.IsZero() {
		o.since = time.Now()
	}
	left := missingGrace - time.Since(o.since)
	o.mu.Unlock()
	if left > 0 {
		return time.After(left), nil
	}
	e, err := o.m.reg.Get(ctx, o.m.keys.Present(), fresh)
	if err == nil && e.Owner == o.in.session.ID() {
		return nil, errDeposed
	}
	return time.After(missingGrace), nil
}

// errIncomplete means that a leader found records of this incarnation missing.
var errIncomplete = fmt.Errorf("the leader misses a record of this instance: %w", errForeign)

// checkNamed returns errIncomplete if the leader named this incarnation.
func (o *officeLoop) checkNamed() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if slices.Contains(o.office.incomplete, o.in.id) {
		return errIncomplete
	}
	return nil
}

// inspectOwnRecords reads the records of an incarnation and returns errForeign if another hand
// changed or deleted one. A member does that when a term begins: the new leader has never seen
// an incarnation that lost both records and owns nothing.
func (m *Member) inspectOwnRecords(ctx context.Context, in *incarnation, told standing) error {
	instance, err := m.reg.Get(ctx, m.keys.Instance(m.name), registry.ReadOptions{})
	if err == nil && instance.Owner != in.session.ID() {
		err = registry.ErrNotFound
	}
	if lost := missingOwn(m.keys.Instance(m.name), err); lost != nil {
		return lost
	}
	own, err := m.reg.Get(ctx, m.keys.Member(in.id), registry.ReadOptions{})
	if err == nil && own.Modified.Seq > told.rev.Seq {
		err = registry.ErrForeign
	}
	return missingOwn(m.keys.Member(in.id), err)
}

// missingOwn returns an error if the answer to a read shows that another hand changed the key.
// The session's state covers a store that does not answer.
func missingOwn(key registry.Key, err error) error {
	if errors.Is(err, registry.ErrNotFound) || errors.Is(err, registry.ErrForeign) {
		return fmt.Errorf("%s: %w", key, errForeign)
	}
	return nil
}

// outlasts reports whether a record of the namespace that cannot be read is to be read again, and
// logs the key. A process that has been in the group waits until the record is mended; one that
// starts fails.
func (m *Member) outlasts(err error) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil || !m.seen || errors.Is(err, record.ErrNewerFormat) || registry.Retryable(err) || errors.Is(err, registry.ErrClosed) {
		return false
	}
	if !m.saidMeta {
		m.saidMeta = true
		m.log.Error("cannot join again: the record of the namespace cannot be read; restore or delete it", "key", string(m.keys.Meta()), "error", err)
	}
	return true
}

// inspectSoon has keepRecord inspect the records of the incarnation.
func (m *Member) inspectSoon(in *incarnation) {
	m.mu.Lock()
	in.inspect = true
	m.mu.Unlock()
	in.publishSoon()
}

// takeInspection reports whether the records are to be inspected, and clears the request.
func (m *Member) takeInspection(in *incarnation) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	wanted := in.inspect
	in.inspect = false
	return wanted
}

// publishSoon wakes keepRecord.
func (in *incarnation) publishSoon() {
	select {
	case in.publish <- struct{}{}:
	default:
	}
}
