package executor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/schedule"
)

func noop(context.Context, *Run) error { return nil }

func anyStrategy(string) bool { return true }

func onlySticky(name string) bool { return name == "sticky" }

func TestCheckJobs_AcceptsWhatIsInBounds(t *testing.T) {
	params := map[int]string{0: strings.Repeat("p", 1000), 9999: ""}
	assert.NoError(t, checkAll(ErrInvalidJob, []Job{
		{Name: "a", Handler: HandlerFunc(noop)},
		{Name: strings.Repeat("é", 50), Handler: HandlerFunc(noop)},
		{Name: "reports / 日報 (daily)", Handler: HandlerFunc(noop)},
		{
			Name: "all fields", Handler: HandlerFunc(noop), Description: strings.Repeat("d", 1000), Schedule: schedule.Cron("@daily").In("Asia/Tokyo"),
			Shards: 10_000, ShardParams: params, Param: strings.Repeat("\x00", 8192), Revision: 1 << 40, Strategy: "sticky", Timeout: time.Nanosecond,
			OnCrash: CountAsFailed, OnMisfire: RunAll(1), StartPaused: true, MaxAttempts: 100, Tracking: TrackClaims, MaxRunning: 1 << 40, Local: strings.Repeat("x", 16),
			Pool:  strings.Repeat("p", 64),
			RunOn: map[string]string{strings.Repeat("k", 100): strings.Repeat("v", 200), "zone": ""},
		},
	}, onlySticky))
	assert.NoError(t, checkAll[Job](ErrInvalidJob, nil, onlySticky))
}

func TestCheckJobs_Refuses(t *testing.T) {
	var none HandlerFunc
	for name, c := range map[string]struct {
		change func(*Job)
		says   string
	}{
		"no name":                       {func(j *Job) { j.Name = "" }, "Name: is empty"},
		"a long name":                   {func(j *Job) { j.Name = strings.Repeat("é", 50) + "s" }, "Name: has 101 bytes, at most 100"},
		"a line break in the name":      {func(j *Job) { j.Name = "a\nb" }, "Name: has a control character"},
		"a control character of C1":     {func(j *Job) { j.Name = "a\u0085b" }, "Name: has a control character"},
		"a name that is not UTF-8":      {func(j *Job) { j.Name = "a\xff" }, "Name: is not UTF-8"},
		"a long description":            {func(j *Job) { j.Description = strings.Repeat("d", 1001) }, "Description: has 1001 bytes"},
		"a description that is bytes":   {func(j *Job) { j.Description = "\xff" }, "Description: is not UTF-8"},
		"a bad schedule":                {func(j *Job) { j.Schedule = schedule.Cron("nonsense") }, `Schedule: schedule "cron nonsense"`},
		"no handler":                    {func(j *Job) { j.Handler = nil }, "Handler: is nil"},
		"a handler that is a nil func":  {func(j *Job) { j.Handler = none }, "Handler: is nil"},
		"a negative number of shards":   {func(j *Job) { j.Shards = -1 }, "Shards: -1 is not from 1 to 10000"},
		"too many shards":               {func(j *Job) { j.Shards = 10_001 }, "Shards: 10001 is not from 1 to 10000"},
		"a param of no shard":           {func(j *Job) { j.Shards = 3; j.ShardParams = map[int]string{2: "", 3: ""} }, "ShardParams: 1 are of shards that do not exist: there are 3, counted from 0, and no 3"},
		"a param of a negative shard":   {func(j *Job) { j.ShardParams = map[int]string{-1: ""} }, "and no -1"},
		"a long param of a shard":       {func(j *Job) { j.ShardParams = map[int]string{0: strings.Repeat("p", 1001)} }, "ShardParams: that of shard 0 has 1001 bytes"},
		"a param of a shard, not UTF-8": {func(j *Job) { j.ShardParams = map[int]string{0: "\xff"} }, "ShardParams: that of shard 0 is not UTF-8"},
		"long params together":          {func(j *Job) { j.Shards = 100; j.ShardParams = longParams(100) }, "ShardParams: they take 100"},
		"a long param":                  {func(j *Job) { j.Param = strings.Repeat("p", 8193) }, "Param: has 8193 bytes, at most 8192"},
		"a param that is not UTF-8":     {func(j *Job) { j.Param = "\xff" }, "Param: is not UTF-8"},
		"a negative revision":           {func(j *Job) { j.Revision = -1 }, "Revision: -1 is negative"},
		"an unknown strategy":           {func(j *Job) { j.Strategy = "stiky" }, `Strategy: "stiky" is neither built in nor in Options.Strategies`},
		"a negative timeout":            {func(j *Job) { j.Timeout = -time.Second }, "Timeout: -1s is negative"},
		"an unknown crash policy":       {func(j *Job) { j.OnCrash = 2 }, "OnCrash: unknown crash policy 2"},
		"a misfire limit of zero":       {func(j *Job) { j.OnMisfire = RunAll(0) }, `OnMisfire: the limit of "run all 0", which is MisfirePolicy(-2), is below 1`},
		"a pool with a slash":           {func(j *Job) { j.Pool = "a/b" }, "Pool: "},
		"a label without a key":         {func(j *Job) { j.RunOn = map[string]string{"": "x"} }, "RunOn: an empty key"},
		"a long key of a label":         {func(j *Job) { j.RunOn = map[string]string{strings.Repeat("k", 101): ""} }, "has 101 bytes, at most 100"},
		"a long value of a label":       {func(j *Job) { j.RunOn = map[string]string{"zone": strings.Repeat("v", 201)} }, `RunOn: the value of "zone" has 201 bytes, at most 200`},
		"a label that is not UTF-8":     {func(j *Job) { j.RunOn = map[string]string{"zone": "\xff"} }, `RunOn: the value of "zone" is not UTF-8`},
		"a line break in a label":       {func(j *Job) { j.RunOn = map[string]string{"a\nb": ""} }, `RunOn: the key "a\nb" has a control character`},
		"too many labels":               {func(j *Job) { j.RunOn = manyLabels(17) }, "RunOn: 17 labels, at most 16"},
		"an unknown tracking":           {func(j *Job) { j.Tracking = -1 }, "Tracking: unknown tracking -1"},
		"a long local part":             {func(j *Job) { j.Local = strings.Repeat("x", 17) }, "Local: has 17 bytes, at most 16"},
		"a negative bound of runs":      {func(j *Job) { j.MaxRunning = -1 }, "MaxRunning: -1 is negative"},
		"negative attempts":             {func(j *Job) { j.MaxAttempts = -1 }, "MaxAttempts: -1 is negative"},
	} {
		t.Run(name, func(t *testing.T) {
			j := Job{Name: "settle", Handler: HandlerFunc(noop)}
			require.NoError(t, checkAll(ErrInvalidJob, []Job{j}, onlySticky))
			c.change(&j)
			err := checkAll(ErrInvalidJob, []Job{j}, onlySticky)
			require.ErrorIs(t, err, ErrInvalidJob)
			assert.ErrorContains(t, err, c.says)
			if j.Name == "settle" {
				assert.ErrorContains(t, err, `invalid job "settle": `)
			}
			assert.Len(t, joined(err), 1, "nothing else is wrong")
		})
	}
}

func manyLabels(n int) map[string]string {
	labels := map[string]string{}
	for i := range n {
		labels[fmt.Sprint("label ", i)] = "x"
	}
	return labels
}

func TestCheckJobs_ReportsAllProblemsOfAllJobs(t *testing.T) {
	err := checkAll(ErrInvalidJob, []Job{
		{Name: "first", Shards: -1, Timeout: -1, RunOn: map[string]string{"": "x", "zone": "\n"}},
		{Name: "second", Handler: HandlerFunc(noop)},
		{Name: "third", Handler: HandlerFunc(noop), Schedule: schedule.Cron("").In("Mars/Olympus"), OnCrash: -1},
		{Name: "second", Handler: HandlerFunc(noop)},
	}, anyStrategy)
	var got []string
	for _, e := range joined(err) {
		assert.ErrorIs(t, e, ErrInvalidJob)
		got = append(got, e.Error())
	}
	assert.Equal(t, []string{
		`invalid job "first": Shards: -1 is not from 1 to 10000`,
		`invalid job "first": Timeout: -1ns is negative`,
		`invalid job "first": RunOn: an empty key`,
		`invalid job "first": RunOn: the value of "zone" has a control character`,
		`invalid job "first": Handler: is nil`,
		`invalid job "third": Schedule: schedule "cron in Mars/Olympus": the cron spec is empty`,
		`invalid job "third": OnCrash: unknown crash policy -1`,
		`invalid job "second": Name: given twice in one call`,
	}, got)
}

func TestJob_CloneSharesNothing(t *testing.T) {
	j := Job{Name: "settle", ShardParams: map[int]string{0: "Beijing"}}
	c := j.clone()
	j.ShardParams[0] = "changed"
	assert.Equal(t, "Beijing", c.ShardParams[0])
}

func TestCrashPolicy_Text(t *testing.T) {
	for text, p := range map[string]CrashPolicy{"rerun elsewhere": RerunElsewhere, "count as failed": CountAsFailed} {
		got, err := p.MarshalText()
		require.NoError(t, err)
		assert.Equal(t, text, string(got))
		loaded := CrashPolicy(-1)
		require.NoError(t, loaded.UnmarshalText([]byte(text)))
		assert.Equal(t, p, loaded)
	}
	p := CountAsFailed
	err := p.UnmarshalText([]byte("start over"))
	assert.ErrorIs(t, err, ErrNewerFormat)
	assert.ErrorContains(t, err, `"start over"`)
	assert.Equal(t, CountAsFailed, p, "not touched")
	assert.Zero(t, RerunElsewhere)
}

func TestTracking_Text(t *testing.T) {
	for text, level := range map[string]Tracking{"runs": TrackRuns, "claims": TrackClaims} {
		got, err := level.MarshalText()
		require.NoError(t, err)
		assert.Equal(t, text, string(got))
		loaded := Tracking(-1)
		require.NoError(t, loaded.UnmarshalText([]byte(text)))
		assert.Equal(t, level, loaded)
	}
	level := TrackClaims
	err := level.UnmarshalText([]byte("all"))
	assert.ErrorIs(t, err, ErrNewerFormat)
	assert.ErrorContains(t, err, `"all"`)
	assert.Equal(t, TrackClaims, level, "not touched")
	assert.Zero(t, TrackRuns)
}

func longParams(n int) map[int]string {
	params := make(map[int]string)
	for shard := range n {
		params[shard] = strings.Repeat("p", 1000)
	}
	return params
}

func joined(err error) []error {
	var all interface{ Unwrap() []error }
	if errors.As(err, &all) {
		return all.Unwrap()
	}
	return nil
}
