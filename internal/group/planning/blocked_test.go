package planning

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/rota-dev/rota/coordinator/strategy"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

func TestPlan_Blocked(t *testing.T) {
	toTheFirst := func(in strategy.Input) (strategy.Assignment, error) {
		a := make(strategy.Assignment, in.Shards)
		for s := range a {
			a[s] = in.Members[0].ID
		}
		return a, nil
	}
	for _, strategy := range []string{"average", "odevity", "rotate", "single", "all to the first"} {
		t.Run("a shard that "+strategy+" assigns to a member that is blocked for it has no owner until it is unblocked", func(t *testing.T) {
			w := NewWorld(t)
			w.View.Strategies["all to the first"] = toTheFirst
			a, b := w.Join("a", "job"), w.Join("b", "job")
			w.Define("job", 4, 0, `,"strategy":"`+strategy+`"`)
			w.Settle()
			unblocked := w.owners("job")

			w = NewWorld(t)
			w.View.Strategies["all to the first"] = toTheFirst
			w.Join("a", "job")
			w.Join("b", "job")
			for _, inc := range []string{a, b} {
				w.editMember(inc, func(m *record.Member) {
					m.Blocked = map[string]shardset.Set{"job": shardset.Of(1), "other": shardset.Of(2)}
				})
			}
			w.Define("job", 4, 0, `,"strategy":"`+strategy+`"`)
			w.Settle()
			var assigned shardset.Set
			for _, shards := range w.Plan("job").Owners {
				assigned = assigned.Union(shards)
			}
			assert.Equal(t, "0,2-3", assigned.String())

			for _, inc := range []string{a, b} {
				w.editMember(inc, func(m *record.Member) { m.Blocked = nil })
			}
			w.Settle()
			assert.Equal(t, unblocked, w.owners("job"))
		})
	}
}
