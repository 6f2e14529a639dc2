package operator_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/group/membertest"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry"
)

// A job whose definition and plan are overwritten must not vanish from what operators look at.
func TestOperator_ShowsJobsWhoseDefinitionAndPlanCannotBeRead(t *testing.T) {
	const job = "settle / daily" // whose keys have another form
	membertest.RunBubble(t, "foreign values, which lists leave out", func(t *testing.T, g *membertest.Group) {
		g.Start("a", coordtest.Def(job, 0, 2, ""), coordtest.Def("other", 0, 1, ""))
		time.Sleep(time.Second)
		def, plan := g.Keys.Job(record.Segment(job)), g.Keys.Plan(record.Segment(job))
		reg := &damaged{Registry: g.NewEditor(), foreign: map[registry.Key]bool{def: true, plan: true}}
		o, err := operator.New(reg, "test", "")
		require.NoError(t, err)
		jobs, err := o.Jobs(t.Context())
		require.NoError(t, err)
		require.Len(t, jobs, 2)
		assert.Equal(t, job, jobs[1].Job)
		assert.Contains(t, jobs[1].Problem, string(def)+" is missing, or another program wrote its value")
		assert.Contains(t, jobs[1].Problem, string(plan)+" is missing, or another program wrote its value")
		assert.Empty(t, jobs[0].Problem)

		findings := diagnose(t, reg)
		assert.NotEmpty(t, find(findings, operator.FindingForeign, def))
		assert.NotEmpty(t, find(findings, operator.FindingForeign, plan))
		lost := find(findings, operator.FindingMissing, plan)
		require.NotEmpty(t, lost)
		assert.Equal(t, job, lost[0].Job)
	})
	membertest.RunBubble(t, "foreign values, in a view that watches keep current", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def(job, 0, 2, ""), coordtest.Def("other", 0, 1, ""))
		time.Sleep(time.Second)
		def, plan := g.Keys.Job(record.Segment(job)), g.Keys.Plan(record.Segment(job))
		reg := &damaged{Registry: g.NewEditor(), foreign: map[registry.Key]bool{def: true, plan: true}}
		o, err := operator.New(reg, "test", "")
		require.NoError(t, err)
		v, err := o.Watch(t.Context())
		require.NoError(t, err)
		defer v.Close()
		listed, err := o.Jobs(t.Context())
		require.NoError(t, err)
		require.Len(t, listed, 2)
		st, removed := v.Changes()
		assert.Equal(t, listed, st.Jobs)
		assert.Empty(t, removed)
		st, removed = v.Changes()
		assert.Empty(t, st.Jobs, "no job changes twice")
		assert.Empty(t, removed)
		a.Shutdown()
		synctest.Wait()
		_, removed = v.Changes()
		assert.Equal(t, []string{job}, removed, "no instance offers it now, and its records are not seen")

		reg.foreign[def], reg.foreign[plan] = false, false
		g.Server.Restart() // watches begin again with a snapshot
		time.Sleep(time.Second)
		st, removed = v.Changes()
		assert.Empty(t, removed)
		require.NotEmpty(t, st.Jobs)
		assert.Equal(t, job, st.Jobs[len(st.Jobs)-1].Job)
		assert.Equal(t, 2, st.Jobs[len(st.Jobs)-1].Shards)
	})
	membertest.RunBubble(t, "values that break a rule", func(t *testing.T, g *membertest.Group) {
		g.Start("a", coordtest.Def(job, 0, 2, ""))
		time.Sleep(time.Second)
		def, plan := g.Keys.Job(record.Segment(job)), g.Keys.Plan(record.Segment(job))
		reg := &damaged{Registry: g.NewEditor(), values: map[registry.Key]string{def: "{", plan: "{"}}
		o, err := operator.New(reg, "test", "")
		require.NoError(t, err)
		jobs, err := o.Jobs(t.Context())
		require.NoError(t, err)
		require.Len(t, jobs, 1)
		assert.Equal(t, job, jobs[0].Job)
		assert.Contains(t, jobs[0].Problem, string(plan)+" cannot be read")
		findings := diagnose(t, reg)
		assert.NotEmpty(t, find(findings, operator.FindingUnreadable, def))
		assert.NotEmpty(t, find(findings, operator.FindingMissing, plan))
	})
}
