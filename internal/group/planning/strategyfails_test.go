package planning

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/coordinator/strategy"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

// failing returns a strategy that assigns as sticky does until the test makes it fail.
func failing() (s strategy.Func, fail func(error)) {
	var cause error
	return func(in strategy.Input) (strategy.Assignment, error) {
		if cause != nil {
			return nil, cause
		}
		return strategy.Sticky(in)
	}, func(err error) { cause = err }
}

func TestPlan_StrategyThatFails(t *testing.T) {
	setUp := func(t *testing.T) (w *world, a, b string, fail func(error)) {
		failing, fail := failing()
		w = NewWorld(t)
		w.View.Strategies["failing"] = failing
		a, b = w.Join("a", "job"), w.Join("b", "job")
		w.Define("job", 6, 0, `,"strategy":"failing"`)
		w.Settle()
		require.Equal(t, map[string]string{a: "0-2", b: "3-5"}, w.owners("job"))
		fail(errors.New("no idea"))
		return w, a, b, fail
	}
	t.Run("moves nothing when a member joins, and the plan names the problem", func(t *testing.T) {
		w, a, b, fail := setUp(t)
		c := w.Join("c", "job")
		w.Settle()
		assert.Equal(t, map[string]string{a: "0-2", b: "3-5"}, w.owners("job"))
		assert.True(t, w.Plan("job").Frozen.IsZero())
		assert.Contains(t, w.Plan("job").Problem, "no idea")

		fail(nil)
		w.Settle()
		assert.Len(t, w.owners("job"), 3)
		assert.NotEmpty(t, w.owners("job")[c])
		assert.Empty(t, w.Plan("job").Problem)
	})
	t.Run("moves nothing if it begins to fail during a move", func(t *testing.T) {
		w, a, b, fail := setUp(t)
		fail(nil)
		w.Join("c", "job")
		w.round()
		require.False(t, w.Plan("job").Frozen.IsZero())
		fail(errors.New("no idea"))
		w.Settle()
		assert.Equal(t, map[string]string{a: "0-2", b: "3-5"}, w.owners("job"))
		assert.True(t, w.Plan("job").Frozen.IsZero())
	})
	t.Run("assigns the shards of an expired member to those with the fewest, and moves no others", func(t *testing.T) {
		w, a, b, _ := setUp(t)
		c := w.Join("c", "job")
		w.Settle()
		w.expire(a)
		w.Settle()
		assert.Equal(t, map[string]string{b: "3-5", c: "0-2"}, w.owners("job"))
		w.expire(c)
		w.Settle()
		assert.Equal(t, map[string]string{b: "0-5"}, w.owners("job"))
		d := w.Join("d", "job")
		w.Settle()
		assert.Empty(t, w.owners("job")[d])
	})
	for reason, leave := range map[string]func(w *world, a string){
		"drains":        func(w *world, a string) { w.editMember(a, func(m *record.Member) { m.Draining = true }) },
		"has withdrawn": func(w *world, a string) { w.editMember(a, func(m *record.Member) { m.Jobs = nil }) },
		"is disabled": func(w *world, a string) {
			w.editControl("job", func(c *record.Control) { c.Instances = []string{"a"} })
		},
		"lacks a label": func(w *world, a string) { w.Define("job", 6, 1, `,"strategy":"failing","run_on":{"zone":"east"}`) },
		"is skewed":     func(w *world, a string) { w.View.Skewed = map[string]record.Duration{a: record.Duration(time.Hour)} },
	} {
		t.Run("assigns the shards of a member that "+reason+" to others, and moves no others", func(t *testing.T) {
			w, a, b, _ := setUp(t)
			w.editMember(b, func(m *record.Member) { m.Labels = map[string]string{"zone": "east"} })
			c := w.Join("c", "job")
			w.editMember(c, func(m *record.Member) { m.Labels = map[string]string{"zone": "east"} })
			leave(w, a)
			w.Settle()
			assert.Equal(t, map[string]string{b: "3-5", c: "0-2"}, w.owners("job"))
		})
	}
	t.Run("assigns a shard that its owner is blocked for to another, and moves no others", func(t *testing.T) {
		w, a, b, _ := setUp(t)
		c := w.Join("c", "job")
		w.editMember(a, func(m *record.Member) { m.Blocked = map[string]shardset.Set{"job": shardset.Of(1)} })
		w.Settle()
		assert.Equal(t, map[string]string{a: "0,2", b: "3-5", c: "1"}, w.owners("job"))
	})
	t.Run("leaves the shards of a member whose return is awaited, and moves no others", func(t *testing.T) {
		w, a, b, _ := setUp(t)
		w.editMember(a, func(m *record.Member) { m.RestartGrace = record.Duration(time.Minute) })
		w.Join("c", "job")
		w.expire(a)
		w.View.Absences = map[string]time.Duration{a: time.Second}
		w.Settle()
		assert.Equal(t, map[string]string{a: "0-2", b: "3-5"}, w.owners("job"))
	})
	t.Run("adds its shards to the load that sticky jobs are balanced around", func(t *testing.T) {
		w, a, b, _ := setUp(t)
		for _, inc := range []string{a, b} {
			w.editMember(inc, func(m *record.Member) { m.Jobs = []string{"job", "other"} })
		}
		c := w.Join("c", "job", "other")
		w.Define("other", 1, 0, "")
		w.Settle()
		assert.Equal(t, map[string]string{c: "0"}, w.owners("other"))
	})
}
