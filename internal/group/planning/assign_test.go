package planning

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/coordinator/strategy"
	"github.com/rota-dev/rota/internal/record"
)

// recording returns a strategy that assigns as sticky does and keeps its last input.
func recording(last *strategy.Input) strategy.Func {
	return func(in strategy.Input) (strategy.Assignment, error) {
		*last = in
		return strategy.Sticky(in)
	}
}

func TestPlan_StrategyInput(t *testing.T) {
	ids := func(in strategy.Input) (out []string) {
		for _, c := range in.Members {
			out = append(out, c.ID)
		}
		return out
	}
	t.Run("lists the members that offer the job in order, whichever others they offer", func(t *testing.T) {
		var in strategy.Input
		w := NewWorld(t)
		w.View.Strategies["recording"] = recording(&in)
		a, b, c := w.Join("a", "job", "other"), w.Join("b", "job"), w.Join("c", "job", "other")
		w.Join("d", "other")
		w.Define("job", 6, 0, `,"strategy":"recording"`)
		w.Define("other", 6, 0, "")
		w.Settle()
		assert.Equal(t, []string{a, b, c}, ids(in))
		assert.Len(t, w.owners("job"), 3)
	})
	t.Run("lists awaited members that offer the job, in order", func(t *testing.T) {
		var in strategy.Input
		w := NewWorld(t)
		w.View.Strategies["recording"] = recording(&in)
		a, b, c := w.Join("a", "job"), w.Join("b", "job"), w.Join("c", "other")
		w.Define("job", 2, 0, `,"strategy":"recording"`)
		w.Define("other", 2, 0, "")
		w.Settle()
		for _, inc := range []string{a, c} {
			w.expire(inc)
			w.setAbsent(inc, time.Second)
		}
		w.decide()
		assert.Equal(t, []string{a, b}, ids(in))
	})
	t.Run("has the load of the jobs that strategies assigned before", func(t *testing.T) {
		var in strategy.Input
		w := NewWorld(t)
		w.View.Strategies["recording"] = recording(&in)
		a := w.Join("a", "first", "job")
		w.Define("first", 3, 0, `,"strategy":"average"`)
		w.Define("job", 2, 0, `,"strategy":"recording"`)
		w.Settle()
		assert.Equal(t, map[string]int{a: 3}, in.Load)
	})
	t.Run("has the parameters of the newest definition in force", func(t *testing.T) {
		var in strategy.Input
		w := NewWorld(t)
		w.View.Strategies["recording"] = recording(&in)
		w.Join("a", "job")
		define := func(revision int, more string) {
			w.Define("job", 3, revision, `,"strategy":"recording"`+more)
			w.Settle()
		}
		define(0, `,"param":"live","shard_params":{"0":"eu","2":"us"}`)
		assert.Equal(t, []any{"live", map[int]string{0: "eu", 2: "us"}}, []any{in.Param, in.ShardParams})
		define(1, `,"shard_params":{"1":"asia"}`)
		w.View.Now = w.Plan("job").Last().From
		w.Settle()
		w.decide()
		assert.Equal(t, []any{"", map[int]string{1: "asia"}}, []any{in.Param, in.ShardParams})
		define(2, `,"param":{"of":"another library"},"shard_params":{"1":"asia"}`)
		w.decide()
		assert.Equal(t, []any{"", 0}, []any{in.Param, len(in.ShardParams)})
	})
	t.Run("is announced before the strategy is called", func(t *testing.T) {
		w := NewWorld(t)
		w.Join("a", "job")
		w.Define("job", 2, 0, `,"strategy":"average"`)
		var called []string
		w.View.OnStrategyCall = func(strategy, job string) { called = append(called, strategy, job) }
		Decide(w.View)
		assert.Equal(t, []string{"average", "job"}, called)
	})
}

func TestPlan_StickyOrder(t *testing.T) {
	w := NewWorld(t)
	a, b := w.Join("a", "job", "other"), w.Join("b", "job")
	w.Join("c", "job", "other")
	w.Define("job", 2, 0, "")
	w.Settle()
	t.Run("of equal members those with the first names own the shards, whatever else they offer", func(t *testing.T) {
		assert.Equal(t, map[string]string{a: "0", b: "1"}, w.owners("job"))
	})
}

func TestPlan_StickyByName(t *testing.T) {
	w := NewWorld(t)
	a, b := w.Join("a", "default", "named"), w.Join("b", "default", "named")
	w.Define("default", 1, 0, "")
	w.Settle()
	w.Define("named", 1, 0, `,"strategy":"sticky"`)
	w.Settle()
	t.Run("is balanced together with jobs that name no strategy", func(t *testing.T) {
		assert.Equal(t, map[string]string{a: "0"}, w.owners("default"))
		assert.Equal(t, map[string]string{b: "0"}, w.owners("named"))
	})
}

func TestPlan_StrategyThatFails_Reports(t *testing.T) {
	failing, fail := failing()
	w := NewWorld(t)
	w.View.Strategies["failing"] = failing
	a := w.Join("a", "job")
	w.Define("job", 2, 0, `,"strategy":"failing"`)
	w.Settle()
	first, second := errors.New("first"), errors.New("second")
	fail(first)
	t.Run("the error is returned, and the problem for the next decision", func(t *testing.T) {
		d := w.decideOnce()
		require.ErrorIs(t, d.StrategyErrors["job"], first)
		assert.Equal(t, `strategy "failing" fails, so shards stay where they are: run strategy of job "job": first`, d.StrategyProblems["job"])
	})
	t.Run("the plan keeps the text of the problem until a slow tick", func(t *testing.T) {
		w.Settle()
		fail(second)
		d := w.decideOnce()
		require.ErrorIs(t, d.StrategyErrors["job"], second)
		require.Empty(t, d.Changes)
		w.View.SlowTick = true
		w.Settle()
		assert.Contains(t, w.Plan("job").Problem, ": second")
	})
	t.Run("targets include the shards of an awaited member", func(t *testing.T) {
		w.Join("b", "job")
		w.expire(a)
		w.setAbsent(a, time.Second)
		assert.Equal(t, "0-1", FindTargets(w.View)[0].Owners[a].String())
	})
}

func TestFindTargets_OfAwaitedMembers(t *testing.T) {
	w := NewWorld(t)
	a, b := w.Join("a", "job", "new"), w.Join("b", "job", "new", "other")
	w.Define("job", 4, 0, "")
	w.Define("other", 2, 0, "")
	w.Settle()
	w.expire(a)
	w.setAbsent(a, time.Second)
	w.Define("new", 1, 0, "")
	targets := FindTargets(w.View)
	require.Len(t, targets, 3)
	for i, want := range []map[string]string{{a: "0-1", b: "2-3"}, {b: "0"}, {b: "0-1"}} {
		t.Run("of job "+targets[i].Segment+" they are the shards that it owns, if any", func(t *testing.T) {
			got := map[string]string{}
			for inc, shards := range targets[i].Owners {
				got[inc] = shards.String()
			}
			assert.Equal(t, want, got)
		})
	}
	t.Run("they are all shards if it owns all", func(t *testing.T) {
		w.expire(b)
		w.setAbsent(b, time.Second)
		assert.Equal(t, "0-1", FindTargets(w.View)[2].Owners[b].String())
	})
}

func TestPlan_ProblemsOfEligibleMembers(t *testing.T) {
	for _, c := range []struct {
		name           string
		group, job     []string // disabled instances
		labels         string
		want, unwanted string
	}{
		{"labels that no instance has, beside a disabled stranger", nil, []string{"z"}, "west", "no live instance that offers the job has the labels", "disabled"},
		{"labels, and one instance disabled for all jobs", []string{"a"}, nil, "west", "is disabled or lacks the labels", ""},
		{"labels, and one instance disabled for this job", nil, []string{"a"}, "west", "is disabled or lacks the labels", ""},
		{"labels, and one instance disabled for each", []string{"a"}, []string{"b"}, "east", "is disabled or lacks the labels", ""},
		{"labels, and all instances disabled for this job", nil, []string{"a", "b"}, "east", "is disabled or lacks the labels", ""},
		{"no labels, and one instance disabled for each", []string{"a"}, []string{"b"}, "", allDisabled, ""},
		{"no labels, and all instances disabled for all jobs", []string{"a", "b"}, []string{"z"}, "", allDisabled, ""},
	} {
		t.Run("a plan names "+c.name, func(t *testing.T) {
			w := NewWorld(t)
			for _, name := range []string{"a", "b"} {
				w.editMember(w.Join(name, "job"), func(m *record.Member) { m.Labels = map[string]string{"zone": "east"} })
			}
			more := ""
			if c.labels != "" {
				more = `,"run_on":{"zone":"` + c.labels + `"}`
			}
			w.View.GroupExclusion = record.Exclusion{Instances: c.group}
			w.editControl("job", func(r *record.Control) { r.Instances = c.job })
			w.Define("job", 1, 1, more)
			w.Settle()
			assert.Contains(t, w.Plan("job").Problem, c.want)
			if c.unwanted != "" {
				assert.NotContains(t, w.Plan("job").Problem, c.unwanted)
			}
		})
	}
	t.Run("a plan names a disabled instance, whatever else it offers", func(t *testing.T) {
		w := NewWorld(t)
		w.Join("a", "job")
		w.Join("b", "job", "other")
		w.View.GroupExclusion = record.Exclusion{Instances: []string{"a"}}
		w.Define("job", 1, 1, `,"run_on":{"zone":"west"}`)
		w.Settle()
		assert.Contains(t, w.Plan("job").Problem, "is disabled or lacks the labels")
	})
	t.Run("a job that no instance offers has no problem of labels", func(t *testing.T) {
		w := NewWorld(t)
		w.Join("a", "other")
		w.Define("job", 1, 1, `,"run_on":{"zone":"west"}`)
		assert.Equal(t, UnofferedProblem, FindTargets(w.View)[0].Problem)
	})
}
