package member_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/rota-dev/rota/coordinator/strategy"
	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/group/leader"
	"github.com/rota-dev/rota/internal/group/membertest"
	"github.com/rota-dev/rota/registry"
)

func TestLeader_StrategyThatFails(t *testing.T) {
	calls := 0
	for name, s := range map[string]strategy.Func{
		"panics, with a stack that differs from call to call": func(strategy.Input) (strategy.Assignment, error) { panic("no idea") },
		"returns another error from each call": func(strategy.Input) (strategy.Assignment, error) {
			calls++
			return nil, fmt.Errorf("no idea %d", calls)
		},
	} {
		membertest.RunBubble(t, "and "+name+" causes at most one write of the plan per regular check", func(t *testing.T, g *membertest.Group) {
			g.Strategy.Store(&s)
			a := g.Start("a", coordtest.Def("job", 0, 4, `,"strategy":"failing"`))
			assert.Equal(t, map[string]string{"a": "0-3"}, g.ReadOwners("job"))
			assert.Contains(t, g.ReadPlan("job").Problem, "no idea")
			g.Server.Record()
			time.Sleep(10 * time.Minute)
			written := 0
			for _, c := range g.TakeCommits() {
				if slices.ContainsFunc(c.Then, func(op registry.Op) bool { return op.Key == g.Keys.Plan("job") }) {
					written++
				}
			}
			assert.LessOrEqual(t, written, int(10*time.Minute/leader.RegularCheck)+5)
			if strings.HasPrefix(name, "panics") {
				assert.Zero(t, written)
				assert.Equal(t, 1, a.Log.Count("msg=\"strategy panicked\""))
				assert.Equal(t, 1, a.Log.Count("strategyfails_test.go"), "the stack")
			}
		})
	}
}
