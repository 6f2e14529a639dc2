package operator_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/claimer"
	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/group/membertest"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry"
)

func TestOperator_Status(t *testing.T) {
	status := func(g *membertest.Group, job string) operator.Status {
		g.T.Helper()
		o, _ := g.NewOperator()
		st, err := o.Status(g.T.Context(), job)
		require.NoError(g.T, err)
		return st
	}
	minute := func(n int) time.Time { return coordtest.BubbleStart().Add(time.Duration(n) * time.Minute) }

	membertest.RunBubble(t, "of a job that nobody has planned yet is what was defined and what operators want", func(t *testing.T, g *membertest.Group) {
		def := coordtest.Def("job", 3, 4, `,"start_paused":true`)
		g.PutRecord(g.Keys.Job("job"), def)
		assert.Equal(t, operator.Status{
			Job: "job", Revision: 3, Definition: json.RawMessage(def), Intent: operator.Intent{Paused: true, Disabled: operator.Scope{Job: "job"}},
		}, status(g, "job"))
	})
	membertest.RunBubble(t, "tells who owns, runs and offers what, and what has come of it", func(t *testing.T, g *membertest.Group) {
		fail := func(ctx context.Context, r claimer.Run) error {
			switch {
			case r.Shard == 0:
				return errors.New("no such table")
			case r.Shard == 3:
				return membertest.WorkFor(time.Hour)(ctx, r)
			}
			return nil
		}
		a := g.StartWorking("a", fail, coordtest.Def("job", 2, 4, ""), coordtest.Def("other", 0, 1, ""))
		b := g.StartWorking("b", fail, coordtest.Def("job", 2, 4, ""))
		g.Start("c", coordtest.Def("other", 0, 1, ""))
		require.NoError(t, a.Disable(t.Context(), operator.Scope{Job: "job", Shards: []int{1}}))
		membertest.SleepToMinute(2)
		st := status(g, "job")
		assert.Equal(t, []operator.MemberStatus{
			{Instance: "a", Host: "host-of-a", Session: a.Session(), Alive: true, Offers: true, Revision: 2, Shards: []int{0, 1}},
			{
				Instance: "b", Host: "host-of-b", Session: b.Session(), Alive: true, Offers: true, Revision: 2, Shards: []int{2, 3},
				Running: []operator.Runs{{Shards: []int{3}, Fire: minute(1), Attempt: 1}},
			},
		}, st.Members)
		assert.Equal(t, []int{1}, st.Disabled)
		assert.Equal(t, []int{1}, st.Intent.Disabled.Shards)
		assert.Equal(t, operator.Counts{Claimed: 5, Succeeded: 2, Failed: 2, Skipped: 2}, st.Counts)
		assert.Equal(t, minute(2), st.Ended.Truncate(time.Second))
		require.Len(t, st.Failures, 2)
		last := st.Failures[1]
		assert.Equal(t, operator.Runs{Shards: []int{0}, Fire: minute(2), Attempt: 1}, last.Runs)
		assert.Equal(t, "no such table", last.Error)
		assert.Equal(t, []int{2, 4}, []int{st.Revision, st.Shards})
		assert.Equal(t, 2, st.InForce)
		assert.Empty(t, st.Unowned)
	})
	membertest.RunBubble(t, "says why shards are where they are: which leader decided it, when and for what", func(t *testing.T, g *membertest.Group) {
		g.Start("a", coordtest.Def("job", 0, 2, ""))
		term := func() uint64 { e, _ := g.GetRecord(g.Keys.Leader()); return e.Modified.Seq }
		first := term()
		g.Start("b", coordtest.Def("job", 0, 2, ""))
		moved := time.Now().Add(-time.Second).UTC()
		membertest.SleepToMinute(1)
		g.Server.Partition("a")
		membertest.SleepToMinute(2)
		var told []string
		decisions := status(g, "job").Decisions
		for _, d := range decisions {
			told = append(told, fmt.Sprintf("%s: %s", d.By, d.What))
		}
		assert.Equal(t, []string{
			"a: assign 0-1 to a; create",
			"a: freeze 1",
			"a: release 1 from a; unfreeze 1; assign 1 to b",
			"b: fail over 0 of a; assign 0 to b",
		}, told)
		assert.Equal(t, first, decisions[2].Term)
		assert.Equal(t, moved, decisions[2].At.Truncate(time.Second))
		assert.Equal(t, term(), decisions[3].Term)
	})
	membertest.RunBubble(t, "knows after a crash what had failed, and when the last run ended", func(t *testing.T, g *membertest.Group) {
		a := g.StartWorking("a", func(context.Context, claimer.Run) error { return errors.New("no such table") }, coordtest.Def("job", 0, 1, ""))
		g.Start("b", coordtest.Def("other", 0, 1, ""))
		membertest.SleepToMinute(3)
		claims := g.Keys.Claims(a.Incarnation(), "job")
		before := status(g, "job")
		require.NotEmpty(t, before.Failures)
		g.Server.Partition("a")
		membertest.SleepToMinute(4)
		_, found := g.GetRecord(claims)
		require.False(t, found, "it was not buried")
		after := status(g, "job")
		assert.Equal(t, before.Failures, after.Failures)
		assert.Equal(t, before.Ended, after.Ended)
		assert.Equal(t, before.Counts, after.Counts)
		assert.Equal(t, []int{0}, after.Unowned)
		assert.Empty(t, after.Members)
	})
	membertest.RunBubble(t, "counts a run that a crash ended and nobody makes again among the failures", func(t *testing.T, g *membertest.Group) {
		once := `,"on_crash":"count as failed"`
		g.StartWorking("a", membertest.WorkFor(time.Hour), coordtest.Def("job", 0, 1, once))
		g.Start("b", coordtest.Def("job", 0, 1, once))
		membertest.SleepToMinute(1)
		g.Server.Partition("a")
		membertest.SleepToMinute(2)
		st := status(g, "job")
		assert.EqualValues(t, 1, st.Counts.Lost)
		require.Len(t, st.Failures, 1)
		assert.Equal(t, operator.Runs{Shards: []int{0}, Fire: minute(1), Attempt: 1}, st.Failures[0].Runs)
	})
	membertest.RunBubble(t, "tells what waits: re-runs, triggers, shards that are to move", func(t *testing.T, g *membertest.Group) {
		hour := membertest.WorkFor(time.Hour)
		a := g.StartWorking("a", hour, coordtest.Def("job", 0, 2, ""))
		membertest.SleepToMinute(1)
		require.NoError(t, a.Pause(t.Context(), "job"))
		n, err := a.Trigger(t.Context(), "job", "", nil)
		require.NoError(t, err)
		g.StartWorking("b", hour, coordtest.Def("job", 0, 2, ""))
		st := status(g, "job")
		assert.Equal(t, []int{1}, st.Frozen)
		assert.Equal(t, []uint64{n}, st.Triggers)
		assert.True(t, st.Paused)
		g.Server.Partition("a")
		membertest.SleepToMinute(2)
		assert.Equal(t, []operator.Runs{{Shards: []int{0, 1}, Fire: minute(1), Attempt: 2}}, status(g, "job").Reruns)
	})
	membertest.RunBubble(t, "names what cannot be read of a member, and tells the rest", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 2, ""))
		b := g.Start("b", coordtest.Def("job", 0, 2, ""))
		membertest.SleepToMinute(1)
		member, claims := g.Keys.Member(a.Incarnation()), g.Keys.Claims(b.Incarnation(), "job")
		heal := []func(){g.Server.Partition("a"), g.Server.Partition("b")}
		g.PutRecord(member, "spoilt")
		g.PutRecord(claims, "spoilt")
		st := status(g, "job")
		assert.ElementsMatch(t, []registry.Key{member, claims}, st.Unreadable)
		require.Len(t, st.Members, 2)
		assert.Equal(t, []int{0}, st.Members[0].Shards)
		assert.Equal(t, "a", st.Members[0].Instance)
		for _, f := range heal {
			f()
		}
	})
	membertest.RunBubble(t, "fails by name: of an unknown job, of a plan that cannot be read, of a newer version's", func(t *testing.T, g *membertest.Group) {
		o, _ := g.NewOperator()
		_, err := o.Status(t.Context(), "job")
		assert.ErrorIs(t, err, operator.ErrUnknownJob)
		g.Start("a", coordtest.Def("job", 0, 2, ""))
		g.PutRecord(g.Keys.Plan("job"), fmt.Sprintf(`{"format":%d}`, record.Format+1))
		_, err = o.Status(t.Context(), "job")
		assert.ErrorIs(t, err, operator.ErrNewerFormat)
		assert.ErrorContains(t, err, string(g.Keys.Plan("job")))
		g.PutRecord(g.Keys.Meta(), fmt.Sprintf(`{"format":%d}`, record.Format+1))
		_, err = o.Status(t.Context(), "job")
		assert.ErrorContains(t, err, string(g.Keys.Meta()))
	})
	membertest.RunBubble(t, "writes nothing", func(t *testing.T, g *membertest.Group) {
		g.Start("a", coordtest.Def("job", 0, 2, ""))
		synctest.Wait()
		g.Server.Record()
		status(g, "job")
		assert.Empty(t, g.TakeCommits())
	})
}
