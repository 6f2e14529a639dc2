package operator_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/coordinator/strategy"
	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/group/membertest"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/operator"
)

// ownersAfter returns the shards of a job by owner, after the moves of a preview.
func ownersAfter(g *membertest.Group, p operator.Preview, job string) map[string]string {
	g.T.Helper()
	sets := map[string]shardset.Set{}
	for name, text := range g.ReadOwners(job) {
		var s shardset.Set
		require.NoError(g.T, s.UnmarshalText([]byte(text)))
		sets[name] = s
	}
	for _, j := range p.Jobs {
		if j.Job != job {
			continue
		}
		for _, m := range j.Moves {
			sets[m.From] = sets[m.From].Minus(shardset.Of(m.Shards...))
			sets[m.To] = sets[m.To].Union(shardset.Of(m.Shards...))
		}
	}
	delete(sets, "")
	out := map[string]string{}
	for name, s := range sets {
		if !s.IsZero() {
			out[name] = s.String()
		}
	}
	return out
}

func TestOperator_Moves(t *testing.T) {
	preview := func(g *membertest.Group, options ...operator.MovesOption) operator.Preview {
		g.T.Helper()
		o, _ := g.NewOperator()
		p, err := o.Moves(g.T.Context(), options...)
		require.NoError(g.T, err)
		return p
	}
	membertest.RunBubble(t, "without an instance are those of its failover", func(t *testing.T, g *membertest.Group) {
		for _, name := range []string{"a", "b", "c", "d"} {
			g.Start(name, coordtest.Def("job", 0, 10, ""), coordtest.Def("other", 0, 7, ""), coordtest.Def("single", 0, 5, `,"strategy":"single"`))
		}
		for _, name := range []string{"d", "b"} {
			p := preview(g, operator.Without(name))
			want := map[string]map[string]string{}
			for _, job := range []string{"job", "other", "single"} {
				want[job] = ownersAfter(g, p, job)
				assert.NotContains(t, want[job], name)
			}
			g.Server.Partition(name)
			time.Sleep(2 * membertest.TTL)
			for job, owners := range want {
				assert.Equal(t, owners, g.ReadOwners(job), "%s without %s", job, name)
			}
		}
		assert.Empty(t, preview(g).Jobs, "nothing is about to move")
	})
	membertest.RunBubble(t, "with more instances are those of their joins", func(t *testing.T, g *membertest.Group) {
		defs := []string{coordtest.Def("job", 0, 12, ""), coordtest.Def("other", 0, 6, "")}
		g.Start("a", defs...)
		g.Start("b", defs...)
		p := preview(g, operator.With(1, nil))
		assert.Equal(t, []string{"new-1"}, p.Added)
		want := map[string]int{}
		for _, job := range []string{"job", "other"} {
			for _, text := range ownersAfter(g, p, job) {
				var s shardset.Set
				require.NoError(t, s.UnmarshalText([]byte(text)))
				want[job] = max(want[job], s.Len())
			}
		}
		assert.Equal(t, map[string]int{"job": 4, "other": 2}, want)
		g.Start("new-1", defs...)
		for _, job := range []string{"job", "other"} {
			assert.Equal(t, ownersAfter(g, operator.Preview{}, job), g.ReadOwners(job))
			assert.Equal(t, want[job], slices.Max(slices.Collect(maps.Values(g.CountOwned(job)))), job)
		}
		assert.Equal(t, []string{"new-2", "new-3"}, preview(g, operator.With(2, nil)).Added, "other names than those in use")
	})
	membertest.RunBubble(t, "give shards that need labels to added instances that have them", func(t *testing.T, g *membertest.Group) {
		g.Start("a", coordtest.Def("job", 0, 3, `,"run_on":{"gpu":"yes"}`))
		p := preview(g)
		require.Len(t, p.Jobs, 1)
		assert.Equal(t, []int{0, 1, 2}, p.Jobs[0].Unowned)
		assert.Contains(t, p.Jobs[0].Problem, "has the labels gpu=yes")
		assert.Equal(t, p.Jobs, preview(g, operator.With(1, nil)).Jobs)
		p = preview(g, operator.With(1, map[string]string{"gpu": "yes"}))
		assert.Equal(t, []operator.JobMoves{{Job: "job", Moves: []operator.Move{{Shards: []int{0, 1, 2}, To: "new-1"}}}}, p.Jobs)
	})
	membertest.RunBubble(t, "of a job whose strategy is not known are not known", func(t *testing.T, g *membertest.Group) {
		g.HangStrategy(0) // "hangs" is "single" then
		g.Start("a", coordtest.Def("job", 0, 3, `,"strategy":"hangs"`), coordtest.Def("plain", 0, 2, ""))
		p := preview(g, operator.Without("a"), operator.With(1, nil))
		assert.Empty(t, p.Jobs[0].Moves)
		assert.Contains(t, p.Jobs[0].Unknown, `strategy "hangs" is not known here`)
		p = preview(g, operator.With(1, nil), operator.Without("a"), operator.KnowingStrategies(map[string]strategy.Func{"hangs": strategy.Single}))
		assert.Equal(t, []operator.JobMoves{
			{Job: "job", Moves: []operator.Move{{Shards: []int{0, 1, 2}, From: "a", To: "new-1"}}},
			{Job: "plain", Moves: []operator.Move{{Shards: []int{0, 1}, From: "a", To: "new-1"}}},
		}, p.Jobs)
	})
	membertest.RunBubble(t, "leave shards with an instance that is awaited", func(t *testing.T, g *membertest.Group) {
		g.Start("a", coordtest.Def("job", 0, 4, ""))
		g.Grace = 3 * time.Minute
		g.Start("b", coordtest.Def("job", 0, 4, ""))
		g.Server.Partition("b")
		time.Sleep(2 * membertest.TTL)
		assert.Empty(t, preview(g).Jobs)
		assert.Len(t, preview(g, operator.Without("b")).Jobs[0].Moves, 1)
	})
	membertest.RunBubble(t, "cost seven reads for any number of jobs and instances, and no write", func(t *testing.T, g *membertest.Group) {
		var defs []string
		for i := range 40 {
			defs = append(defs, coordtest.Def(fmt.Sprintf("job-%02d", i), 0, 3, ""))
		}
		for _, name := range []string{"a", "b", "c"} {
			g.Start(name, defs...)
		}
		g.Server.ResetCounts()
		p := preview(g, operator.Without("a"), operator.OfJob("job-07"))
		require.Len(t, p.Jobs, 1)
		assert.Equal(t, "job-07", p.Jobs[0].Job)
		n := g.Server.Counts("console")
		assert.LessOrEqual(t, n.Reads, 7)
		assert.Zero(t, n.Commits+n.Conflicts)
	})
	membertest.RunBubble(t, "of jobs that follow others need no compiler", func(t *testing.T, g *membertest.Group) {
		g.Start("a", coordtest.Def("job", 0, 3, ""), coordtest.Def("child", 0, 3, `,"schedule":"after job"`))
		assert.Len(t, preview(g, operator.Without("a"), operator.With(1, nil)).Jobs, 2)
	})
	membertest.RunBubble(t, "refuse names that the group does not have", func(t *testing.T, g *membertest.Group) {
		g.Start("a", coordtest.Def("job", 0, 3, ""))
		o, _ := g.NewOperator()
		for _, c := range []struct {
			option operator.MovesOption
			err    string
		}{
			{operator.Without("b"), `preview moves: there is no instance "b"`},
			{operator.OfJob("unheard"), `preview moves: unknown job: "unheard"`},
			{operator.With(0, nil), "preview moves: 0 more instances: not from 1 to 1000"},
			{operator.With(1, map[string]string{"": ""}), "preview moves: labels of the added instances: an empty key"},
			{operator.KnowingStrategies(map[string]strategy.Func{"sticky": strategy.Single}), `preview moves: strategy "sticky" is built in, give yours another name`},
		} {
			_, err := o.Moves(t.Context(), c.option)
			assert.EqualError(t, err, c.err)
		}
	})
}
