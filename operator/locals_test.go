package operator_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/group/membertest"
	"github.com/rota-dev/rota/operator"
)

// differsOf returns the instances whose local part of job differs, by Group, Status and Diagnose.
func differsOf(g *membertest.Group) (group, status []string, findings []operator.Finding) {
	g.T.Helper()
	o, _ := g.NewOperator()
	st, err := o.Group(g.T.Context())
	require.NoError(g.T, err)
	one, err := o.Status(g.T.Context(), "job")
	require.NoError(g.T, err)
	assert.Equal(g.T, st.Jobs[0].LocalDiffers, one.Summary().LocalDiffers)
	for _, m := range one.Members {
		if m.LocalDiffers {
			status = append(status, m.Instance)
		}
	}
	d, err := o.Diagnose(g.T.Context())
	require.NoError(g.T, err)
	return st.Jobs[0].LocalDiffers, status, d.Findings
}

func TestLocals_AreCompared(t *testing.T) {
	membertest.RunBubble(t, "names the instances that differ from most", func(t *testing.T, g *membertest.Group) {
		def := coordtest.Def("job", 0, 3, "")
		offer := func(w *membertest.Worker, local string) {
			w.OfferLocal(membertest.DefinitionsByName(def), map[string]string{"job": local})
		}
		a, b, c := g.Start("a", def), g.Start("b", def), g.Start("c", def)
		membertest.SleepToMinute(1)
		planned, _ := g.GetRecord(g.Keys.Plan("job"))
		expect := func(minute int, instances ...string) {
			t.Helper()
			membertest.SleepToMinute(minute)
			group, status, findings := differsOf(g)
			assert.Equal(t, instances, group)
			assert.Equal(t, instances, status)
			if instances == nil {
				assert.Empty(t, findings)
				return
			}
			require.Len(t, findings, 1)
			assert.Equal(t, []any{operator.SeverityWarning, operator.FindingDiffers, "job"}, []any{findings[0].Severity, findings[0].Kind, findings[0].Job})
			for _, name := range instances {
				assert.Contains(t, findings[0].What, name)
			}
		}
		expect(2)
		offer(a, "x")
		expect(3)
		offer(b, "x")
		offer(c, "y")
		expect(4, "c")
		offer(c, "x")
		expect(5)
		offer(b, "z")
		offer(c, "y")
		expect(6, "a", "b", "c")
		c.Offer(membertest.DefinitionsByName(def)) // without a local part
		expect(7, "a", "b")
		now, _ := g.GetRecord(g.Keys.Plan("job"))
		assert.Equal(t, planned.Modified, now.Modified, "local parts change no plan")
		b.Shutdown()
		expect(8)
	})
}
