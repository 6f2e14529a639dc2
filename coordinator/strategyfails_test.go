package coordinator

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/registry"
)

// failing returns a strategy that assigns like sticky until it is made to fail.
func failing() (s Strategy, fail func(error)) {
	var cause error
	return func(in Input) (Assignment, error) {
		if cause != nil {
			return nil, cause
		}
		return sticky(in)
	}, func(err error) { cause = err }
}

func TestPlan_StrategyThatFails(t *testing.T) {
	setUp := func(t *testing.T) (w *world, a, b string, fail func(error)) {
		failing, fail := failing()
		w = newWorld(t)
		w.v.strategies["failing"] = failing
		a, b = w.member("a", "job"), w.member("b", "job")
		w.define("job", 6, 0, `,"strategy":"failing"`)
		w.settle()
		require.Equal(t, map[string]string{a: "0-2", b: "3-5"}, w.owners("job"))
		fail(errors.New("no idea"))
		return w, a, b, fail
	}
	t.Run("moves nothing when a member joins, and the plan says why", func(t *testing.T) {
		w, a, b, fail := setUp(t)
		c := w.member("c", "job")
		w.settle()
		assert.Equal(t, map[string]string{a: "0-2", b: "3-5"}, w.owners("job"))
		assert.True(t, w.plan("job").Frozen.IsZero())
		assert.Contains(t, w.plan("job").Problem, "no idea")

		fail(nil)
		w.settle()
		assert.Len(t, w.owners("job"), 3)
		assert.NotEmpty(t, w.owners("job")[c])
		assert.Empty(t, w.plan("job").Problem)
	})
	t.Run("moves nothing either when it begins to fail during a move", func(t *testing.T) {
		w, a, b, fail := setUp(t)
		fail(nil)
		w.member("c", "job")
		w.round()
		require.False(t, w.plan("job").Frozen.IsZero())
		fail(errors.New("no idea"))
		w.settle()
		assert.Equal(t, map[string]string{a: "0-2", b: "3-5"}, w.owners("job"))
		assert.True(t, w.plan("job").Frozen.IsZero())
	})
	t.Run("assigns the shards of a dead member to those with the fewest, and moves no others", func(t *testing.T) {
		w, a, b, _ := setUp(t)
		c := w.member("c", "job")
		w.settle()
		w.kill(a)
		w.settle()
		assert.Equal(t, map[string]string{b: "3-5", c: "0-2"}, w.owners("job"))
		w.kill(c)
		w.settle()
		assert.Equal(t, map[string]string{b: "0-5"}, w.owners("job"))
		d := w.member("d", "job")
		w.settle()
		assert.Empty(t, w.owners("job")[d])
	})
	for reason, leave := range map[string]func(w *world, a string){
		"drains":            func(w *world, a string) { w.change(a, func(m *record.Member) { m.Draining = true }) },
		"has withdrawn":     func(w *world, a string) { w.change(a, func(m *record.Member) { m.Jobs = nil }) },
		"is disabled":       func(w *world, a string) { w.intend("job", func(c *record.Control) { c.Instances = []string{"a"} }) },
		"lacks a label":     func(w *world, a string) { w.define("job", 6, 1, `,"strategy":"failing","run_on":{"zone":"east"}`) },
		"has its clock off": func(w *world, a string) { w.v.off = map[string]record.Duration{a: record.Duration(time.Hour)} },
	} {
		t.Run("assigns the shards of a member that "+reason+" to others, and moves no others", func(t *testing.T) {
			w, a, b, _ := setUp(t)
			w.change(b, func(m *record.Member) { m.Labels = map[string]string{"zone": "east"} })
			c := w.member("c", "job")
			w.change(c, func(m *record.Member) { m.Labels = map[string]string{"zone": "east"} })
			leave(w, a)
			w.settle()
			assert.Equal(t, map[string]string{b: "3-5", c: "0-2"}, w.owners("job"))
		})
	}
	t.Run("assigns a shard that its owner is blocked for to another, and moves no others", func(t *testing.T) {
		w, a, b, _ := setUp(t)
		c := w.member("c", "job")
		w.change(a, func(m *record.Member) { m.Blocked = map[string]shardset.Set{"job": shardset.Of(1)} })
		w.settle()
		assert.Equal(t, map[string]string{a: "0,2", b: "3-5", c: "1"}, w.owners("job"))
	})
	t.Run("leaves the shards of a member whose return is awaited, and moves no others", func(t *testing.T) {
		w, a, b, _ := setUp(t)
		w.change(a, func(m *record.Member) { m.RestartGrace = record.Duration(time.Minute) })
		w.member("c", "job")
		w.kill(a)
		w.v.away = map[string]time.Duration{a: time.Second}
		w.settle()
		assert.Equal(t, map[string]string{a: "0-2", b: "3-5"}, w.owners("job"))
	})
	t.Run("adds its shards to the load that sticky jobs are balanced around", func(t *testing.T) {
		w, a, b, _ := setUp(t)
		for _, inc := range []string{a, b} {
			w.change(inc, func(m *record.Member) { m.Jobs = []string{"job", "other"} })
		}
		c := w.member("c", "job", "other")
		w.define("other", 1, 0, "")
		w.settle()
		assert.Equal(t, map[string]string{c: "0"}, w.owners("other"))
	})
}

func TestLead_StrategyThatFails(t *testing.T) {
	calls := 0
	for name, s := range map[string]Strategy{
		"panics, with a stack that differs from call to call": func(Input) (Assignment, error) { panic("no idea") },
		"returns another error from each call": func(Input) (Assignment, error) {
			calls++
			return nil, fmt.Errorf("no idea %d", calls)
		},
	} {
		bubble(t, "and "+name+" has the plan written at the slow tick at most", func(t *testing.T, g *group) {
			g.strategy.Store(&s)
			a := g.start("a", def("job", 0, 4, `,"strategy":"failing"`))
			assert.Equal(t, map[string]string{"a": "0-3"}, g.owners("job"))
			assert.Contains(t, g.plan("job").Problem, "no idea")
			g.server.Record()
			time.Sleep(10 * time.Minute)
			written := 0
			for _, c := range g.commits() {
				if slices.ContainsFunc(c.Then, func(op registry.Op) bool { return op.Key == g.keys.Plan("job") }) {
					written++
				}
			}
			assert.LessOrEqual(t, written, int(10*time.Minute/selfDiagnosis)+5)
			if strings.HasPrefix(name, "panics") {
				assert.Zero(t, written)
				assert.Equal(t, 1, a.log.count("msg=\"strategy panicked\""))
				assert.Equal(t, 1, a.log.count("strategyfails_test.go"), "the stack")
			}
		})
	}
}
