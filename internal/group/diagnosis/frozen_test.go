package diagnosis

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/group/due"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

// daily is a Program whose fires are a day apart, the first on the day after the start.
type daily struct{}

func (daily) Due(after, _, now time.Time) (out due.Due) {
	for at := coordtest.Start.Time().Add(24 * time.Hour); !at.After(now); at = at.Add(24 * time.Hour) {
		if at.After(after) {
			return due.Due{Fire: at}
		}
	}
	return due.Due{}
}

func (d daily) SkipDue(after, from, now time.Time) due.Due { return d.Due(after, from, now) }

func TestDiagnose_OfFrozenShards(t *testing.T) {
	frozenAt := coordtest.At(1)
	runs := func(w *world) {
		w.claims[inc] = record.Claims{Job: "job", Running: record.Runs{{Shards: shardset.Of(2), Ref: coordtest.Fire(1, 1)}}}
	}
	for name, c := range map[string]struct {
		after   time.Duration // since the shards were frozen
		change  func(*testing.T, *world)
		program due.Program
		want    string // "" for no finding about the frozen shards
		do      string
	}{
		"a move that is under way": {after: time.Minute},
		"a move while the session of a leader expires, and of its successor": {after: 100 * time.Second},
		"an idle shard that the leader does not move": {
			after: 2 * time.Minute, want: "frozen on a since 2001-09-09T01:47:00Z, though nothing runs: shard 2; the leader has to read the claims of a", do: "restart the leader",
		},
		"one of a job about which other things are decided all the time": {after: 2 * time.Minute, want: "since 2001-09-09T01:47:00Z", change: func(_ *testing.T, w *world) {
			w.plan.Note(record.Decision{At: frozenAt.Add(119 * time.Second), What: "pause"})
		}},
		"shards that were frozen later": {after: 2 * time.Minute, change: func(_ *testing.T, w *world) {
			w.plan.Note(record.Decision{At: frozenAt.Add(time.Minute), What: "assign 1 to b, unfreeze 1"})
		}},
		"a decision whose text is cut": {after: 2 * time.Minute, change: func(_ *testing.T, w *world) {
			w.plan.Note(record.Decision{At: frozenAt.Add(time.Minute), What: "assign 1 to b, ..."})
		}},
		"without a leader nothing moves":   {after: time.Hour, change: func(_ *testing.T, w *world) { w.seat, w.leader = nil, nil }},
		"an owner whose session has ended": {after: time.Hour, change: func(_ *testing.T, w *world) { w.session = "" }},
		"claims that cannot be read":       {after: time.Hour, change: func(_ *testing.T, w *world) { w.claims[inc] = record.Claims{Job: "other"} }},

		"a nightly run that lasts":                      {after: 9 * time.Hour, change: func(_ *testing.T, w *world) { runs(w) }, program: daily{}},
		"a run that is a little longer than its period": {after: 30 * time.Minute, change: func(_ *testing.T, w *world) { runs(w) }},
		"a run that makes its shard late by an hour": {
			after: 90 * time.Minute, change: func(_ *testing.T, w *world) { runs(w) }, want: "they move when their runs have ended", do: "rota cancel job --shard 2",
		},
		"a daemon that finishes its work": {after: 30 * time.Minute, change: func(t *testing.T, w *world) { runs(w); w.always(t) }, program: coordtest.Minutely{}},
		"a daemon that ignores that it is to yield": {
			after: 61 * time.Minute, change: func(t *testing.T, w *world) { runs(w); w.always(t) }, want: "they move when their runs have ended", do: "Run.Yield",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.plan.Watermarks = record.Watermarks{{Shards: shardset.Range(0, 4), Watermark: coordtest.Fire(1, 1).Watermark()}}
			w.plan.Frozen = shardset.Of(2)
			w.plan.Note(record.Decision{At: frozenAt, What: "freeze 2"})
			if c.change != nil {
				c.change(t, w)
			}
			r := w.records()
			r.Now = frozenAt.Add(c.after)
			r.Compile = func(json.RawMessage) (due.Program, error) {
				if c.program != nil {
					return c.program, nil
				}
				return coordtest.Minutely{}, nil
			}
			var found []Finding
			for _, f := range Diagnose(r) {
				if f.Kind == Stuck && f.Severity == Warning {
					found = append(found, f)
				}
			}
			if c.want == "" {
				assert.Empty(t, found)
				return
			}
			require.Len(t, found, 1)
			assert.Equal(t, "job", found[0].Job)
			assert.Equal(t, w.keys.Plan("job"), found[0].Key)
			assert.Contains(t, found[0].What, c.want)
			assert.Contains(t, found[0].Do, c.do)
		})
	}
}

// always makes the job a daemon.
func (w *world) always(t *testing.T) {
	w.job = coordtest.Def("job", 0, 4, `,"schedule":"always"`)
	e, err := record.NewEpoch(1, coordtest.Start, json.RawMessage(w.job))
	require.NoError(t, err)
	w.plan.Epochs[0] = e
}
