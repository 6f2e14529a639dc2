package view

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/rota-dev/rota/history"
	"github.com/rota-dev/rota/operator"
)

func TestConceal_Explanation(t *testing.T) {
	answer := func(summary string, gates ...operator.Gate) Explanation {
		return Explanation{Answers: []Answer{{Answer: operator.Answer{Summary: summary, Gates: gates}}}}
	}
	gate := func(name string, v operator.Verdict) operator.Gate {
		return operator.Gate{Name: name, Verdict: v, Detail: "detail"}
	}
	for _, c := range []struct {
		name            string
		of              Explanation
		summary, detail string // of the last gate
	}{
		{"a gate before the claim", answer("paused", gate("intent", operator.VerdictStop)), "paused", "detail"},
		{"a success", answer("succeeded", gate("running", operator.VerdictOK), gate("outcome", operator.VerdictOK)), "succeeded", "detail"},
		{"a failure", answer("failed: x", gate("outcome", operator.VerdictStop)), Concealed, Concealed},
		{"an outcome that is not known", answer("failed: x", gate("outcome", operator.VerdictUnknown)), Concealed, Concealed},
		{"a retry that waits", answer("failed: x", gate("retry", operator.VerdictStop)), Concealed, Concealed},
		{"a first attempt that runs", answer("runs on a", gate("running", operator.VerdictOK)), "runs on a", "detail"},
		{"a retry that runs", answer("runs on a, and failed before: x", gate("running", operator.VerdictOK)), Concealed, "detail"},
	} {
		before := c.of.Answers[0].Summary
		a := Conceal(c.of).(Explanation).Answers[0]
		assert.Equal(t, c.summary, a.Summary, c.name)
		assert.Equal(t, c.detail, a.Gates[len(a.Gates)-1].Detail, c.name)
		assert.Equal(t, before, c.of.Answers[0].Summary, "the view that others have is not changed")
		assert.Equal(t, "detail", c.of.Answers[0].Gates[0].Detail)
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
