package member

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"github.com/rota-dev/rota/internal/group/batch"
	"github.com/rota-dev/rota/internal/group/feed"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// Offer adds definitions, by job name, that this process can run. A definition is stored if the
// job is new or the definition's revision is higher than the stored one's.
func (m *Member) Offer(defs map[string]json.RawMessage) { m.OfferLocal(defs, nil) }

// OfferLocal is Offer with texts, by job name, that identify the parts of jobs which only this process has. The
// member record has them, for a comparison of the members by operators. They decide nothing.
func (m *Member) OfferLocal(defs map[string]json.RawMessage, locals map[string]string) {
	revs := parseRevisions(defs)
	m.changeState(func() {
		maps.Copy(m.Defs, defs)
		maps.Copy(m.revisions, revs)
		for job := range defs {
			delete(m.locals, job)
		}
		if m.locals == nil && len(locals) > 0 {
			m.locals = map[string]string{}
		}
		maps.Copy(m.locals, locals)
		m.offerVersion++
	})
}

// Withdraw stops offering jobs until the next Offer of them. Their shards are reassigned.
func (m *Member) Withdraw(jobs ...string) {
	m.changeState(func() {
		for _, job := range jobs {
			delete(m.Defs, job)
		}
	})
}

// parseRevisions returns the revisions of definitions, by job. It leaves out a definition that
// cannot be parsed; storing it fails with the reason.
func parseRevisions(defs map[string]json.RawMessage) map[string]int {
	out := make(map[string]int, len(defs))
	for name, def := range defs {
		if job, err := record.ParseJob(def); err == nil {
			out[name] = job.Revision
		}
	}
	return out
}

// storeDefinitions stores the definitions that are newer than the stored ones. read are the
// options of the first read.
func (m *Member) storeDefinitions(ctx context.Context, defs map[string]json.RawMessage, read registry.ReadOptions) error {
	foreign := map[registry.Key]bool{}
	for ; ; read = Fresh {
		again, err := m.TryStoreDefinitions(ctx, defs, read, foreign)
		if err != nil {
			return fmt.Errorf("store definitions: %w", err)
		}
		if !again {
			return nil
		}
		if !sleepContext(ctx, readRetryDelay) {
			return context.Cause(ctx)
		}
	}
}

// TryStoreDefinitions makes one attempt to store newer definitions, and reports whether to make
// another one. It adds keys with foreign values to foreign, and leaves those alone.
func (m *Member) TryStoreDefinitions(ctx context.Context, defs map[string]json.RawMessage, read registry.ReadOptions, foreign map[registry.Key]bool) (again bool, err error) {
	if len(defs) == 0 {
		return false, nil
	}
	listing, err := m.Reg.List(ctx, m.Keys.Jobs(), read)
	if err != nil {
		if registry.Retryable(err) {
			return true, nil
		}
		return false, err
	}
	stored := make(map[string]registry.Entry, len(listing.Entries))
	for _, e := range listing.Entries {
		stored[e.Key.Name()] = e
	}
	var ops []registry.Op
	for _, name := range slices.Sorted(maps.Keys(defs)) {
		op, ok, err := m.decideDefinitionWrite(stored, name, defs[name])
		if err != nil {
			return false, err
		}
		if ok && !foreign[op.Key] {
			ops = append(ops, op)
		}
	}
	m.superseded.logNew(m.Log)
	loads := batch.Pack(nil, ops, m.Reg.Limits(),
		func(o registry.Op) batch.Items { return batch.Items{Ops: []registry.Op{o}} }, func(registry.Op) bool { return false })
	for _, l := range loads {
		_, err := registry.Apply(ctx, m.Reg, l.Txn)
		if errors.Is(err, registry.ErrConflict) {
			again = true // another instance stores the same definitions: compare again
			m.findForeignDefinition(ctx, l.Txn, err, foreign)
		} else if err != nil {
			return false, err
		}
	}
	return again, nil
}

// decideDefinitionWrite compares a definition with the stored one and returns the write that it
// requires, if any.
func (m *Member) decideDefinitionWrite(stored map[string]registry.Entry, name string, def json.RawMessage) (registry.Op, bool, error) {
	mine, err := record.ParseJob(def)
	if err != nil {
		return registry.Op{}, false, fmt.Errorf("job %q: %w", name, err)
	}
	value, err := record.Encode(def)
	if err != nil {
		return registry.Op{}, false, fmt.Errorf("job %q: %w", name, err)
	}
	segment := record.Segment(name)
	key := m.Keys.Job(segment)
	e, ok := stored[segment]
	if !ok {
		return registry.Create(key, value), true, nil
	}
	old, theirs, err := record.DecodeDefinition(e.Value)
	switch {
	case err != nil:
		feed.LogUnreadable(m.Log, slog.LevelError, key, err)
		return registry.Op{}, false, nil
	case theirs.Kind != "":
		m.Log.Error("definition not stored: a job of its name is defined as data, and goes on", "job", name, "kind", theirs.Kind,
			"remedy", "rename the registered job, or delete the defined one and start this process again")
		return registry.Op{}, false, nil
	case theirs.Revision < mine.Revision:
		return registry.Set(key, e.Modified, value), true, nil
	default:
		m.superseded.compareDefinition(mine, theirs, def, old, e.Modified)
	}
	return registry.Op{}, false, nil
}

// findForeignDefinition adds a key to foreign if its foreign value was the reason of a conflict.
// Such a value must not keep the process from joining for its other jobs.
func (m *Member) findForeignDefinition(ctx context.Context, t registry.Txn, err error, foreign map[registry.Key]bool) {
	refusal, refused := batch.FindConflict(err)
	if !refused || refusal.Index < len(t.If) {
		return
	}
	key := t.Then[refusal.Index-len(t.If)].Key
	if _, err := m.Reg.Get(ctx, key, Fresh); errors.Is(err, registry.ErrForeign) {
		m.Log.Error("record left alone: another program wrote its value; delete the key", "key", string(key), "error", err)
		foreign[key] = true
	}
}
