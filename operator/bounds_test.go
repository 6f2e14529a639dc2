package operator_test

import (
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/group/membertest"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry"
)

// TestOperator_WritesNothingThatCannotBeRead makes calls whose records would break a bound. Each is refused and changes nothing.
func TestOperator_WritesNothingThatCannotBeRead(t *testing.T) {
	membertest.RunBubble(t, "parameters of triggers", func(t *testing.T, g *membertest.Group) {
		g.Start("a", coordtest.Def("job", 0, 2, ""))
		o, _ := g.NewOperator()
		require.NoError(t, o.Pause(t.Context(), "job"))
		for param, rule := range map[string]string{
			strings.Repeat("p", 8193): "the parameter has 8193 bytes, at most 8192",
			"\xff\xfe":                "the parameter is not UTF-8",
		} {
			_, err := o.Trigger(t.Context(), "job", param, nil)
			require.ErrorContains(t, err, rule)
		}
		_, err := o.Trigger(t.Context(), "job", strings.Repeat("p", 8192), nil)
		require.NoError(t, err)
	})
	membertest.RunBubble(t, "parameters of triggers together", func(t *testing.T, g *membertest.Group) {
		g.Start("a", coordtest.Def("job", 0, 2, "")).Shutdown() // no leader takes them up
		o, _ := g.NewOperator()
		var err error
		accepted := 0
		for ; accepted < record.MaxTriggers && err == nil; accepted++ {
			_, err = o.Trigger(t.Context(), "job", strings.Repeat(`{"a":1}`, 1000), nil)
		}
		require.ErrorIs(t, err, operator.ErrTooManyTriggers)
		require.ErrorContains(t, err, "at most 65536")
		require.Greater(t, accepted, 6)
		b := g.Start("b", coordtest.Def("job", 0, 2, ""))
		time.Sleep(5 * time.Second)
		assert.GreaterOrEqual(t, len(b.TakeRuns()), 2*(accepted-1), "those accepted run")
		_, err = o.Trigger(t.Context(), "job", "", nil)
		require.NoError(t, err)
	})
	membertest.RunBubble(t, "numbers at their end", func(t *testing.T, g *membertest.Group) {
		g.Start("a", coordtest.Def("job", 0, 2, ""))
		o, reg := g.NewOperator()
		value, err := record.Encode(&record.Control{Job: "job", LastTrigger: record.MaxNumber, Resets: record.MaxNumber, LastBackfill: record.MaxNumber})
		require.NoError(t, err)
		_, err = registry.Apply(t.Context(), reg, registry.Txn{Then: []registry.Op{registry.Create(g.Keys.Control("job"), value)}})
		require.NoError(t, err)
		_, err = o.Trigger(t.Context(), "job", "", nil)
		require.ErrorContains(t, err, "is above 4611686018427387904")
		require.ErrorContains(t, o.Reset(t.Context(), "job"), "is above 4611686018427387904")
		require.NoError(t, o.Pause(t.Context(), "job"))
		require.Error(t, o.RaiseFences(t.Context(), math.MaxUint64))
		require.NoError(t, o.RaiseFences(t.Context(), record.MaxNumber))
		_, err = o.Status(t.Context(), "job")
		require.NoError(t, err)
	})
	membertest.RunBubble(t, "overrides", func(t *testing.T, g *membertest.Group) {
		g.Start("a", coordtest.Def("job", 0, 2, ""))
		o, _ := g.NewOperator()
		long, bad := strings.Repeat("p", 8193), "\xff"
		for rule, ov := range map[string]operator.Override{
			"at most 8192":                          {Param: &long},
			"the parameter is not UTF-8":            {Param: &bad},
			"the parameter of shard 1 is not UTF-8": {ShardParams: map[int]string{1: bad}},
			"the schedule is not UTF-8":             {Schedule: "@daily " + bad},
		} {
			require.ErrorContains(t, o.Override(t.Context(), "job", ov), rule)
		}
		_, err := o.PreviewOverride(t.Context(), "job", operator.Override{Param: &bad})
		require.ErrorContains(t, err, "is not UTF-8")
	})
}

// TestOperator_ForgetDeletesRecordsThatCannotBeRead is the remedy for a record of an earlier version that is beyond a bound: it
// needs no client of the store.
func TestOperator_ForgetDeletesRecordsThatCannotBeRead(t *testing.T) {
	membertest.RunBubble(t, "control and plan", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 2, ""))
		membertest.SleepToMinute(2)
		o, _ := g.NewOperator()
		large, err := os.ReadFile("../internal/record/testdata/de3956a/control-15-params-of-700KiB")
		require.NoError(t, err)
		g.PutRecord(g.Keys.Control("job"), string(large))
		_, err = o.Trigger(t.Context(), "job", "", nil)
		require.ErrorContains(t, err, string(g.Keys.Control("job"))+": inflate: longer than")
		require.ErrorIs(t, o.Forget(t.Context(), "job"), operator.ErrOffered)
		a.Shutdown()
		g.SpoilRecord(g.Keys.Plan("job"))
		require.NoError(t, o.Forget(t.Context(), "job"))
		b := g.Start("b", coordtest.Def("job", 0, 2, ""))
		_, err = o.Trigger(t.Context(), "job", "", nil)
		require.NoError(t, err)
		time.Sleep(5 * time.Second)
		assert.NotEmpty(t, b.TakeRuns())
	})
}
