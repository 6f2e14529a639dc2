package member

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// storeMemory is what a process knows of the store from its earlier incarnations. It is zero in a
// process that has not joined yet. See docs/decisions/060-a-process-remembers-its-store.md.
type storeMemory struct {
	id    string // of the namespace's records
	seq   uint64 // the highest commit
	fence uint64 // no claim up to seq has a higher fence
	// setBack is true if a commit of the last incarnation has shown that the store was set back.
	setBack bool

	reported string // the ID of the records with which this process reported a loss last

	// The intents at the end of the last incarnation; nil before it has ended.
	plans    map[string]*record.Plan    // by segment
	controls map[string]*record.Control // by segment; nil unless the incarnation led at its end
	group    *record.GroupControl       // nil unless the incarnation led at its end
}

// led reports whether the last incarnation led the group at its end, and so knew all intents.
func (s *storeMemory) led() bool { return s.group != nil }

// reconcile returns the record of the namespace as a joining member needs it, given the stored one: with
// an ID, with fences above those that the member remembers, and with the incident that it notices.
// joinCommit is the commit by which the member has joined, or 0 before it has.
func (s *storeMemory) reconcile(meta record.Meta, exists bool, joinCommit uint64, by string, now record.Instant) (next record.Meta, changed bool) {
	next = meta
	switch {
	case meta.ID != "":
	case exists && s.id != "": // an older version wrote the record; another store shows itself by its commits
		next.ID = s.id
	default:
		next.ID = record.NewMetaID()
	}
	kind := ""
	switch {
	case s.id == "":
	case !next.Continues(s.id):
		kind = record.IncidentReplaced
	case s.hasRewound(&next, joinCommit):
		kind = record.IncidentRewound
		next.ID = record.NewMetaID() // so that the others who remember the old one notice as well, once
	}
	if kind != "" {
		next.Replace(s.id)
	}
	if s.id != "" && next.ID != s.id {
		next.RaiseFences(s.fence)
	}
	switch {
	case kind != "" && next.Incident == nil:
		next.Incident = &record.Incident{Kind: kind, From: s.id, Seq: s.seq, Noticed: now, By: by}
	case next.Incident != nil && next.ID != s.id && s.seq > next.Incident.Seq:
		incident := *next.Incident
		incident.Seq = s.seq
		next.Incident = &incident
	}
	return next, !exists || next.ID != meta.ID || next.FenceBase != meta.FenceBase || len(next.Former) != len(meta.Former) || next.Incident != meta.Incident
}

// hasRewound reports whether the commit of a join shows that commits are lost. In one store, each commit
// has a higher number than all that were seen before it.
func (s *storeMemory) hasRewound(meta *record.Meta, joinCommit uint64) bool {
	return meta.ID == s.id && (s.setBack || joinCommit != 0 && joinCommit <= s.seq)
}

// noticesLoss reports whether the process remembers records that are lost, and nobody has acknowledged
// the loss.
func (s *storeMemory) noticesLoss(meta *record.Meta) bool {
	return s.id != "" && s.id != meta.ID && meta.Incident != nil
}

// remember records at the end of an incarnation what the next one has to know. It is called when all
// loops of the incarnation have ended.
func (m *Member) remember(in *Incarnation) {
	s := &m.seen
	s.seq = max(s.seq, in.plans.NewestCommit(), in.Elector.Feed.NewestCommit(), in.Claimer.LastCommit)
	s.fence = max(s.fence, in.Claimer.Namespace.FenceBase+s.seq)
	s.setBack = in.Claimer.SetBack
	s.plans, s.controls, s.group = in.plans.Values(), nil, nil
	if in.Elector.LedLast() {
		s.controls, s.group = in.controls, in.group
	}
}

// adopt records that the member has joined the store whose namespace record is meta.
func (s *storeMemory) adopt(meta *record.Meta, joinCommit uint64) {
	*s = storeMemory{id: meta.ID, seq: joinCommit, fence: max(s.fence, meta.FenceBase+joinCommit)}
}

// rememberedIntent is a control record as a member that remembers it restores it.
type rememberedIntent struct {
	value []byte
	held  bool        // an intent is in force; otherwise the record only ends those of an earlier state
	acts  record.Acts // nil unless the member led, and so knows them
}

// restored counts the records that a member has written from memory.
type restored struct {
	written int // control records that no other member had written from memory before
	// complete is false if a stored record stays that lacks what operators have done to the remembered one.
	complete bool
}

// restoreIntents writes the intents that the member remembers and the store lacks. Records that exist stay, since an operator may have
// stored them, unless a member that led knows that nobody has: then they are of an earlier state, or restored by a member that knew less.
func (m *Member) restoreIntents(ctx context.Context) (restored, error) {
	var err error
	now := record.InstantOf(m.Clock())
	intents := map[registry.Key]rememberedIntent{}
	put := func(key registry.Key, v any, held bool, acts record.Acts) {
		if !held && len(acts) == 0 {
			return
		}
		value, encodeErr := record.EncodeChecked(v)
		err = errors.Join(err, encodeErr)
		intents[key] = rememberedIntent{value, held, acts}
	}
	group := m.seen.group
	for segment, p := range m.seen.plans {
		c := m.seen.controls[segment]
		if c == nil {
			c = p.Intent()
		}
		remembered, held := c.Remembered(now)
		put(m.Keys.Control(segment), remembered, held, c.Acts)
		if group == nil && p.GroupPause != nil {
			group = &record.GroupControl{Paused: true}
		}
	}
	if group != nil {
		remembered, held := group.Remembered(now)
		put(m.Keys.GroupControl(), remembered, held, group.Acts)
	}
	if err != nil {
		return restored{}, err
	}
	all := restored{complete: m.seen.led()}
	for _, key := range slices.Sorted(maps.Keys(intents)) {
		one, err := m.restoreIntent(ctx, key, intents[key])
		all.written += one.written
		all.complete = all.complete && one.complete
		if err != nil {
			return all, fmt.Errorf("restore %s from memory: %w", key, err)
		}
	}
	return all, nil
}

// restoreIntent writes one control record.
func (m *Member) restoreIntent(ctx context.Context, key registry.Key, intent rememberedIntent) (restored, error) {
	for {
		op, stored := registry.Create(key, intent.value), record.Acts(nil)
		switch e, err := m.Reg.Get(ctx, key, Fresh); {
		case errors.Is(err, registry.ErrNotFound):
			if !intent.held {
				return restored{complete: true}, nil
			}
		case errors.Is(err, registry.ErrForeign):
			return restored{}, nil // the leader and diagnosis report it
		case err != nil:
			return restored{}, err
		default:
			if stored, err = m.Keys.DecodeActs(e.Key, e.Value); err != nil {
				return restored{}, nil // a record that cannot be read is reported, too
			}
			if !intent.acts.Supersede(stored) {
				return restored{complete: len(intent.acts) > 0 && !intent.acts.HaveMoreThan(stored)}, nil
			}
			op = registry.Set(key, e.Modified, intent.value)
		}
		_, err := registry.Apply(ctx, m.Reg, registry.Txn{Then: []registry.Op{op}})
		if errors.Is(err, registry.ErrConflict) {
			continue
		}
		one := restored{complete: true}
		if err == nil && !stored.AreFromMemory() {
			one.written = 1
		}
		return one, err
	}
}

// recordRestored adds to the incident what the member has written from memory.
func (m *Member) recordRestored(ctx context.Context, all restored) error {
	for {
		e, err := m.Reg.Get(ctx, m.Keys.Meta(), Fresh)
		if err != nil {
			return fmt.Errorf("read %s: %w", m.Keys.Meta(), err)
		}
		meta, err := record.DecodeMeta(e.Value)
		if err != nil || meta.Incident == nil || all.written == 0 && (meta.Incident.Operators || !all.complete) {
			return err
		}
		meta.Incident.Restored += all.written
		meta.Incident.Operators = meta.Incident.Operators || all.complete
		value, err := record.Encode(meta)
		if err != nil {
			return err
		}
		_, err = registry.Apply(ctx, m.Reg, registry.Txn{Then: []registry.Op{registry.Set(m.Keys.Meta(), e.Modified, value)}})
		if !errors.Is(err, registry.ErrConflict) {
			return err
		}
	}
}

// handleLoss restores the intents that this process remembers, and logs what is lost. It is called
// before this incarnation claims anything.
func (m *Member) handleLoss(ctx context.Context, meta *record.Meta) error {
	all, err := m.restoreIntents(ctx)
	if err == nil {
		err = m.recordRestored(ctx, all)
	}
	if err != nil {
		return err
	}
	if m.seen.reported == meta.ID {
		return nil // the join is tried again
	}
	m.seen.reported = meta.ID
	lost := []string{"watermarks, pending triggers and retries, counts, checkpoints"}
	switch {
	case all.complete:
	case meta.Incident.Kind == record.IncidentRewound:
		lost = append(lost, "changes since that state of control records that it has, as far as no other instance remembers them")
	default:
		lost = append(lost, "disabled instances and hosts, who paused what, as far as no other instance remembers them")
	}
	next := "this instance has restored no pause, disabled shard or override"
	if all.written > 0 {
		next = "the pauses, disabled shards and overrides of the restored control records are in force again"
	}
	m.Log.Error("the store has lost records: it was wiped, replaced or set back", "kind", meta.Incident.Kind, "from", m.seen.id, "id", meta.ID,
		"seen_commit", m.seen.seq, "lost", strings.Join(lost, "; "), "restored", all.written, "fence_base", meta.FenceBase,
		"next", "fences continue above those that instances have seen; "+next,
		"remedy", "restore the store, or run: rota restore FILE, if there is a dump; check: rota acts, rota jobs; then: rota acknowledge")
	return nil
}
