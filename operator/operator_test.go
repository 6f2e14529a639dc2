package operator_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/group/leader"
	"github.com/rota-dev/rota/internal/group/membertest"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

func TestOperator(t *testing.T) {
	membertest.RunBubble(t, "pauses, resumes and triggers without being in the group", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 2, ""))
		o, _ := g.NewOperator()
		require.NoError(t, o.Pause(t.Context(), "job"))
		membertest.SleepToMinute(2)
		assert.Empty(t, a.TakeRuns())
		n, err := o.Trigger(t.Context(), "job", "hello", []int{1})
		require.NoError(t, err)
		require.NoError(t, o.Resume(t.Context(), "job"))
		time.Sleep(time.Second)
		runs := a.TakeRuns()
		require.Len(t, runs, 1)
		assert.Equal(t, n, runs[0].Trigger)
		assert.Equal(t, "hello", runs[0].Param)
		_, joined := g.GetRecord(g.Keys.Instance("console"))
		assert.False(t, joined)
	})
	membertest.RunBubble(t, "is what a member is, too", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 2, ""))
		require.NoError(t, a.Disable(t.Context(), operator.Scope{Job: "job", Shards: []int{0}}))
		in, err := a.Intent(t.Context(), "job")
		require.NoError(t, err)
		assert.Equal(t, []int{0}, in.Disabled.Shards)
	})
	membertest.RunBubble(t, "is obeyed by who comes later, if nobody is there", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 2, ""))
		a.Shutdown()
		o, _ := g.NewOperator()
		require.NoError(t, o.Disable(t.Context(), operator.Scope{Job: "job", Shards: []int{0}}))
		b := g.Start("b", coordtest.Def("job", 0, 2, ""))
		b.TakeRuns()
		membertest.SleepToMinute(1)
		assert.Equal(t, map[int]int{1: 1}, membertest.CountRuns(b.TakeRuns()))
	})
	membertest.RunBubble(t, "keeps what others say at the same time", func(t *testing.T, g *membertest.Group) {
		g.Start("a", coordtest.Def("job", 0, 2, ""))
		o, reg := g.NewOperator()
		other, err := operator.New(g.Server.Client("other"), "test", "")
		require.NoError(t, err)
		between := func(key registry.Key, f func() error) {
			reg.BeforeTxn(membertest.OnFirstWrite(membertest.IsKey(key), func() { require.NoError(t, f()) }))
		}
		between(g.Keys.Control("job"), func() error { return other.Pause(t.Context(), "job") })
		require.NoError(t, o.Disable(t.Context(), operator.Scope{Job: "job", Shards: []int{1}}))
		between(g.Keys.GroupControl(), func() error { return other.Disable(t.Context(), operator.Scope{Hosts: []string{"x"}}) })
		require.NoError(t, o.Disable(t.Context(), operator.Scope{Hosts: []string{"y"}}))
		in, err := o.Intent(t.Context(), "job")
		require.NoError(t, err)
		assert.Equal(t, operator.Intent{
			Paused: true, Disabled: operator.Scope{Job: "job", Shards: []int{1}}, HeldBy: operator.Act{At: time.Now().UTC(), What: "pause"},
		}, in)
		in, err = o.Intent(t.Context(), "")
		require.NoError(t, err)
		assert.Equal(t, operator.Intent{Disabled: operator.Scope{Hosts: []string{"x", "y"}}}, in)
	})
	membertest.RunBubble(t, "tells what stands, of each job and of all", func(t *testing.T, g *membertest.Group) {
		g.Start("a", coordtest.Def("job", 0, 4, `,"start_paused":true`))
		o, _ := g.NewOperator()
		in, err := o.Intent(t.Context(), "job")
		require.NoError(t, err)
		assert.Equal(t, operator.Intent{Paused: true, Disabled: operator.Scope{Job: "job"}}, in, "before anybody has said anything")
		in, err = o.Intent(t.Context(), "")
		require.NoError(t, err)
		assert.Zero(t, in)
		s := operator.Scope{Job: "job", Shards: []int{3, 1, 3}, Instances: []string{"b", "a", "b"}, Hosts: []string{"y", "x"}}
		require.NoError(t, o.Disable(t.Context(), s))
		in, err = o.Intent(t.Context(), "job")
		require.NoError(t, err)
		whole := operator.Scope{Job: "job", Shards: []int{1, 3}, Instances: []string{"a", "b"}, Hosts: []string{"x", "y"}}
		assert.Equal(t, operator.Intent{Paused: true, Disabled: whole}, in)
		require.NoError(t, o.Enable(t.Context(), operator.Scope{Job: "job", Shards: []int{0, 1}, Instances: []string{"b", "z"}, Hosts: []string{"x"}}))
		in, err = o.Intent(t.Context(), "job")
		require.NoError(t, err)
		assert.Equal(t, operator.Scope{Job: "job", Shards: []int{3}, Instances: []string{"a"}, Hosts: []string{"y"}}, in.Disabled)
		require.NoError(t, o.Enable(t.Context(), in.Disabled))
		in, err = o.Intent(t.Context(), "job")
		require.NoError(t, err)
		assert.Equal(t, operator.Intent{Paused: true, Disabled: operator.Scope{Job: "job"}}, in)
	})
	membertest.RunBubble(t, "takes what the plan says for what stands, when the record of it has gone", func(t *testing.T, g *membertest.Group) {
		g.Start("a", coordtest.Def("job", 0, 4, ""))
		o, _ := g.NewOperator()
		require.NoError(t, o.Disable(t.Context(), operator.Scope{Job: "job", Shards: []int{2}}))
		synctest.Wait()
		g.RemoveRecord(g.Keys.Control("job"))
		in, err := o.Intent(t.Context(), "job")
		require.NoError(t, err)
		assert.Equal(t, []int{2}, in.Disabled.Shards)
		require.NoError(t, o.Pause(t.Context(), "job"))
		synctest.Wait()
		assert.Equal(t, "2", g.ReadPlan("job").Disabled.String())
	})
	membertest.RunBubble(t, "numbers the first trigger after those of a plan that a leader makes at the same time", func(t *testing.T, g *membertest.Group) {
		def := coordtest.Def("job", 0, 2, "")
		g.PutRecord(g.Keys.Job("job"), def)
		o, reg := g.NewOperator()
		e, err := record.NewEpoch(1, 1, []byte(def))
		require.NoError(t, err)
		for i, before := range []uint64{5, 7} { // no plan, and a plan that changes
			reg.BeforeTxn(membertest.OnFirstWrite(membertest.IsKey(g.Keys.Control("job")), func() {
				plan, err := record.Encode(&record.Plan{
					Format: record.Format, Job: "job", Epochs: []record.Epoch{e}, Owners: map[string]shardset.Set{},
					Watermarks: record.Watermarks{}.Raise(shardset.Of(1), record.Watermark{Trigger: before}),
				})
				require.NoError(t, err)
				g.PutRecord(g.Keys.Plan("job"), string(plan))
			}))
			number, err := o.Trigger(t.Context(), "job", "", nil)
			require.NoError(t, err)
			assert.Equal(t, before+1, number, i)
			g.RemoveRecord(g.Keys.Control("job"))
		}
	})
	membertest.RunBubble(t, "keeps away from a namespace that a newer version has made", func(t *testing.T, g *membertest.Group) {
		g.PutRecord(g.Keys.Meta(), fmt.Sprintf(`{"format":%d}`, record.Format+1))
		o, _ := g.NewOperator()
		assert.ErrorIs(t, o.Pause(t.Context(), "job"), record.ErrNewerFormat)
		assert.ErrorIs(t, o.Disable(t.Context(), operator.Scope{Hosts: []string{"x"}}), record.ErrNewerFormat)
		_, err := o.Intent(t.Context(), "")
		assert.ErrorIs(t, err, record.ErrNewerFormat)
	})
	membertest.RunBubble(t, "does not write over a record that it cannot read, and names it", func(t *testing.T, g *membertest.Group) {
		g.Start("a", coordtest.Def("job", 0, 2, ""))
		o, _ := g.NewOperator()
		for key, s := range map[registry.Key]operator.Scope{
			g.Keys.GroupControl(): {Hosts: []string{"x"}}, g.Keys.Control("job"): {Job: "job", Hosts: []string{"x"}},
		} {
			g.PutRecord(key, "spoilt")
			assert.ErrorContains(t, o.Disable(t.Context(), s), "read "+string(key))
			assert.Equal(t, "spoilt", g.GetText(key))
		}
	})
	t.Run("refuses an invalid group or namespace", func(t *testing.T) {
		reg := memory.New().Client("a")
		_, err := operator.New(reg, "test", "a/b")
		require.ErrorIs(t, err, registry.ErrInvalidKey)
		_, err = operator.New(reg, "", "")
		require.ErrorIs(t, err, registry.ErrInvalidKey)
	})
}

func TestOperator_Refuses(t *testing.T) {
	many := make([]string, record.MaxExcluded+1)
	for i := range many {
		many[i] = fmt.Sprint("n", i)
	}
	for name, c := range map[string]struct {
		scope operator.Scope
		want  string
	}{
		"a scope that names nothing":       {operator.Scope{Job: "job"}, `for "job": no shard, instance or host is named`},
		"shards of all jobs":               {operator.Scope{Shards: []int{0}}, "for all jobs: shards are those of one job, and none is named"},
		"a shard that does not exist":      {operator.Scope{Job: "job", Shards: []int{4}}, `disable for "job": there is no shard 4 of 4`},
		"a shard below zero":               {operator.Scope{Job: "job", Shards: []int{-1}}, "there is no shard -1 of 4"},
		"an invalid instance name":         {operator.Scope{Instances: []string{"a/b"}}, `instance: invalid key: name "a/b" has a slash`},
		"a host without a name":            {operator.Scope{Hosts: []string{""}}, "host: is empty"},
		"an unknown job":                   {operator.Scope{Job: "nothing", Shards: []int{0}}, `disable for "nothing": unknown job`},
		"more instances than may be":       {operator.Scope{Instances: many}, "too many are disabled: 257, at most 256 instances and as many hosts"},
		"more hosts of a job than may be":  {operator.Scope{Job: "job", Hosts: many}, "too many are disabled: 257"},
		"more than may be with those that": {operator.Scope{Instances: many[:record.MaxExcluded]}, "too many are disabled: 257"},
	} {
		membertest.RunBubble(t, name, func(t *testing.T, g *membertest.Group) {
			g.Start("a", coordtest.Def("job", 0, 4, ""))
			o, _ := g.NewOperator()
			if strings.HasSuffix(name, "that") { // are disabled already
				require.NoError(t, o.Disable(t.Context(), operator.Scope{Instances: many[record.MaxExcluded:]}))
			}
			g.Server.Record()
			assert.ErrorContains(t, o.Disable(t.Context(), c.scope), c.want)
			assert.Empty(t, g.TakeCommits(), "nothing is written")
		})
	}
	membertest.RunBubble(t, "a trigger of no shard", func(t *testing.T, g *membertest.Group) {
		g.Start("a", coordtest.Def("job", 0, 4, ""))
		o, _ := g.NewOperator()
		g.Server.Record()
		_, err := o.Trigger(t.Context(), "job", "", []int{})
		assert.EqualError(t, err, `trigger "job": no shard is named; nil means all`)
		assert.Empty(t, g.TakeCommits(), "nothing is written")
	})
	membertest.RunBubble(t, "with errors that can be told apart", func(t *testing.T, g *membertest.Group) {
		g.Start("a", coordtest.Def("job", 0, 4, ""))
		o, _ := g.NewOperator()
		assert.ErrorIs(t, o.Disable(t.Context(), operator.Scope{Instances: many}), operator.ErrTooManyDisabled)
		assert.ErrorIs(t, o.Enable(t.Context(), operator.Scope{Job: "nothing", Shards: []int{0}}), operator.ErrUnknownJob)
		_, err := o.Intent(t.Context(), "nothing")
		assert.ErrorIs(t, err, operator.ErrUnknownJob)
	})
}

func TestOperator_DisabledShards(t *testing.T) {
	membertest.RunBubble(t, "is exact: once the plan says so, no claim of the shard commits", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 2, ""))
		b := g.Start("b", coordtest.Def("job", 0, 2, ""))
		release := g.Server.HoldWatch("b") // b does not observe the change
		o, _ := g.NewOperator()
		require.NoError(t, o.Disable(t.Context(), operator.Scope{Job: "job", Shards: []int{0, 1}}))
		synctest.Wait()
		require.Equal(t, "0-1", g.ReadPlan("job").Disabled.String())
		membertest.SleepToMinute(3)
		release()
		synctest.Wait()
		assert.Empty(t, a.TakeRuns())
		assert.Empty(t, b.TakeRuns())
		assert.EqualValues(t, 2*3, g.SumCounts("job").Skipped)
		assert.Len(t, g.ReadOwners("job"), 2, "they stay where they are")
		require.NoError(t, o.Enable(t.Context(), operator.Scope{Job: "job", Shards: []int{0, 1}}))
		time.Sleep(30 * time.Second)
		assert.Empty(t, membertest.SumRuns(membertest.CountRuns(a.TakeRuns()), membertest.CountRuns(b.TakeRuns())), "nothing is made up for")
		membertest.SleepToMinute(4)
		assert.Equal(t, membertest.OncePerShard(2), membertest.SumRuns(membertest.CountRuns(a.TakeRuns()), membertest.CountRuns(b.TakeRuns())))
	})
	membertest.RunBubble(t, "go on with a run that has begun", func(t *testing.T, g *membertest.Group) {
		a := g.StartWorking("a", membertest.WorkFor(90*time.Second), coordtest.Def("job", 0, 1, ""))
		membertest.SleepToMinute(1)
		require.NoError(t, a.Disable(t.Context(), operator.Scope{Job: "job", Shards: []int{0}}))
		membertest.SleepToMinute(4)
		assert.Len(t, a.TakeRuns(), 1)
		assert.Equal(t, record.Counts{Claimed: 1, Succeeded: 1, Skipped: 3}, g.SumCounts("job"))
	})
	membertest.RunBubble(t, "run what a crash ended, and what was triggered, when they are enabled", func(t *testing.T, g *membertest.Group) {
		g.StartWorking("a", membertest.WorkFor(time.Hour), coordtest.Def("job", 0, 1, ""))
		membertest.SleepToMinute(1)
		o, _ := g.NewOperator()
		require.NoError(t, o.Disable(t.Context(), operator.Scope{Job: "job", Shards: []int{0}}))
		n, err := o.Trigger(t.Context(), "job", "", nil)
		require.NoError(t, err)
		b := g.Start("b", coordtest.Def("job", 0, 1, ""))
		defer g.Server.Partition("a")()
		membertest.SleepToMinute(10)
		require.Equal(t, map[string]string{"b": "0"}, g.ReadOwners("job"))
		assert.Empty(t, b.TakeRuns())
		assert.Len(t, g.ReadPlan("job").Triggers, 1)
		require.NoError(t, o.Enable(t.Context(), operator.Scope{Job: "job", Shards: []int{0}}))
		time.Sleep(time.Second)
		var order []string
		for _, r := range b.TakeRuns() {
			order = append(order, fmt.Sprint(r.Trigger, " ", r.Attempt))
		}
		assert.Equal(t, []string{"0 2", fmt.Sprint(n, " 1"), "0 1"}, order, "and the latest of the fires that waited behind")
		time.Sleep(2 * leader.RegularCheck)
		assert.Empty(t, g.ReadPlan("job").Triggers)
		assert.Empty(t, g.ReadPlan("job").Reruns)
	})
	membertest.RunBubble(t, "that the job has no more can be enabled", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 4, ""))
		require.NoError(t, a.Disable(t.Context(), operator.Scope{Job: "job", Shards: []int{3}}))
		g.Start("b", coordtest.Def("job", 1, 2, ""))
		assert.ErrorContains(t, a.Disable(t.Context(), operator.Scope{Job: "job", Shards: []int{3}}), "no shard 3 of 2")
		require.NoError(t, a.Enable(t.Context(), operator.Scope{Job: "job", Shards: []int{3}}))
		synctest.Wait()
		assert.True(t, g.ReadPlan("job").Disabled.IsZero())
	})
}

func TestOperator_DisabledInstances(t *testing.T) {
	membertest.RunBubble(t, "give their shards to others, and are members still, and may lead", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 4, ""), coordtest.Def("other", 0, 2, ""))
		g.Start("b", coordtest.Def("job", 0, 4, ""), coordtest.Def("other", 0, 2, ""))
		o, _ := g.NewOperator()
		require.NoError(t, o.Disable(t.Context(), operator.Scope{Instances: []string{"a"}}))
		time.Sleep(time.Second)
		assert.Equal(t, map[string]string{"b": "0-3"}, g.ReadOwners("job"))
		assert.Equal(t, map[string]string{"b": "0-1"}, g.ReadOwners("other"))
		assert.Equal(t, a.Incarnation(), g.ReadLeader().Incarnation)
		require.NoError(t, o.Enable(t.Context(), operator.Scope{Instances: []string{"a"}}))
		time.Sleep(time.Second)
		assert.Len(t, g.ReadOwners("job"), 2)
	})
	membertest.RunBubble(t, "are so again after a restart under the same name", func(t *testing.T, g *membertest.Group) {
		g.Start("a", coordtest.Def("job", 0, 4, ""))
		b := g.Start("b", coordtest.Def("job", 0, 4, ""))
		require.NoError(t, b.Disable(t.Context(), operator.Scope{Job: "job", Instances: []string{"b"}}))
		b.Shutdown()
		g.Start("b", coordtest.Def("job", 0, 4, ""))
		assert.Equal(t, map[string]string{"a": "0-3"}, g.ReadOwners("job"))
	})
	membertest.RunBubble(t, "are all on a host, by the name that it has in their options", func(t *testing.T, g *membertest.Group) {
		g.Start("a", coordtest.Def("job", 0, 4, ""))
		g.Start("b", coordtest.Def("job", 0, 4, ""))
		o, _ := g.NewOperator()
		require.NoError(t, o.Disable(t.Context(), operator.Scope{Hosts: []string{"host-of-a", "never heard of"}}))
		time.Sleep(time.Second)
		assert.Equal(t, map[string]string{"b": "0-3"}, g.ReadOwners("job"))
	})
	membertest.RunBubble(t, "stay so for all jobs when they are enabled for one", func(t *testing.T, g *membertest.Group) {
		g.Start("a", coordtest.Def("job", 0, 4, ""))
		g.Start("b", coordtest.Def("job", 0, 4, ""))
		o, _ := g.NewOperator()
		require.NoError(t, o.Disable(t.Context(), operator.Scope{Instances: []string{"a"}}))
		require.NoError(t, o.Enable(t.Context(), operator.Scope{Job: "job", Instances: []string{"a"}}))
		time.Sleep(time.Second)
		assert.Equal(t, map[string]string{"b": "0-3"}, g.ReadOwners("job"))
	})
	membertest.RunBubble(t, "who are all make the plan say why nobody owns the shards", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 4, ""))
		require.NoError(t, a.Disable(t.Context(), operator.Scope{Hosts: []string{"host-of-a"}}))
		membertest.SleepToMinute(2)
		assert.Empty(t, g.ReadOwners("job"))
		assert.Equal(t, "every live instance that offers the job is disabled", g.ReadPlan("job").Problem)
		a.TakeRuns()
		require.NoError(t, a.Enable(t.Context(), operator.Scope{Hosts: []string{"host-of-a"}}))
		time.Sleep(time.Second)
		assert.Equal(t, membertest.OncePerShard(4), membertest.CountRuns(a.TakeRuns()), "what fell due is owed")
		assert.Empty(t, g.ReadPlan("job").Problem)
	})
	membertest.RunBubble(t, "are those of no record that cannot be read: it is named, and all else goes on", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 4, ""))
		b := g.Start("b", coordtest.Def("job", 0, 4, ""))
		o, _ := g.NewOperator()
		require.NoError(t, o.Disable(t.Context(), operator.Scope{Instances: []string{"a"}}))
		time.Sleep(time.Second)
		require.Equal(t, map[string]string{"b": "0-3"}, g.ReadOwners("job"))
		for _, text := range []string{"spoilt", `{"disabled_instances":["a/b"]}`, `{"disabled_instances":"b"}`} {
			g.PutRecord(g.Keys.GroupControl(), text)
			time.Sleep(time.Second)
			assert.Len(t, g.ReadOwners("job"), 2, "it disables nobody")
		}
		assert.Equal(t, 3, a.Log.Count(fmt.Sprintf("record cannot be read; rota leaves it as it is\" namespace=test group=default instance=a session=%s term=%d key=%s",
			a.Session(), coordtest.Must(g.GetRecord(g.Keys.Leader())).Modified.Seq, g.Keys.GroupControl())))
		require.NoError(t, b.Pause(t.Context(), "job"))
		time.Sleep(time.Second)
		assert.True(t, g.ReadPlan("job").Paused)
		g.RemoveRecord(g.Keys.GroupControl())
		require.NoError(t, o.Disable(t.Context(), operator.Scope{Instances: []string{"b"}}))
		time.Sleep(time.Second)
		assert.Equal(t, map[string]string{"a": "0-3"}, g.ReadOwners("job"))
	})
	membertest.RunBubble(t, "of a job named like the group's record are that job's", func(t *testing.T, g *membertest.Group) {
		g.Start("a", coordtest.Def(record.GroupSegment, 0, 2, ""), coordtest.Def("job", 0, 2, ""))
		b := g.Start("b", coordtest.Def(record.GroupSegment, 0, 2, ""), coordtest.Def("job", 0, 2, ""))
		require.NoError(t, b.Disable(t.Context(), operator.Scope{Job: record.GroupSegment, Instances: []string{"a"}}))
		time.Sleep(time.Second)
		assert.Equal(t, map[string]string{"b": "0-1"}, g.ReadOwners(record.GroupSegment))
		assert.Contains(t, g.ReadOwners("job"), "a")
	})
}
