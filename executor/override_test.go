package executor_test

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/schedule"
)

func TestOverride(t *testing.T) {
	handle := func(context.Context, *executor.Run) error { return nil }
	ran := func(f *fleet) (n int, last executor.Run) {
		f.mu.Lock()
		defer f.mu.Unlock()
		if n = len(f.runs); n > 0 {
			last = f.runs[n-1]
		}
		f.runs = nil
		return n, last
	}
	param := "eu"
	ov := operator.Override{
		Schedule: schedule.Every(20 * time.Second).String(), Shards: 3, Param: &param, ShardParams: map[int]string{2: "two"},
		Policies: map[string]any{"timeout": 9 * time.Second, "retry": nil},
	}
	bubble(t, "changes schedule, shards, parameters and policies, and is taken back", func(t *testing.T, f *fleet) {
		e := f.start("a", executor.Options{}, 1, handle)
		op := e.Operator().As("kim", "double load")
		preview, err := op.PreviewOverride(t.Context(), "job", ov)
		require.NoError(t, err)
		assert.Equal(t, []int{1, 3}, []int{preview.ShardsBefore, preview.Shards})
		assert.Equal(t, minute(1), preview.FiresBefore[0])
		assert.Equal(t, []time.Time{minute(0).Add(20 * time.Second), minute(0).Add(40 * time.Second)}, preview.Fires[:2])
		assert.Len(t, preview.Fires, 10)
		in, err := op.Intent(t.Context(), "job")
		require.NoError(t, err)
		require.Zero(t, in.OverriddenBy, "a preview changes nothing")

		require.NoError(t, op.Override(t.Context(), "job", ov))
		in, err = op.Intent(t.Context(), "job")
		require.NoError(t, err)
		stored := ov
		stored.Policies = map[string]any{"timeout": "9s", "retry": nil}
		assert.Equal(t, stored, in.Override, "durations as texts")
		assert.Equal(t, []string{"kim", "double load"}, []string{in.OverriddenBy.By, in.OverriddenBy.Reason})
		pass(time.Until(minute(1)) - time.Second)
		ran(f)
		pass(time.Minute)
		n, last := ran(f)
		assert.Equal(t, 9, n, "three fires of three shards")
		assert.Equal(t, "eu", last.Param)
		assert.Equal(t, map[bool]string{true: "two"}[last.Shard == 2], last.ShardParam)
		assert.Equal(t, 3, last.Shards)

		require.NoError(t, op.Override(t.Context(), "job", operator.Override{}))
		pass(time.Until(minute(3)) - time.Second)
		ran(f)
		pass(time.Minute)
		n, last = ran(f)
		assert.Equal(t, 1, n)
		assert.Equal(t, 1, last.Shards)
		assert.Empty(t, last.Param)
		acts, err := op.Acts(t.Context(), "job")
		require.NoError(t, err)
		require.Len(t, acts, 2)
		assert.Equal(t, "override param, retry, schedule, shard_params, shards, timeout", acts[0].What, "no value")
		assert.Equal(t, "take the override back", acts[1].What)
	})
	bubble(t, "survives a new revision, and a definition that is deleted is restored without it", func(t *testing.T, f *fleet) {
		e := f.start("a", executor.Options{}, 1, handle)
		require.NoError(t, e.Operator().Override(t.Context(), "job", operator.Override{Shards: 3}))
		pass(10 * time.Second)
		job := f.job(2, handle)
		job.Revision, job.Param = 1, "new"
		require.NoError(t, e.Register(job))
		pass(time.Until(minute(2).Add(-time.Second)))
		ran(f)
		pass(2 * time.Second)
		n, last := ran(f)
		assert.Equal(t, 3, n)
		assert.Equal(t, "new", last.Param)

		reg := f.server.Client("editor")
		keys, err := record.NewKeys("test", "default")
		require.NoError(t, err)
		stored, err := reg.Get(t.Context(), keys.Job("job"), registry.ReadOptions{})
		require.NoError(t, err)
		_, err = reg.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Delete(keys.Job("job"), stored.Modified)}})
		require.NoError(t, err)
		pass(10 * time.Second)
		again, err := reg.Get(t.Context(), keys.Job("job"), registry.ReadOptions{})
		require.NoError(t, err)
		assert.JSONEq(t, string(stored.Value), string(again.Value))
	})
	bubble(t, "refuses what would be invalid, and names the rule", func(t *testing.T, f *fleet) {
		e := f.start("a", executor.Options{}, 1, handle)
		for want, ov := range map[string]operator.Override{
			"schedule":                             {Schedule: "every never"},
			"shards is 10001, not between":         {Shards: 10001},
			`there is no policy "revision"; there`: {Policies: map[string]any{"revision": 3}},
			"timeout":                              {Policies: map[string]any{"timeout": "-1s"}},
			"shard_params":                         {ShardParams: map[int]string{7: "x"}},
		} {
			assert.ErrorContains(t, e.Operator().Override(t.Context(), "job", ov), want)
			_, err := e.Operator().PreviewOverride(t.Context(), "job", ov)
			assert.ErrorContains(t, err, want)
		}
		assert.ErrorIs(t, f.operator().Override(t.Context(), "job", operator.Override{Shards: 2}), operator.ErrNoCompiler)
		assert.ErrorIs(t, e.Operator().Override(t.Context(), "nothing", operator.Override{Shards: 2}), operator.ErrUnknownJob)
		in, err := e.Operator().Intent(t.Context(), "job")
		require.NoError(t, err)
		assert.Zero(t, in.Override)
	})
	bubble(t, "has a name for every field of a definition that it may replace", func(t *testing.T, f *fleet) {
		e := f.executor("a", executor.Options{}, 1, handle)
		job := f.job(2, handle)
		job.Description, job.Param, job.ShardParams, job.Timeout = "d", "p", map[int]string{0: "x"}, time.Second
		job.OnOverlap, job.CatchupWindow, job.Retry = executor.SkipOverlapping, time.Hour, executor.Retry{Max: 1}
		job.RunOn, job.StartPaused = map[string]string{"a": "b"}, true
		require.NoError(t, e.Register(job))
		require.NoError(t, e.Start(t.Context()))
		keys, err := record.NewKeys("test", "default")
		require.NoError(t, err)
		stored, err := f.server.Client("editor").Get(t.Context(), keys.Job("job"), registry.ReadOptions{})
		require.NoError(t, err)
		var fields map[string]any
		require.NoError(t, json.Unmarshal(stored.Value, &fields))
		own := []string{"name", "revision", "start_paused", "schedule", "shards", "param", "shard_params"}
		for name, value := range fields {
			if !slices.Contains(own, name) {
				assert.NoError(t, e.Operator().Override(t.Context(), "job", operator.Override{Policies: map[string]any{name: value}}), name)
			}
		}
	})
}
