package coordinator

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

func TestPlan_Blocked(t *testing.T) {
	toTheFirst := func(in Input) (Assignment, error) {
		a := make(Assignment, in.Shards)
		for s := range a {
			a[s] = in.Members[0].ID
		}
		return a, nil
	}
	for _, strategy := range []string{"average", "odevity", "rotate", "single", "all to the first"} {
		t.Run("a shard that "+strategy+" assigns to a member that is blocked for it has no owner until it is unblocked", func(t *testing.T) {
			w := newWorld(t)
			w.v.strategies["all to the first"] = toTheFirst
			a, b := w.member("a", "job"), w.member("b", "job")
			w.define("job", 4, 0, `,"strategy":"`+strategy+`"`)
			w.settle()
			unblocked := w.owners("job")

			w = newWorld(t)
			w.v.strategies["all to the first"] = toTheFirst
			w.member("a", "job")
			w.member("b", "job")
			for _, inc := range []string{a, b} {
				w.change(inc, func(m *record.Member) {
					m.Blocked = map[string]shardset.Set{"job": shardset.Of(1), "other": shardset.Of(2)}
				})
			}
			w.define("job", 4, 0, `,"strategy":"`+strategy+`"`)
			w.settle()
			var assigned shardset.Set
			for _, shards := range w.plan("job").Owners {
				assigned = assigned.Union(shards)
			}
			assert.Equal(t, "0,2-3", assigned.String())

			for _, inc := range []string{a, b} {
				w.change(inc, func(m *record.Member) { m.Blocked = nil })
			}
			w.settle()
			assert.Equal(t, unblocked, w.owners("job"))
		})
	}
}
