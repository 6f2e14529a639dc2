package planning

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/group/due"
	"github.com/rota-dev/rota/internal/record"
)

func TestPlan_Override(t *testing.T) {
	override := func(fields string) func(*record.Control) {
		return func(c *record.Control) { c.Override = json.RawMessage(fields) }
	}
	setUp := func(t *testing.T) *world {
		w := NewWorld(t)
		w.Join("a", "job")
		w.Define("job", 2, 1, `,"novelty":[1,2]`)
		w.Settle()
		return w
	}
	t.Run("begins an epoch with the effective definition, which keeps the stored one beside it", func(t *testing.T) {
		w := setUp(t)
		stored := w.View.Jobs["job"].Def
		w.editControl("job", override(`{"shards":4,"timeout":"9s"}`))
		w.Settle()
		last := w.Plan("job").Last()
		assert.Equal(t, 2, last.Number)
		assert.JSONEq(t, `{"name":"job","revision":1,"shards":4,"timeout":"9s","novelty":[1,2]}`, string(last.Def))
		assert.JSONEq(t, string(stored), string(last.Stored))
		assert.Equal(t, stored, w.View.Jobs["job"].Def, "the view holds what is stored")
		assert.Empty(t, w.decide().Changes)
	})
	t.Run("survives a new revision, and is taken back", func(t *testing.T) {
		w := setUp(t)
		w.editControl("job", override(`{"shards":4}`))
		w.Settle()
		w.Define("job", 3, 2, `,"timeout":"5s"`)
		w.Settle()
		last := w.Plan("job").Last()
		assert.Equal(t, 4, last.Job().Shards)
		assert.Equal(t, 2, last.Job().Revision)
		assert.Contains(t, string(last.Def), `"timeout":"5s"`)
		w.editControl("job", func(c *record.Control) { c.Override = nil })
		w.Settle()
		last = w.Plan("job").Last()
		assert.Equal(t, 3, last.Job().Shards)
		assert.Empty(t, last.Stored)
	})
	t.Run("applies to the first plan of a job", func(t *testing.T) {
		w := NewWorld(t)
		w.Join("a", "job")
		w.Define("job", 2, 1, "")
		w.editControl("job", override(`{"shards":4}`))
		w.Settle()
		p := w.Plan("job")
		assert.Len(t, p.Epochs, 1)
		assert.Equal(t, 4, p.Shards())
		assert.NotEmpty(t, p.Last().Stored)
	})
	for text, want := range map[string]string{
		`{"shards":0}`:      "the override does not apply: shards is 0, not between 1 and 10000",
		`{"name":"other"}`:  `the override does not apply: field "name" cannot be overridden`,
		`{"revision":9}`:    `the override does not apply: field "revision" cannot be overridden`,
		`{"schedule":"??"}`: "the override does not apply: no such schedule",
		`[]`:                "the override does not apply: json: cannot unmarshal array",
	} {
		t.Run("that is invalid is a problem, and the stored definition applies: "+text, func(t *testing.T) {
			w := setUp(t)
			w.View.Compile = func(def json.RawMessage) (due.Program, error) {
				if strings.Contains(string(def), "??") {
					return nil, errors.New("no such schedule")
				}
				return coordtest.Minutely{}, nil
			}
			w.editControl("job", override(text))
			w.Settle()
			p := w.Plan("job")
			assert.Len(t, p.Epochs, 1)
			assert.Contains(t, p.Problem, want)
			w.editControl("job", func(c *record.Control) { c.Override = nil })
			w.Settle()
			assert.Empty(t, w.Plan("job").Problem)
		})
	}
	t.Run("applies under a leader that does not support the definition itself", func(t *testing.T) {
		w := setUp(t)
		w.View.Compile = func(json.RawMessage) (due.Program, error) { return nil, errors.New("of a later version") }
		w.editControl("job", override(`{"shards":4}`))
		w.Settle()
		require.Equal(t, 4, w.Plan("job").Last().Job().Shards)
	})
}

func TestPlan_OverrideWithoutEffect(t *testing.T) {
	invalid := func(c *record.Control) { c.Override = json.RawMessage(`{"shards":0}`) }
	t.Run("a new revision applies although the override is invalid", func(t *testing.T) {
		w := NewWorld(t)
		w.Join("a", "job")
		w.Define("job", 2, 1, "")
		w.Settle()
		w.editControl("job", invalid)
		w.Define("job", 3, 2, "")
		w.Settle()
		assert.Equal(t, 3, w.Plan("job").Last().Job().Shards)
		assert.Contains(t, w.Plan("job").Problem, "the override does not apply")
	})
	t.Run("an override of a deleted definition is no problem", func(t *testing.T) {
		w := NewWorld(t)
		w.Join("a", "job")
		w.Define("job", 2, 1, "")
		w.Settle()
		w.editControl("job", func(c *record.Control) { c.Override = json.RawMessage(`{"timeout":"9s"}`) })
		delete(w.View.Jobs, "job")
		w.Settle()
		assert.Empty(t, w.Plan("job").Problem)
	})
}
