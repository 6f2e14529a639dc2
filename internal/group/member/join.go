package member

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/rota-dev/rota/internal/group/batch"
	"github.com/rota-dev/rota/internal/group/claimer"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// ErrNameTaken means that a live instance holds the name: it has kept the name for longer than
// the session of a crashed predecessor lasts. The error's text names its process and host.
var ErrNameTaken = errors.New("instance name taken")

// enterNamespace checks that this version may use the namespace, and joins the group. If records that
// this process remembers are lost, it raises the fences and restores intents before it returns.
func (m *Member) enterNamespace(ctx context.Context, in *Incarnation) (published PublishedState, err error) {
	meta, rev, err := m.readMeta(ctx, 0)
	if err == nil && m.seen.noticesLoss(&meta) {
		err = m.handleLoss(ctx, &meta) // before a plan of a paused job can be made
	}
	if err == nil {
		published, err = m.joinGroup(ctx, in)
	}
	if err == nil && m.seen.hasRewound(&meta, published.Rev.Seq) {
		if meta, rev, err = m.readMeta(ctx, published.Rev.Seq); err == nil && m.seen.noticesLoss(&meta) {
			err = m.handleLoss(ctx, &meta)
		}
	}
	if err == nil {
		if m.seen.id != "" && m.seen.id != meta.ID && meta.Incident == nil {
			m.Log.Info("the store was replaced or set back, and an operator has acknowledged it", "from", m.seen.id, "id", meta.ID, "fence_base", meta.FenceBase)
		}
		in.metaID, in.namespace = meta.ID, claimer.Namespace{FenceBase: meta.FenceBase, Rev: rev}
		m.seen.adopt(&meta, published.Rev.Seq)
	}
	return published, err
}

// readMeta reads the record of the namespace, and fails if the namespace has a newer format. The first
// member creates the record. One that remembers another state of the store than it finds writes that
// into the record. joinCommit is as in storeMemory.reconcile.
func (m *Member) readMeta(ctx context.Context, joinCommit uint64) (meta record.Meta, rev registry.Rev, err error) {
	for {
		meta = record.Meta{Format: record.Format}
		e, err := m.Reg.Get(ctx, m.Keys.Meta(), Fresh)
		switch {
		case err == nil:
			meta, err = record.DecodeMeta(e.Value)
			if m.shouldRetryMeta(err) && sleepContext(ctx, claimer.RefusedRetryDelay) {
				continue
			}
			if err != nil {
				return meta, rev, fmt.Errorf("read %s: %w", m.Keys.Meta(), err)
			}
		case errors.Is(err, registry.ErrNotFound):
		case m.shouldRetryMeta(err) && sleepContext(ctx, claimer.RefusedRetryDelay):
			continue
		case !registry.Retryable(err) || !sleepContext(ctx, readRetryDelay):
			return meta, rev, fmt.Errorf("read %s: %w", m.Keys.Meta(), err)
		default:
			continue
		}
		exists := err == nil
		next, changed := m.seen.reconcile(meta, exists, joinCommit, m.Name, record.InstantOf(m.Clock()))
		if !changed {
			return meta, e.Modified, nil
		}
		value, err := record.Encode(next)
		if err != nil {
			return meta, rev, err
		}
		op := registry.Create(m.Keys.Meta(), value)
		if exists {
			op = registry.Set(m.Keys.Meta(), e.Modified, value)
		}
		_, err = registry.Apply(ctx, m.Reg, registry.Txn{Then: []registry.Op{op}})
		if err != nil && !errors.Is(err, registry.ErrConflict) {
			return meta, rev, fmt.Errorf("write %s: %w", m.Keys.Meta(), err)
		}
		// Another member may have written the record: read the stored version.
	}
}

// shouldRetryMeta reports whether to retry a read of the namespace record that failed with err,
// and logs the key once. A process that has been in the group waits until the record is mended;
// one that starts fails.
func (m *Member) shouldRetryMeta(err error) bool {
	m.mu.Lock()
	joined := m.hasJoined
	m.mu.Unlock()
	if err == nil || !joined || errors.Is(err, record.ErrNewerFormat) || registry.Retryable(err) || errors.Is(err, registry.ErrClosed) {
		return false
	}
	m.reportUnreadableMeta(err)
	return true
}

// reportUnreadableMeta logs once that the namespace record cannot be read.
func (m *Member) reportUnreadableMeta(err error) {
	m.mu.Lock()
	reported := m.reportedMeta
	m.reportedMeta = true
	m.mu.Unlock()
	if !reported {
		m.Log.Error("cannot join again: the record of the namespace cannot be read; restore or delete it", "key", string(m.Keys.Meta()), "error", err)
	}
}

// rereadMeta reads the namespace record, which has changed since an incarnation read it. The incarnation
// continues to claim while the record is missing or unreadable. It gives its session up if the record has
// another ID, since it reports the loss and restores what it remembers when it joins again.
func (m *Member) rereadMeta(ctx context.Context, in *Incarnation) (claimer.Namespace, error) {
	e, err := m.Reg.Get(ctx, m.Keys.Meta(), Fresh)
	foreign := errors.Is(err, registry.ErrForeign)
	switch {
	case errors.Is(err, registry.ErrNotFound): // the next process that joins creates it
		return claimer.Namespace{}, nil
	case err != nil && !foreign:
		return claimer.Namespace{}, fmt.Errorf("read %s: %w", m.Keys.Meta(), err)
	}
	var meta record.Meta
	if !foreign {
		meta, err = record.DecodeMeta(e.Value)
	}
	if err != nil {
		m.reportUnreadableMeta(err)
		return claimer.Namespace{Rev: e.Modified, Unconditional: foreign}, nil
	}
	if meta.ID != in.metaID && meta.ID != "" {
		return claimer.Namespace{}, fmt.Errorf("%s has another ID: the store was replaced or set back: %w", m.Keys.Meta(), record.ErrEdited)
	}
	return claimer.Namespace{FenceBase: meta.FenceBase, Rev: e.Modified}, nil
}

// joinGroup stores the definitions that this process offers and creates its records. The name
// may still be held by a predecessor whose session has not expired, so joinGroup waits for
// somewhat longer than a session lasts. It waits without limit for an earlier session of this
// process, since a store that has lost its leader or its clients renews all sessions.
//
// Each attempt sends the same transaction. A delayed request may be applied long after a later
// one was refused, so the instance key decides whether the transaction was applied.
func (m *Member) joinGroup(ctx context.Context, in *Incarnation) (PublishedState, error) {
	published := m.ComposeState(in)
	// readMeta made a fresh read, and later reads of a handle never return older data.
	if err := m.storeDefinitions(ctx, published.defs, registry.ReadOptions{}); err != nil {
		return PublishedState{}, err
	}
	if err := m.storeKinds(ctx, published.kinds); err != nil {
		return PublishedState{}, err
	}
	m.superseded.publish(&published.Member, published.defs)
	t, err := m.BuildJoinTxn(in, published.Member)
	if err != nil {
		return PublishedState{}, err
	}
	// A store may end a session later than its TTL: one whose clock is advanced by its clients stands still while all of them restart.
	patience := in.Session.TTL() + max(in.Session.TTL()/4, 2*time.Second)
	began := time.Now()
	reported := false
	for {
		rev, err := registry.Apply(ctx, m.Reg, t)
		refusal, refused := batch.FindConflict(err)
		switch {
		case err == nil:
			published.Rev = rev
			m.forgetEarlierSessions(in)
			return published, nil
		case refused && refusal.Index > 0, !refused && !outcomeUnknown(ctx, err):
			return PublishedState{}, fmt.Errorf("join as %s: %w", in.ID, err)
		}
		e, err := m.Reg.Get(ctx, m.Keys.Instance(m.Name), Fresh)
		switch {
		case err == nil && e.Txn == t.ID:
			published.Rev = e.Modified
			m.forgetEarlierSessions(in)
			return published, nil
		case err == nil && !m.heldEarlier(e) && time.Since(began) > patience:
			return PublishedState{}, newNameTakenError(m.Name, e, patience)
		case errors.Is(err, registry.ErrForeign) && !reported:
			reported = true
			m.Log.Error("cannot join: another program wrote the value of the key; delete it", "key", string(m.Keys.Instance(m.Name)), "error", err)
		case err == nil && !reported:
			if _, err := record.Decode[record.Instance](e.Value); err != nil {
				reported = true
				m.Log.Error("cannot join: the record at the key of this instance cannot be read; delete the key, or start the instance under another name",
					"key", string(e.Key), "session", string(e.Owner), "error", err)
			}
		}
		if !sleepContext(ctx, min(max(in.Session.TTL()/40, 20*time.Millisecond), time.Second)) {
			return PublishedState{}, context.Cause(ctx)
		}
	}
}

// forgetEarlierSessions records that the incarnation holds the name, so that no earlier session
// of this process does.
func (m *Member) forgetEarlierSessions(in *Incarnation) {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.ownSessions)
	m.ownSessions[in.Session.ID()] = true
}

// heldEarlier reports whether an instance key belongs to an earlier session of this process.
func (m *Member) heldEarlier(e registry.Entry) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ownSessions[e.Owner]
}

// BuildJoinTxn returns the transaction that creates the records of an incarnation.
func (m *Member) BuildJoinTxn(in *Incarnation, member record.Member) (registry.Txn, error) {
	instance, err := record.Encode(record.Instance{
		Session: in.Session.ID(), Group: m.group, Host: m.host, PID: os.Getpid(), Started: record.InstantOf(m.Clock()),
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

// outcomeUnknown reports whether err means that Apply could not find out whether a transaction
// was applied, although ctx has not ended.
func outcomeUnknown(ctx context.Context, err error) bool {
	return errors.Is(err, registry.ErrUnknownOutcome) && ctx.Err() == nil
}

// AwaitJoined waits until the member record exists and shows all that this process offers. It fails if ctx has ended
// before the call, even if the member has joined.
func (m *Member) AwaitJoined(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return m.awaitCondition(ctx, func() bool { return m.current != nil && m.current.publishedVersion >= m.recordVersion })
}

// newNameTakenError returns the error of a member whose name another process has held while the
// member waited. held is the instance key.
func newNameTakenError(name string, held registry.Entry, waited time.Duration) error {
	r, err := record.Decode[record.Instance](held.Value)
	holder := describeInstance(r)
	if err != nil {
		holder = fmt.Sprintf("another writer has stored a record at %s that cannot be read (delete the key, or choose another name)", held.Key)
	}
	return fmt.Errorf("join as %s: %w: %s, and kept it for %v, longer than the session of a crashed predecessor lasts",
		name, ErrNameTaken, holder, waited)
}

// describeInstance names the process that wrote an instance record.
func describeInstance(r record.Instance) string {
	text := "an instance"
	if r.PID != 0 {
		text = fmt.Sprintf("process %d", r.PID)
	}
	if r.Host != "" {
		text += fmt.Sprintf(" on host %.100q", r.Host)
	}
	text += " has held it"
	if r.Started != 0 {
		text += " since " + r.Started.Time().Format(time.RFC3339)
	}
	return text
}
