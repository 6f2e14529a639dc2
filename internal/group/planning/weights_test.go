package planning

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/rota-dev/rota/coordinator/strategy"
	"github.com/rota-dev/rota/internal/record"
)

func TestPlan_Weights(t *testing.T) {
	heavy := func(w *world, inc string, weight int) {
		w.editMember(inc, func(m *record.Member) { m.Weight = weight })
	}
	t.Run("assign shares in proportion", func(t *testing.T) {
		w := NewWorld(t)
		a, b := w.Join("a", "job"), w.Join("b", "job")
		heavy(w, b, 3)
		w.Define("job", 8, 1, "")
		w.Settle()
		assert.Equal(t, map[string]string{a: "0-1", b: "2-7"}, w.owners("job"))
	})
	t.Run("are passed to strategies, within bounds", func(t *testing.T) {
		var seen []int
		w := NewWorld(t)
		w.View.Strategies["looks at weights"] = func(in strategy.Input) (strategy.Assignment, error) {
			seen = nil
			for _, m := range in.Members {
				seen = append(seen, m.Weight)
			}
			return strategy.Average(in)
		}
		for name, weight := range map[string]int{"a": 0, "b": 7, "c": 1 << 40, "d": -5} {
			heavy(w, w.Join(name, "job"), weight)
		}
		w.Define("job", 4, 1, `,"strategy":"looks at weights"`)
		w.decide()
		assert.Equal(t, []int{1, 7, MaxWeight, 1}, seen)
	})
	t.Run("make no difference to other strategies", func(t *testing.T) {
		for _, strategy := range []string{"single", "average", "odevity", "rotate"} {
			owners := func(weight int) map[string]string {
				w := NewWorld(t)
				w.Join("a", "job")
				heavy(w, w.Join("b", "job"), weight)
				w.Define("job", 8, 1, `,"strategy":"`+strategy+`"`)
				w.Settle()
				return w.owners("job")
			}
			assert.Equal(t, owners(1), owners(100), strategy)
		}
	})
	t.Run("of members that may not own shards do not count", func(t *testing.T) {
		w := NewWorld(t)
		heavy(w, w.joinWithZone("a", "west", "job"), 100)
		b, c := w.joinWithZone("b", "east", "job"), w.joinWithZone("c", "east", "job")
		heavy(w, b, 2)
		w.Define("job", 9, 1, `,"run_on":{"zone":"east"}`)
		w.Settle()
		assert.Equal(t, map[string]string{b: "0-5", c: "6-8"}, w.owners("job"))
	})
}
