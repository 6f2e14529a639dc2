package coordinator

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

func TestOperator(t *testing.T) {
	bubble(t, "pauses, resumes and triggers without being in the group", func(t *testing.T, g *group) {
		a := g.start("a", def("job", 0, 2, ""))
		o, _ := g.operator()
		require.NoError(t, o.Pause(t.Context(), "job"))
		until(2)
		assert.Empty(t, a.began())
		n, err := o.Trigger(t.Context(), "job", "hello", []int{1})
		require.NoError(t, err)
		require.NoError(t, o.Resume(t.Context(), "job"))
		time.Sleep(time.Second)
		runs := a.began()
		require.Len(t, runs, 1)
		assert.Equal(t, n, runs[0].Trigger)
		assert.Equal(t, "hello", runs[0].Param)
		_, joined := g.get(g.keys.Instance("console"))
		assert.False(t, joined)
	})
	bubble(t, "is what a member is, too", func(t *testing.T, g *group) {
		a := g.start("a", def("job", 0, 2, ""))
		require.NoError(t, a.Disable(t.Context(), Scope{Job: "job", Shards: []int{0}}))
		in, err := a.Intent(t.Context(), "job")
		require.NoError(t, err)
		assert.Equal(t, []int{0}, in.Disabled.Shards)
	})
	bubble(t, "is obeyed by who comes later, if nobody is there", func(t *testing.T, g *group) {
		a := g.start("a", def("job", 0, 2, ""))
		a.goes()
		o, _ := g.operator()
		require.NoError(t, o.Disable(t.Context(), Scope{Job: "job", Shards: []int{0}}))
		b := g.start("b", def("job", 0, 2, ""))
		b.began()
		until(1)
		assert.Equal(t, map[int]int{1: 1}, shards(b.began()))
	})
	bubble(t, "keeps what others say at the same time", func(t *testing.T, g *group) {
		g.start("a", def("job", 0, 2, ""))
		o, reg := g.operator()
		other, err := NewOperator(g.server.Client("other"), "test", "")
		require.NoError(t, err)
		between := func(key registry.Key, f func() error) {
			reg.before(writing(is(key), func() { require.NoError(t, f()) }))
		}
		between(g.keys.Control("job"), func() error { return other.Pause(t.Context(), "job") })
		require.NoError(t, o.Disable(t.Context(), Scope{Job: "job", Shards: []int{1}}))
		between(g.keys.GroupControl(), func() error { return other.Disable(t.Context(), Scope{Hosts: []string{"x"}}) })
		require.NoError(t, o.Disable(t.Context(), Scope{Hosts: []string{"y"}}))
		in, err := o.Intent(t.Context(), "job")
		require.NoError(t, err)
		assert.Equal(t, Intent{Paused: true, Disabled: Scope{Job: "job", Shards: []int{1}}}, in)
		in, err = o.Intent(t.Context(), "")
		require.NoError(t, err)
		assert.Equal(t, Intent{Disabled: Scope{Hosts: []string{"x", "y"}}}, in)
	})
	bubble(t, "tells what stands, of each job and of all", func(t *testing.T, g *group) {
		g.start("a", def("job", 0, 4, `,"start_paused":true`))
		o, _ := g.operator()
		in, err := o.Intent(t.Context(), "job")
		require.NoError(t, err)
		assert.Equal(t, Intent{Paused: true, Disabled: Scope{Job: "job"}}, in, "before anybody has said anything")
		in, err = o.Intent(t.Context(), "")
		require.NoError(t, err)
		assert.Zero(t, in)
		s := Scope{Job: "job", Shards: []int{3, 1, 3}, Instances: []string{"b", "a", "b"}, Hosts: []string{"y", "x"}}
		require.NoError(t, o.Disable(t.Context(), s))
		in, err = o.Intent(t.Context(), "job")
		require.NoError(t, err)
		whole := Scope{Job: "job", Shards: []int{1, 3}, Instances: []string{"a", "b"}, Hosts: []string{"x", "y"}}
		assert.Equal(t, Intent{Paused: true, Disabled: whole}, in)
		require.NoError(t, o.Enable(t.Context(), Scope{Job: "job", Shards: []int{0, 1}, Instances: []string{"b", "z"}, Hosts: []string{"x"}}))
		in, err = o.Intent(t.Context(), "job")
		require.NoError(t, err)
		assert.Equal(t, Scope{Job: "job", Shards: []int{3}, Instances: []string{"a"}, Hosts: []string{"y"}}, in.Disabled)
		require.NoError(t, o.Enable(t.Context(), in.Disabled))
		in, err = o.Intent(t.Context(), "job")
		require.NoError(t, err)
		assert.Equal(t, Intent{Paused: true, Disabled: Scope{Job: "job"}}, in)
	})
	bubble(t, "takes what the plan says for what stands, when the record of it has gone", func(t *testing.T, g *group) {
		g.start("a", def("job", 0, 4, ""))
		o, _ := g.operator()
		require.NoError(t, o.Disable(t.Context(), Scope{Job: "job", Shards: []int{2}}))
		synctest.Wait()
		g.remove(g.keys.Control("job"))
		in, err := o.Intent(t.Context(), "job")
		require.NoError(t, err)
		assert.Equal(t, []int{2}, in.Disabled.Shards)
		require.NoError(t, o.Pause(t.Context(), "job"))
		synctest.Wait()
		assert.Equal(t, "2", g.plan("job").Disabled.String())
	})
	bubble(t, "keeps away from a namespace that a newer version has made", func(t *testing.T, g *group) {
		g.put(g.keys.Meta(), fmt.Sprintf(`{"format":%d}`, record.Format+1))
		o, _ := g.operator()
		assert.ErrorIs(t, o.Pause(t.Context(), "job"), record.ErrNewerFormat)
		assert.ErrorIs(t, o.Disable(t.Context(), Scope{Hosts: []string{"x"}}), record.ErrNewerFormat)
		_, err := o.Intent(t.Context(), "")
		assert.ErrorIs(t, err, record.ErrNewerFormat)
	})
	bubble(t, "does not write over a record that it cannot read, and names it", func(t *testing.T, g *group) {
		g.start("a", def("job", 0, 2, ""))
		o, _ := g.operator()
		for key, s := range map[registry.Key]Scope{
			g.keys.GroupControl(): {Hosts: []string{"x"}}, g.keys.Control("job"): {Job: "job", Hosts: []string{"x"}},
		} {
			g.put(key, "spoilt")
			assert.ErrorContains(t, o.Disable(t.Context(), s), "read "+string(key))
			assert.Equal(t, "spoilt", g.text(key))
		}
	})
	t.Run("of a group or namespace that cannot be is refused", func(t *testing.T) {
		reg := memory.New().Client("a")
		_, err := NewOperator(reg, "test", "a/b")
		require.ErrorIs(t, err, registry.ErrInvalidKey)
		_, err = NewOperator(reg, "", "")
		require.ErrorIs(t, err, registry.ErrInvalidKey)
	})
}

func TestOperator_Refuses(t *testing.T) {
	many := make([]string, record.MaxExcluded+1)
	for i := range many {
		many[i] = fmt.Sprint("n", i)
	}
	for name, c := range map[string]struct {
		scope Scope
		want  string
	}{
		"a scope that names nothing":       {Scope{Job: "job"}, `in "job": no shard, instance or host is named`},
		"shards of all jobs":               {Scope{Shards: []int{0}}, "in all jobs: shards are those of one job, and none is named"},
		"a shard that does not exist":      {Scope{Job: "job", Shards: []int{4}}, `disable in "job": there is no shard 4 of 4`},
		"a shard below zero":               {Scope{Job: "job", Shards: []int{-1}}, "there is no shard -1 of 4"},
		"an instance that nobody can be":   {Scope{Instances: []string{"a/b"}}, `instance: invalid key: name "a/b" has a slash`},
		"a host without a name":            {Scope{Hosts: []string{""}}, "host: is empty"},
		"an unknown job":                   {Scope{Job: "nothing", Shards: []int{0}}, `disable in "nothing": unknown job`},
		"more instances than may be":       {Scope{Instances: many}, "too many are disabled: 257, at most 256 instances and as many hosts"},
		"more hosts of a job than may be":  {Scope{Job: "job", Hosts: many}, "too many are disabled: 257"},
		"more than may be with those that": {Scope{Instances: many[:record.MaxExcluded]}, "too many are disabled: 257"},
	} {
		bubble(t, name, func(t *testing.T, g *group) {
			g.start("a", def("job", 0, 4, ""))
			o, _ := g.operator()
			if strings.HasSuffix(name, "that") { // are disabled already
				require.NoError(t, o.Disable(t.Context(), Scope{Instances: many[record.MaxExcluded:]}))
			}
			g.server.Record()
			assert.ErrorContains(t, o.Disable(t.Context(), c.scope), c.want)
			assert.Empty(t, g.commits(), "nothing is written")
		})
	}
	bubble(t, "a trigger of no shard", func(t *testing.T, g *group) {
		g.start("a", def("job", 0, 4, ""))
		o, _ := g.operator()
		g.server.Record()
		_, err := o.Trigger(t.Context(), "job", "", []int{})
		assert.EqualError(t, err, `trigger "job": no shard is named; nil means all`)
		assert.Empty(t, g.commits(), "nothing is written")
	})
	bubble(t, "with errors that can be told apart", func(t *testing.T, g *group) {
		g.start("a", def("job", 0, 4, ""))
		o, _ := g.operator()
		assert.ErrorIs(t, o.Disable(t.Context(), Scope{Instances: many}), ErrTooManyDisabled)
		assert.ErrorIs(t, o.Enable(t.Context(), Scope{Job: "nothing", Shards: []int{0}}), ErrUnknownJob)
		_, err := o.Intent(t.Context(), "nothing")
		assert.ErrorIs(t, err, ErrUnknownJob)
	})
}

func TestOperator_DisabledShards(t *testing.T) {
	bubble(t, "is exact: once the plan says so, no claim of the shard commits", func(t *testing.T, g *group) {
		a := g.start("a", def("job", 0, 2, ""))
		b := g.start("b", def("job", 0, 2, ""))
		release := g.server.HoldWatch("b") // it does not hear of it
		o, _ := g.operator()
		require.NoError(t, o.Disable(t.Context(), Scope{Job: "job", Shards: []int{0, 1}}))
		synctest.Wait()
		require.Equal(t, "0-1", g.plan("job").Disabled.String())
		until(3)
		release()
		synctest.Wait()
		assert.Empty(t, a.began())
		assert.Empty(t, b.began())
		assert.EqualValues(t, 2*3, g.counts("job").Skipped)
		assert.Len(t, g.owners("job"), 2, "they stay where they are")
		require.NoError(t, o.Enable(t.Context(), Scope{Job: "job", Shards: []int{0, 1}}))
		time.Sleep(30 * time.Second)
		assert.Empty(t, merged(shards(a.began()), shards(b.began())), "nothing is made up for")
		until(4)
		assert.Equal(t, once(2), merged(shards(a.began()), shards(b.began())))
	})
	bubble(t, "go on with a run that has begun", func(t *testing.T, g *group) {
		a := g.startWorking("a", takes(90*time.Second), def("job", 0, 1, ""))
		until(1)
		require.NoError(t, a.Disable(t.Context(), Scope{Job: "job", Shards: []int{0}}))
		until(4)
		assert.Len(t, a.began(), 1)
		assert.Equal(t, record.Counts{Claimed: 1, Succeeded: 1, Skipped: 3}, g.counts("job"))
	})
	bubble(t, "run what a crash ended, and what was triggered, when they are enabled", func(t *testing.T, g *group) {
		g.startWorking("a", takes(time.Hour), def("job", 0, 1, ""))
		until(1)
		o, _ := g.operator()
		require.NoError(t, o.Disable(t.Context(), Scope{Job: "job", Shards: []int{0}}))
		n, err := o.Trigger(t.Context(), "job", "", nil)
		require.NoError(t, err)
		b := g.start("b", def("job", 0, 1, ""))
		defer g.server.Partition("a")()
		until(10)
		require.Equal(t, map[string]string{"b": "0"}, g.owners("job"))
		assert.Empty(t, b.began())
		assert.Len(t, g.plan("job").Triggers, 1)
		require.NoError(t, o.Enable(t.Context(), Scope{Job: "job", Shards: []int{0}}))
		time.Sleep(time.Second)
		var order []string
		for _, r := range b.began() {
			order = append(order, fmt.Sprint(r.Trigger, " ", r.Attempt))
		}
		assert.Equal(t, []string{"0 2", fmt.Sprint(n, " 1"), "0 1"}, order, "and the latest of the fires that waited behind")
		time.Sleep(2 * selfDiagnosis)
		assert.Empty(t, g.plan("job").Triggers)
		assert.Empty(t, g.plan("job").Reruns)
	})
	bubble(t, "that the job has no more can be enabled", func(t *testing.T, g *group) {
		a := g.start("a", def("job", 0, 4, ""))
		require.NoError(t, a.Disable(t.Context(), Scope{Job: "job", Shards: []int{3}}))
		g.start("b", def("job", 1, 2, ""))
		assert.ErrorContains(t, a.Disable(t.Context(), Scope{Job: "job", Shards: []int{3}}), "no shard 3 of 2")
		require.NoError(t, a.Enable(t.Context(), Scope{Job: "job", Shards: []int{3}}))
		synctest.Wait()
		assert.True(t, g.plan("job").Disabled.IsZero())
	})
}

func TestOperator_DisabledInstances(t *testing.T) {
	bubble(t, "give their shards to others, and are members still, and may lead", func(t *testing.T, g *group) {
		a := g.start("a", def("job", 0, 4, ""), def("other", 0, 2, ""))
		g.start("b", def("job", 0, 4, ""), def("other", 0, 2, ""))
		o, _ := g.operator()
		require.NoError(t, o.Disable(t.Context(), Scope{Instances: []string{"a"}}))
		time.Sleep(time.Second)
		assert.Equal(t, map[string]string{"b": "0-3"}, g.owners("job"))
		assert.Equal(t, map[string]string{"b": "0-1"}, g.owners("other"))
		assert.Equal(t, a.incarnation(), g.leader().Incarnation)
		require.NoError(t, o.Enable(t.Context(), Scope{Instances: []string{"a"}}))
		time.Sleep(time.Second)
		assert.Len(t, g.owners("job"), 2)
	})
	bubble(t, "are so again after a restart under the same name", func(t *testing.T, g *group) {
		g.start("a", def("job", 0, 4, ""))
		b := g.start("b", def("job", 0, 4, ""))
		require.NoError(t, b.Disable(t.Context(), Scope{Job: "job", Instances: []string{"b"}}))
		b.goes()
		g.start("b", def("job", 0, 4, ""))
		assert.Equal(t, map[string]string{"a": "0-3"}, g.owners("job"))
	})
	bubble(t, "are all on a host, by the name that it has in their options", func(t *testing.T, g *group) {
		g.start("a", def("job", 0, 4, ""))
		g.start("b", def("job", 0, 4, ""))
		o, _ := g.operator()
		require.NoError(t, o.Disable(t.Context(), Scope{Hosts: []string{"host-of-a", "never heard of"}}))
		time.Sleep(time.Second)
		assert.Equal(t, map[string]string{"b": "0-3"}, g.owners("job"))
	})
	bubble(t, "stay so for all jobs when they are enabled for one", func(t *testing.T, g *group) {
		g.start("a", def("job", 0, 4, ""))
		g.start("b", def("job", 0, 4, ""))
		o, _ := g.operator()
		require.NoError(t, o.Disable(t.Context(), Scope{Instances: []string{"a"}}))
		require.NoError(t, o.Enable(t.Context(), Scope{Job: "job", Instances: []string{"a"}}))
		time.Sleep(time.Second)
		assert.Equal(t, map[string]string{"b": "0-3"}, g.owners("job"))
	})
	bubble(t, "who are all make the plan say why nobody owns the shards", func(t *testing.T, g *group) {
		a := g.start("a", def("job", 0, 4, ""))
		require.NoError(t, a.Disable(t.Context(), Scope{Hosts: []string{"host-of-a"}}))
		until(2)
		assert.Empty(t, g.owners("job"))
		assert.Equal(t, "every instance that is there and offers the job is disabled", g.plan("job").Problem)
		a.began()
		require.NoError(t, a.Enable(t.Context(), Scope{Hosts: []string{"host-of-a"}}))
		time.Sleep(time.Second)
		assert.Equal(t, once(4), shards(a.began()), "what fell due is owed")
		assert.Empty(t, g.plan("job").Problem)
	})
	bubble(t, "are those of no record that cannot be read: it is named, and all else goes on", func(t *testing.T, g *group) {
		a := g.start("a", def("job", 0, 4, ""))
		b := g.start("b", def("job", 0, 4, ""))
		o, _ := g.operator()
		require.NoError(t, o.Disable(t.Context(), Scope{Instances: []string{"a"}}))
		time.Sleep(time.Second)
		require.Equal(t, map[string]string{"b": "0-3"}, g.owners("job"))
		for _, text := range []string{"spoilt", `{"disabled_instances":["a/b"]}`, `{"disabled_instances":"b"}`} {
			g.put(g.keys.GroupControl(), text)
			time.Sleep(time.Second)
			assert.Len(t, g.owners("job"), 2, "it disables nobody")
		}
		assert.Equal(t, 3, a.log.count(fmt.Sprintf("unreadable record left alone\" namespace=test group=default instance=a session=%s term=%d key=%s",
			a.session(), must(g.get(g.keys.Leader())).Modified.Seq, g.keys.GroupControl())))
		require.NoError(t, b.Pause(t.Context(), "job"))
		time.Sleep(time.Second)
		assert.True(t, g.plan("job").Paused)
		g.remove(g.keys.GroupControl())
		require.NoError(t, o.Disable(t.Context(), Scope{Instances: []string{"b"}}))
		time.Sleep(time.Second)
		assert.Equal(t, map[string]string{"a": "0-3"}, g.owners("job"))
	})
	bubble(t, "of a job named like the group's record are that job's", func(t *testing.T, g *group) {
		g.start("a", def(record.GroupSegment, 0, 2, ""), def("job", 0, 2, ""))
		b := g.start("b", def(record.GroupSegment, 0, 2, ""), def("job", 0, 2, ""))
		require.NoError(t, b.Disable(t.Context(), Scope{Job: record.GroupSegment, Instances: []string{"a"}}))
		time.Sleep(time.Second)
		assert.Equal(t, map[string]string{"b": "0-1"}, g.owners(record.GroupSegment))
		assert.Contains(t, g.owners("job"), "a")
	})
}
