package member_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/group/elector"
	"github.com/rota-dev/rota/internal/group/membertest"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

var hanging = coordtest.Def("stuck", 0, 2, `,"strategy":"hangs"`)

func TestWatchdog(t *testing.T) {
	membertest.RunBubble(t, "a leader whose strategy does not return resigns, and logs what it was busy with", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 4, ""))
		b := g.Start("b", coordtest.Def("job", 0, 4, ""))
		require.Equal(t, "a", g.ReadLeaderName())
		defer g.HangStrategy(1)()
		a.Offer(membertest.DefinitionsByName(hanging))
		require.Equal(t, "b", g.AwaitNextLeader())
		assert.Equal(t, 1, a.Log.Count("level=ERROR"))
		assert.Equal(t, 1, a.Log.Count("busy with strategy hangs of job stuck"))
		assert.NotEmpty(t, g.ReadOwners("stuck"), "the next leader assigns the shards")
		before := a.Incarnation()
		a.TakeRuns()
		membertest.SleepToMinute(2)
		assert.NotEmpty(t, a.TakeRuns(), "it keeps running its shards")
		assert.Equal(t, before, a.Incarnation(), "its session lives")
		assert.Zero(t, b.Log.Count("level=ERROR"))
	})
	membertest.RunBubble(t, "a stuck instance is no candidate until the strategy has returned", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 4, ""))
		g.Start("b", coordtest.Def("job", 0, 4, ""))
		release := g.HangStrategy(1)
		a.Offer(membertest.DefinitionsByName(hanging))
		require.Equal(t, "b", g.AwaitNextLeader())
		defer g.Server.Partition("b")()
		time.Sleep(2 * membertest.TTL)
		synctest.Wait()
		_, taken := g.GetRecord(g.Keys.Seat())
		require.False(t, taken)
		release()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		e, _ := g.GetRecord(g.Keys.Seat())
		assert.Equal(t, a.Session(), e.Owner)
	})
	membertest.RunBubble(t, "a stuck instance that is named as leader resigns", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 4, ""))
		b := g.Start("b", coordtest.Def("job", 0, 4, ""))
		g.Start("c", coordtest.Def("job", 0, 4, ""))
		defer g.HangStrategy(1)()
		a.Offer(membertest.DefinitionsByName(hanging))
		require.Equal(t, "b", g.AwaitNextLeader())
		e, _ := g.GetRecord(g.Keys.Seat())
		present, err := record.Decode[record.Seat](e.Value)
		require.NoError(t, err)
		require.Equal(t, a.Incarnation(), present.Successors[0])
		require.NoError(t, b.Drain(t.Context()))
		assert.Equal(t, "c", g.AwaitNextLeader())
	})
	membertest.RunBubble(t, "if every leader gets stuck, each candidate gets a turn", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 4, ""))
		g.Start("b", coordtest.Def("job", 0, 4, ""))
		g.Start("c", coordtest.Def("job", 0, 4, ""))
		defer g.HangStrategy(2)()
		a.Offer(membertest.DefinitionsByName(hanging))
		require.Equal(t, "b", g.AwaitNextLeader())
		assert.Equal(t, "c", g.AwaitNextLeader())
		assert.NotEmpty(t, g.ReadOwners("stuck"))
	})
	membertest.RunBubble(t, "a lone leader stays, and continues when its strategy returns", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 4, ""))
		release := g.HangStrategy(1)
		a.Offer(membertest.DefinitionsByName(hanging))
		require.Equal(t, "a", g.AwaitNextLeader())
		term := g.ReadLeader()
		release()
		time.Sleep(time.Second)
		synctest.Wait()
		assert.NotEmpty(t, g.ReadOwners("stuck"))
		assert.Equal(t, term, g.ReadLeader())
		assert.Equal(t, 1, a.Log.Count("level=ERROR"), "logged once")
	})
	membertest.RunBubble(t, "a stuck leader can shut down", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 4, ""))
		g.Start("b", coordtest.Def("job", 0, 4, ""))
		defer g.HangStrategy(1)()
		a.Offer(membertest.DefinitionsByName(hanging))
		synctest.Wait()
		a.Shutdown()
		assert.Equal(t, "b", g.AwaitNextLeader())
	})
	membertest.RunBubble(t, "a stuck leader that loses its session joins again, and is no candidate", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 4, ""))
		release := g.HangStrategy(1)
		a.Offer(membertest.DefinitionsByName(hanging))
		synctest.Wait()
		old := a.Incarnation()
		g.Server.Expire("a")
		assert.Empty(t, g.AwaitNextLeader())
		assert.NotEqual(t, old, a.Incarnation())
		release()
		assert.Equal(t, "a", g.AwaitNextLeader())
		assert.NotEmpty(t, g.ReadOwners("stuck"))
	})
	membertest.RunBubble(t, "a leader whose writes fail for a reason other than a conflict resigns", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 4, ""))
		g.Start("b", coordtest.Def("job", 0, 4, ""))
		full := fmt.Errorf("no room here: %w", registry.ErrQuota)
		a.Reg.ReplaceTxn(func(txn registry.Txn) error {
			if len(txn.Then) > 0 && membertest.IsBelow(g.Keys.Plans())(txn.Then[0].Key) {
				return full
			}
			return nil
		})
		a.Offer(membertest.DefinitionsByName(coordtest.Def("more", 0, 1, "")))
		require.Equal(t, "b", g.AwaitNextLeader())
		assert.Equal(t, 1, a.Log.Count("busy with writes of plans; the last failure: no room here"))
		assert.NotEmpty(t, g.ReadOwners("more"))
	})
	membertest.RunBubble(t, "a leader whose writes keep conflicting does not resign", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 4, ""))
		g.Start("b", coordtest.Def("job", 0, 4, ""))
		a.Reg.ReplaceTxn(func(txn registry.Txn) error {
			if len(txn.Then) > 0 && membertest.IsBelow(g.Keys.Plans())(txn.Then[0].Key) {
				return &registry.ConflictError{Index: 1}
			}
			return nil
		})
		a.Offer(membertest.DefinitionsByName(coordtest.Def("more", 0, 1, "")))
		assert.Equal(t, "a", g.AwaitNextLeader())
		assert.Zero(t, a.Log.Count("level=ERROR"))
	})
	membertest.RunBubble(t, "an idle leader or one with a slow strategy does not resign", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 4, ""))
		g.Start("b", coordtest.Def("job", 0, 4, ""))
		release := g.HangStrategy(1)
		a.Offer(membertest.DefinitionsByName(hanging))
		time.Sleep(elector.MinPatience - time.Second)
		release()
		membertest.SleepToMinute(5)
		assert.Equal(t, "a", g.ReadLeaderName())
		assert.Zero(t, a.Log.Count("level=ERROR"))
	})
}
