package member_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/group/membertest"
	"github.com/rota-dev/rota/internal/record"
)

func TestClaimer_StopClaiming(t *testing.T) {
	membertest.RunBubble(t, "waits for a claim in flight before the member record shows the drain", func(t *testing.T, g *membertest.Group) {
		a := g.StartWorking("a", membertest.WorkFor(time.Hour), coordtest.Def("job", 0, 2, ""))
		g.Start("b", coordtest.Def("job", 0, 2, ""))
		draining := func() bool {
			e, ok := g.GetRecord(g.Keys.Member(a.Incarnation()))
			require.True(t, ok)
			m, err := record.Decode[record.Member](e.Value)
			require.NoError(t, err)
			return m.Draining
		}
		arrive := make(chan struct{})
		a.Reg.BeforeTxn(membertest.OnFirstWrite(membertest.IsBelow(g.Keys.ClaimsOf(a.Incarnation())), func() { <-arrive }))
		membertest.SleepToMinute(1)
		require.Empty(t, a.TakeRuns(), "its claim is still in flight")
		drained := make(chan error, 1)
		go func() { drained <- a.Drain(t.Context()) }()
		time.Sleep(time.Second)
		synctest.Wait()
		assert.False(t, draining(), "a leader would move the shard whose claim is in flight")
		require.Empty(t, drained)

		close(arrive)
		require.NoError(t, <-drained)
		assert.True(t, draining())
		assert.Equal(t, map[int]int{0: 1}, membertest.CountRuns(a.TakeRuns()))
		synctest.Wait()
		assert.Equal(t, map[string]string{"a": "0", "b": "1"}, g.ReadOwners("job"), "the running shard stays")
	})
}
