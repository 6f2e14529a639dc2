package look

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/history"
	"github.com/rota-dev/rota/operator"
)

func TestAddOutcomes(t *testing.T) {
	at := time.Date(2026, 3, 1, 11, 0, 0, 0, time.UTC)
	unknown := operator.Answer{
		Shards: []int{0, 1, 2}, Fire: at, Verb: "History", Do: "look into the run history", Summary: "The fire was run or skipped.",
		Gates: []operator.Gate{{Name: "defined", Verdict: operator.VerdictOK}, {Name: "outcome", Verdict: operator.VerdictUnknown}},
	}
	skipped := operator.Answer{
		Shards: []int{0, 1, 2}, Fire: at, Stops: true, Verb: "Trigger", Do: "trigger it", Summary: "The fire was skipped.",
		Gates: []operator.Gate{{Name: "claimed", Verdict: operator.VerdictStop, Detail: "the fire was skipped by a"}},
	}
	run := func(shard, attempt int, outcome history.Outcome, text string) history.Run {
		return history.Run{Fire: at, Shard: shard, Shards: 3, Attempt: attempt, Fence: uint64(attempt), Instance: "web-1", Ended: at.Add(9 * time.Second), Outcome: outcome, Error: text}
	}
	type answer struct {
		shards  []int
		verdict operator.Verdict
		summary string
		verb    string
	}
	for _, c := range []struct {
		name   string
		answer operator.Answer
		past   pastFire
		want   []answer
	}{
		{"no record", unknown, pastFire{}, []answer{{[]int{0, 1, 2}, operator.VerdictUnknown, "The fire was run or skipped. The run history has no record of it.", "History"}}},
		{"all succeeded, and no run is kept", unknown, pastFire{nil, []history.Fire{{Fire: at, Shards: 3, OK: 3, LastEnd: at.Add(time.Second)}}}, []answer{
			{[]int{0, 1, 2}, operator.VerdictOK, "The fire of 2026-03-01T11:00:00Z succeeded: the runs had ended by 2026-03-01T11:00:01Z, by the run history.", ""},
		}},
		{
			"each shard has the outcome of its last attempt", unknown, pastFire{[]history.Run{
				run(0, 1, history.Failed, "busy"), run(0, 2, history.Succeeded, ""), run(1, 2, history.Failed, "503\nmore"), run(1, 1, history.Crashed, ""),
			}, []history.Fire{{Fire: at, Shards: 3, OK: 2, Failed: 2, Crashed: 1, LastEnd: at.Add(time.Minute)}}}, []answer{
				{[]int{0}, operator.VerdictOK, "The fire of 2026-03-01T11:00:00Z succeeded: attempt 2 ended at 2026-03-01T11:00:09Z on web-1, by the run history.", ""},
				{[]int{1}, operator.VerdictStop, "The fire of 2026-03-01T11:00:00Z failed: attempt 2 ended at 2026-03-01T11:00:09Z on web-1 with: 503, by the run history.", "Retry"},
				{[]int{2}, operator.VerdictOK, "The fire of 2026-03-01T11:00:00Z succeeded: the runs had ended by 2026-03-01T11:01:00Z, by the run history.", ""},
			},
		},
		{"a run was handed back, and nothing is known after it", unknown, pastFire{[]history.Run{run(0, 1, history.HandedBack, ""), run(1, 1, history.HandedBack, ""), run(2, 1, history.LostSession, "away")}, nil}, []answer{
			{[]int{0, 1}, operator.VerdictUnknown, "The fire of 2026-03-01T11:00:00Z was handed back: attempt 1 ended at 2026-03-01T11:00:09Z on web-1, and no later attempt is on record, by the run history.", ""},
			{[]int{2}, operator.VerdictStop, "The fire of 2026-03-01T11:00:00Z lost its session: attempt 1 ended at 2026-03-01T11:00:09Z on web-1 with: away, by the run history.", "Retry"},
		}},
		{"a failure that the history did not keep", unknown, pastFire{nil, []history.Fire{{Fire: at, Shards: 3, OK: 2, Failed: 1}}}, []answer{
			{[]int{0, 1, 2}, operator.VerdictUnknown, "The fire of 2026-03-01T11:00:00Z has ended for 3 shards, with 2 runs that succeeded, 1 that failed and 0 skipped; the history has no run of this shard, by the run history.", ""},
		}},
		{"skipped with later fires, and the records have gone", unknown, pastFire{nil, []history.Fire{{Fire: at.Add(time.Hour), SkippedFrom: at, Skipped: 6, SkippedBy: history.Skips{Overlap: 6}}}}, []answer{
			{[]int{0, 1, 2}, operator.VerdictStop, "The fire of 2026-03-01T11:00:00Z was skipped: overlap, by the run history.", "Trigger"},
		}},
		{"skipped by the records, which lack the reason", skipped, pastFire{nil, []history.Fire{{Fire: at, Skipped: 3, SkippedBy: history.Skips{Misfire: 1, Overlap: 2}}}}, []answer{
			{[]int{0, 1, 2}, operator.VerdictStop, "The fire was skipped: by the run history, it was skipped: misfire, overlap.", "Trigger"},
		}},
		{"skipped by the records, and the history has nothing", skipped, pastFire{}, []answer{{[]int{0, 1, 2}, operator.VerdictStop, "The fire was skipped.", "Trigger"}}},
		{"a triggered run", unknown, pastFire{[]history.Run{{Fire: at, Trigger: 4, Shard: 0, Attempt: 1, Reason: "trigger", Ended: at, Outcome: history.Cancelled, Instance: "b"}}, []history.Fire{{Fire: at, Trigger: 4, Shards: 1, Failed: 1}}}, []answer{
			{[]int{0}, operator.VerdictStop, "The run of trigger 4, of 2026-03-01T11:00:00Z, was cancelled: attempt 1 ended at 2026-03-01T11:00:00Z on b, by the run history.", "Retry"},
			{[]int{1, 2}, operator.VerdictUnknown, "The fire was run or skipped. The run history has no record of it.", "History"},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.True(t, needsHistory(&c.answer))
			var got []answer
			for _, a := range addOutcomes(operator.Explanation{Answers: []operator.Answer{c.answer}}, map[time.Time]pastFire{at: c.past}).Answers {
				last := a.Gates[len(a.Gates)-1]
				assert.Equal(t, last.Verdict == operator.VerdictStop, a.Stops)
				got = append(got, answer{a.Shards, last.Verdict, a.Summary, a.Verb})
			}
			assert.Equal(t, c.want, got)
		})
	}
	known := operator.Answer{Shards: []int{0}, Fire: at, Stops: true, Verb: "Retry", Gates: []operator.Gate{{Name: "outcome", Verdict: operator.VerdictStop}}}
	assert.False(t, needsHistory(&known), "the records have the outcome")
}
