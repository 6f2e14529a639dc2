package operator_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/group/membertest"
	"github.com/rota-dev/rota/operator"
)

func TestOperator_Drain(t *testing.T) {
	membertest.RunBubble(t, "returns when the shards have moved, the running ones after their runs", func(t *testing.T, g *membertest.Group) {
		g.StartWorking("a", membertest.WorkFor(30*time.Second), coordtest.Def("job", 0, 4, ""), coordtest.Def("other", 0, 2, ""))
		g.StartWorking("b", membertest.WorkFor(30*time.Second), coordtest.Def("job", 0, 4, ""), coordtest.Def("other", 0, 2, ""))
		o, _ := g.NewOperator()
		membertest.SleepToMinute(1)
		before := time.Now()
		require.NoError(t, o.As("kim", "new kernel").Drain(t.Context(), "a"))
		assert.Equal(t, 29*time.Second, time.Since(before).Truncate(time.Second), "the runs began a second before")
		assert.Equal(t, map[string]string{"b": "0-3"}, g.ReadOwners("job"))
		assert.Equal(t, map[string]string{"b": "0-1"}, g.ReadOwners("other"))
		in, err := o.Intent(t.Context(), "")
		require.NoError(t, err)
		assert.Equal(t, operator.Scope{Instances: []string{"a"}}, in.Disabled)
		require.NoError(t, o.Drain(t.Context(), "a"), "again")
		require.NoError(t, o.As("kim", "").Undrain(t.Context(), "a"))
		membertest.SleepToMinute(3)
		assert.Contains(t, g.ReadOwners("job"), "a")
		acts, err := o.Acts(t.Context(), "")
		require.NoError(t, err)
		assert.Equal(t, []string{"drain instance a", "drain instance a", "undrain instance a"}, []string{acts[0].What, acts[1].What, acts[2].What})
	})
	membertest.RunBubble(t, "does not wait if it is only begun, and is recorded as a drain", func(t *testing.T, g *membertest.Group) {
		g.StartWorking("a", membertest.WorkFor(30*time.Second), coordtest.Def("job", 0, 2, ""))
		o, _ := g.NewOperator()
		membertest.SleepToMinute(1)
		before := time.Now()
		require.NoError(t, o.BeginDrain(t.Context(), "a"))
		assert.Zero(t, time.Since(before).Truncate(time.Second))
		assert.Equal(t, map[string]string{"a": "0-1"}, g.ReadOwners("job"), "the runs have not ended")
		time.Sleep(30 * time.Second)
		assert.Empty(t, g.ReadOwners("job"))
		acts, err := o.Acts(t.Context(), "")
		require.NoError(t, err)
		assert.Equal(t, "drain instance a", acts[0].What)
		assert.ErrorContains(t, o.BeginDrain(t.Context(), "a/b"), `drain "a/b": instance: invalid key`)
	})
	membertest.RunBubble(t, "leaves shards without owner if no other instance may own them", func(t *testing.T, g *membertest.Group) {
		g.Start("a", coordtest.Def("job", 0, 4, ""))
		o, _ := g.NewOperator()
		require.NoError(t, o.Drain(t.Context(), "a"))
		assert.Empty(t, g.ReadOwners("job"))
	})
	membertest.RunBubble(t, "names what is left if its context ends, and goes on", func(t *testing.T, g *membertest.Group) {
		g.StartWorking("a", membertest.WorkFor(30*time.Second), coordtest.Def("job", 0, 2, ""), coordtest.Def("other", 0, 1, ""))
		o, _ := g.NewOperator()
		membertest.SleepToMinute(1)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		err := o.Drain(ctx, "a")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.ErrorContains(t, err, `drain "a": context deadline exceeded: it owns shards 0-1 of "job", and of 1 more job`)
		time.Sleep(30 * time.Second)
		assert.Empty(t, g.ReadOwners("job"))
	})
	membertest.RunBubble(t, "names no further jobs if there are none", func(t *testing.T, g *membertest.Group) {
		g.StartWorking("a", membertest.WorkFor(30*time.Second), coordtest.Def("job", 0, 2, ""))
		o, _ := g.NewOperator()
		membertest.SleepToMinute(1)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		assert.EqualError(t, o.Drain(ctx, "a"), `drain "a": context deadline exceeded: it owns shards 0-1 of "job"`)
	})
	membertest.RunBubble(t, "of an instance that is not there returns, and keeps it from owning shards later", func(t *testing.T, g *membertest.Group) {
		o, _ := g.NewOperator()
		require.NoError(t, o.Drain(t.Context(), "a"))
		g.Start("a", coordtest.Def("job", 0, 2, ""))
		time.Sleep(time.Second)
		assert.Empty(t, g.ReadOwners("job"))
		assert.ErrorContains(t, o.Drain(t.Context(), "a/b"), `drain "a/b": instance: invalid key`)
	})
}
