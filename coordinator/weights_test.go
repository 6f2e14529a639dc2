package coordinator

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/rota-dev/rota/internal/record"
)

func TestPlan_Weights(t *testing.T) {
	heavy := func(w *world, inc string, weight int) {
		w.change(inc, func(m *record.Member) { m.Weight = weight })
	}
	t.Run("give each its share", func(t *testing.T) {
		w := newWorld(t)
		a, b := w.member("a", "job"), w.member("b", "job")
		heavy(w, b, 3)
		w.define("job", 8, 1, "")
		w.settle()
		assert.Equal(t, map[string]string{a: "0-1", b: "2-7"}, w.owners("job"))
	})
	t.Run("are shown to strategies, within bounds", func(t *testing.T) {
		var seen []int
		w := newWorld(t)
		w.v.strategies["looks at weights"] = func(in Input) (Assignment, error) {
			seen = nil
			for _, m := range in.Members {
				seen = append(seen, m.Weight)
			}
			return average(in)
		}
		for name, weight := range map[string]int{"a": 0, "b": 7, "c": 1 << 40, "d": -5} {
			heavy(w, w.member(name, "job"), weight)
		}
		w.define("job", 4, 1, `,"strategy":"looks at weights"`)
		w.decide()
		assert.Equal(t, []int{1, 7, MaxWeight, 1}, seen)
	})
	t.Run("make no difference to other strategies", func(t *testing.T) {
		for _, strategy := range []string{"single", "average", "odevity", "rotate"} {
			owners := func(weight int) map[string]string {
				w := newWorld(t)
				w.member("a", "job")
				heavy(w, w.member("b", "job"), weight)
				w.define("job", 8, 1, `,"strategy":"`+strategy+`"`)
				w.settle()
				return w.owners("job")
			}
			assert.Equal(t, owners(1), owners(100), strategy)
		}
	})
	t.Run("are those of who may run the job", func(t *testing.T) {
		w := newWorld(t)
		heavy(w, w.labelled("a", "west", "job"), 100)
		b, c := w.labelled("b", "east", "job"), w.labelled("c", "east", "job")
		heavy(w, b, 2)
		w.define("job", 9, 1, `,"run_on":{"zone":"east"}`)
		w.settle()
		assert.Equal(t, map[string]string{b: "0-5", c: "6-8"}, w.owners("job"))
	})
}

func TestNewMember_Weight(t *testing.T) {
	for _, weight := range []int{-1, MaxWeight + 1} {
		_, err := NewMember(nil, MemberOptions{Namespace: "test", Weight: weight})
		assert.ErrorContains(t, err, "weight is ")
		assert.ErrorContains(t, err, ", not between 0 and 1000")
	}
}

func TestMember_Weight(t *testing.T) {
	holding(t, "is told to the group, and shards are dealt by it", func(t *testing.T, h *holders) {
		leaveA := h.joinAs(Config{Instance: "a", Shards: 4})
		leaveB := h.joinAs(Config{Instance: "b", Shards: 4, Weight: 3})
		assert.Equal(t, map[string]string{"a": "0", "b": "1-3"}, h.now())
		assert.NoError(t, leaveA())
		assert.NoError(t, leaveB())
	})
}
