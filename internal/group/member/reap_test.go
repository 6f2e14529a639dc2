package member_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/group/membertest"
	"github.com/rota-dev/rota/registry"
)

// A reaping must not wait for a round without a plan to write, which may never come.
func TestLeader_ReapsWithinARoundOfTheLastClaims(t *testing.T) {
	const instances = 20
	// expire starts instances beside the leader, calls f, and ends them without a drain.
	expire := func(g *membertest.Group, f func()) {
		var all []*membertest.Worker
		for i := range instances {
			all = append(all, g.Start(fmt.Sprintf("b%02d", i), coordtest.Def("x", 0, 40, "")))
		}
		f()
		for _, w := range all {
			w.Abandon()
			<-w.Done
		}
	}
	left := func(g *membertest.Group) int {
		l, err := g.NewEditor().List(t.Context(), g.Keys.Members(), registry.ReadOptions{})
		require.NoError(g.T, err)
		return len(l.Entries) - 1
	}
	membertest.RunBubble(t, "while a plan conflicts in each round", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("x", 0, 40, ""), coordtest.Def("y", 0, 1, ""))
		expire(g, func() {
			a.Reg.ReplaceTxn(func(txn registry.Txn) error {
				if i := slices.IndexFunc(txn.Then, func(op registry.Op) bool { return op.Key == g.Keys.Plan("y") }); i >= 0 {
					return registry.Conflict(txn, len(txn.If)+i)
				}
				return nil
			})
			_, err := a.Trigger(t.Context(), "y", "", nil)
			require.NoError(t, err)
		})
		time.Sleep(5 * time.Second)
		assert.Zero(t, left(g))
	})
}
