package jobsfile

import (
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/schedule"
)

func TestLoad_FillsEachFieldOfADefinedJob(t *testing.T) {
	f := loadGood(t, "defined.yaml", testHost())
	require.Len(t, f.Jobs, 1)
	assert.Equal(t, []any{3, true}, []any{f.Jobs[0].MaxRunning, f.Jobs[0].SecretLog}, "defaults of a job that rota run runs")
	require.Len(t, f.Defined, 2)
	report := f.Defined[0]
	assert.Equal(t, operator.Definition{
		Name: "acme/report", Kind: "report", KindRevision: 2, Description: "the report of acme",
		Schedule: schedule.Cron("0 6 * * 1-5").In("Europe/Berlin").From(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)),
		Shards:   2, ShardParams: map[int]string{0: "a", 1: "b"}, Param: "acme", StartPaused: true, DeleteAfter: -1,
		Policies: map[string]any{
			"timeout": 10 * time.Minute, "on_crash": executor.CountAsFailed, "max_attempts": 5, "on_misfire": executor.RunAll(5),
			"on_overlap": executor.CancelRunning, "catchup_window": 6 * time.Hour, "run_on": map[string]string{"zone": "a"}, "strategy": "rotate", "tracking": nil, "pool": "db",
			"retry": map[string]any{"max": -1, "initial": 10 * time.Second, "max_interval": 2 * time.Minute, "factor": 3.0, "jitter": 0.0},
		},
	}, report.Definition)
	fields := reflect.ValueOf(report.Definition)
	for i := range fields.NumField() {
		assert.False(t, fields.Field(i).IsZero(), fields.Type().Field(i).Name)
	}
	assert.Equal(t, operator.Definition{
		Name: "acme/reminder", Kind: "mail", Schedule: schedule.At(time.Date(2030, 1, 2, 9, 0, 0, 0, time.UTC)), DeleteAfter: 2 * time.Hour,
		Policies: map[string]any{"timeout": time.Hour, "on_overlap": nil},
	}, f.Defined[1].Definition)
}

// A key that a job with a kind may have is not dropped.
func TestLoad_KeepsEachPolicyOfADefinedJob(t *testing.T) {
	report := loadGood(t, "defined.yaml", testHost()).Defined[0]
	others := slices.Concat(scheduleKeys, jobWorkKeys, slices.Collect(maps.Keys(notOfDefined)), []string{
		"kind_revision", "description", "timezone", "from", "until", "spread", "shards", "param", "start_paused", "delete_after",
	})
	for _, f := range jobFields() {
		ofOtherWork := len(f.with) > 0 && !slices.Contains(f.with, "schedule") && !slices.Contains(f.with, "kind")
		if !ofOtherWork && !slices.Contains(others, f.name) {
			assert.Contains(t, report.Policies, (&jobSpec{}).fieldOf(f.name), "the key %s", f.name)
		}
	}
}

func TestDefined_ProblemIsAtTheKeyOfTheField(t *testing.T) {
	f := loadGood(t, "defined.yaml", testHost())
	report, reminder := f.Defined[0], f.Defined[1]
	for _, c := range []struct {
		of    *Defined
		field string
		want  Problem
	}{
		{&report, "kind", Problem{12, 11, "jobs.acme/report.kind", "rule"}},
		{&report, "schedule", Problem{15, 15, "jobs.acme/report.schedule", "rule"}},
		{&report, "shard_params", Problem{17, 13, "jobs.acme/report.shards", "rule"}},
		{&report, "on_misfire", Problem{22, 14, "jobs.acme/report.misfire", "rule"}},
		{&report, "timeout", Problem{3, 12, "defaults.timeout", "with job acme/report: rule"}},
		{&reminder, "schedule", Problem{33, 9, "jobs.acme/reminder.at", "rule"}},
		{&reminder, "name", Problem{31, 3, "jobs.acme/reminder", "rule"}},
		{&reminder, "", Problem{31, 3, "jobs.acme/reminder", "rule"}},
		{&reminder, "retry", Problem{31, 3, "jobs.acme/reminder", "retry: rule"}},
	} {
		assert.Equal(t, c.want, c.of.Problem(c.field, "rule"), c.field)
	}
}
