package jobsfile

import (
	"reflect"
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
			"on_overlap": executor.CancelRunning, "catchup_window": 6 * time.Hour, "run_on": map[string]string{"zone": "a"}, "strategy": "rotate", "tracking": nil,
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
		{&reminder, "schedule", Problem{32, 9, "jobs.acme/reminder.at", "rule"}},
		{&reminder, "name", Problem{30, 3, "jobs.acme/reminder", "rule"}},
		{&reminder, "", Problem{30, 3, "jobs.acme/reminder", "rule"}},
		{&reminder, "retry", Problem{30, 3, "jobs.acme/reminder", "retry: rule"}},
	} {
		assert.Equal(t, c.want, c.of.Problem(c.field, "rule"), c.field)
	}
}
