package member_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/rota-dev/rota/coordinator/internal/coordtest"
	"github.com/rota-dev/rota/coordinator/internal/membertest"
	"github.com/rota-dev/rota/registry"
)

func TestLead_ChangeThatConflicts(t *testing.T) {
	membertest.Bubble(t, "is sent alone the next time, and holds up no other plan", func(t *testing.T, g *membertest.Group) {
		defs := []string{coordtest.Def("x", 0, 4, ""), coordtest.Def("y", 0, 4, ""), coordtest.Def("z", 0, 4, "")}
		a := g.Start("a", defs...)
		together := 0 // transactions that write the plan of y and another
		a.Reg.Instead(func(txn registry.Txn) error {
			y := slices.IndexFunc(txn.Then, func(op registry.Op) bool { return op.Key == g.Keys.Plan("y") })
			if y < 0 {
				return nil
			}
			if slices.ContainsFunc(txn.Then, func(op registry.Op) bool { return op.Key == g.Keys.Plan("z") }) {
				together++
			}
			return registry.Conflict(txn, len(txn.If)+y)
		})
		b := g.Worker("b", nil, defs...)
		g.Begin(b)
		time.Sleep(5 * time.Second)
		for _, job := range []string{"x", "z"} {
			assert.Len(t, g.Owners(job), 2, job)
		}
		assert.Equal(t, map[string]string{"a": "0-3"}, g.Owners("y"))
		assert.Equal(t, 1, together)
		a.Reg.Instead(func(registry.Txn) error { return nil })
		time.Sleep(5 * time.Second)
		assert.Len(t, g.Owners("y"), 2)
	})
}
