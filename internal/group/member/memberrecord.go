package member

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/rota-dev/rota/internal/group/batch"
	"github.com/rota-dev/rota/internal/group/claimer"
	"github.com/rota-dev/rota/internal/parallel"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// PublishedState is the state of a member that its member record and definitions publish.
type PublishedState struct {
	Member        record.Member
	defs          map[string]json.RawMessage
	kinds         map[string]record.Kind
	recordVersion int          // the Member.recordVersion that it shows
	offerVersion  int          // the Member.offerVersion that it shows
	Rev           registry.Rev // of the member record; zero: not written
}

// ComposeState returns the present state, to be published.
func (m *Member) ComposeState(in *Incarnation) PublishedState {
	var clock record.Instant
	if m.comparesClocks {
		clock = record.InstantOf(m.Clock())
	}
	published := m.composeState(in, clock)
	published.Member.Blocked = m.Blocked.CopyBlocked() // after recordVersion was read, which grows after a change of it
	return published
}

// composeState is ComposeState at a time of the clock, without the blocked shards.
func (m *Member) composeState(in *Incarnation, clock record.Instant) PublishedState {
	m.mu.Lock()
	defer m.mu.Unlock()
	var offered, unsupported []string
	for _, job := range slices.Sorted(maps.Keys(m.Defs)) {
		if m.unsupported[job] {
			unsupported = append(unsupported, job)
		} else {
			offered = append(offered, job)
		}
	}
	for job := range m.unsupported { // defined ones
		if _, registered := m.Defs[job]; !registered {
			unsupported = append(unsupported, job)
		}
	}
	slices.Sort(unsupported)
	published := PublishedState{
		Member: record.Member{
			Name: m.Name, Session: in.Session.ID(), Host: m.host, Jobs: offered, Unsupported: unsupported, Labels: m.labels,
			Weight: m.weight, Draining: m.Draining, RestartGrace: record.Duration(m.grace),
			Clock: clock, Answers: in.answeredReading, Difference: in.clockDifference, Ahead: maps.Clone(m.ahead),
			Waiting: m.waiting, // never changed in place
		},
		defs: maps.Clone(m.Defs), kinds: maps.Clone(m.kinds), recordVersion: m.recordVersion, offerVersion: m.offerVersion,
	}
	for name, k := range m.kinds {
		if published.Member.Kinds == nil {
			published.Member.Kinds = map[string]int{}
		}
		published.Member.Kinds[name] = k.Revision
	}
	published.Member.SetRevisions(m.revisions)
	published.Member.SetLocals(m.locals)
	return published
}

// setSupported records whether the present incarnation can compile all definitions of a job that
// are in force. While it cannot, it does not offer the job, and other instances own the shards.
func (m *Member) setSupported(job string, all bool) {
	m.changeState(func() {
		if delete(m.unsupported, job); !all {
			m.unsupported[job] = true
		}
	})
}

// publishAhead publishes the claims of a job that are ahead of this clock; the zero value means
// that there are none.
func (m *Member) publishAhead(job string, ahead record.Ahead) {
	m.changeState(func() {
		if delete(m.ahead, job); ahead.Epoch != 0 {
			m.ahead[job] = ahead
		}
	})
}

// SetWaiting publishes the runs that wait for a worker here, by job, in place of those published
// before. Operator.Status returns them. It publishes a hundred jobs at most, those with the
// longest waits. Each change costs a commit, so the caller reports long waits only, and rarely.
// SetWaiting does not block.
func (m *Member) SetWaiting(waiting map[string]record.Waiting) {
	all := record.BoundWaiting(waiting)
	m.mu.Lock()
	same := maps.EqualFunc(m.waiting, all, record.Waiting.Equal)
	m.mu.Unlock()
	if !same {
		m.changeState(func() { m.waiting = all })
	}
}

// answerReading publishes this clock's time as the answer to a reading of the leader's clock.
func (m *Member) answerReading(in *Incarnation, reading record.Instant) {
	m.mu.Lock()
	known := in.answeredReading == reading
	m.mu.Unlock()
	if !known {
		difference := record.Duration(m.Clock().Sub(reading.Time()))
		m.changeState(func() { in.answeredReading, in.clockDifference = reading, difference })
	}
}

// reportClockJump publishes the time of a clock that has jumped, as an answer to no reading.
func (m *Member) reportClockJump(in *Incarnation) {
	m.Log.Info("clock has jumped; claiming nothing until the fleet has judged it")
	m.changeState(func() { in.answeredReading, in.clockDifference = 0, 0 })
}

// reportUncheckedClock logs once that the clock of this process cannot be checked.
func (m *Member) reportUncheckedClock() {
	if !m.reportedUnchecked.Swap(true) {
		m.Log.Info("this clock cannot be checked: there is no other instance, and the store has no clock")
	}
}

// maintainRecord publishes each change of the member's state. A write that the registry refuses
// for a reason of its own, such as a full store, is retried later, and runs continue meanwhile.
func (m *Member) maintainRecord(ctx context.Context, in *Incarnation, published PublishedState) error {
	for {
		m.setPublished(in, published)
		if m.consumeRecordCheck(in) {
			if err := m.checkOwnRecords(ctx, in, published); err != nil {
				return err
			}
		}
		next := m.ComposeState(in)
		if next.recordVersion == published.recordVersion {
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-in.publishNudge:
			}
			continue
		}
		err := m.PublishState(ctx, in, published, &next)
		switch {
		case err == nil:
			published = next
		case ctx.Err() != nil, errors.Is(err, registry.ErrSessionLost), errors.Is(err, registry.ErrClosed):
			return err
		default:
			m.Log.Error("member record not written; trying again", "error", err)
			if !sleepContext(ctx, claimer.RefusedRetryDelay) {
				return context.Cause(ctx)
			}
		}
	}
}

// PublishState publishes next in place of the state that is published.
func (m *Member) PublishState(ctx context.Context, in *Incarnation, published PublishedState, next *PublishedState) error {
	if next.offerVersion != published.offerVersion {
		if err := m.storeDefinitions(ctx, next.defs, Fresh); err != nil {
			return err
		}
		if err := m.storeKinds(ctx, next.kinds); err != nil {
			return err
		}
	}
	if next.Member.Draining && !published.Member.Draining {
		if err := in.prepareDrain(ctx); err != nil {
			return err
		}
	}
	m.superseded.publish(&next.Member, next.defs)
	value, err := record.Encode(next.Member)
	if err != nil {
		return err
	}
	next.Rev, err = registry.Apply(ctx, m.Reg, registry.Txn{
		If:   []registry.Cond{registry.Alive(in.Session.ID())},
		Then: []registry.Op{registry.Set(m.Keys.Member(in.ID), published.Rev, value)},
	})
	refusal, refused := batch.FindConflict(err)
	switch {
	case refused && refusal.Index == 0:
		return fmt.Errorf("update member record: %w: %w", registry.ErrSessionLost, err)
	case refused, outcomeUnknown(ctx, err):
		return fmt.Errorf("update member record: %w: %w", record.ErrEdited, err)
	case err != nil:
		return fmt.Errorf("update member record: %w", err)
	}
	return nil
}

// setPublished records which state the member record shows.
func (m *Member) setPublished(in *Incarnation, published PublishedState) {
	m.mu.Lock()
	defer m.mu.Unlock()
	in.publishedVersion, in.drainPublished = published.recordVersion, published.Member.Draining
	m.notifyChangeLocked()
}

// requestPublish wakes maintainRecord. It does not block.
func (in *Incarnation) requestPublish() { parallel.Signal(in.publishNudge) }

// requestRecordCheck has maintainRecord check the records of the incarnation.
func (m *Member) requestRecordCheck(in *Incarnation) {
	m.mu.Lock()
	in.checkRequested = true
	m.mu.Unlock()
	in.requestPublish()
}

// consumeRecordCheck reports whether a check of the records was requested, and clears the request.
func (m *Member) consumeRecordCheck(in *Incarnation) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	requested := in.checkRequested
	in.checkRequested = false
	return requested
}

// checkOwnRecords reads the records of an incarnation and returns record.ErrEdited if another
// writer changed or deleted one. A member does that when a term begins, since the new leader
// cannot know of an incarnation that has lost both records and owns nothing.
func (m *Member) checkOwnRecords(ctx context.Context, in *Incarnation, published PublishedState) error {
	instance, err := m.Reg.Get(ctx, m.Keys.Instance(m.Name), registry.ReadOptions{})
	if err == nil && instance.Owner != in.Session.ID() {
		err = registry.ErrNotFound
	}
	if lost := checkOwnKey(m.Keys.Instance(m.Name), err); lost != nil {
		return lost
	}
	own, err := m.Reg.Get(ctx, m.Keys.Member(in.ID), registry.ReadOptions{})
	if err == nil && own.Modified.Seq > published.Rev.Seq {
		err = registry.ErrForeign
	}
	return checkOwnKey(m.Keys.Member(in.ID), err)
}

// checkOwnKey returns an error if err, the result of a read, shows that another writer changed
// the key. It ignores other errors: the session's state covers a store that does not answer.
func checkOwnKey(key registry.Key, err error) error {
	if errors.Is(err, registry.ErrNotFound) || errors.Is(err, registry.ErrForeign) {
		return fmt.Errorf("%s: %w", key, record.ErrEdited)
	}
	return nil
}
