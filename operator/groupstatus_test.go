package operator_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/claimer"
	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/group/due"
	"github.com/rota-dev/rota/internal/group/membertest"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

// groupOf returns the state of the group, and checks that each job's agrees with its Status.
func groupOf(g *membertest.Group, compile due.Compiler) operator.GroupStatus {
	g.T.Helper()
	o, _ := g.NewOperator()
	if compile != nil {
		o = o.WithCompiler(compile)
	}
	st, err := o.Group(g.T.Context())
	require.NoError(g.T, err)
	for _, j := range st.Jobs {
		one, err := o.Status(g.T.Context(), j.Job)
		require.NoError(g.T, err)
		assert.Equal(g.T, one.Counts, j.Counts)
		if one.Shards == 0 { // without a plan, a summary has the intent
			one.Paused = one.Intent.Paused
		}
		assert.Equal(g.T, []any{one.NextFire, one.Overdue, one.Problem, one.Shards, len(one.Unowned), len(one.Frozen), one.Paused},
			[]any{j.NextFire, j.Overdue, j.Problem, j.Shards, j.Unowned, j.Frozen, j.Paused})
		assert.Equal(g.T, one.Leader, st.Leader)
	}
	return st
}

func TestOperator_Group(t *testing.T) {
	minute := func(n int) time.Time { return coordtest.BubbleStart().Add(time.Duration(n) * time.Minute) }

	membertest.RunBubble(t, "summarizes jobs and instances", func(t *testing.T, g *membertest.Group) {
		work := func(ctx context.Context, r claimer.Run) error {
			switch {
			case r.Shard == 0:
				return errors.New("no such table")
			case r.Shard == 3:
				return membertest.WorkFor(time.Hour)(ctx, r)
			}
			return nil
		}
		a := g.StartWorking("a", work, coordtest.Def("job", 2, 4, ""), coordtest.Def("other", 0, 1, ""))
		b := g.StartWorking("b", work, coordtest.Def("job", 2, 4, ""))
		require.NoError(t, a.Disable(t.Context(), operator.Scope{Job: "job", Shards: []int{1}}))
		require.NoError(t, a.Disable(t.Context(), operator.Scope{Hosts: []string{"elsewhere"}}))
		membertest.SleepToMinute(2)
		st := groupOf(g, a.Compile)
		require.Len(t, st.Jobs, 2)
		j := st.Jobs[0]
		assert.Equal(t, []int{4, 1, 1}, []int{j.Shards, j.Running, j.Disabled})
		assert.Equal(t, []time.Time{minute(3), minute(2), minute(2), minute(1)}, []time.Time{j.NextFire, j.Overdue, j.LastFire, j.ClaimedTo},
			"shard 3 runs since the first minute")
		assert.Equal(t, []int{0}, j.Failing)
		assert.Equal(t, "no such table", j.LastFailure.Error)
		assert.Equal(t, operator.Scope{Hosts: []string{"elsewhere"}}, st.Disabled)
		assert.Equal(t, []string{"test", "default"}, []string{st.Namespace, st.Group})
		require.Len(t, st.Instances, 2)
		for i := range st.Instances {
			assert.Positive(t, st.Instances[i].PID)
			st.Instances[i].PID = 0
		}
		assert.Equal(t, []operator.InstanceStatus{
			{
				Instance: "a", Incarnation: a.Incarnation(), Host: "host-of-a", Started: st.Instances[0].Started, Session: a.Session(),
				Alive: true, Leader: true, Weight: 1, Jobs: 2, Shards: 3,
			},
			{
				Instance: "b", Incarnation: b.Incarnation(), Host: "host-of-b", Started: st.Instances[1].Started, Session: b.Session(),
				Alive: true, Weight: 1, Jobs: 1, Shards: 2, Running: 1,
			},
		}, st.Instances)
		jobs, err := a.Jobs(t.Context())
		require.NoError(t, err)
		assert.Len(t, jobs, 2)
		instances, err := a.Instances(t.Context())
		require.NoError(t, err)
		assert.Len(t, instances, 2)
	})
	membertest.RunBubble(t, "counts the shards of expired owners that are awaited", func(t *testing.T, g *membertest.Group) {
		g.Grace = time.Hour
		a := g.Start("a", coordtest.Def("job", 0, 4, ""), coordtest.Def("other", 0, 1, ""))
		b := g.Start("b", coordtest.Def("job", 0, 4, ""))
		membertest.SleepToMinute(1)
		o, _ := g.NewOperator()
		v, err := o.Watch(t.Context())
		require.NoError(t, err)
		defer v.Close()
		assert.Zero(t, v.Status().Jobs[0].Expired)
		b.Abandon()
		time.Sleep(30 * time.Second)
		for _, st := range []operator.GroupStatus{groupOf(g, a.Compile), v.Status()} {
			assert.Equal(t, 2, st.Jobs[0].Expired)
			assert.Equal(t, []string{"b"}, st.Jobs[0].ExpiredOwners)
			assert.Zero(t, st.Jobs[1].Expired)
			assert.Empty(t, st.Jobs[1].ExpiredOwners)
		}
		one, err := o.Status(t.Context(), "job")
		require.NoError(t, err)
		assert.Equal(t, []any{2, []string{"b"}}, []any{one.Summary().Expired, one.Summary().ExpiredOwners})
		require.NoError(t, o.Disable(t.Context(), operator.Scope{Instances: []string{"b"}}))
		time.Sleep(5 * time.Second)
		assert.Zero(t, v.Status().Jobs[0].Expired, "its shards have moved")
		assert.Zero(t, v.Status().Jobs[0].Unowned)
	})
	membertest.RunBubble(t, "has the difference of the clocks of two instances", func(t *testing.T, g *membertest.Group) {
		g.Skew = 5 * time.Second
		g.SetClock("b", -time.Minute)
		a := g.Start("a", coordtest.Def("job", 0, 4, ""))
		g.Start("b", coordtest.Def("job", 0, 4, ""))
		time.Sleep(time.Minute)
		st := groupOf(g, a.Compile)
		require.Len(t, st.Instances, 2)
		assert.Zero(t, st.Instances[0].ClockDiffers)
		assert.InDelta(t, -time.Minute, st.Instances[1].ClockDiffers, float64(time.Second))
		assert.Zero(t, st.Instances[1].Skew, "no one can be judged")
		assert.Len(t, find(diagnose(t, g.Server.Client("look")), operator.FindingClock, ""), 1)
		g.SetClock("b", 0)
		time.Sleep(time.Minute)
		assert.Zero(t, groupOf(g, a.Compile).Instances[1].ClockDiffers)
	})
	membertest.RunBubble(t, "has the difference of a lone clock and the store's", func(t *testing.T, g *membertest.Group) {
		g.Skew = 5 * time.Second
		g.SetClock("a", time.Minute)
		a := g.Start("a", coordtest.Def("job", 0, 4, ""))
		time.Sleep(time.Minute)
		assert.InDelta(t, time.Minute, groupOf(g, a.Compile).Instances[0].ClockDiffers, float64(time.Second))
		assert.Len(t, find(diagnose(t, g.Server.Client("look")), operator.FindingClock, ""), 1)
		g.SetClock("a", 0)
		time.Sleep(time.Minute)
		assert.Zero(t, groupOf(g, a.Compile).Instances[0].ClockDiffers)
	})
	membertest.RunBubble(t, "lists jobs without a plan, and those with an unreadable one", func(t *testing.T, g *membertest.Group) {
		g.PutRecord(g.Keys.Job("new"), coordtest.Def("new", 3, 4, `,"start_paused":true`))
		st := groupOf(g, nil)
		assert.Equal(t, []operator.JobSummary{{Job: "new", Revision: 3, Paused: true}}, st.Jobs)
		assert.Zero(t, st.Leader)
		assert.Empty(t, st.Instances)
		g.PutRecord(g.Keys.Job("bad"), coordtest.Def("bad", 0, 1, ""))
		g.PutRecord(g.Keys.Plan("bad"), "spoilt")
		g.PutRecord(g.Keys.Job("worse"), "spoilt")
		g.PutRecord(g.Keys.GroupControl(), "spoilt")
		o, _ := g.NewOperator()
		st, err := o.Group(t.Context())
		require.NoError(t, err)
		require.Len(t, st.Jobs, 3)
		assert.Equal(t, "test/groups/default/plan/bad cannot be read", st.Jobs[0].Problem)
		assert.Equal(t, "worse", st.Jobs[2].Job)
		assert.Contains(t, st.Jobs[2].Problem, "jobs/worse cannot be read")
		assert.ElementsMatch(t, []registry.Key{g.Keys.Plan("bad"), g.Keys.Job("worse"), g.Keys.GroupControl()}, st.Unreadable)
	})
	membertest.RunBubble(t, "shows expired instances until they are reaped", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 2, ""))
		a.Abandon()
		<-a.Done
		st := groupOf(g, nil)
		require.Len(t, st.Instances, 1)
		assert.False(t, st.Instances[0].Alive)
		assert.Equal(t, 2, st.Instances[0].Shards)
		assert.Zero(t, st.Leader)
	})
}

func TestGroups(t *testing.T) {
	membertest.RunBubble(t, "with live instances are listed", func(t *testing.T, g *membertest.Group) {
		groups, err := operator.Groups(t.Context(), g.Server.Client("console"), "test")
		require.NoError(t, err)
		assert.Empty(t, groups)
		g.StartFleet(2)
		groups, err = operator.Groups(t.Context(), g.Server.Client("console"), "test")
		require.NoError(t, err)
		assert.Equal(t, []string{"default"}, groups)
		_, err = operator.Groups(t.Context(), g.Server.Client("console"), "")
		require.ErrorIs(t, err, registry.ErrInvalidKey)
	})
}

// putGroup stores the records of a group with so many jobs of 4 shards each, whose owners are spread over
// the instances.
func putGroup(t testing.TB, s *memory.Server, jobs, instances int) {
	t.Helper()
	keys, err := record.NewKeys("test", "default")
	require.NoError(t, err)
	reg := s.Client("setup")
	session, err := reg.OpenSession(t.Context(), registry.SessionOptions{})
	require.NoError(t, err)
	var ops []registry.Op
	flush := func() {
		_, err := reg.Txn(t.Context(), registry.Txn{Then: ops})
		require.NoError(t, err)
		ops = nil
	}
	put := func(key registry.Key, v any) {
		value, err := record.Encode(v)
		require.NoError(t, err)
		if ops = append(ops, registry.Create(key, value)); len(ops) == 50 || len(value) > 10_000 {
			flush()
		}
	}
	names := make([]string, jobs)
	for i := range names {
		names[i] = fmt.Sprintf("job-%05d", i)
	}
	inc := func(i int) string { return record.Incarnation(fmt.Sprintf("instance-%02d", i%instances), session.ID()) }
	for i := range instances {
		name := fmt.Sprintf("instance-%02d", i)
		put(keys.Member(inc(i)), record.Member{Name: name, Session: session.ID(), Host: "host", Jobs: names})
		value, err := record.Encode(record.Instance{Session: session.ID(), Group: "default"})
		require.NoError(t, err)
		_, err = reg.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.CreateOwned(keys.Instance(name), value, session.ID())}})
		require.NoError(t, err)
	}
	now := record.InstantOf(time.Now())
	for n, name := range names {
		def := []byte(coordtest.Def(name, 1, 4, ""))
		put(keys.Job(name), json.RawMessage(def))
		epoch, err := record.NewEpoch(1, now, def)
		require.NoError(t, err)
		owners := map[string]shardset.Set{}
		for s := range 4 {
			owners[inc(n+s)] = shardset.Of(s)
		}
		put(keys.Plan(name), &record.Plan{Format: record.Format, Job: name, Epochs: []record.Epoch{epoch}, Owners: owners})
		for s := range 4 {
			put(keys.Claims(inc(n+s), name), record.Claims{
				Job: name, Counts: record.Counts{Claimed: 1},
				Watermarks: record.Watermarks(nil).Raise(shardset.Of(s), record.Watermark{Epoch: 1, Fire: now, Attempt: 1}),
			})
		}
	}
	if len(ops) > 0 {
		flush()
	}
}

func TestOperator_HasLiveInstance(t *testing.T) {
	membertest.RunBubble(t, "follows the sessions of the group", func(t *testing.T, g *membertest.Group) {
		has := func(group string) bool {
			op, err := operator.New(g.NewEditor(), "test", group)
			require.NoError(t, err)
			has, err := op.HasLiveInstance(t.Context())
			require.NoError(t, err)
			return has
		}
		assert.False(t, has(""))
		a := g.Start("a", coordtest.Def("job", 0, 1, ""))
		assert.True(t, has(""))
		assert.False(t, has("other"))
		a.Abandon()
		time.Sleep(time.Minute)
		assert.False(t, has(""))
	})
}

func TestOperator_GroupReadsDirectories(t *testing.T) {
	for _, jobs := range []int{10, 10_000} {
		if jobs > 10 && testing.Short() {
			continue
		}
		s := memory.New()
		putGroup(t, s, jobs, 50)
		o, err := operator.New(s.Client("console"), "test", "")
		require.NoError(t, err)
		began := time.Now()
		st, err := o.Group(t.Context())
		require.NoError(t, err)
		t.Logf("%d jobs: %v", jobs, time.Since(began))
		require.Len(t, st.Jobs, jobs)
		assert.Equal(t, 4, st.Jobs[jobs-1].Shards)
		assert.EqualValues(t, 4, st.Jobs[0].Counts.Claimed)
		assert.Len(t, st.Instances, 50)
		assert.Equal(t, 1+6+50, s.Counts("console").Reads, "of meta, of 6 directories, and of the claims of each instance")
	}
}

func TestOperator_Watch(t *testing.T) {
	membertest.RunBubble(t, "agrees with Group after each change", func(t *testing.T, g *membertest.Group) {
		o, _ := g.NewOperator()
		o = o.WithCompiler(new(membertest.Worker).Compile)
		v, err := o.Watch(t.Context())
		require.NoError(t, err)
		defer v.Close()
		assert.Empty(t, v.Status().Jobs)
		shown := map[string]operator.JobSummary{} // by all changes
		agree := func() {
			t.Helper()
			synctest.Wait()
			listed, err := o.Group(t.Context())
			require.NoError(t, err)
			assert.Equal(t, listed, v.Status())
			st, removed := v.Changes()
			for _, job := range removed {
				assert.Contains(t, shown, job)
				delete(shown, job)
			}
			for _, j := range st.Jobs {
				shown[j.Job] = j
			}
			assert.Len(t, shown, len(listed.Jobs))
			for _, j := range listed.Jobs {
				assert.Equal(t, j, shown[j.Job])
			}
			st.Jobs = listed.Jobs
			assert.Equal(t, listed, st)
			for _, j := range append(listed.Jobs, operator.JobSummary{Job: "unknown"}) {
				read, err := o.Explain(t.Context(), j.Job, operator.AllShards, time.Time{})
				require.NoError(t, err)
				viewed, err := v.Explain(j.Job, operator.AllShards, time.Time{})
				require.NoError(t, err)
				assert.Equal(t, read, viewed, j.Job)
			}
			read, err := o.Diagnose(t.Context())
			require.NoError(t, err)
			assert.ElementsMatch(t, slices.DeleteFunc(read.Findings, func(f operator.Finding) bool { return f.Job == "" }), v.JobFindings())
			st, removed = v.Changes()
			assert.Empty(t, st.Jobs, "no job changes twice")
			assert.Empty(t, removed)
		}
		changed := v.Changed()
		a := g.Start("a", coordtest.Def("job", 0, 4, ""))
		<-changed
		agree()
		b := g.StartWorking("b", membertest.WorkFor(90*time.Second), coordtest.Def("job", 0, 4, ""), coordtest.Def("other", 0, 1, ""), coordtest.Def("pooled", 0, 2, `,"pool":"db"`))
		awaited := func() string {
			jobs := v.Status().Jobs
			return jobs[slices.IndexFunc(jobs, func(j operator.JobSummary) bool { return j.Job == "pooled" })].AwaitedPool
		}
		for n := range 4 {
			membertest.SleepToMinute(n + 1)
			agree()
			assert.Equal(t, "db", awaited())
		}
		require.NoError(t, o.SetPool(t.Context(), "db", 1))
		time.Sleep(10 * time.Second)
		agree()
		assert.Equal(t, "db", awaited(), "one of the two shards runs")
		require.NoError(t, o.SetPool(t.Context(), "db", 2))
		time.Sleep(3 * time.Minute)
		agree()
		assert.Empty(t, awaited())
		g.SpoilRecord(g.Keys.Slots("db"))
		agree()
		require.NoError(t, a.Pause(t.Context(), "job"))
		agree()
		b.Abandon()
		agree()
		time.Sleep(time.Minute)
		agree()
		require.Len(t, v.Status().Instances, 1)
		g.RemoveRecord(g.Keys.Job("other"))
		agree()
		g.Server.Restart() // watches begin again with a snapshot
		time.Sleep(time.Second)
		agree()
		v.Close()
		v.Close()
		require.ErrorIs(t, v.Err(), registry.ErrClosed)
	})
	membertest.RunBubble(t, "reads once, and has no watch left after Close", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 4, ""))
		o, _ := g.NewOperator()
		g.Server.ResetCounts()
		v, err := o.Watch(t.Context())
		require.NoError(t, err)
		membertest.SleepToMinute(10)
		b := g.Start("b", coordtest.Def("job", 0, 4, ""))
		time.Sleep(time.Second)
		assert.Len(t, v.Status().Instances, 2)
		assert.Equal(t, []int{1, 6 + 2}, []int{g.Server.Counts("console").Reads, g.Server.Counts("console").Watches}, "of meta; a directory each")
		b.Shutdown()
		time.Sleep(time.Minute)
		assert.Equal(t, 6+1, g.Server.Counts("console").Watches, "the claims of b have no follower")
		assert.Equal(t, a.Incarnation(), v.Status().Instances[0].Incarnation)
		v.Close()
		assert.Zero(t, g.Server.Counts("console").Watches)
	})
	membertest.RunBubble(t, "shows an act after Await", func(t *testing.T, g *membertest.Group) {
		g.Start("a", coordtest.Def("job", 0, 4, ""))
		o, _ := g.NewOperator()
		v, err := o.Watch(t.Context())
		require.NoError(t, err)
		defer v.Close()
		jobOf := func() operator.JobSummary { return v.Status().Jobs[0] }
		for range 3 {
			require.NoError(t, o.Pause(t.Context(), "job"))
			require.NoError(t, v.Await(t.Context(), "job"))
			assert.True(t, jobOf().Paused)
			require.NoError(t, o.Resume(t.Context(), "job"))
			require.NoError(t, v.Await(t.Context(), "job"))
			assert.False(t, jobOf().Paused)
			require.NoError(t, o.PauseGroup(t.Context()))
			require.NoError(t, v.Await(t.Context(), ""))
			assert.True(t, jobOf().GroupPaused)
			require.NoError(t, o.ResumeGroup(t.Context()))
			require.NoError(t, v.Await(t.Context(), ""))
			assert.False(t, jobOf().Paused)
			require.NoError(t, o.Disable(t.Context(), operator.Scope{Job: "job", Shards: []int{1, 2}}))
			require.NoError(t, v.Await(t.Context(), "job"))
			assert.Equal(t, 2, jobOf().Disabled)
			require.NoError(t, o.Enable(t.Context(), operator.Scope{Job: "job", Shards: []int{1, 2}}))
			require.NoError(t, v.Await(t.Context(), "job"))
		}
		release := g.Server.HoldWatch("console")
		require.NoError(t, o.Pause(t.Context(), "job"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		assert.ErrorIs(t, v.Await(ctx, "job"), context.DeadlineExceeded, "the watch is late")
		release()
		assert.NoError(t, v.Await(t.Context(), "job"))
	})
	membertest.RunBubble(t, "has the events on record, the latest first", func(t *testing.T, g *membertest.Group) {
		begin := time.Now()
		a := g.Start("a", coordtest.Def("job", 0, 4, ""), coordtest.Def("other", 0, 1, ""))
		o, _ := g.NewOperator()
		v, err := o.Watch(t.Context())
		require.NoError(t, err)
		defer v.Close()
		time.Sleep(time.Minute)
		g.Start("b", coordtest.Def("job", 0, 4, ""))
		time.Sleep(time.Minute)
		paused := time.Now()
		require.NoError(t, o.As("kim", "quarter end").Pause(t.Context(), "job"))
		time.Sleep(time.Minute)
		require.NoError(t, o.As("kim", "").PauseGroup(t.Context()))
		a.Shutdown()
		time.Sleep(time.Minute)

		kinds := map[operator.EventKind]int{}
		var acts []operator.Event
		all := v.Events(operator.EventsQuery{})
		for i, e := range all {
			kinds[e.Kind]++
			assert.False(t, i > 0 && e.At.After(all[i-1].At), "%+v", e)
			if e.Kind == operator.EventAct {
				acts = append(acts, e)
			}
		}
		assert.Equal(t, []int{2, 2, 1}, []int{kinds[operator.EventAct], kinds[operator.EventLeader], kinds[operator.EventJoin]}, "%+v", all)
		assert.Positive(t, kinds[operator.EventDecision])
		assert.Equal(t, operator.Event{At: paused.UTC(), Kind: operator.EventAct, Job: "job", By: "kim", What: "pause", Reason: "quarter end"}, acts[1])
		assert.Empty(t, acts[0].Job, "an act on the group")

		ofOther := v.Events(operator.EventsQuery{Job: "other"})
		for _, e := range ofOther {
			assert.NotEqual(t, "job", e.Job)
		}
		assert.Contains(t, ofOther, acts[0], "an act on the group is one on each job")
		assert.Equal(t, all[:3], v.Events(operator.EventsQuery{Limit: 3}))
		assert.Equal(t, acts, v.Events(operator.EventsQuery{Kind: operator.EventAct, Limit: 100}))
		for _, e := range v.Events(operator.EventsQuery{Since: paused, Until: paused.Add(time.Second)}) {
			assert.Contains(t, []operator.EventKind{operator.EventAct, operator.EventDecision}, e.Kind)
		}
		assert.Empty(t, v.Events(operator.EventsQuery{Until: begin.Add(-time.Second)}))
	})
	membertest.RunBubble(t, "has the end of an owner's session, once for all jobs", func(t *testing.T, g *membertest.Group) {
		g.Start("a", coordtest.Def("job", 0, 4, ""), coordtest.Def("other", 0, 4, ""))
		g.Start("b", coordtest.Def("job", 0, 4, ""), coordtest.Def("other", 0, 4, ""))
		o, _ := g.NewOperator()
		v, err := o.Watch(t.Context())
		require.NoError(t, err)
		defer v.Close()
		time.Sleep(time.Minute)
		lost := time.Now()
		g.Server.Expire("b")
		time.Sleep(time.Minute)
		left := v.Events(operator.EventsQuery{Kind: operator.EventLeave})
		require.Len(t, left, 1)
		assert.Equal(t, "b: its session ended; its shards of 2 jobs fail over", left[0].What)
		assert.Equal(t, "b", left[0].Instance)
		assert.WithinRange(t, left[0].At, lost, lost.Add(time.Minute))
	})
	membertest.RunBubble(t, "ends with the registry, and does not begin without one", func(t *testing.T, g *membertest.Group) {
		reg := g.Server.Client("console")
		o, err := operator.New(reg, "test", "")
		require.NoError(t, err)
		v, err := o.Watch(t.Context())
		require.NoError(t, err)
		changed := v.Changed()
		require.NoError(t, reg.Close(t.Context()))
		<-changed
		require.ErrorIs(t, v.Err(), registry.ErrClosed)
		v.Close()

		heal := g.Server.HoldWatch("late")
		o, err = operator.New(g.Server.Client("late"), "test", "")
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = o.Watch(ctx)
		require.ErrorIs(t, err, registry.ErrUnavailable)
		heal()
	})
}

func TestOperator_Names(t *testing.T) {
	membertest.RunBubble(t, "are those of jobs and instances", func(t *testing.T, g *membertest.Group) {
		o, _ := g.NewOperator()
		g.Start("b", coordtest.Def("job", 0, 1, ""), coordtest.Def("other", 0, 1, ""))
		g.Start("a", coordtest.Def("job", 0, 1, ""))
		g.PutRecord(g.Keys.Job("worse"), "spoilt")
		g.Server.ResetCounts()
		jobs, err := o.JobNames(t.Context())
		require.NoError(t, err)
		assert.Equal(t, []string{"job", "other"}, jobs)
		instances, err := o.InstanceNames(t.Context())
		require.NoError(t, err)
		assert.Equal(t, []string{"a", "b"}, instances)
		assert.Equal(t, 2, g.Server.Counts("console").Reads)
	})
}
