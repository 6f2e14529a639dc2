package member

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/rota-dev/rota/coordinator/internal/batch"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// PublishedState is what the registry is to know of this process, or knows of it.
type PublishedState struct {
	Member        record.Member
	defs          map[string]json.RawMessage
	recordVersion int          // of Member.version
	offerVersion  int          // of Member.offers
	Rev           registry.Rev // of the member record, once it has been written
}

// ComposeState returns what the registry is to know now.
func (m *Member) ComposeState(in *Incarnation) PublishedState {
	m.mu.Lock()
	defer m.mu.Unlock()
	var offered, puzzling []string
	for _, job := range slices.Sorted(maps.Keys(m.Defs)) {
		if m.unsupported[job] {
			puzzling = append(puzzling, job)
		} else {
			offered = append(offered, job)
		}
	}
	var clock record.Instant
	if m.comparesClocks {
		clock = record.InstantOf(m.Clock())
	}
	told := PublishedState{
		Member: record.Member{
			Name: m.Name, Session: in.Session.ID(), Host: m.host, Jobs: offered, Unsupported: puzzling, Labels: m.labels,
			Weight: m.weight, Draining: m.Draining, Blocked: m.Blocked.copyBlocked(), RestartGrace: record.Duration(m.grace),
			Clock: clock, Answers: in.answeredReading, Ahead: maps.Clone(m.ahead),
			Waiting: m.waiting, // never changed in place
		},
		defs: maps.Clone(m.Defs), recordVersion: m.recordVersion, offerVersion: m.offerVersion,
	}
	told.Member.SetRevisions(m.revisions)
	return told
}

// setSupported says whether the present incarnation can compile all definitions of a job that
// are in force. While it cannot, it does not offer the job: its shards go to those who can.
func (m *Member) setSupported(job string, all bool) {
	m.ChangeState(func() {
		if delete(m.unsupported, job); !all {
			m.unsupported[job] = true
		}
	})
}

// publishAhead writes the instant that a job's shards wait for here into the member record.
func (m *Member) publishAhead(job string, is record.Ahead) {
	m.ChangeState(func() {
		if delete(m.ahead, job); is.Epoch != 0 {
			m.ahead[job] = is
		}
	})
}

// SetWaiting publishes the runs that wait for a worker here, by job, and replaces the last
// such publication. Operator.Status returns them. Of more than a hundred jobs it publishes
// those that have waited longest. Each change costs a commit, so the caller reports long
// waits only, and rarely. SetWaiting does not block.
func (m *Member) SetWaiting(waiting map[string]record.Waiting) {
	all := record.BoundWaiting(waiting)
	m.mu.Lock()
	same := maps.EqualFunc(m.waiting, all, record.Waiting.Equal)
	m.mu.Unlock()
	if !same {
		m.ChangeState(func() { m.waiting = all })
	}
}

// answerReading has the leader know what this clock says now that the leader's reading is known.
func (m *Member) answerReading(in *Incarnation, reading record.Instant) {
	m.mu.Lock()
	known := in.answeredReading == reading
	m.mu.Unlock()
	if !known {
		m.ChangeState(func() { in.answeredReading = reading })
	}
}

// reportClockJump tells what the clock says now that it has been set: no answer tells that.
func (m *Member) reportClockJump(in *Incarnation) {
	m.Log.Info("clock has jumped; claiming nothing until the fleet has judged it")
	m.ChangeState(func() { in.answeredReading = 0 })
}

// reportUncheckedClock logs once that the clock of this process cannot be checked.
func (m *Member) reportUncheckedClock() {
	m.reportUncheckedOnce.Do(func() {
		m.Log.Info("this clock cannot be checked: there is no other instance, and the store has no clock")
	})
}

// maintainRecord keeps what the registry knows of this process true. What the registry refuses
// for a reason of its own (it is full, say) is tried again later: what runs here goes on.
func (m *Member) maintainRecord(ctx context.Context, in *Incarnation, told PublishedState) error {
	for {
		m.setPublished(in, told)
		if m.consumeRecordCheck(in) {
			if err := m.checkOwnRecords(ctx, in, told); err != nil {
				return err
			}
		}
		next := m.ComposeState(in)
		if next.recordVersion == told.recordVersion {
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-in.publishNudge:
			}
			continue
		}
		err := m.PublishState(ctx, in, told, &next)
		switch {
		case err == nil:
			told = next
		case ctx.Err() != nil, errors.Is(err, registry.ErrSessionLost), errors.Is(err, registry.ErrClosed):
			return err
		default:
			m.Log.Error("member record not written; trying again", "error", err)
			if !sleepContext(ctx, refusedRetryDelay) {
				return context.Cause(ctx)
			}
		}
	}
}

// PublishState makes the registry know next in place of what it has been told.
func (m *Member) PublishState(ctx context.Context, in *Incarnation, told PublishedState, next *PublishedState) error {
	if next.offerVersion != told.offerVersion {
		if err := m.storeDefinitions(ctx, next.defs, Fresh); err != nil {
			return err
		}
	}
	if next.Member.Draining && !told.Member.Draining {
		if err := in.prepareDrain(ctx); err != nil {
			return err
		}
	}
	next.Member.Differs = m.superseded.listDiffering(next.defs)
	value, err := record.Encode(next.Member)
	if err != nil {
		return err
	}
	next.Rev, err = registry.Apply(ctx, m.Reg, registry.Txn{
		If:   []registry.Cond{registry.Alive(in.Session.ID())},
		Then: []registry.Op{registry.Set(m.Keys.Member(in.ID), told.Rev, value)},
	})
	refusal, refused := batch.Conflict(err)
	switch {
	case refused && refusal.Index == 0:
		return fmt.Errorf("update member record: %w: %w", registry.ErrSessionLost, err)
	case refused, outcomeUnknown(ctx, err):
		return fmt.Errorf("update member record: %w: %w", errRecordEdited, err)
	case err != nil:
		return fmt.Errorf("update member record: %w", err)
	}
	return nil
}

func (m *Member) setPublished(in *Incarnation, told PublishedState) {
	m.mu.Lock()
	defer m.mu.Unlock()
	in.publishedVersion, in.drainPublished = told.recordVersion, told.Member.Draining
	m.notifyChangeLocked()
}

// requestPublish wakes keepRecord.
func (in *Incarnation) requestPublish() {
	select {
	case in.publishNudge <- struct{}{}:
	default:
	}
}

// requestRecordCheck has keepRecord inspect the records of the incarnation.
func (m *Member) requestRecordCheck(in *Incarnation) {
	m.mu.Lock()
	in.checkRequested = true
	m.mu.Unlock()
	in.requestPublish()
}

// consumeRecordCheck reports whether the records are to be inspected, and clears the request.
func (m *Member) consumeRecordCheck(in *Incarnation) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	wanted := in.checkRequested
	in.checkRequested = false
	return wanted
}

// checkOwnRecords reads the records of an incarnation and returns errForeign if another hand
// changed or deleted one. A member does that when a term begins: the new leader has never seen
// an incarnation that lost both records and owns nothing.
func (m *Member) checkOwnRecords(ctx context.Context, in *Incarnation, told PublishedState) error {
	instance, err := m.Reg.Get(ctx, m.Keys.Instance(m.Name), registry.ReadOptions{})
	if err == nil && instance.Owner != in.Session.ID() {
		err = registry.ErrNotFound
	}
	if lost := checkOwnKey(m.Keys.Instance(m.Name), err); lost != nil {
		return lost
	}
	own, err := m.Reg.Get(ctx, m.Keys.Member(in.ID), registry.ReadOptions{})
	if err == nil && own.Modified.Seq > told.Rev.Seq {
		err = registry.ErrForeign
	}
	return checkOwnKey(m.Keys.Member(in.ID), err)
}

// checkOwnKey returns an error if the answer to a read shows that another hand changed the key.
// The session's state covers a store that does not answer.
func checkOwnKey(key registry.Key, err error) error {
	if errors.Is(err, registry.ErrNotFound) || errors.Is(err, registry.ErrForeign) {
		return fmt.Errorf("%s: %w", key, errRecordEdited)
	}
	return nil
}
