package member_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/group/membertest"
	"github.com/rota-dev/rota/registry"
)

func TestLeader_ChangeThatConflicts(t *testing.T) {
	membertest.RunBubble(t, "is sent in a transaction of its own, and holds up no other plan", func(t *testing.T, g *membertest.Group) {
		defs := []string{coordtest.Def("x", 0, 4, ""), coordtest.Def("y", 0, 4, ""), coordtest.Def("z", 0, 4, "")}
		a := g.Start("a", defs...)
		together := 0 // transactions that write the plans of y and another job
		a.Reg.ReplaceTxn(func(txn registry.Txn) error {
			y := slices.IndexFunc(txn.Then, func(op registry.Op) bool { return op.Key == g.Keys.Plan("y") })
			if y < 0 {
				return nil
			}
			if slices.ContainsFunc(txn.Then, func(op registry.Op) bool { return op.Key == g.Keys.Plan("z") }) {
				together++
			}
			return registry.Conflict(txn, len(txn.If)+y)
		})
		b := g.NewWorker("b", nil, defs...)
		g.RunWorker(b)
		time.Sleep(5 * time.Second)
		for _, job := range []string{"x", "z"} {
			assert.Len(t, g.ReadOwners(job), 2, job)
		}
		assert.Equal(t, map[string]string{"a": "0-3"}, g.ReadOwners("y"))
		assert.Equal(t, 1, together)
		a.Reg.ReplaceTxn(func(registry.Txn) error { return nil })
		time.Sleep(5 * time.Second)
		assert.Len(t, g.ReadOwners("y"), 2)
	})
}
