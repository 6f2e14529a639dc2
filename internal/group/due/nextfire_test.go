package due_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/group/due"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

// hourly has a fire each hour from the first one on.
type hourly struct{ coordtest.Minutely }

func (hourly) Due(last, _, _ time.Time) due.Due {
	return due.Due{Wake: last.Truncate(time.Hour).Add(time.Hour)}
}

// never has no fires.
type never struct{ coordtest.Minutely }

func (never) Due(_, _, _ time.Time) due.Due { return due.Due{} }

func TestNextFire(t *testing.T) {
	at := coordtest.At
	now := at(2).Time().Add(time.Second)
	hour := record.InstantOf(now.Truncate(time.Hour).Add(time.Hour))
	// two changes a plan to one with a second epoch, from a minute on.
	two := func(from int) func(*record.Plan) {
		return func(p *record.Plan) {
			p.Last().Until = at(from)
			p.Epochs = append(p.Epochs, coordtest.Epoch(t, 2, at(from), 1))
		}
	}
	for name, c := range map[string]struct {
		change   func(*record.Plan)
		programs map[int]due.Program
		want     record.Instant
	}{
		"the first fire after now":                   {programs: map[int]due.Program{1: coordtest.Minutely{}}, want: at(3)},
		"a paused job":                               {change: func(p *record.Plan) { p.Paused = true }, programs: map[int]due.Program{1: coordtest.Minutely{}}},
		"a stopped schedule":                         {change: func(p *record.Plan) { p.Stopped = true }, programs: map[int]due.Program{1: coordtest.Minutely{}}},
		"a definition without a program":             {},
		"a schedule without fires":                   {programs: map[int]due.Program{1: never{}}},
		"the epoch begins later":                     {change: func(p *record.Plan) { p.Epochs[0].From = at(7) }, programs: map[int]due.Program{1: coordtest.Minutely{}}, want: at(7)},
		"the epoch ends before its next fire":        {change: func(p *record.Plan) { p.Epochs[0].Until = at(3) }, programs: map[int]due.Program{1: coordtest.Minutely{}}},
		"the second epoch has the next fire":         {change: two(3), programs: map[int]due.Program{1: coordtest.Minutely{}, 2: coordtest.Minutely{}}, want: at(3)},
		"the second epoch, the first has no program": {change: two(3), programs: map[int]due.Program{2: coordtest.Minutely{}}, want: at(3)},
		"the first epoch has the next fire":          {change: two(4), programs: map[int]due.Program{1: coordtest.Minutely{}, 2: coordtest.Minutely{}}, want: at(3)},
		"the second epoch fires earlier":             {change: two(4), programs: map[int]due.Program{1: hourly{}, 2: coordtest.Minutely{}}, want: min(at(4), hour)},
		"the second epoch has no fires":              {change: two(4), programs: map[int]due.Program{1: coordtest.Minutely{}, 2: never{}}, want: at(3)},
	} {
		t.Run(name, func(t *testing.T) {
			p := coordtest.PlanOfOwnShards(t, 1)
			if c.change != nil {
				c.change(p)
			}
			got := due.NextFire(p, c.programs, due.Progress{}, shardset.Of(0), now)
			assert.Equal(t, c.want.Time(), got)
		})
	}
}

// fromEnds is Minutely with fires that count from the ends of runs: the next one is a minute after the watermark.
type fromEnds struct{ coordtest.Minutely }

func (fromEnds) CountsEnds() bool { return true }

func TestDue_OfFiresThatCountFromEnds(t *testing.T) {
	at, all := coordtest.At, shardset.Range(0, 2)
	claimed := record.Watermarks{}.Raise(all, coordtest.Fire(2, 1).Watermark())
	pending := func(r record.Ref, since record.Instant) []due.Pending {
		return []due.Pending{{Runs: coordtest.Runs(shardset.Of(1), r), Since: since}}
	}
	for name, c := range map[string]struct {
		done    due.Progress
		change  func(*record.Plan)
		now     int
		overdue record.Instant
		next    record.Instant
	}{
		"a shard that runs is not late, however long":        {done: due.Progress{Running: all}, now: 5000},
		"a free shard is due a delay after its watermark":    {now: 5, overdue: at(3)},
		"a free shard has its next fire after its watermark": {now: 2, next: at(3)},
		"a fire that comes due now is no next one":           {now: 3, overdue: at(3)},
		"one of two shards runs":                             {done: due.Progress{Running: shardset.Of(0)}, now: 5000, overdue: at(3)},
		"a re-run is due from when it became pending":        {done: due.Progress{Running: shardset.Of(0), Pending: pending(coordtest.Fire(2, 2), at(4999))}, now: 5000, overdue: at(4999)},
		"a retry is due from its time":                       {done: due.Progress{Running: shardset.Of(0), Pending: pending(coordtest.Fire(2, 1).RetryAt(at(4999), time.Minute), at(4998))}, now: 5000, overdue: at(4999)},
		"a shard whose retry waits has no other fire":        {done: due.Progress{Running: shardset.Of(0), Pending: pending(coordtest.Fire(2, 1).RetryAt(at(9), time.Minute), at(4))}, now: 5},
		"a shard that runs by an earlier definition": {change: func(p *record.Plan) {
			p.Last().Until = at(3)
			p.Epochs = append(p.Epochs, coordtest.Epoch(t, 2, at(3), 2))
		}, done: due.Progress{Running: all}, now: 5000},
		"a disabled shard": {change: func(p *record.Plan) { p.Disabled = all }, now: 2},
	} {
		t.Run(name, func(t *testing.T) {
			p := coordtest.PlanOfOwnShards(t, 2)
			if c.change != nil {
				c.change(p)
			}
			c.done.Watermarks = claimed
			programs := map[int]due.Program{1: fromEnds{}, 2: fromEnds{}}
			assert.Equal(t, c.overdue, due.OldestUnclaimed(p, programs, c.done, all, at(c.now)), "overdue")
			assert.Equal(t, c.next.Time(), due.NextFire(p, programs, c.done, all, at(c.now).Time()), "next fire")
		})
	}
}

func TestOldestUnclaimed_OfFiresThatTheOverlapPolicySkips(t *testing.T) {
	at, all := coordtest.At, shardset.Range(0, 2)
	missed := coordtest.Fire(2, 1)
	missed.Missed = true
	for name, c := range map[string]struct {
		overlap string
		running record.Runs
		want    record.Instant
	}{
		"none while runs last that were claimed on time": {`,"on_overlap":"skip"`, coordtest.Runs(all, coordtest.Fire(2, 1)), 0},
		"those of a shard that does not run":             {`,"on_overlap":"skip"`, coordtest.Runs(shardset.Of(0), coordtest.Fire(2, 1)), at(3)},
		"those behind a run that was late, too":          {`,"on_overlap":"skip"`, coordtest.Runs(all, missed), at(3)},
		"those that wait for the run":                    {"", coordtest.Runs(all, coordtest.Fire(2, 1)), at(3)},
		"those that cancel the run":                      {`,"on_overlap":"cancel running"`, coordtest.Runs(all, coordtest.Fire(2, 1)), at(3)},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := record.DecodePlan([]byte(`{"job":"job","epochs":[{"number":1,"from":"1970-01-01T00:00:00.000000001Z","definition":{"name":"job","shards":2` + c.overlap + `}}]}`))
			require.NoError(t, err)
			done := due.NewProgress(record.Watermarks{}.Raise(all, coordtest.Fire(2, 1).Watermark()), c.running, nil)
			assert.Equal(t, c.running.Shards(), done.Running)
			assert.Equal(t, c.want, due.OldestUnclaimed(p, map[int]due.Program{1: coordtest.Minutely{}}, done, all, at(50)))
		})
	}
}

func TestPendingOf_CountsFromTheLatestDecision(t *testing.T) {
	p := coordtest.PlanOfOwnShards(t, 2)
	p.Reruns = coordtest.Runs(shardset.Of(0), coordtest.Fire(2, 2))
	p.Decisions = []record.Decision{{At: coordtest.At(3)}, {At: coordtest.At(7)}}
	back := due.HandedBack(&record.Claims{Reruns: coordtest.Runs(shardset.Of(0, 1), coordtest.Fire(4, 2)), Ended: coordtest.At(9)}, shardset.Of(1))
	assert.Equal(t, []due.Pending{
		{Runs: p.Reruns, Since: coordtest.At(7)},
		{Runs: coordtest.Runs(shardset.Of(1), coordtest.Fire(4, 2)), Since: coordtest.At(9)},
	}, due.PendingOf(p, back))
	p.Decisions = nil
	assert.Zero(t, due.PendingOf(p)[0].Since)
}
