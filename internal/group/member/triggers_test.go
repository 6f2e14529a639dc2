package member_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/claimer"
	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/group/leader"
	"github.com/rota-dev/rota/internal/group/membertest"
)

func TestLeader_TriggerOfCrashedInstance(t *testing.T) {
	membertest.RunBubble(t, "runs again with its parameter although its shards had no owner for minutes", func(t *testing.T, g *membertest.Group) {
		a := g.StartWorking("a", membertest.WorkFor(time.Hour), coordtest.Def("job", 0, 2, ""))
		b := g.Start("b", coordtest.Def("other", 0, 1, ""))
		n, err := b.Trigger(t.Context(), "job", "hello", nil)
		require.NoError(t, err)
		time.Sleep(time.Second)
		require.Equal(t, membertest.OncePerShard(2), membertest.CountRuns(a.TakeRuns()))
		defer g.Server.Partition("a")()
		time.Sleep(membertest.TTL + 4*leader.RegularCheck)
		require.Empty(t, g.ReadOwners("job"))
		b.TakeRuns()
		b.Offer(membertest.DefinitionsByName(coordtest.Def("job", 0, 2, "")))
		time.Sleep(time.Second)
		var again []claimer.Run
		for _, r := range b.TakeRuns() {
			if r.Trigger == n {
				again = append(again, r)
			}
		}
		require.Equal(t, membertest.OncePerShard(2), membertest.CountRuns(again))
		for _, r := range again {
			assert.Equal(t, "hello", r.Param)
			assert.Equal(t, 2, r.Attempt)
			assert.True(t, r.Rerun)
		}
	})
}
