package coordinator_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/coordinator"
	"github.com/rota-dev/rota/coordinator/internal/coordtest"
	"github.com/rota-dev/rota/coordinator/internal/membertest"
	"github.com/rota-dev/rota/internal/record"
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
		o, err := coordinator.NewOperator(reg, "test", "")
		require.NoError(t, err)
		jobs, err := o.Jobs(t.Context())
		require.NoError(t, err)
		require.Len(t, jobs, 2)
		assert.Equal(t, job, jobs[1].Job)
		assert.Contains(t, jobs[1].Problem, string(def)+" is missing, or another program wrote its value")
		assert.Contains(t, jobs[1].Problem, string(plan)+" is missing, or another program wrote its value")
		assert.Empty(t, jobs[0].Problem)

		findings := diagnose(t, reg)
		assert.NotEmpty(t, find(findings, coordinator.FindingForeign, def))
		assert.NotEmpty(t, find(findings, coordinator.FindingForeign, plan))
		lost := find(findings, coordinator.FindingMissing, plan)
		require.NotEmpty(t, lost)
		assert.Equal(t, job, lost[0].Job)
	})
	membertest.RunBubble(t, "values that break a rule", func(t *testing.T, g *membertest.Group) {
		g.Start("a", coordtest.Def(job, 0, 2, ""))
		time.Sleep(time.Second)
		def, plan := g.Keys.Job(record.Segment(job)), g.Keys.Plan(record.Segment(job))
		reg := &damaged{Registry: g.NewEditor(), values: map[registry.Key]string{def: "{", plan: "{"}}
		o, err := coordinator.NewOperator(reg, "test", "")
		require.NoError(t, err)
		jobs, err := o.Jobs(t.Context())
		require.NoError(t, err)
		require.Len(t, jobs, 1)
		assert.Equal(t, job, jobs[0].Job)
		assert.Contains(t, jobs[0].Problem, string(plan)+" cannot be read")
		findings := diagnose(t, reg)
		assert.NotEmpty(t, find(findings, coordinator.FindingUnreadable, def))
		assert.NotEmpty(t, find(findings, coordinator.FindingMissing, plan))
	})
}
