package coordinator

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/rota-dev/rota/registry"
)

func TestLead_ChangeThatConflicts(t *testing.T) {
	bubble(t, "is sent alone the next time, and holds up no other plan", func(t *testing.T, g *group) {
		defs := []string{def("x", 0, 4, ""), def("y", 0, 4, ""), def("z", 0, 4, "")}
		a := g.start("a", defs...)
		together := 0 // transactions that write the plan of y and another
		a.reg.instead(func(txn registry.Txn) error {
			y := slices.IndexFunc(txn.Then, func(op registry.Op) bool { return op.Key == g.keys.Plan("y") })
			if y < 0 {
				return nil
			}
			if slices.ContainsFunc(txn.Then, func(op registry.Op) bool { return op.Key == g.keys.Plan("z") }) {
				together++
			}
			return registry.Conflict(txn, len(txn.If)+y)
		})
		b := g.worker("b", nil, defs...)
		g.begin(b)
		time.Sleep(5 * time.Second)
		for _, job := range []string{"x", "z"} {
			assert.Len(t, g.owners(job), 2, job)
		}
		assert.Equal(t, map[string]string{"a": "0-3"}, g.owners("y"))
		assert.Equal(t, 1, together)
		a.reg.instead(func(registry.Txn) error { return nil })
		time.Sleep(5 * time.Second)
		assert.Len(t, g.owners("y"), 2)
	})
}
