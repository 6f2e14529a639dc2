package member_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/claimer"
	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/group/membertest"
	"github.com/rota-dev/rota/internal/group/planning"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry"
)

// countNewRuns returns the runs of a job that workers have started since the last call, by shard.
func countNewRuns(job string, workers ...*membertest.Worker) map[int]int {
	out := map[int]int{}
	for _, w := range workers {
		for _, r := range w.TakeRuns() {
			if r.Job == job {
				out[r.Shard]++
			}
		}
	}
	return out
}

// Several versions of a program are in one group, as during a rolling upgrade.

func TestRollingUpgrade_Jobs(t *testing.T) {
	membertest.RunBubble(t, "that only a newer version offers run there under an older leader, also after a crash", func(t *testing.T, g *membertest.Group) {
		old := g.Start("old", coordtest.Def("job", 0, 4, ""))
		a := g.Start("a", coordtest.Def("job", 0, 4, ""), coordtest.Def("new", 0, 4, ""))
		b := g.Start("b", coordtest.Def("job", 0, 4, ""), coordtest.Def("new", 0, 4, ""))
		require.Equal(t, old.Incarnation(), g.ReadLeader().Incarnation)
		assert.Equal(t, map[string]string{"a": "0-1", "b": "2-3"}, g.ReadOwners("new"))
		membertest.SleepToMinute(1)
		assert.Equal(t, membertest.OncePerShard(4), countNewRuns("new", a, b))
		assert.Empty(t, countNewRuns("new", old))
		g.Server.Partition("a")
		membertest.SleepToMinute(2)
		assert.Equal(t, map[string]string{"b": "0-3"}, g.ReadOwners("new"))
		assert.Len(t, g.ReadOwners("job"), 2)
		g.Server.Partition("b")
		membertest.SleepToMinute(3)
		assert.Empty(t, g.ReadOwners("new"))
		assert.Equal(t, map[string]string{"old": "0-3"}, g.ReadOwners("job"))
	})
	membertest.RunBubble(t, "that are dropped run while an instance offers them, then wait with their state", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 2, ""), coordtest.Def("old", 0, 2, ""))
		b := g.Start("b", coordtest.Def("job", 0, 2, ""), coordtest.Def("old", 0, 2, ""))
		membertest.SleepToMinute(1)
		a.Shutdown()
		g.Start("a", coordtest.Def("job", 0, 2, ""))
		assert.Equal(t, map[string]string{"b": "0-1"}, g.ReadOwners("old"))
		b.TakeRuns()
		membertest.SleepToMinute(2)
		assert.Equal(t, membertest.OncePerShard(2), countNewRuns("old", b))
		b.Shutdown()
		g.Start("b", coordtest.Def("job", 0, 2, ""))
		assert.Empty(t, g.ReadOwners("old"))
		membertest.SleepToMinute(5)
		c := g.Start("c", coordtest.Def("old", 0, 2, ""))
		assert.Equal(t, membertest.OncePerShard(2), countNewRuns("old", c), "the latest due fire")
		assert.Equal(t, operator.Counts{Claimed: 6, Succeeded: 6, Skipped: 4}, g.ReadStatusCounts("old"))
	})
	membertest.RunBubble(t, "of two revisions run by the higher one everywhere, whichever instance starts later or crashes", func(t *testing.T, g *membertest.Group) {
		old := g.Start("old", coordtest.Def("job", 1, 2, ""))
		membertest.SleepToMinute(1)
		a := g.Start("a", coordtest.Def("job", 2, 4, ""))
		membertest.SleepToMinute(2)
		countNewRuns("job", old, a)
		membertest.SleepToMinute(3)
		assert.Equal(t, membertest.OncePerShard(4), countNewRuns("job", old, a))
		again := g.Start("again", coordtest.Def("job", 1, 2, ""))
		membertest.SleepToMinute(4)
		for _, r := range append(old.TakeRuns(), again.TakeRuns()...) {
			assert.Equal(t, 4, r.Shards)
		}
		a.TakeRuns()
		g.Server.Partition("a")
		membertest.SleepToMinute(6)
		assert.Equal(t, 2, g.ReadPlan("job").Last().Job().Revision, "the instance that offered it has left")
		assert.Equal(t, 4, g.ReadPlan("job").Shards())
		countNewRuns("job", old, again)
		membertest.SleepToMinute(7)
		assert.Equal(t, membertest.OncePerShard(4), countNewRuns("job", old, again))
	})
}

func TestRollingUpgrade_Definitions(t *testing.T) {
	membertest.RunBubble(t, "that a member cannot compile move its shards to members that can, and are logged", func(t *testing.T, g *membertest.Group) {
		old := g.StartOldVersion("old", coordtest.Def("job", 1, 4, ""), coordtest.Def("other", 0, 1, ""))
		a := g.Start("a", coordtest.Def("job", 1, 4, ""))
		membertest.SleepToMinute(1)
		assert.Equal(t, membertest.OncePerShard(4), membertest.SumRuns(countNewRuns("job", a), countNewRuns("job", old)))
		a.Offer(membertest.DefinitionsByName(coordtest.Def("job", 2, 4, coordtest.UnsupportedSchedule)))
		membertest.SleepToMinute(3)
		assert.Equal(t, map[string]string{"a": "0-3"}, g.ReadOwners("job"))
		assert.Contains(t, old.Log.String(), "definition is not supported")
		st, err := a.Status(t.Context(), "job")
		require.NoError(t, err)
		assert.Equal(t, []bool{false, true}, []bool{st.Members[0].Unsupported, st.Members[1].Unsupported})
		assert.Empty(t, st.Problem)
		countNewRuns("job", a, old)
		membertest.SleepToMinute(4)
		assert.Equal(t, membertest.OncePerShard(4), countNewRuns("job", a))
		assert.NotEmpty(t, countNewRuns("other", old))
	})
	membertest.RunBubble(t, "that a member can compile again bring shards back", func(t *testing.T, g *membertest.Group) {
		old := g.StartOldVersion("old", coordtest.Def("job", 1, 4, ""))
		a := g.Start("a", coordtest.Def("job", 2, 4, coordtest.UnsupportedSchedule))
		membertest.SleepToMinute(2)
		require.Equal(t, map[string]string{"a": "0-3"}, g.ReadOwners("job"))
		a.Offer(membertest.DefinitionsByName(coordtest.Def("job", 3, 4, "")))
		membertest.SleepToMinute(5)
		assert.Len(t, g.ReadPlan("job").Epochs, 1)
		assert.Equal(t, map[string]int{"a": 2, "old": 2}, g.CountOwned("job"))
		countNewRuns("job", a, old)
		membertest.SleepToMinute(6)
		assert.Equal(t, membertest.OncePerShard(4), countNewRuns("job", a, old))
	})
	membertest.RunBubble(t, "that no member can compile leave the shards without owners, as the plan's problem, and fires wait", func(t *testing.T, g *membertest.Group) {
		old := g.StartOldVersion("old", coordtest.Def("job", 1, 2, ""), coordtest.Def("other", 0, 1, ""))
		membertest.SleepToMinute(1)
		g.PutRecord(g.Keys.Job("job"), coordtest.Def("job", 2, 2, coordtest.UnsupportedSchedule))
		membertest.SleepToMinute(3)
		assert.Empty(t, g.ReadOwners("job"))
		assert.Equal(t, planning.UnsupportedProblem, g.ReadPlan("job").Problem)
		countNewRuns("", old)
		membertest.SleepToMinute(5)
		runs := old.TakeRuns()
		assert.Equal(t, 2, len(runs), "of the other job")
		a := g.Start("a", coordtest.Def("job", 2, 2, coordtest.UnsupportedSchedule))
		assert.Equal(t, map[string]string{"a": "0-1"}, g.ReadOwners("job"))
		assert.Empty(t, g.ReadPlan("job").Problem)
		runs = a.TakeRuns()
		require.Len(t, runs, 2)
		assert.Equal(t, coordtest.BubbleStart().Add(5*time.Minute), runs[0].Fire.UTC())
		assert.EqualValues(t, 2*3, g.ReadStatusCounts("job").Skipped, "minutes 2 to 4")
	})
	membertest.RunBubble(t, "with a strategy that the leader lacks leave shards in place, as the plan's problem", func(t *testing.T, g *membertest.Group) {
		old := g.StartOldVersion("old", coordtest.Def("job", 1, 4, ""))
		a := g.Start("a", coordtest.Def("job", 1, 4, ""))
		a.Offer(membertest.DefinitionsByName(coordtest.Def("job", 2, 4, `,"strategy":"of a later version"`)))
		membertest.SleepToMinute(1)
		assert.Equal(t, map[string]int{"old": 2, "a": 2}, g.CountOwned("job"))
		assert.Contains(t, g.ReadPlan("job").Problem, "of a later version")
		g.Start("b", coordtest.Def("job", 2, 4, `,"strategy":"of a later version"`))
		assert.Equal(t, map[string]int{"old": 2, "a": 2}, g.CountOwned("job"))
		old.Shutdown()
		assert.Equal(t, map[string]int{"a": 2, "b": 2}, g.CountOwned("job"))
	})
	membertest.RunBubble(t, "that the leader cannot plan by are left alone, and the definitions in force stay", func(t *testing.T, g *membertest.Group) {
		old := g.StartOldVersion("old", coordtest.Def("job", 1, 2, ""))
		text := coordtest.Def("job", 2, 2, `,"on_crash":"think about it"`)
		g.PutRecord(g.Keys.Job("job"), text)
		old.Offer(membertest.DefinitionsByName(coordtest.Def("other", 0, 1, "")))
		countNewRuns("", old)
		membertest.SleepToMinute(2)
		assert.Equal(t, 4, len(selectJob("job", old.TakeRuns())))
		assert.Equal(t, text, g.GetText(g.Keys.Job("job")))
		assert.Contains(t, old.Log.String(), string(g.Keys.Job("job")))
		assert.Equal(t, map[string]string{"old": "0"}, g.ReadOwners("other"))
	})
}

func TestRollingUpgrade_Records(t *testing.T) {
	more := func(g *membertest.Group, key registry.Key) {
		g.T.Helper()
		g.PutRecord(key, strings.TrimSuffix(g.GetText(key), "}")+`,"later":{"a":[1,"é"]}}`)
	}
	const kept = `"later":{"a":[1,"é"]}`

	membertest.RunBubble(t, "keep fields of a later version when an older one writes them", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 1, 2, `,"later":7`))
		require.NoError(t, a.Disable(t.Context(), operator.Scope{Job: "job", Shards: []int{0}}))
		require.NoError(t, a.Disable(t.Context(), operator.Scope{Hosts: []string{"x"}}))
		a.Shutdown() // so that no leader writes plans meanwhile
		for _, key := range []registry.Key{g.Keys.Plan("job"), g.Keys.Control("job"), g.Keys.GroupControl()} {
			more(g, key)
		}
		a = g.Start("a", coordtest.Def("job", 1, 2, ""))
		b := g.Start("b", coordtest.Def("job", 1, 2, "")) // of the same revision: the stored one stays
		_, err := b.Trigger(t.Context(), "job", "", []int{1})
		require.NoError(t, err)
		require.NoError(t, b.Pause(t.Context(), "job"))
		require.NoError(t, b.Enable(t.Context(), operator.Scope{Job: "job", Shards: []int{0}}))
		require.NoError(t, b.Disable(t.Context(), operator.Scope{Hosts: []string{"y"}}))
		time.Sleep(time.Second)
		a.Shutdown()
		p := g.ReadPlan("job")
		assert.True(t, p.Paused)
		assert.True(t, p.Disabled.IsZero())
		assert.Equal(t, map[string]string{"b": "0-1"}, g.ReadOwners("job"))
		assert.Contains(t, g.GetText(g.Keys.Plan("job")), kept)
		assert.Contains(t, g.GetText(g.Keys.Control("job")), kept)
		assert.Contains(t, g.GetText(g.Keys.GroupControl()), kept)
		assert.Contains(t, string(p.Last().Def), `"later":7`)
	})
	membertest.RunBubble(t, "of a newer format are refused by name, and nothing is written", func(t *testing.T, g *membertest.Group) {
		g.PutRecord(g.Keys.Meta(), fmt.Sprintf(`{"format":%d}`, record.Format+1))
		before := g.Server.Dump()
		a := g.RunWorker(g.NewWorker("a", nil, coordtest.Def("job", 0, 1, "")))
		err := a.AwaitJoined(t.Context())
		require.ErrorIs(t, err, operator.ErrNewerFormat)
		assert.ErrorContains(t, err, string(g.Keys.Meta()))
		<-a.Done
		assert.ErrorIs(t, a.Err, operator.ErrNewerFormat)
		a.Err = nil
		assert.Equal(t, before, g.Server.Dump())
	})
	membertest.RunBubble(t, "of a job whose plan has a newer format are left alone, and other jobs run", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 2, ""), coordtest.Def("other", 0, 2, ""))
		b := g.Start("b", coordtest.Def("job", 0, 2, ""), coordtest.Def("other", 0, 2, ""))
		membertest.SleepToMinute(1)
		countNewRuns("", a, b)
		key := g.Keys.Plan("job")
		readable := g.GetText(key)
		g.PutRecord(key, strings.Replace(readable, `"format":1`, fmt.Sprintf(`"format":%d,"later":1`, record.Format+1), 1))
		newer := g.GetText(key)
		dead := b.Incarnation()
		g.Server.Partition("b")
		membertest.SleepToMinute(3)
		runs := a.TakeRuns()
		assert.Empty(t, selectJob("job", runs))
		assert.NotEmpty(t, selectJob("other", runs))
		assert.Equal(t, map[string]string{"a": "0-1"}, g.ReadOwners("other"))
		assert.Equal(t, newer, g.GetText(key))
		assert.Contains(t, a.Log.String(), string(key))
		assert.Contains(t, a.Log.String(), operator.ErrNewerFormat.Error())
		_, found := g.GetRecord(g.Keys.Claims(dead, "job"))
		assert.True(t, found, "a member that can read the plan runs the job")
		g.PutRecord(key, readable)
		time.Sleep(time.Second)
		assert.Equal(t, map[string]string{"a": "0-1"}, g.ReadOwners("job"))
		assert.Equal(t, membertest.OncePerShard(2), countNewRuns("job", a))
	})
}

// selectJob returns the runs of a job.
func selectJob(job string, runs []claimer.Run) (out []claimer.Run) {
	for _, r := range runs {
		if r.Job == job {
			out = append(out, r)
		}
	}
	return out
}
