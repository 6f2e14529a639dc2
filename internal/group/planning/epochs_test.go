package planning

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

func TestPlan_NextEpoch(t *testing.T) {
	setUp := func(t *testing.T) (w *world, a string) {
		w = NewWorld(t)
		a = w.Join("a", "job")
		w.Define("job", 2, 0, "")
		w.Settle()
		w.View.Now = coordtest.At(10)
		return w, a
	}
	reset := func(c *record.Control) { c.Resets = 1 }
	pause := func(w *world, paused bool) {
		w.editControl("job", func(c *record.Control) { c.Paused = paused })
		w.Settle()
	}
	t.Run("waits while an owner's claims cannot be read, and the plan names the record", func(t *testing.T) {
		w, a := setUp(t)
		w.Define("job", 4, 1, "")
		w.round()
		w.readClaims(a)
		w.View.Reads[a].Unreadable["job"] = true
		d := w.decideOnce()
		require.Len(t, d.Changes, 1)
		assert.Len(t, d.Changes[0].Plan.Epochs, 1)
		assert.Equal(t, string(w.View.Keys.Claims(a, "job"))+" cannot be read", d.Changes[0].Plan.Problem)
	})
	t.Run("begins after the claims of earlier owners, which the plan has", func(t *testing.T) {
		w, _ := setUp(t)
		w.editPlan("job", func(p *record.Plan) {
			p.Watermarks = p.Watermarks.Raise(shardset.Of(0), coordtest.Fire(20, 1).Watermark())
		})
		w.Define("job", 4, 1, "")
		w.Settle()
		assert.Equal(t, coordtest.At(20)+1, w.Plan("job").Last().From)
	})
	t.Run("does not end an epoch before it has begun", func(t *testing.T) {
		w, _ := setUp(t)
		w.View.Now = coordtest.At(-10)
		w.Define("job", 4, 1, "")
		d := w.decideOnce()
		require.Len(t, d.Changes, 1)
		assert.Equal(t, d.Changes[0].Plan.Last().From+1, d.Changes[0].Plan.Last().Until)
	})
	t.Run("is not begun for a deleted definition", func(t *testing.T) {
		w, _ := setUp(t)
		delete(w.View.Jobs, "job")
		w.editControl("job", func(c *record.Control) { c.Disabled = shardset.Of(0) })
		w.Settle()
		assert.Zero(t, w.Plan("job").Last().Until)
	})
	for name, store := range map[string]func(w *world){
		"is deleted":             func(w *world) { delete(w.View.Jobs, "job") },
		"is of a lower revision": func(w *world) { w.Define("job", 5, 0, "") },
	} {
		t.Run("of a reset has the same definition if the stored one "+name, func(t *testing.T) {
			w, _ := setUp(t)
			if name != "is deleted" {
				w.Define("job", 2, 1, "")
				w.Settle()
			}
			store(w)
			before := w.Plan("job").Last()
			w.editControl("job", reset)
			w.Settle()
			last := w.Plan("job").Last()
			assert.Equal(t, before.Number+1, last.Number)
			assert.JSONEq(t, string(before.Def), string(last.Def))
		})
	}
	t.Run("of a resume has the same definition if the stored one is deleted", func(t *testing.T) {
		w, _ := setUp(t)
		w.editControl("job", func(c *record.Control) { c.Override = json.RawMessage(`{"timeout":"9s"}`) })
		w.Settle()
		before := *w.Plan("job").Last()
		require.NotEmpty(t, before.Stored)
		pause(w, true)
		delete(w.View.Jobs, "job")
		w.editControl("job", func(c *record.Control) { c.Paused = false })
		d := w.round()
		require.Len(t, d.Changes, 1)
		assert.Equal(t, []string{"resume"}, d.Changes[0].Why)
		last := w.Plan("job").Last()
		assert.Equal(t, before.Number+1, last.Number)
		assert.JSONEq(t, string(before.Def), string(last.Def))
		assert.JSONEq(t, string(before.Stored), string(last.Stored))
	})
	t.Run("is explained as that of a reset", func(t *testing.T) {
		w, _ := setUp(t)
		w.editControl("job", reset)
		w.round()
		d := w.decide()
		require.Len(t, d.Changes, 1)
		assert.Equal(t, []string{"reset", "begin epoch 2"}, d.Changes[0].Why)
	})
	t.Run("keeps the definition that an override replaces, and no other", func(t *testing.T) {
		w, _ := setUp(t)
		w.Define("job", 2, 1, "")
		w.Settle()
		w.editControl("job", func(c *record.Control) { c.Override = json.RawMessage(`{"timeout":"9s"}`) })
		w.Define("job", 2, 0, "")
		w.editControl("job", reset)
		w.Settle()
		assert.Empty(t, w.Plan("job").Last().Stored, "the stored definition and its override are of a lower revision")
	})
}
