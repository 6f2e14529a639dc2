package operator

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/due"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

func TestRetry_Decides(t *testing.T) {
	const fire, now = record.Instant(1000), record.Instant(2000)
	of := shardset.Of
	failure := func(trigger uint64, shards ...int) record.Failure {
		return record.Failure{
			RunGroup: record.RunGroup{Shards: of(shards...), Ref: record.Ref{Epoch: 1, Fire: fire, Trigger: trigger, Attempt: 1}}, Total: 3, LastTrigger: trigger,
		}
	}
	group := func(trigger uint64, attempt int, shards ...int) record.RunGroup {
		return record.RunGroup{Shards: of(shards...), Ref: record.Ref{Epoch: 1, Fire: fire, Trigger: trigger, Attempt: attempt}}
	}
	mark := func(trigger uint64) record.Watermarks {
		return record.Watermarks{{Shards: of(0, 1, 2), Watermark: record.Watermark{Epoch: 1, Fire: fire, Attempt: 1, Trigger: trigger, TriggerAttempt: 1}}}
	}
	retried := func(r *retry, number uint64, shards ...int) {
		r.control.AddRetry(record.Retry{Trigger: number, Fire: fire, Shards: of(shards...)})
		r.watermarks = mark(number)
	}
	ask := func(r *retry, shards ...int) { s := of(shards...); r.asked = &s }
	for name, c := range map[string]struct {
		change  func(r *retry)
		shards  []int
		work    string
		refused string // with its shards
	}{
		"retries what failed":      {func(*retry) {}, []int{0, 1}, "", ""},
		"retries the shards named": {func(r *retry) { ask(r, 1) }, []int{1}, "", ""},
		"retries shards that no record names, which the caller names": {func(r *retry) { ask(r, 1, 2); r.total = 3 }, []int{1, 2}, "", ""},
		"refuses what no record shows the number of shards of":        {func(r *retry) { ask(r, 2) }, nil, "", "2 the number of shards that the job had at the fire is not on record"},
		"knows the number of shards by the plan": {func(r *retry) {
			ask(r, 2)
			r.plan.Epochs = []record.Epoch{epochOf(t, 1, 3, fire-1, fire+1)}
		}, []int{2}, "", ""},
		"refuses a run that is still due": {func(r *retry) {
			ask(r, 2)
			r.watermarks = nil
			r.plan.Epochs = []record.Epoch{epochOf(t, 1, 3, fire-1, 0)}
		}, nil, "", "2 its run is still due"},
		"refuses an instant that the schedule does not have": {func(r *retry) {
			ask(r, 2)
			r.total, r.plan.Epochs = 3, []record.Epoch{epochOf(t, 1, 3, fire-1, 0)}
			r.compile = func(json.RawMessage) (due.Program, error) { return noFires{}, nil }
		}, nil, "", "2 the schedule has no fire at that instant, and no failed run of that time is on record; the time of a trigger is exact to the nanosecond"},
		"refuses a fire to come":                                  {func(r *retry) { ask(r, 2); r.now = fire - 1 }, nil, "", "2 its run is still due"},
		"refuses a run in progress, and retries the other shards": {func(r *retry) { r.running = record.Runs{group(0, 2, 0)} }, []int{1}, "", "0 a run is in progress"},
		"refuses a pending attempt":                               {func(r *retry) { r.pending = record.Runs{group(0, 2, 0)} }, []int{1}, "", "0 another attempt is pending"},
		"refuses a pending retry in the control record": {func(r *retry) {
			s := of(1)
			r.control.Triggers = []record.Trigger{{Number: 5, Fire: fire, Shards: &s}}
		}, []int{0}, "", "1 trigger #5 of it is pending"},
		"refuses a pending retry in the plan":    {func(r *retry) { r.plan.Triggers = []record.Trigger{{Number: 5, Fire: fire}} }, nil, "", "0-1 trigger #5 of it is pending"},
		"refuses a pending backfill":             {func(r *retry) { r.control.Backfills = []record.Backfill{{Number: 2, Fires: []record.Instant{fire}}} }, nil, "", "0-1 backfill 2 of it is pending"},
		"refuses work whose retry has succeeded": {func(r *retry) { retried(r, 5, 0) }, []int{1}, "", "0 trigger #5 has retried it, and has succeeded or its outcome is no longer on record"},
		"retries work whose retry has failed": {func(r *retry) {
			retried(r, 5, 0, 1)
			r.failures = append(r.failures, failure(5, 0))
		}, []int{0}, "", "1 trigger #5 has retried it, and has succeeded or its outcome is no longer on record"},
		"refuses what may have been retried before the records begin": {func(r *retry) { r.control.LostRetries = record.LostRetries{Trigger: 9, Fire: fire} }, nil, "", "0-1 retries of that time are no longer on record"},
		"retries what failed after the retries that are lost":         {func(r *retry) { r.control.LostRetries = record.LostRetries{Trigger: 9, Fire: fire - 1} }, []int{0, 1}, "", ""},
		"refuses another number of shards":                            {func(r *retry) { r.shards = 4 }, nil, "", "0-1 the job had 3 shards at the fire and has 4 now, so the shard is other work"},
		"refuses a shard that the job lacks":                          {func(r *retry) { ask(r, 1, 3); r.shards = 3 }, []int{1}, "", "3 the job has 3 shards now"},
		"retries anything as new work": {func(r *retry) {
			retried(r, 5, 0, 1)
			r.again, r.shards = true, 4
			r.running = record.Runs{group(5, 1, 0)}
		}, []int{0, 1}, "", ""},
		"retries the new work when that fails": {func(r *retry) {
			f := failure(7, 0)
			f.Work = "T#7-x"
			r.failures, r.watermarks = append(r.failures, f), mark(7)
		}, []int{0}, "T#7-x", "1 they failed in other work of the same instant; retry once more for them"},
		"refuses runs with the parameter of a trigger, without one": {func(r *retry) {
			f := failure(4, 1)
			f.OwnParam, f.Work = true, "T#4-x"
			r.failures, r.watermarks = record.Failures{f}, mark(4)
		}, nil, "", "1 trigger #4 had a parameter of its own, which is not on record: name it"},
		"refuses new work of such runs, without a parameter": {func(r *retry) {
			f := failure(4, 1)
			f.OwnParam, f.Work = true, "T#4-x"
			r.failures, r.watermarks, r.again = record.Failures{f}, mark(4), true
		}, nil, "", "1 trigger #4 had a parameter of its own, which is not on record: name it"},
		"retries such runs with a parameter": {func(r *retry) {
			f := failure(4, 1)
			f.OwnParam, f.Work = true, "T#4-x"
			r.failures, r.watermarks, r.hasParam = record.Failures{f}, mark(4), true
		}, []int{1}, "T#4-x", ""},
		"finds nothing without failures": {func(r *retry) { r.failures = nil }, nil, "", ""},
		"refuses what the job's retry policy retries": {func(r *retry) {
			r.failures[0].Again = true
			r.pending = record.Runs{group(0, 2, 0, 1)}
		}, nil, "", "0-1 another attempt is pending"},
		"refuses what the job's retry policy is retrying": {func(r *retry) {
			r.failures[0].Again = true
			r.watermarks = record.Watermarks{{Shards: of(0, 1, 2), Watermark: record.Watermark{Epoch: 1, Fire: fire, Attempt: 2}}}
			r.running = record.Runs{group(0, 2, 0, 1)}
		}, nil, "", "0-1 a run is in progress"},
		"finds nothing of a run that the job's policy retried before later fires": {func(r *retry) {
			r.failures[0].Again = true
			r.watermarks = record.Watermarks{{Shards: of(0, 1, 2), Watermark: record.Watermark{Epoch: 1, Fire: fire + 100, Attempt: 1}}}
		}, nil, "", ""},
		"finds nothing after a retry by the job's policy has succeeded": {func(r *retry) {
			r.failures[0].Again = true
			r.watermarks = record.Watermarks{{Shards: of(0, 1, 2), Watermark: record.Watermark{Epoch: 1, Fire: fire, Attempt: 2}}}
		}, nil, "", ""},
		"retries what an operator cancelled before the job's policy retried it": {func(r *retry) {
			r.failures[0].Again = true
			r.failures = append(r.failures, r.failures[0])
			r.failures[1].Again, r.failures[1].Error = false, due.CancelledRunError
			r.watermarks = record.Watermarks{{Shards: of(0, 1, 2), Watermark: record.Watermark{Epoch: 1, Fire: fire, Attempt: 2}}}
		}, []int{0, 1}, "", ""},
		"refuses a retry in progress": {func(r *retry) {
			r.failures = record.Failures{failure(4, 0, 1)}
			r.watermarks, r.running = mark(5), record.Runs{group(5, 1, 0, 1)}
		}, nil, "", "0-1 a run is in progress"},
	} {
		t.Run(name, func(t *testing.T) {
			r := &retry{
				fire: fire, now: now, shards: 3, control: &record.Control{}, plan: &record.Plan{}, watermarks: mark(0), failures: record.Failures{failure(0, 0, 1)},
			}
			c.change(r)
			d := r.decide()
			assert.Equal(t, c.shards, shardList(d.shards))
			if c.shards != nil {
				assert.Equal(t, c.work, d.work)
			}
			refused := ""
			for _, why := range d.reasons {
				refused += d.refused[why].String() + " " + why
			}
			assert.Equal(t, c.refused, refused)
			if d.shards.IsZero() && refused == "" {
				require.ErrorIs(t, d.err(&retry{fire: fire, now: fire}), ErrNoFailure)
			} else if d.shards.IsZero() {
				require.ErrorIs(t, d.err(&retry{fire: fire, now: fire}), ErrRetryRefused)
			}
		})
	}
}

// noFires is the program of a job that runs when it is triggered only.
type noFires struct{ due.Program }

func (noFires) SkipDue(_, _, _ time.Time) due.Due { return due.Due{} }

// epochOf returns an epoch of a job with so many shards.
func epochOf(t *testing.T, number, shards int, from, until record.Instant) record.Epoch {
	t.Helper()
	def, err := json.Marshal(map[string]any{"name": "job", "shards": shards})
	require.NoError(t, err)
	plan, err := json.Marshal(record.Plan{Job: "job", Epochs: []record.Epoch{{Number: number, From: from, Def: def}}})
	require.NoError(t, err)
	p, err := record.DecodePlan(plan)
	require.NoError(t, err)
	p.Epochs[0].Until = until
	return p.Epochs[0]
}
