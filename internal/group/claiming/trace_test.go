package claiming

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

func TestTrace_NamesTheGate(t *testing.T) {
	at, fire, all := coordtest.At, coordtest.Fire, shardset.Of(0, 1)
	last := fire(4, 1) // that both shards have claimed
	rerun, retry, skewed := last.AfterCrash(), last.RetryAt(at(9), time.Hour), last.RetryAt(at(90), time.Second)
	pending := func(in *Input, next record.Ref) { in.Plan.Reruns = coordtest.Runs(all, next) }
	runs := func(in *Input) { in.Claims.Running = coordtest.Runs(all, last) }
	failing, err := record.NewEpoch(1, coordtest.Start, json.RawMessage(`{"name":"job","shards":2,"on_crash":"count as failed"}`))
	require.NoError(t, err)
	claims := Note{all, Claims, fire(5, 1)}
	for name, c := range map[string]struct {
		change func(in *Input)
		want   []Note
	}{
		"claimed":           {func(*Input) {}, []Note{claims}},
		"paused":            {func(in *Input) { in.Plan.Paused, in.MayClaim = true, false }, []Note{{all, Paused, record.Ref{}}}},
		"closed":            {func(in *Input) { in.MayClaim = false }, []Note{{all, Closed, record.Ref{}}}},
		"disabled":          {func(in *Input) { in.Plan.Disabled = all }, []Note{{all, Disabled, record.Ref{}}, {all, Skips, fire(5, 0)}, {all, NotDue, fire(6, 0)}}},
		"disabled, running": {func(in *Input) { in.Plan.Disabled = all; runs(in) }, []Note{{all, Disabled, record.Ref{}}, {all, Running, last}}},
		"blocked, frozen":   {func(in *Input) { in.Blocked, in.Plan.Frozen = all, all }, []Note{{all, Blocked, record.Ref{}}}},
		"frozen, running":   {func(in *Input) { in.Plan.Frozen = all; runs(in) }, []Note{{all, Frozen, record.Ref{}}}},
		"running":           {runs, []Note{{all, Running, last}}},
		"one shard running": {
			func(in *Input) { in.Claims.Running = coordtest.Runs(shardset.Of(1), last) },
			[]Note{{shardset.Of(1), Running, last}, {shardset.Of(0), Claims, fire(5, 1)}},
		},
		"a re-run":      {func(in *Input) { pending(in, rerun) }, []Note{{all, Claims, rerun}}},
		"a lost re-run": {func(in *Input) { pending(in, rerun); in.Plan.Epochs[0] = failing }, []Note{{all, Lost, rerun}, claims}},
		"a retry, though crashes count as failed": {func(in *Input) { pending(in, retry); in.Plan.Epochs[0] = failing }, []Note{{all, Waits, retry}}},
		"a cancelled retry":                       {func(in *Input) { pending(in, retry); in.Plan.Cancels = coordtest.Runs(all, last) }, []Note{{all, Cancelled, retry}, claims}},
		"a retry that waits":                      {func(in *Input) { pending(in, retry); in.AllowedSkew = 5 * time.Second }, []Note{{all, Waits, retry}}},
		"a retry that a wrong clock recorded":     {func(in *Input) { pending(in, skewed); in.AllowedSkew = 5 * time.Second }, []Note{{all, Claims, skewed}}},
		"a re-run of an unsupported definition":   {func(in *Input) { pending(in, rerun); in.Programs = nil }, []Note{{all, Unsupported, rerun}}},
		"a trigger": {
			func(in *Input) { in.Plan.Triggers = []record.Trigger{{Number: 3, At: at(5), Epoch: 1}} },
			[]Note{{all, Claims, record.Ref{Epoch: 1, Fire: at(5), Trigger: 3, Attempt: 1}}},
		},
		"an unsupported definition": {func(in *Input) { in.Programs = nil }, []Note{{all, Unsupported, record.Ref{Epoch: 1}}}},
		"skipped":                   {func(in *Input) { in.Now = at(6) }, []Note{{all, Skips, fire(6, 0)}, {all, Claims, record.Ref{Epoch: 1, Fire: at(6), Attempt: 1}}}},
		"not due":                   {func(in *Input) { in.Now = at(5) - 1 }, []Note{{all, NotDue, fire(5, 0)}}},
		"not due, before a later definition": {func(in *Input) {
			in.Now, in.Plan.Epochs[0].Until = at(5)-1, at(8)
			in.Plan.Epochs = append(in.Plan.Epochs, coordtest.Epoch(t, 2, coordtest.Start, 2))
		}, []Note{{all, NotDue, fire(5, 0)}}},
	} {
		t.Run(name, func(t *testing.T) {
			in := claimant(t, 2)
			in.Now, in.Plan.Watermarks = at(5), record.Watermarks{}.Raise(all, last.Watermark())
			c.change(in)
			want := in.Decide()
			in.Trace = &Trace{}
			assert.Equal(t, want, in.Decide(), "a trace changes no decision")
			assert.Equal(t, c.want, in.Trace.Notes)
		})
	}
	t.Run("of each shard", func(t *testing.T) {
		trace := Trace{[]Note{{shardset.Of(1), Claims, rerun}, claims}}
		for shard, want := range []record.Ref{claims.Run, rerun} {
			got, found := trace.Find(shard, Claims, func(record.Ref) bool { return true })
			assert.True(t, found)
			assert.Equal(t, want, got)
		}
		for _, n := range []Note{{shardset.Of(2), Claims, rerun}, {shardset.Of(0), Skips, claims.Run}, {shardset.Of(0), Claims, rerun}} {
			shard, _ := n.Shards.Min()
			_, found := trace.Find(shard, n.Gate, func(r record.Ref) bool { return r == n.Run })
			assert.False(t, found, n)
		}
	})
}

// Decisions are made at each fire, and nobody reads their reasons.
func TestTrace_CostsNothingIfNil(t *testing.T) {
	var none *Trace
	shards, held := shardset.Of(0, 2, 4, 6, 8), shardset.Of(2, 6)
	assert.Zero(t, testing.AllocsPerRun(100, func() { none.note(Claims, shards, coordtest.Fire(1, 1)) }))
	assert.Equal(t, testing.AllocsPerRun(100, func() { shards.Minus(held) }), testing.AllocsPerRun(100, func() {
		none.hold(Running, shards, held, coordtest.Fire(1, 1))
	}))
	in := claimant(t, 8)
	for now, most := range map[record.Instant]float64{coordtest.Start: 1, coordtest.At(1): 7} {
		in.Now = now
		assert.LessOrEqual(t, testing.AllocsPerRun(100, func() { in.Decide() }), most, now)
	}
	in.MayClaim, in.Plan.Disabled = false, shards // AllowedSkew is zero: nothing else is computed
	assert.Zero(t, testing.AllocsPerRun(100, func() { in.Decide() }))
}
