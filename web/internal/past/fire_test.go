package past

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/history"
	"github.com/rota-dev/rota/operator"
)

// ringOf returns a history with these runs of job "settle", as kept, and the sums of their fires.
func ringOf(t *testing.T, shards int, runs ...history.Run) history.Reader {
	g := history.NewRing(1000)
	type key struct {
		at      time.Time
		trigger uint64
	}
	fires := map[key]*history.Fire{}
	for i := range runs {
		r := &runs[i]
		r.Namespace, r.Group, r.Job, r.Shards = "billing", "default", "settle", shards
		r.ID = strings.Join([]string{"x", r.Instance, string(r.Outcome), string(rune('a' + i))}, "/")
		k := key{r.Fire, r.Trigger}
		f := fires[k]
		if f == nil {
			f = &history.Fire{Namespace: "billing", Group: "default", Job: "settle", Fire: r.Fire, Trigger: r.Trigger, Instance: "a", Shards: shards}
			fires[k] = f
		}
		switch {
		case r.Outcome == history.Succeeded:
			f.OK++
		case r.Outcome == history.Crashed:
			f.Crashed++
		default:
			f.Failed++
		}
		require.NoError(t, g.Write(t.Context(), history.Batch{Runs: []history.Run{*r}}))
	}
	for _, f := range fires {
		require.NoError(t, g.Write(t.Context(), history.Batch{Fires: []history.Fire{*f}}))
	}
	return g.Reader("billing", "")
}

func seconds(n float64) time.Time { return start.Add(time.Duration(n * float64(time.Second))) }

func TestReadFire_ShowsTheGapOfAFailover(t *testing.T) {
	r := ringOf(t, 3,
		history.Run{Fire: start, Shard: 0, Attempt: 1, Instance: "web-1", Started: seconds(0.5), Ended: seconds(4), Outcome: history.Succeeded},
		history.Run{Fire: start, Shard: 1, Attempt: 1, Instance: "web-2", Ended: seconds(10), Outcome: history.Crashed, Error: "the session ended"},
		history.Run{Fire: start, Shard: 1, Attempt: 2, Instance: "web-1", Started: seconds(12), Ended: seconds(15), Outcome: history.Succeeded},
		history.Run{Fire: start, Shard: 2, Attempt: 1, Instance: "web-1", Started: seconds(0.25), Ended: seconds(1), Outcome: history.Failed, Error: "HTTP 503"},
	)
	st := &operator.Status{
		Job: "settle", Shards: 3, PerShard: []operator.ShardStatus{{Shard: 0, LastFire: start}, {Shard: 1, LastFire: start}, {Shard: 2, LastFire: start, Running: true}},
		Members: []operator.MemberStatus{{Instance: "web-3", Running: []operator.Runs{{Shards: []int{2}, Fire: start, Attempt: 2}}}},
	}
	f, found, err := ReadFire(t.Context(), r, st, FireQuery{Job: "settle", Fire: start, Reveal: true, Now: seconds(20)})
	require.NoError(t, err)
	require.True(t, found)
	assert.Equal(t, Failed, f.Whole.State, "an attempt has failed, and the next one has not ended")
	require.Len(t, f.Rows, 3)
	assert.Equal(t, []State{Running, Repeated, OK}, []State{f.Rows[0].State, f.Rows[1].State, f.Rows[2].State})
	assert.Equal(t, []int{2, 1, 0}, f.shards())
	assert.Equal(t, []Gap{{seconds(10), seconds(12), true, "web-2 crashed, web-1 took over"}}, f.Rows[1].Gaps)
	assert.Equal(t, 500*time.Millisecond, f.Rows[2].Late)
	assert.Zero(t, f.Rows[1].Late, "when the first attempt began is not on record")
	require.Len(t, f.Rows[0].Tries, 2)
	assert.Equal(t, "HTTP 503", f.Rows[0].Tries[0].Error)
	assert.Equal(t, "web-3", f.Rows[0].Tries[1].Instance)
	assert.Equal(t, Running, f.Rows[0].Tries[1].State)
	assert.Equal(t, start, f.Begin, "the fire itself is shown")
	assert.Equal(t, seconds(20), f.End, "a run has not ended")

	g, err := ReadGrid(t.Context(), r, st, GridQuery{Of: Range{0, -1}})
	require.NoError(t, err)
	require.Len(t, g.Fires, 1)
	assert.Equal(t, []State{OK, Repeated, Running}, []State{g.Cells[0][0].State, g.Cells[1][0].State, g.Cells[2][0].State})
}

func TestReadFire_OfARetryByAnOperator(t *testing.T) {
	r := ringOf(t, 2,
		history.Run{Fire: start, Shard: 0, Attempt: 1, Instance: "web-1", Started: seconds(1), Ended: seconds(2), Outcome: history.Succeeded},
		history.Run{Fire: start, Shard: 1, Attempt: 1, Instance: "web-1", Started: seconds(1), Ended: seconds(2), Outcome: history.Failed},
		history.Run{Fire: start, Shard: 1, Trigger: 12, Attempt: 1, Instance: "web-2", Started: seconds(600), Ended: seconds(601), Outcome: history.Succeeded, Reason: "retried"},
	)
	st := &operator.Status{Job: "settle", Shards: 2}
	states := func(q FireQuery) (states []State, tries int) {
		f, found, err := ReadFire(t.Context(), r, st, q)
		require.NoError(t, err)
		require.True(t, found)
		for _, row := range f.Rows {
			states = append(states, row.State)
			tries += len(row.Tries)
		}
		return states, tries
	}
	all, tries := states(FireQuery{Job: "settle", Fire: start})
	assert.Equal(t, []State{Repeated, OK}, all, "the retry made it good")
	assert.Equal(t, 3, tries)
	own, tries := states(FireQuery{Job: "settle", Trigger: 12})
	assert.Equal(t, []State{Unknown, OK}, own, "the record of this trigger claims two shards")
	assert.Equal(t, 1, tries)
	g, err := ReadGrid(t.Context(), r, st, GridQuery{Of: Range{0, -1}})
	require.NoError(t, err)
	require.Len(t, g.Fires, 2)
	assert.Equal(t, Repeated, g.Fires[0].State, "the retry made it good")
	assert.True(t, g.Fires[0].Retried)
	assert.Equal(t, "1 of 2 ok, 1 failed; the retry by trigger #12: 1 of 2 ok", g.Fires[0].Text)
	assert.Equal(t, Repeated, g.Cells[1][0].State)
	assert.Equal(t, OK, g.Cells[1][1].State)

	f, _, err := ReadFire(t.Context(), r, st, FireQuery{Job: "settle", Fire: start})
	require.NoError(t, err)
	assert.Equal(t, Repeated, f.Whole.State)
	assert.Equal(t, []Gap{{seconds(2), seconds(600), false, "until an operator's retry, trigger #12"}}, f.Rows[0].Gaps)
}

// A retry that did not succeed in all shards that had failed leaves the fire failed.
func TestReadGrid_OfARetryThatFails(t *testing.T) {
	r := ringOf(t, 3,
		history.Run{Fire: start, Shard: 0, Attempt: 1, Instance: "web-1", Started: seconds(1), Ended: seconds(2), Outcome: history.Succeeded},
		history.Run{Fire: start, Shard: 1, Attempt: 1, Instance: "web-1", Started: seconds(1), Ended: seconds(2), Outcome: history.Failed},
		history.Run{Fire: start, Shard: 2, Attempt: 1, Instance: "web-1", Started: seconds(1), Ended: seconds(2), Outcome: history.Failed},
		history.Run{Fire: start, Shard: 1, Trigger: 12, Attempt: 1, Instance: "web-2", Started: seconds(600), Ended: seconds(601), Outcome: history.Succeeded, Reason: "retried"},
		history.Run{Fire: start, Shard: 2, Trigger: 12, Attempt: 1, Instance: "web-2", Started: seconds(600), Ended: seconds(601), Outcome: history.Failed, Reason: "retried"},
	)
	st := &operator.Status{Job: "settle", Shards: 3}
	g, err := ReadGrid(t.Context(), r, st, GridQuery{Of: Range{0, -1}})
	require.NoError(t, err)
	assert.Equal(t, Failed, g.Fires[0].State)
	f, _, err := ReadFire(t.Context(), r, st, FireQuery{Job: "settle", Fire: start})
	require.NoError(t, err)
	assert.Equal(t, Failed, f.Whole.State)
	assert.Equal(t, Counts{OK: 1, Repeated: 1, Failed: 1}, f.Counts)
}

// The records have nanoseconds and a history microseconds: a fire of both is one.
func TestStrip_AndFireOfInstantsWithNanoseconds(t *testing.T) {
	exactly := start.Add(123_456_789 * time.Nanosecond)
	r := ringOf(t, 2, history.Run{Fire: exactly.Truncate(time.Microsecond), Shard: 1, Trigger: 7, Attempt: 1, Instance: "web-1", Started: seconds(1), Ended: seconds(2), Outcome: history.Failed})
	failure := operator.Failure{Runs: operator.Runs{Shards: []int{1}, Fire: exactly, Trigger: 7, Attempt: 1}, At: seconds(2)}
	strips, err := ReadStrips(t.Context(), r, []operator.JobSummary{{Job: "settle", Shards: 2, LastFailure: failure}})
	require.NoError(t, err)
	assert.Len(t, strips["settle"].Fires, 1)
	st := &operator.Status{Job: "settle", Shards: 2, Failures: []operator.Failure{failure}}
	f, found, err := ReadFire(t.Context(), r, st, FireQuery{Job: "settle", Trigger: 7, Now: seconds(3)})
	require.NoError(t, err)
	require.True(t, found)
	assert.Equal(t, Failed, f.Whole.State)
	assert.Equal(t, 1, f.Rows[0].Shard)
	assert.Len(t, f.Rows[0].Tries, 1)
}

// Without a history, a link to a trigger that failed leads to what the records know of it.
func TestReadFire_OfATriggerByItsFailure(t *testing.T) {
	st := &operator.Status{Job: "settle", Shards: 2, Failures: []operator.Failure{{Runs: operator.Runs{Shards: []int{1}, Fire: start, Trigger: 7, Attempt: 1}, At: seconds(2), Error: "HTTP 503"}}}
	f, found, err := ReadFire(t.Context(), nil, st, FireQuery{Job: "settle", Trigger: 7, Now: seconds(3)})
	require.NoError(t, err)
	require.True(t, found)
	assert.Equal(t, start, f.Fire)
	assert.Equal(t, []int{1}, f.shards())
}

func TestReadGrid_WithoutAHistory(t *testing.T) {
	st := &operator.Status{
		Job: "settle", Shards: 4, Schedule: "every 1m",
		PerShard: []operator.ShardStatus{{Shard: 0, LastFire: seconds(60)}, {Shard: 1, LastFire: seconds(60)}, {Shard: 2, LastFire: start}, {Shard: 3, LastFire: seconds(60)}},
		Members:  []operator.MemberStatus{{Instance: "web-1", Running: []operator.Runs{{Shards: []int{0}, Fire: seconds(60), Attempt: 1}}}},
		Failures: []operator.Failure{{Runs: operator.Runs{Shards: []int{1}, Fire: start, Attempt: 3}, At: seconds(9), Error: "HTTP 503"}},
		Reruns:   []operator.Runs{{Shards: []int{3}, Fire: seconds(60), Attempt: 2}},
	}
	g, err := ReadGrid(t.Context(), nil, st, GridQuery{Of: Range{0, -1}})
	require.NoError(t, err)
	require.Len(t, g.Fires, 2)
	var states [][]State
	for _, row := range g.Cells {
		states = append(states, []State{row[0].State, row[1].State})
	}
	assert.Equal(t, [][]State{{Unknown, Running}, {Failed, Unknown}, {Unknown, Due}, {Unknown, Pending}}, states)
	f, found, err := ReadFire(t.Context(), nil, st, FireQuery{Job: "settle", Fire: seconds(60), Now: seconds(61)})
	require.NoError(t, err)
	require.True(t, found)
	assert.Equal(t, []int{3, 1, 2, 0}, f.shards())
	assert.Equal(t, "attempt 2 is pending", f.Rows[0].Note)
}

// The fires of each shard of such a job are its own: a shard without a run is not due and missed nothing.
func TestReadGrid_OfFiresThatCountFromEnds(t *testing.T) {
	r := ringOf(t, 2,
		history.Run{Fire: start, Shard: 0, Attempt: 1, Instance: "web-1", Started: start, Ended: seconds(1), Outcome: history.Succeeded},
		history.Run{Fire: seconds(5), Shard: 1, Attempt: 1, Instance: "web-1", Started: seconds(5), Ended: seconds(6), Outcome: history.Failed},
	)
	st := &operator.Status{Job: "settle", Shards: 2, Schedule: "fixed delay 5s", PerShard: []operator.ShardStatus{{LastFire: start}, {Shard: 1, LastFire: seconds(5)}}}
	g, err := ReadGrid(t.Context(), r, st, GridQuery{Of: Range{0, -1}})
	require.NoError(t, err)
	assert.Equal(t, []State{OK, Failed}, []State{g.Fires[0].State, g.Fires[1].State})
	assert.Equal(t, []State{OK, Absent, Absent, Failed}, []State{g.Cells[0][0].State, g.Cells[0][1].State, g.Cells[1][0].State, g.Cells[1][1].State})
}

func TestReadGrid_Older(t *testing.T) {
	var runs []history.Run
	for n := range 130 {
		runs = append(runs, history.Run{Fire: seconds(float64(n)), Attempt: 1, Instance: "web-1", Started: seconds(float64(n)), Ended: seconds(float64(n) + 1), Outcome: history.Succeeded})
	}
	r := ringOf(t, 1, runs...)
	st := &operator.Status{Job: "settle", Shards: 1, PerShard: []operator.ShardStatus{{LastFire: seconds(129)}}}
	var seen []int
	q := GridQuery{Of: Range{0, -1}}
	for pages := 0; ; pages++ {
		require.Less(t, pages, 4)
		g, err := ReadGrid(t.Context(), r, st, q)
		require.NoError(t, err)
		for i := range g.Fires {
			seen = append(seen, int(g.Fires[len(g.Fires)-1-i].Fire.Sub(start)/time.Second))
		}
		if g.Older.IsZero() {
			break
		}
		q.Until = g.Older
	}
	require.Len(t, seen, 130)
	for i, n := range seen {
		require.Equal(t, 129-i, n, "each fire once, the latest first")
	}
}

func TestTry_ShortensTexts(t *testing.T) {
	left := 1500
	try := Try{Run: history.Run{Error: strings.Repeat("é", 400), Output: strings.Repeat("é", 2000)}}
	try.shorten(&left)
	assert.True(t, try.Cut)
	assert.Equal(t, strings.Repeat("é", shortError/2), try.Error)
	assert.Equal(t, strings.Repeat("é", shortOutput/2), try.Output)
	assert.Equal(t, 1500-shortError-shortOutput, left)
	for range 3 {
		again := Try{Run: history.Run{Output: strings.Repeat("x", 2000)}}
		again.shorten(&left)
	}
	assert.Zero(t, left)
}

func TestReadFire_LeavesAttemptsOut(t *testing.T) {
	var runs []history.Run
	for n := range 9 {
		runs = append(runs, history.Run{Fire: start, Attempt: n + 1, Instance: "web-1", Started: seconds(float64(2 * n)), Ended: seconds(float64(2*n + 1)), Outcome: history.Failed})
	}
	r, st := ringOf(t, 1, runs...), &operator.Status{Job: "settle", Shards: 1}
	f, _, err := ReadFire(t.Context(), r, st, FireQuery{Job: "settle", Fire: start})
	require.NoError(t, err)
	var attempts []int
	for _, try := range f.Rows[0].Tries {
		attempts = append(attempts, try.Attempt)
	}
	assert.Equal(t, []int{1, 8, 9}, attempts)
	assert.Equal(t, 6, f.Rows[0].Left)
	assert.Len(t, f.Rows[0].Gaps, 1, "none across those left out")
	run, _, err := ReadRun(t.Context(), r, st, FireQuery{Job: "settle", Fire: start}, 0)
	require.NoError(t, err)
	assert.Len(t, run.Tries, 9)
	assert.Len(t, run.Gaps, 8)
}
