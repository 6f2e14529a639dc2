package member

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/rota-dev/rota/coordinator/internal/batch"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// ErrNameTaken means that a live instance has the name, and kept it for longer than a
// predecessor that crashed could have. The text names its process and host, and since when.
var ErrNameTaken = errors.New("instance name taken")

// enterNamespace makes an incarnation a member, of a namespace that this version may touch.
func (m *Member) enterNamespace(ctx context.Context, in *Incarnation) (fenceBase uint64, told PublishedState, err error) {
	if fenceBase, err = m.readFenceBase(ctx); err == nil {
		told, err = m.joinGroup(ctx, in)
	}
	return fenceBase, told, err
}

// readFenceBase reads what is added to commit numbers to make fences, and on the way checks
// that this version may touch the namespace at all.
func (m *Member) readFenceBase(ctx context.Context) (uint64, error) {
	for {
		e, err := m.Reg.Get(ctx, m.Keys.Meta(), Fresh)
		switch {
		case err == nil:
			meta, err := record.DecodeMeta(e.Value)
			if m.shouldRetryMeta(err) && sleepContext(ctx, refusedRetryDelay) {
				continue
			}
			if err != nil {
				return 0, fmt.Errorf("read %s: %w", m.Keys.Meta(), err)
			}
			return meta.FenceBase, nil
		case errors.Is(err, registry.ErrNotFound):
			value, err := record.Encode(record.Meta{Format: record.Format})
			if err != nil {
				return 0, err
			}
			_, err = registry.Apply(ctx, m.Reg, registry.Txn{Then: []registry.Op{registry.Create(m.Keys.Meta(), value)}})
			if err != nil && !errors.Is(err, registry.ErrConflict) {
				return 0, fmt.Errorf("create %s: %w", m.Keys.Meta(), err)
			}
		case m.shouldRetryMeta(err) && sleepContext(ctx, refusedRetryDelay):
		case !registry.Retryable(err) || !sleepContext(ctx, readRetryDelay):
			return 0, fmt.Errorf("read %s: %w", m.Keys.Meta(), err)
		}
	}
}

// shouldRetryMeta reports whether a record of the namespace that cannot be read is to be read again, and
// logs the key. A process that has been in the group waits until the record is mended; one that
// starts fails.
func (m *Member) shouldRetryMeta(err error) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil || !m.hasJoined || errors.Is(err, record.ErrNewerFormat) || registry.Retryable(err) || errors.Is(err, registry.ErrClosed) {
		return false
	}
	if !m.reportedMeta {
		m.reportedMeta = true
		m.Log.Error("cannot join again: the record of the namespace cannot be read; restore or delete it", "key", string(m.Keys.Meta()), "error", err)
	}
	return true
}

// joinGroup stores the definitions that this process offers and enters the fleet. The name
// may still be held by a predecessor whose session has not run out. If that was this
// process itself, nobody else can have the name, however long the store keeps the session:
// one that has lost its leader, or its clients, gives all sessions their full time again.
//
// Each try sends the same transaction. A request that was held up may be applied long
// after a later one was refused, so who holds the name tells whether it was.
func (m *Member) joinGroup(ctx context.Context, in *Incarnation) (PublishedState, error) {
	told := m.ComposeState(in)
	// What fenceBase has read was new, and no read goes back.
	if err := m.storeDefinitions(ctx, told.defs, registry.ReadOptions{}); err != nil {
		return PublishedState{}, err
	}
	told.Member.Differs = m.superseded.listDiffering(told.defs)
	t, err := m.BuildJoinTxn(in, told.Member)
	if err != nil {
		return PublishedState{}, err
	}
	patience := in.Session.TTL() + in.Session.TTL()/4
	began := time.Now()
	saidForeign := false
	for {
		rev, err := registry.Apply(ctx, m.Reg, t)
		refusal, refused := batch.Conflict(err)
		switch {
		case err == nil:
			told.Rev = rev
			m.forgetEarlierSessions(in)
			return told, nil
		case refused && refusal.Index > 0, !refused && !outcomeUnknown(ctx, err):
			return PublishedState{}, fmt.Errorf("join as %s: %w", in.ID, err)
		}
		e, err := m.Reg.Get(ctx, m.Keys.Instance(m.Name), Fresh)
		switch {
		case err == nil && e.Txn == t.ID:
			told.Rev = e.Modified
			m.forgetEarlierSessions(in)
			return told, nil
		case err == nil && !m.heldEarlier(e) && time.Since(began) > patience:
			return PublishedState{}, newNameTakenError(m.Name, e, patience)
		case errors.Is(err, registry.ErrForeign) && !saidForeign:
			saidForeign = true
			m.Log.Error("cannot join: another program wrote the value of the key; delete it", "key", string(m.Keys.Instance(m.Name)), "error", err)
		}
		if !sleepContext(ctx, min(max(in.Session.TTL()/40, 20*time.Millisecond), time.Second)) {
			return PublishedState{}, context.Cause(ctx)
		}
	}
}

// forgetEarlierSessions takes note that the name belongs to an incarnation: no earlier session has it.
func (m *Member) forgetEarlierSessions(in *Incarnation) {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.ownSessions)
	m.ownSessions[in.Session.ID()] = true
}

// heldEarlier reports whether the record of an instance is of this process, in a session that it
// has lost.
func (m *Member) heldEarlier(e registry.Entry) bool {
	held, err := record.Decode[record.Instance](e.Value)
	m.mu.Lock()
	defer m.mu.Unlock()
	return err == nil && m.ownSessions[held.Session]
}

// BuildJoinTxn is the transaction by which an incarnation enters the fleet.
func (m *Member) BuildJoinTxn(in *Incarnation, member record.Member) (registry.Txn, error) {
	instance, err := record.Encode(record.Instance{
		Session: in.Session.ID(), Host: m.host, PID: os.Getpid(), Started: record.InstantOf(m.Clock()),
	})
	if err != nil {
		return registry.Txn{}, err
	}
	value, err := record.Encode(member)
	return registry.Txn{
		ID: registry.NewTxnID(),
		Then: []registry.Op{
			registry.CreateOwned(m.Keys.Instance(m.Name), instance, in.Session.ID()),
			registry.Create(m.Keys.Member(in.ID), value),
		},
	}, err
}

// outcomeUnknown reports that Apply could not tell what became of a transaction, though it was
// given the time.
func outcomeUnknown(ctx context.Context, err error) bool {
	return errors.Is(err, registry.ErrUnknownOutcome) && ctx.Err() == nil
}

// AwaitJoined waits until the registry knows this process and all that it offers.
func (m *Member) AwaitJoined(ctx context.Context) error {
	return m.awaitCondition(ctx, func() bool { return m.current != nil && m.current.publishedVersion >= m.recordVersion })
}

// newNameTakenError returns the error of a member whose name has been held by another process for
// longer than it waited. held is the record of that process.
func newNameTakenError(name string, held registry.Entry, waited time.Duration) error {
	holder := "an instance has it"
	if r, err := record.Decode[record.Instance](held.Value); err == nil {
		holder = describeInstance(r)
	}
	return fmt.Errorf("join as %s: %w: %s, and kept it for %v, longer than the session of a crashed predecessor lasts",
		name, ErrNameTaken, holder, waited)
}

// describeInstance returns which process a record of an instance is of, as far as it states that.
func describeInstance(r record.Instance) string {
	text := "an instance"
	if r.PID != 0 {
		text = fmt.Sprintf("process %d", r.PID)
	}
	if r.Host != "" {
		text += fmt.Sprintf(" on host %.100q", r.Host)
	}
	text += " has had it"
	if r.Started != 0 {
		text += " since " + r.Started.Time().Format(time.RFC3339)
	}
	return text
}
