package leader

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/defined"
	"github.com/rota-dev/rota/internal/group/due"
	"github.com/rota-dev/rota/internal/group/elector"
	"github.com/rota-dev/rota/internal/group/feed"
	"github.com/rota-dev/rota/internal/group/planning"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

// never is the program of a job that has fired for the last time.
type never struct{}

func (never) Due(_, _, _ time.Time) due.Due     { return due.Due{} }
func (never) SkipDue(_, _, _ time.Time) due.Due { return due.Due{} }

// definedWorld is a leader beside a store, and a defined job "one" whose owner a has claimed a fire, while b has claimed none.
type definedWorld struct {
	t     *testing.T
	l     *Leader
	reg   registry.Registry
	keys  record.Keys
	entry defined.Entry
}

func newDefinedWorld(t *testing.T) *definedWorld {
	w := &definedWorld{t: t, reg: memory.New().Client("a")}
	var err error
	w.keys, err = record.NewKeys("test", "default")
	require.NoError(t, err)
	w.l = &Leader{
		Self: elector.Self{Reg: w.reg, Keys: w.keys, Clock: time.Now, Planning: &elector.PlanningCalls{}}, Log: slog.New(slog.DiscardHandler),
		Progress: &elector.Progress{}, Nudge: make(chan struct{}, 1), SentAlone: map[string]bool{},
		View: planning.View{
			Keys: w.keys, Term: w.put(w.keys.Leader(), registry.Rev{}, "term"), Now: record.InstantOf(time.Now()), DefinedSynced: true, RestTick: true,
			Group: planning.GroupRecord{GroupControl: &record.GroupControl{}}, Compile: func(json.RawMessage) (due.Program, error) { return never{}, nil },
			Control: map[string]planning.ControlRecord{}, Jobs: map[string]planning.JobRecord{}, Plans: map[string]planning.PlanRecord{},
			Defined: map[string]planning.DefinedRecord{}, Members: map[string]planning.MemberRecord{}, Live: map[registry.SessionID]bool{},
			Reads: map[string]planning.FreshRead{},
		},
	}
	w.l.jobs = feed.New(w.keys.Jobs(), w.l.Log, func(registry.Entry) (planning.JobRecord, error) { return planning.JobRecord{}, nil }).NewReader(w.l.wakeUp)
	w.l.PlanFeed = feed.New(w.keys.Plans(), w.l.Log, func(registry.Entry) (*record.Plan, error) { return nil, nil })
	w.l.Edits = NewEdits(w.reg, w.keys, w.l.Log)
	w.l.defined.synced = true
	return w
}

// put writes a record at a revision; a zero one creates it.
func (w *definedWorld) put(key registry.Key, rev registry.Rev, v any) registry.Rev {
	w.t.Helper()
	value, err := record.Encode(v)
	require.NoError(w.t, err)
	op := registry.Set(key, rev, value)
	if rev.IsZero() {
		op = registry.Create(key, value)
	}
	rev, err = w.reg.Txn(w.t.Context(), registry.Txn{Then: []registry.Op{op}})
	require.NoError(w.t, err)
	return rev
}

// has returns which of the records of the job are there, by the ends of their keys.
func (w *definedWorld) has() (kinds []string) {
	k := w.keys
	for _, of := range []struct {
		kind string
		key  registry.Key
	}{{"definition", k.Job("one")}, {"plan", k.Plan("one")}, {"claims", k.Claims("a.A", "one")}, {"state", k.Data("one", 0)}, {"defined", k.Defined("one")}, {"control", k.Control("one")}} {
		if _, err := w.reg.Get(w.t.Context(), of.key, registry.ReadOptions{}); err == nil {
			kinds = append(kinds, of.kind)
		}
	}
	return kinds
}

// define stores the record of the job: a creation, or a deletion if created is empty.
func (w *definedWorld) define(created string) {
	d := &record.Defined{Job: "one", Created: created, Revision: 1}
	if created != "" {
		d.Definition = json.RawMessage(fmt.Sprintf(`{"created":%q,"kind":"k","name":"one","revision":1,"shards":2}`, created))
	}
	value, err := record.Encode(d)
	require.NoError(w.t, err)
	rev := w.put(w.keys.Defined("one"), w.entry.Rev, d)
	d, err = record.DecodeDefined(value)
	require.NoError(w.t, err)
	w.entry = defined.EntryOf(d, rev, value)
	w.l.defined.index.Put("one", w.entry)
	w.l.View.Defined["one"] = planning.DefinedRecord{Rev: rev, Defined: d}
}

// wake stores the job's other records: its definition, a plan, claims of a, and a state.
func (w *definedWorld) wake() {
	def := []byte(`{"created":"t1","kind":"k","name":"one","revision":1,"shards":2}`)
	epoch, err := record.NewEpoch(1, 1, def)
	require.NoError(w.t, err)
	v := &w.l.View
	v.Jobs["one"] = planning.JobRecord{Rev: w.put(w.keys.Job("one"), registry.Rev{}, json.RawMessage(def)), Def: def, Job: epoch.Job()}
	p := &record.Plan{
		Format: record.Format, Job: "one", Life: "t1.0", Epochs: []record.Epoch{epoch},
		Owners: map[string]shardset.Set{"a.A": shardset.Range(0, 1), "b.B": shardset.Range(1, 2)},
	}
	v.Plans["one"] = planning.PlanRecord{Rev: w.put(w.keys.Plan("one"), registry.Rev{}, p), Plan: p}
	c := record.Claims{Job: "one", Watermarks: record.Watermarks{}.Raise(shardset.Range(0, 1), record.Watermark{Epoch: 1, Fire: 7, Attempt: 1}), Counts: record.Counts{Claimed: 1, Succeeded: 1}}
	rev := w.put(w.keys.Claims("a.A", "one"), registry.Rev{}, &c)
	for _, inc := range []string{"a.A", "b.B"} {
		v.Members[inc] = planning.MemberRecord{Member: record.Member{Name: inc[:1], Session: record.SessionOf(inc), Kinds: map[string]int{"k": 0}}}
		v.Live[record.SessionOf(inc)] = true
		v.Reads[inc] = planning.FreshRead{Seen: 1 << 40, Claims: map[string]planning.ClaimsRecord{}}
	}
	v.Reads["a.A"].Claims["one"] = planning.ClaimsRecord{Rev: rev, Claims: c}
	w.put(w.keys.Data("one", 0), registry.Rev{}, "state")
}

// beforeTxn calls a function before each transaction.
type beforeTxn struct {
	registry.Registry
	call func(registry.Txn)
}

func (b *beforeTxn) Txn(ctx context.Context, txn registry.Txn) (registry.Rev, error) {
	b.call(txn)
	return b.Registry.Txn(ctx, txn)
}

// decide returns the one rest that planning wants.
func (w *definedWorld) decide() planning.Decision {
	w.t.Helper()
	d := planning.Decide(&w.l.View)
	require.Len(w.t, d.Rests, 1)
	return planning.Decision{Rests: d.Rests}
}

// TestResume_Guards deletes a job between the decision to end the pause of its plan and the commit of that: once Delete has found
// the plan paused, no run may be claimed.
func TestResume_Guards(t *testing.T) {
	paused := func(t *testing.T) *definedWorld {
		w := newDefinedWorld(t)
		w.define("t1")
		w.wake()
		p := w.l.View.Plans["one"].Plan.Clone()
		p.Paused, p.Epochs[0].Until = true, 8
		w.l.View.Plans["one"] = planning.PlanRecord{Rev: w.put(w.keys.Plan("one"), w.l.View.Plans["one"].Rev, p), Plan: p}
		w.l.View.Control["one"] = planning.ControlRecord{Control: &record.Control{Job: "one"}}
		return w
	}
	isPaused := func(t *testing.T, w *definedWorld) bool {
		e, err := w.reg.Get(t.Context(), w.keys.Plan("one"), registry.ReadOptions{})
		require.NoError(t, err)
		p, err := record.DecodePlan(e.Value)
		require.NoError(t, err)
		return p.Paused
	}
	for _, deleted := range []bool{false, true} {
		t.Run(fmt.Sprintf("the record of the defined job as known, deleted: %v", deleted), func(t *testing.T) {
			w := paused(t)
			d := planning.Decide(&w.l.View)
			require.Len(t, d.Changes, 1)
			if deleted {
				w.put(w.keys.Defined("one"), w.entry.Rev, &record.Defined{Job: "one"})
			}
			_, err := w.l.CommitDecision(t.Context(), d)
			assert.Equal(t, deleted, errors.Is(err, registry.ErrConflict))
			assert.Equal(t, deleted, isPaused(t, w))
		})
	}
	t.Run("a leader that does not know the record yet ends no pause", func(t *testing.T) {
		w := paused(t)
		w.l.View.DefinedSynced = false
		assert.Empty(t, planning.Decide(&w.l.View).Changes)
	})
}

// TestRests_Guards changes a record between the decision to put a job to rest, or to delete it, and its commit.
func TestRests_Guards(t *testing.T) {
	resting := func(t *testing.T) (*definedWorld, planning.Decision) {
		w := newDefinedWorld(t)
		w.define("t1")
		w.wake()
		return w, w.decide()
	}
	deleting := func(t *testing.T) (*definedWorld, planning.Decision) {
		w := newDefinedWorld(t)
		w.define("t1")
		w.wake()
		p := w.l.View.Plans["one"].Plan.Clone()
		p.Paused = true
		p.Epochs[0].Until = 8
		w.l.View.Plans["one"] = planning.PlanRecord{Rev: w.put(w.keys.Plan("one"), w.l.View.Plans["one"].Rev, p), Plan: p}
		w.define("")
		return w, w.decide()
	}
	commit := func(t *testing.T, w *definedWorld, d planning.Decision) []string {
		_, err := w.l.CommitDecision(t.Context(), d)
		require.NoError(t, err)
		return w.has()
	}
	all := []string{"definition", "plan", "claims", "state", "defined"}
	t.Run("a job rests, and keeps the states of its shards", func(t *testing.T) {
		w, d := resting(t)
		assert.Equal(t, []string{"state", "defined"}, commit(t, w, d))
		e, known := w.l.defined.index.Get("one")
		require.True(t, known)
		rec, err := e.Decode()
		require.NoError(t, err)
		assert.Equal(t, &record.Rest{Number: 1, Epoch: 1, From: 8, Counts: record.Counts{Claimed: 1, Succeeded: 1}, Finished: w.l.View.Now}, rec.Rest)
		assert.Empty(t, planning.Decide(&w.l.View).Rests, "the view contains the commit")
	})
	t.Run("a deleted job leaves a tombstone only", func(t *testing.T) {
		w, d := deleting(t)
		assert.Equal(t, []string{"defined"}, commit(t, w, d))
		e, known := w.l.defined.index.Get("one")
		require.True(t, known)
		assert.True(t, e.IsGone())
	})
	for _, of := range []struct {
		name   string
		change func(*definedWorld)
	}{
		{"claims as read", func(w *definedWorld) {
			w.put(w.keys.Claims("a.A", "one"), w.l.View.Reads["a.A"].Claims["one"].Rev, &record.Claims{Job: "one"})
		}},
		{"no claims, as read", func(w *definedWorld) {
			w.put(w.keys.Claims("b.B", "one"), registry.Rev{}, &record.Claims{Job: "one"})
		}},
		{"the plan as read", func(w *definedWorld) {
			w.put(w.keys.Plan("one"), w.l.View.Plans["one"].Rev, w.l.View.Plans["one"].Plan)
		}},
		{"the definition as read", func(w *definedWorld) {
			w.put(w.keys.Job("one"), w.l.View.Jobs["one"].Rev, w.l.View.Jobs["one"].Def)
		}},
		{"the record of the defined job as read", func(w *definedWorld) {
			w.put(w.keys.Defined("one"), w.entry.Rev, w.l.View.Defined["one"].Defined)
		}},
	} {
		t.Run(of.name, func(t *testing.T) {
			w, d := resting(t)
			of.change(w)
			assert.Equal(t, all, commit(t, w, d))
			w, d = deleting(t)
			of.change(w)
			left := commit(t, w, d)
			assert.Contains(t, left, "definition")
			assert.Contains(t, left, "claims")
			assert.Contains(t, left, "defined")
		})
	}
	t.Run("the term", func(t *testing.T) {
		w, d := resting(t)
		w.put(w.keys.Leader(), w.l.View.Term, "next term")
		_, err := w.l.CommitDecision(t.Context(), d)
		require.ErrorIs(t, err, elector.ErrTermOver)
		assert.Equal(t, all, w.has())
	})
	t.Run("an intent for the next creation stays", func(t *testing.T) {
		for _, since := range []bool{false, true} {
			w, _ := deleting(t)
			w.define("t2")
			w.l.View.Defined["one"].At = 100
			c := &record.Control{Job: "one", Acts: record.Acts{{At: 99}}}
			if since {
				c.Acts[0].At = 100
			}
			w.l.View.Control["one"] = planning.ControlRecord{Rev: w.put(w.keys.Control("one"), registry.Rev{}, c), Control: c}
			left := commit(t, w, w.decide())
			assert.Contains(t, left, "defined", "the next creation")
			assert.Equal(t, since, left[len(left)-1] == "control", left)
			_, known := w.l.View.Control["one"]
			assert.Equal(t, since, known, "the view contains the commit")
		}
	})
	t.Run("a state that is saved meanwhile is not left behind", func(t *testing.T) {
		w, d := deleting(t)
		saved := false
		w.l.Self.Reg = &beforeTxn{w.reg, func(txn registry.Txn) {
			if key := w.keys.Data("one", 0); !saved && slices.ContainsFunc(txn.Then, func(o registry.Op) bool { return o.Key == key }) {
				saved = true
				e, err := w.reg.Get(t.Context(), key, registry.ReadOptions{})
				require.NoError(t, err)
				w.put(key, e.Modified, "later")
			}
		}}
		assert.Equal(t, all, commit(t, w, d), "the job is decided anew")
		assert.Equal(t, []string{"defined"}, commit(t, w, w.decide()), "its tombstone")
	})
	t.Run("an intent that is not observed yet is not left behind", func(t *testing.T) {
		w, d := deleting(t)
		w.put(w.keys.Control("one"), registry.Rev{}, &record.Control{Job: "one"})
		assert.Equal(t, []string{"definition", "plan", "claims", "defined", "control"}, commit(t, w, d), "the job is decided anew")
	})
	t.Run("a record with a value of another program is not taken for a deletion", func(t *testing.T) {
		w := newDefinedWorld(t)
		w.define("t1")
		w.wake()
		p := w.l.View.Plans["one"].Plan.Clone()
		p.Paused, p.Epochs[0].Until = true, 8
		w.l.View.Plans["one"] = planning.PlanRecord{Rev: w.put(w.keys.Plan("one"), w.l.View.Plans["one"].Rev, p), Plan: p}
		delete(w.l.View.Defined, "one") // as lists leave such a value out
		assert.Contains(t, commit(t, w, w.decide()), "definition")
	})
}

// TestSteps_Guards changes a record between the decision to wake or to delete a resting job and its commit.
func TestSteps_Guards(t *testing.T) {
	step := func(t *testing.T, w *definedWorld) []string {
		require.NoError(t, w.l.StepDefined(t.Context()))
		return w.has()
	}
	due := func(t *testing.T, created string) *definedWorld {
		w := newDefinedWorld(t)
		w.define(created)
		if created != "" {
			w.entry.Next = 1
			w.l.defined.index.Put("one", w.entry)
		}
		return w
	}
	t.Run("none fails", func(t *testing.T) {
		w := due(t, "t1")
		assert.Equal(t, []string{"definition", "defined"}, step(t, w))
		assert.Contains(t, w.l.View.Jobs, "one")
	})
	t.Run("a deleted job leaves a tombstone, which is deleted after its time, on condition that it is as known", func(t *testing.T) {
		for _, changed := range []bool{false, true} {
			w, now := due(t, ""), time.Now()
			w.l.Self.Clock = func() time.Time { return now }
			w.put(w.keys.Data("one", 0), registry.Rev{}, "state")
			assert.Equal(t, []string{"defined"}, step(t, w))
			now = now.Add(record.TombstoneTime - time.Second)
			assert.Equal(t, []string{"defined"}, step(t, w))
			if e, _ := w.l.defined.index.Get("one"); changed {
				w.put(w.keys.Defined("one"), e.Rev, &record.Defined{Job: "one"})
			}
			now = now.Add(time.Second)
			assert.Equal(t, changed, len(step(t, w)) == 1)
		}
	})
	t.Run("wake: the record as read", func(t *testing.T) {
		w := due(t, "t1")
		w.put(w.keys.Defined("one"), w.entry.Rev, w.l.View.Defined["one"].Defined)
		assert.Equal(t, []string{"defined"}, step(t, w))
	})
	t.Run("wake: no plan", func(t *testing.T) {
		w := due(t, "t1")
		w.put(w.keys.Plan("one"), registry.Rev{}, "plan")
		assert.Equal(t, []string{"plan", "defined"}, step(t, w))
	})
	t.Run("wake: no definition", func(t *testing.T) {
		w := due(t, "t1")
		rev := w.put(w.keys.Job("one"), registry.Rev{}, json.RawMessage(`{"name":"one","shards":2}`))
		step(t, w)
		e, err := w.reg.Get(t.Context(), w.keys.Job("one"), registry.ReadOptions{})
		require.NoError(t, err)
		assert.Equal(t, rev, e.Modified)
	})
	t.Run("update: the definition as read", func(t *testing.T) {
		w := due(t, "t1")
		step(t, w)
		newer := w.entry
		newer.Revision = 2
		w.l.defined.index.Put("one", newer)
		rev := w.put(w.keys.Job("one"), w.l.View.Jobs["one"].Rev, w.l.View.Jobs["one"].Def)
		step(t, w)
		e, err := w.reg.Get(t.Context(), w.keys.Job("one"), registry.ReadOptions{})
		require.NoError(t, err)
		assert.Equal(t, rev, e.Modified)
	})
	t.Run("delete: the record as read, for the states too", func(t *testing.T) {
		w := due(t, "")
		w.put(w.keys.Data("one", 0), registry.Rev{}, "state")
		w.put(w.keys.Defined("one"), w.entry.Rev, w.l.View.Defined["one"].Defined)
		assert.Equal(t, []string{"state", "defined"}, step(t, w))
	})
	t.Run("delete: no definition and no plan", func(t *testing.T) {
		for _, key := range []registry.Key{"jobs", "plan"} {
			w := due(t, "")
			k := w.keys.Plan("one")
			if key == "jobs" {
				k = w.keys.Job("one")
			}
			w.put(k, registry.Rev{}, "other")
			assert.Contains(t, step(t, w), "defined")
		}
	})
	t.Run("delete: the intent as known", func(t *testing.T) {
		w := due(t, "")
		c := &record.Control{Job: "one"}
		rev := w.put(w.keys.Control("one"), registry.Rev{}, c)
		w.l.View.Control["one"] = planning.ControlRecord{Rev: rev, Control: c}
		w.put(w.keys.Control("one"), rev, c)
		assert.Equal(t, []string{"defined", "control"}, step(t, w))
		w = due(t, "")
		w.put(w.keys.Control("one"), registry.Rev{}, c) // not observed yet
		assert.Equal(t, []string{"defined", "control"}, step(t, w))
		e, _ := w.l.defined.index.Get("one")
		assert.False(t, e.IsGone())
	})
	t.Run("what fails is decided again, without an event", func(t *testing.T) {
		for _, created := range []string{"t1", ""} {
			w := due(t, created)
			w.l.Self.Reg = failing{w.reg}
			require.ErrorIs(t, w.l.StepDefined(t.Context()), errFailing)
			w.l.Self.Reg = w.reg
			assert.Equal(t, created != "", slices.Contains(step(t, w), "definition"))
			e, _ := w.l.defined.index.Get("one")
			assert.Equal(t, created == "", e.IsGone())
		}
	})
	t.Run("the term", func(t *testing.T) {
		for _, created := range []string{"t1", ""} {
			w := due(t, created)
			w.put(w.keys.Leader(), w.l.View.Term, "next term")
			require.ErrorIs(t, w.l.StepDefined(t.Context()), elector.ErrTermOver)
			assert.Equal(t, []string{"defined"}, w.has())
		}
	})
}

// failing is a registry that commits nothing.
type failing struct{ registry.Registry }

var errFailing = errors.New("failing")

func (failing) Txn(context.Context, registry.Txn) (registry.Rev, error) {
	return registry.Rev{}, errFailing
}

func TestCounts_ArePublished(t *testing.T) {
	w := newDefinedWorld(t)
	w.define("t1")
	require.NoError(t, w.l.publishCounts(t.Context()))
	w.l.defined.countAgainAt = time.Now().Add(-1)
	require.NoError(t, w.l.publishCounts(t.Context()))
	e, err := w.reg.Get(t.Context(), w.keys.KindCounts(), registry.ReadOptions{})
	require.NoError(t, err)
	c, err := record.DecodeKindCounts(e.Value)
	require.NoError(t, err)
	assert.Equal(t, map[string]int{"k": 1}, c.ByKind)
	assert.Equal(t, 1, c.Total())
	t.Run("a leader whose term is over writes none", func(t *testing.T) {
		w.put(w.keys.Leader(), w.l.View.Term, "next term")
		w.l.defined.index.Remove("one")
		w.l.defined.countAgainAt = time.Now().Add(-1)
		require.ErrorIs(t, w.l.publishCounts(t.Context()), elector.ErrTermOver)
	})
}
