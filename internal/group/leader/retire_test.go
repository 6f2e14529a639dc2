package leader

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/elector"
	"github.com/rota-dev/rota/internal/group/planning"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

// TestRetirements_Guards changes a record between the decision of a leader to delete retired jobs and its commit.
func TestRetirements_Guards(t *testing.T) {
	def := []byte(`{"name":"one","shards":2}`)
	epoch, err := record.NewEpoch(1, 1, def)
	require.NoError(t, err)
	type world struct {
		l      *Leader
		d      planning.Decision
		put    func(key registry.Key, rev registry.Rev, v any) registry.Rev
		exists func(key registry.Key) bool
	}
	// retiring returns a leader that has observed a retired job with all records, and another one, "bare", of which
	// only the intent is left.
	retiring := func(t *testing.T) world {
		reg := memory.New().Client("a")
		keys, err := record.NewKeys("test", "default")
		require.NoError(t, err)
		w := world{put: func(key registry.Key, rev registry.Rev, v any) registry.Rev {
			op, value := registry.Op{}, []byte(nil)
			value, err := record.Encode(v)
			require.NoError(t, err)
			if op = registry.Set(key, rev, value); rev.IsZero() {
				op = registry.Create(key, value)
			}
			rev, err = reg.Txn(t.Context(), registry.Txn{Then: []registry.Op{op}})
			require.NoError(t, err)
			return rev
		}, exists: func(key registry.Key) bool {
			_, err := reg.Get(t.Context(), key, registry.ReadOptions{})
			return err == nil
		}}
		w.l = &Leader{
			Self: elector.Self{Reg: reg, Keys: keys}, Log: slog.New(slog.DiscardHandler), Progress: &elector.Progress{}, Nudge: make(chan struct{}, 1),
			View: planning.View{
				Keys: keys, Term: w.put(keys.Leader(), registry.Rev{}, "term"), Now: 1_000_000_000,
				Group:   planning.GroupRecord{GroupControl: &record.GroupControl{}},
				Control: map[string]planning.ControlRecord{}, Jobs: map[string]planning.JobRecord{}, Plans: map[string]planning.PlanRecord{},
			},
		}
		w.l.Edits = NewEdits(reg, keys, w.l.Log)
		for _, job := range []string{"one", "bare"} {
			c := &record.Control{Job: job, Retiring: &record.Act{What: "retire"}}
			w.l.View.Control[job] = planning.ControlRecord{Rev: w.put(keys.Control(job), registry.Rev{}, c), Control: c}
		}
		p := &record.Plan{Job: "one", Epochs: []record.Epoch{epoch}, Owners: map[string]shardset.Set{}}
		w.l.View.Plans["one"] = planning.PlanRecord{Rev: w.put(keys.Plan("one"), registry.Rev{}, p), Plan: p}
		w.l.View.Jobs["one"] = planning.JobRecord{Rev: w.put(keys.Job("one"), registry.Rev{}, epoch.Def), Def: def, Job: epoch.Job()}
		w.put(keys.Data("one", 1), registry.Rev{}, "state")
		w.d = planning.Decide(&w.l.View)
		require.Len(t, w.d.Retirements, 2)
		require.Empty(t, w.d.Changes)
		return w
	}
	// kept commits the decision and reports which records are left: intent, plan, definition and state of the job.
	kept := func(t *testing.T, w world) (left []bool) {
		_, err := w.l.CommitDecision(t.Context(), w.d)
		require.NoError(t, err)
		k := w.l.Self.Keys
		for _, key := range []registry.Key{k.Control("one"), k.Plan("one"), k.Job("one"), k.Data("one", 1)} {
			left = append(left, w.exists(key))
		}
		return left
	}
	t.Run("none fails", func(t *testing.T) {
		w := retiring(t)
		assert.Equal(t, []bool{false, false, false, false}, kept(t, w))
		assert.False(t, w.exists(w.l.Self.Keys.Control("bare")))
		assert.Empty(t, planning.Decide(&w.l.View).Retirements, "the view contains the commit")
	})
	t.Run("the term", func(t *testing.T) {
		w := retiring(t)
		w.put(w.l.Self.Keys.Leader(), w.l.View.Term, "next term")
		_, err := w.l.CommitDecision(t.Context(), w.d)
		require.ErrorIs(t, err, elector.ErrTermOver)
		assert.True(t, w.exists(w.l.Self.Keys.Data("one", 1)))
		assert.True(t, w.exists(w.l.Self.Keys.Control("bare")))
	})
	t.Run("the intent as read, for the states too", func(t *testing.T) {
		w := retiring(t)
		w.put(w.l.Self.Keys.Control("one"), w.l.View.Control["one"].Rev, &record.Control{Job: "one"})
		assert.Equal(t, []bool{true, true, true, true}, kept(t, w))
		assert.False(t, w.exists(w.l.Self.Keys.Control("bare")), "another job is deleted")
	})
	t.Run("the plan as read", func(t *testing.T) {
		w := retiring(t)
		w.put(w.l.Self.Keys.Plan("one"), w.l.View.Plans["one"].Rev, w.l.View.Plans["one"].Plan)
		assert.Equal(t, []bool{true, true, true, false}, kept(t, w))
	})
	t.Run("the definition as read", func(t *testing.T) {
		w := retiring(t)
		w.put(w.l.Self.Keys.Job("one"), w.l.View.Jobs["one"].Rev, epoch.Def)
		assert.Equal(t, []bool{true, true, true, false}, kept(t, w))
	})
	t.Run("no plan and no definition", func(t *testing.T) {
		for _, key := range []registry.Key{"plan", "definition"} {
			w := retiring(t)
			if k := w.l.Self.Keys; key == "plan" {
				w.put(k.Plan("bare"), registry.Rev{}, w.l.View.Plans["one"].Plan)
			} else {
				w.put(k.Job("bare"), registry.Rev{}, epoch.Def)
			}
			assert.Equal(t, []bool{false, false, false, false}, kept(t, w))
			assert.True(t, w.exists(w.l.Self.Keys.Control("bare")), key)
		}
	})
}
