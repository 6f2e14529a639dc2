package leader

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/elector"
	"github.com/rota-dev/rota/internal/group/planning"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

func TestEndedPauses_Guards(t *testing.T) {
	const now = record.Instant(1_000_000_000_000)
	// leading returns a leader that has observed two jobs with pauses which are over.
	leading := func(t *testing.T) (l *Leader, d planning.Decision) {
		reg := memory.New().Client("a")
		keys, err := record.NewKeys("test", "default")
		require.NoError(t, err)
		term, err := reg.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Create(keys.Leader(), []byte("{}"))}})
		require.NoError(t, err)
		l = &Leader{
			Self: elector.Self{Reg: reg, Keys: keys}, Log: slog.New(slog.DiscardHandler), Progress: &elector.Progress{}, Nudge: make(chan struct{}, 1),
			View: planning.View{Keys: keys, Term: term, Now: now, Control: map[string]planning.ControlRecord{}},
		}
		for _, job := range []string{"one", "two"} {
			c := &record.Control{Job: job, Paused: true, Hold: record.Hold{Until: now}}
			value, err := record.Encode(c)
			require.NoError(t, err)
			rev, err := reg.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Create(keys.Control(job), value)}})
			require.NoError(t, err)
			l.View.Control[job] = planning.ControlRecord{Rev: rev, Control: c}
		}
		d = planning.Decide(&l.View)
		require.Len(t, d.EndedPauses, 2)
		return l, d
	}
	read := func(t *testing.T, l *Leader, job string) *record.Control {
		e, err := l.Self.Reg.Get(t.Context(), l.Self.Keys.Control(job), registry.ReadOptions{})
		require.NoError(t, err)
		c, err := record.DecodeControl(e.Value)
		require.NoError(t, err)
		return c
	}
	t.Run("none fails", func(t *testing.T) {
		l, d := leading(t)
		_, err := l.CommitDecision(t.Context(), d)
		require.NoError(t, err)
		assert.False(t, read(t, l, "one").Paused)
		assert.False(t, read(t, l, "two").Paused)
		assert.Empty(t, planning.Decide(&l.View).EndedPauses, "the view contains the commit")
	})
	t.Run("the term", func(t *testing.T) {
		l, d := leading(t)
		_, err := l.Self.Reg.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Set(l.Self.Keys.Leader(), l.View.Term, []byte("{}"))}})
		require.NoError(t, err)
		_, err = l.CommitDecision(t.Context(), d)
		require.ErrorIs(t, err, elector.ErrTermOver)
		assert.True(t, read(t, l, "one").Paused)
	})
	t.Run("the record as read", func(t *testing.T) {
		l, d := leading(t)
		key := l.Self.Keys.Control("one")
		_, err := l.Self.Reg.Txn(t.Context(), registry.Txn{Then: []registry.Op{
			registry.Set(key, l.View.Control["one"].Rev, []byte(`{"job":"one","paused":true,"triggers":[{"number":1}],"last_trigger":1}`)),
		}})
		require.NoError(t, err)
		_, err = l.CommitDecision(t.Context(), d)
		require.NoError(t, err)
		assert.True(t, read(t, l, "one").Paused, "an operator paused it again, without an end")
		assert.Len(t, read(t, l, "one").Triggers, 1)
		assert.False(t, read(t, l, "two").Paused, "it holds up no other")
	})
}
