package view

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/rota-dev/rota/history"
	"github.com/rota-dev/rota/operator"
)

func TestConceal_Explanation(t *testing.T) {
	answer := func(summary, detail string, quotes ...string) Explanation {
		return Explanation{Answers: []Answer{{Answer: operator.Answer{
			Summary: summary, Gates: []operator.Gate{{Name: "outcome", Verdict: operator.VerdictStop, Detail: detail}}, Quotes: quotes,
		}}}}
	}
	for _, c := range []struct {
		name            string
		of              Explanation
		summary, detail string
	}{
		{"an answer without an error is told", answer("The job is paused.", "by kim"), "The job is paused.", "by kim"},
		{
			"of a failure, all but the error is told", answer("The fire failed: attempt 1 ended at noon with: no route", "attempt 1 failed at noon: no route", "no route"),
			"The fire failed: attempt 1 ended at noon with: (hidden)", "attempt 1 failed at noon: (hidden)",
		},
		{"an error that contains another one is replaced as a whole", answer("failed: a: b", "failed: b", "a: b", "b"), "failed: (hidden)", "failed: (hidden)"},
		{"a short error is no part of words", answer("It is late and failed: a", "at a", "a"), "It is late and failed: (hidden)", "at a"},
		{"an error is replaced wherever it is", answer("no route, and failed: no route", "", "no route"), "(hidden), and failed: (hidden)", ""},
	} {
		before := c.of.Answers[0].Gates[0].Detail
		a := Conceal(c.of).(Explanation).Answers[0]
		assert.Equal(t, c.summary, a.Summary, c.name)
		assert.Equal(t, c.detail, a.Gates[0].Detail, c.name)
		assert.Equal(t, before, c.of.Answers[0].Gates[0].Detail, "the view that others have is not changed")
	}
}

func TestConceal_ChangesNoViewOfOthers(t *testing.T) {
	failure := operator.Failure{Error: "x"}
	jobs := Jobs{Jobs: []Job{{JobSummary: operator.JobSummary{LastFailure: failure}}, {}}}
	detail := JobDetail{Status: operator.Status{Failures: []operator.Failure{failure}}}
	shards := Shards{Shards: []Shard{{Note: "a drains; failed: x; y"}, {Note: "a drains"}}}
	runs := HistoryRuns{Runs: []history.Run{{Error: "x", Output: "y"}, {}}}

	concealed := Conceal(jobs).(Jobs)
	assert.Equal(t, []string{Concealed, ""}, []string{concealed.Jobs[0].LastFailure.Error, concealed.Jobs[1].LastFailure.Error})
	assert.Equal(t, Concealed, Conceal(Check{Jobs: jobs.Jobs}).(Check).Jobs[0].LastFailure.Error)
	assert.Equal(t, Concealed, Conceal(jobs.Jobs[0]).(Job).LastFailure.Error)
	assert.Equal(t, Concealed, Conceal(detail).(JobDetail).Failures[0].Error)
	assert.Equal(t, []Shard{{Note: "a drains; failed: " + Concealed}, {Note: "a drains"}}, Conceal(shards).(Shards).Shards)
	assert.Equal(t, []history.Run{{Error: Concealed, Output: Concealed}, {}}, Conceal(runs).(HistoryRuns).Runs)
	assert.Equal(t, Acts{Version: 1}, Conceal(Acts{Version: 1}))

	assert.Equal(t, "x", jobs.Jobs[0].LastFailure.Error)
	assert.Equal(t, "x", detail.Failures[0].Error)
	assert.Equal(t, "a drains; failed: x; y", shards.Shards[0].Note)
	assert.Equal(t, "x", runs.Runs[0].Error)
}
