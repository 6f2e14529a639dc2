package past

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/history"
	"github.com/rota-dev/rota/operator"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestStateOf(t *testing.T) {
	for _, c := range []struct {
		outcome history.Outcome
		attempt int
		want    State
	}{
		{history.Succeeded, 1, OK},
		{history.Succeeded, 2, Repeated},
		{history.Failed, 1, Failed},
		{history.TimedOut, 3, Failed},
		{history.Panicked, 1, Failed},
		{history.Cancelled, 1, Failed},
		{"of a later version", 1, Failed},
		{history.Crashed, 1, Crashed},
		{history.LostSession, 1, Unfinished},
		{history.HandedBack, 1, Unfinished},
		{history.Abandoned, 1, Unfinished},
	} {
		assert.Equal(t, c.want, stateOf(c.outcome, c.attempt), "%s %d", c.outcome, c.attempt)
	}
}

func TestConclude(t *testing.T) {
	ended := start.Add(time.Minute)
	for _, c := range []struct {
		name  string
		fire  history.Fire
		own   bool
		state State
		text  string
	}{
		{"all ok", history.Fire{Shards: 3, OK: 3}, false, OK, "3 of 3 ok"},
		{"a retry", history.Fire{Shards: 3, OK: 3, Failed: 1, Repeated: 1}, false, Repeated, "3 of 3 ok, 1 failed, 1 repeated"},
		{"made again after a crash", history.Fire{Shards: 3, OK: 3, Crashed: 1, Repeated: 1}, false, Repeated, "3 of 3 ok, 1 crashed, 1 repeated"},
		{"a failure", history.Fire{Shards: 3, OK: 2, Failed: 1}, false, Failed, "2 of 3 ok, 1 failed"},
		{"a crash", history.Fire{Shards: 3, OK: 2, Crashed: 1}, false, Crashed, "2 of 3 ok, 1 crashed"},
		{"handed back", history.Fire{Shards: 3, OK: 2, Unfinished: 1}, false, Unfinished, "2 of 3 ok, 1 unfinished"},
		{"skipped", history.Fire{Skipped: 3, SkippedBy: history.Skips{Overlap: 3}}, false, Skipped, "3 skipped (overlap)"},
		{"one shard disabled", history.Fire{Shards: 3, OK: 2, Skipped: 1, SkippedBy: history.Skips{Disabled: 1}}, false, Skipped, "2 of 3 ok, 1 skipped (disabled)"},
		{"too few records", history.Fire{Shards: 3, OK: 2}, false, Unknown, "2 of 3 ok"},
		{"nothing", history.Fire{}, false, Unknown, ""},
		{"ended with a failure that the counts lack", history.Fire{Shards: 3, OK: 2, Ended: ended, FailedShards: 1}, false, Failed, "2 of 3 ok"},
		{"ended well with records dropped", history.Fire{Shards: 3, OK: 2, Ended: ended}, false, OK, "2 of 3 ok"},
		{"ended with skipped shards", history.Fire{Shards: 3, OK: 2, Ended: ended, SkippedShards: 1}, false, Skipped, "2 of 3 ok"},
		{"a fire of one shard of many", history.Fire{Shards: 8, OK: 1}, true, OK, "1 of 1 ok"},
		{"which failed", history.Fire{Shards: 8, Failed: 1}, true, Failed, "0 of 1 ok, 1 failed"},
	} {
		state, text := conclude(&c.fire, c.own)
		assert.Equal(t, c.state, state, c.name)
		assert.Equal(t, c.text, text, c.name)
	}
}

func TestStripOf_AddsWhatOnlyTheFleetKnows(t *testing.T) {
	at := func(n int) time.Time { return start.Add(time.Duration(n) * time.Minute) }
	recorded := func(n int, f history.Fire) history.Fire {
		f.Job, f.Fire = "settle", at(n)
		return f
	}
	states := func(s Strip) (out []string) {
		for _, f := range s.Fires {
			out = append(out, f.Fire.Format("04 ")+f.State.Name()+" "+f.Text)
		}
		return out
	}
	ok := history.Fire{Shards: 2, OK: 2}
	assert.Empty(t, StripOf("settle", nil, Live{}).Fires)
	assert.Equal(t, []string{"00 ok 2 of 2 ok", "01 running running"},
		states(StripOf("settle", []history.Fire{recorded(0, ok)}, LiveOfSummary(&operator.JobSummary{Shards: 2, LastFire: at(1), Running: 2}))))
	assert.Equal(t, []string{"00 ok 2 of 2 ok", "01 unknown claimed or skipped; how it ended is not on record"},
		states(StripOf("settle", []history.Fire{recorded(0, ok)}, LiveOfSummary(&operator.JobSummary{Shards: 2, LastFire: at(1)}))), "the history lags behind")
	assert.Equal(t, []string{"00 ok 2 of 2 ok"},
		states(StripOf("settle", []history.Fire{recorded(0, ok)}, LiveOfSummary(&operator.JobSummary{Shards: 2, LastFire: at(0)}))))
	assert.Equal(t, []string{"00 failed 1 of 2 ok, 1 failed, running"},
		states(StripOf("settle", []history.Fire{recorded(0, history.Fire{Shards: 2, OK: 1, Failed: 1})}, LiveOfSummary(&operator.JobSummary{Shards: 2, LastFire: at(0), Running: 1}))))
	failure := operator.Failure{Runs: operator.Runs{Shards: []int{1}, Fire: at(0), Attempt: 1}, At: at(1)}
	assert.Equal(t, []string{"00 failed shard 1 failed", "02 running running"},
		states(StripOf("settle", nil, LiveOfSummary(&operator.JobSummary{Shards: 2, LastFire: at(2), Running: 1, LastFailure: failure}))), "without a history")
	failure.Again = true
	assert.Equal(t, []string{"00 unknown shard 1 failed, and ran again or will"},
		states(StripOf("settle", nil, LiveOfSummary(&operator.JobSummary{Shards: 2, LastFailure: failure}))), "its second attempt may have succeeded")

	var many []history.Fire
	for n := range 70 {
		many = append(many, recorded(n, ok))
	}
	s := StripOf("settle", many, Live{failures: []operator.Failure{{Runs: operator.Runs{Shards: []int{1}, Fire: at(-1)}}}})
	require.Len(t, s.Fires, MaxFires)
	assert.Equal(t, at(10), s.Fires[0].Fire)
	assert.Equal(t, at(69), s.Fires[MaxFires-1].Fire)
}
