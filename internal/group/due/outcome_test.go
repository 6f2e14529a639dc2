package due_test

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

func TestFailingShards(t *testing.T) {
	plan := coordtest.PlanOfOwnShards(t, 1)
	number := plan.Last().Number
	fire := func(minute, attempt int) record.Ref {
		r := coordtest.Fire(minute, attempt)
		r.Epoch = number
		return r
	}
	triggered := func(n uint64, attempt int) record.Ref {
		return record.Ref{Epoch: number, Fire: coordtest.At(3) + 5, Trigger: n, Attempt: attempt}
	}
	failed := func(of record.Ref, lasted time.Duration) record.Failure {
		return record.Failure{
			RunGroup: record.RunGroup{Shards: shardset.Of(0), Ref: of}, At: of.Fire + record.Instant(lasted), Error: "no such table", LastTrigger: of.Trigger,
		}
	}
	for name, c := range map[string]struct {
		failure   record.Failure
		watermark record.Watermark
		running   *record.Ref
		ends      bool // fires count from the ends of runs
		skips     bool // fires that come due during a run are skipped
		unknown   bool // the definition cannot be compiled
		failing   bool
	}{
		"after the failed run":                                            {failure: failed(fire(3, 1), 1), watermark: fire(3, 1).Watermark(), failing: true},
		"after a later run":                                               {failure: failed(fire(3, 1), 1), watermark: fire(4, 1).Watermark()},
		"after a later attempt":                                           {failure: failed(fire(3, 1), 1), watermark: fire(3, 2).Watermark()},
		"during the next run":                                             {failure: failed(fire(3, 1), 1), watermark: fire(4, 1).Watermark(), running: new(fire(4, 1)), failing: true},
		"during the run after the next one":                               {failure: failed(fire(3, 1), 1), watermark: fire(5, 1).Watermark(), running: new(fire(5, 1))},
		"during the latest of those that it delayed":                      {failure: failed(fire(3, 1), 150*time.Second), watermark: fire(5, 1).Watermark(), running: new(fire(5, 1)), failing: true},
		"during its retry":                                                {failure: failed(fire(3, 1), 1), watermark: fire(3, 2).Watermark(), running: new(fire(3, 2)), failing: true},
		"during an attempt after a crash":                                 {failure: failed(fire(3, 1), 1), watermark: fire(3, 3).Watermark(), running: new(fire(3, 3))},
		"during the next run of a daemon":                                 {failure: failed(fire(3, 1), 1), watermark: fire(4, 1).Watermark(), running: new(fire(4, 1)), ends: true},
		"after fires that were skipped during the run":                    {failure: failed(fire(3, 1), 150*time.Second), watermark: fire(5, 0).Watermark(), failing: true},
		"after a fire that was skipped later":                             {failure: failed(fire(3, 1), 30*time.Second), watermark: fire(4, 0).Watermark()},
		"at the end from which the next fire counts":                      {failure: failed(fire(3, 1), 5*time.Second), watermark: record.Watermark{Epoch: number, Fire: coordtest.At(3) + record.Instant(5*time.Second)}, ends: true, failing: true},
		"at that end, recorded a while later":                             {failure: failed(fire(3, 1), 5*time.Second), watermark: record.Watermark{Epoch: number, Fire: coordtest.At(3) + record.Instant(4901*time.Millisecond)}, ends: true, failing: true},
		"at that end, rounded up":                                         {failure: failed(fire(3, 1), 5*time.Second+1), watermark: record.Watermark{Epoch: number, Fire: coordtest.At(3) + record.Instant(5001*time.Millisecond)}, ends: true, failing: true},
		"of an earlier fire than the end of another":                      {failure: failed(fire(3, 1), 5*time.Second), watermark: record.Watermark{Epoch: number, Fire: coordtest.At(2)}, ends: true},
		"at a later end":                                                  {failure: failed(fire(3, 1), 5*time.Second), watermark: record.Watermark{Epoch: number, Fire: coordtest.At(3) + record.Instant(9*time.Second)}, ends: true},
		"of a trigger":                                                    {failure: failed(triggered(2, 1), 1), watermark: fire(3, 1).Watermark().Max(triggered(2, 1).Watermark()), failing: true},
		"of a trigger, during the next run":                               {failure: failed(triggered(2, 1), 1), watermark: fire(4, 1).Watermark().Max(triggered(2, 1).Watermark()), running: new(fire(4, 1)), failing: true},
		"of a trigger, during the next trigger":                           {failure: failed(triggered(2, 1), 1), watermark: fire(3, 1).Watermark().Max(triggered(3, 1).Watermark()), running: new(triggered(3, 1)), failing: true},
		"during a trigger":                                                {failure: failed(fire(3, 1), 1), watermark: fire(3, 1).Watermark().Max(triggered(1, 1).Watermark()), running: new(triggered(1, 1)), failing: true},
		"during a trigger after others":                                   {failure: failed(fire(3, 1), 1), watermark: fire(3, 1).Watermark().Max(triggered(4, 1).Watermark()), running: new(triggered(4, 1))},
		"of a trigger, after a later trigger":                             {failure: failed(triggered(2, 1), 1), watermark: fire(3, 1).Watermark().Max(triggered(3, 1).Watermark())},
		"of a trigger, after a later fire":                                {failure: failed(triggered(2, 1), 1), watermark: fire(4, 1).Watermark().Max(triggered(2, 1).Watermark())},
		"of a trigger that ended when a fire was due":                     {failure: failed(triggered(2, 1), time.Minute-5), watermark: fire(4, 1).Watermark().Max(triggered(2, 1).Watermark()), failing: true},
		"of a trigger, during the one after the next":                     {failure: failed(triggered(2, 1), 1), watermark: fire(3, 1).Watermark().Max(triggered(4, 1).Watermark()), running: new(triggered(4, 1))},
		"of a trigger, during the next trigger, after a fire":             {failure: failed(triggered(2, 1), 1), watermark: fire(4, 1).Watermark().Max(triggered(3, 1).Watermark()), running: new(triggered(3, 1))},
		"of a trigger, during the next trigger, at the instant of a fire": {failure: failed(triggered(2, 1), time.Minute-5), watermark: fire(4, 1).Watermark().Max(triggered(3, 1).Watermark()), running: new(triggered(3, 1)), failing: true},
		"of a trigger, during the run after a later trigger":              {failure: failed(triggered(2, 1), 1), watermark: fire(4, 1).Watermark().Max(triggered(3, 1).Watermark()), running: new(fire(4, 1))},
		"of a retry of an older fire, during the next run": {
			failure:   record.Failure{RunGroup: record.RunGroup{Shards: shardset.Of(0), Ref: record.Ref{Epoch: number, Fire: coordtest.At(1), Trigger: 2, Attempt: 1}}, At: coordtest.At(3) + 5, LastTrigger: 2},
			watermark: fire(4, 1).Watermark().Max(triggered(2, 1).Watermark()), running: new(fire(4, 1)), failing: true,
		},
		"after a trigger":                                     {failure: failed(fire(3, 1), 1), watermark: fire(3, 1).Watermark().Max(triggered(1, 1).Watermark())},
		"during a trigger, after a later fire":                {failure: failed(fire(3, 1), 1), watermark: fire(4, 1).Watermark().Max(triggered(1, 1).Watermark()), running: new(triggered(1, 1))},
		"during a trigger, after a later attempt":             {failure: failed(fire(3, 1), 1), watermark: fire(3, 2).Watermark().Max(triggered(1, 1).Watermark()), running: new(triggered(1, 1))},
		"during a run of an epoch that is gone":               {failure: failed(fire(3, 1), 1), watermark: record.Watermark{Epoch: number + 1, Fire: coordtest.At(4), Attempt: 1}, running: &record.Ref{Epoch: number + 1, Fire: coordtest.At(4), Attempt: 1}},
		"during an attempt after a crash of the next run":     {failure: failed(fire(3, 1), 1), watermark: fire(4, 2).Watermark(), running: new(fire(4, 2))},
		"without a program, during the next run":              {failure: failed(fire(3, 1), 1), watermark: fire(4, 1).Watermark(), running: new(fire(4, 1)), unknown: true},
		"after the end of the run after it":                   {failure: failed(fire(3, 1), 150*time.Second), watermark: fire(4, 1).Watermark()},
		"of a later fire than the watermark":                  {failure: failed(fire(3, 1), 150*time.Second), watermark: fire(2, 0).Watermark()},
		"of a fire that was skipped itself":                   {failure: failed(fire(3, 1), 150*time.Second), watermark: fire(3, 0).Watermark()},
		"of such a fire, if fires count from ends":            {failure: failed(fire(3, 1), 5*time.Second), watermark: fire(3, 0).Watermark(), ends: true},
		"after a fire that was skipped as the run ended":      {failure: failed(fire(3, 1), time.Minute), watermark: fire(4, 0).Watermark(), failing: true},
		"after the run that began at the end of it":           {failure: failed(fire(3, 1), 5*time.Second), watermark: record.Watermark{Epoch: number, Fire: coordtest.At(3) + record.Instant(5*time.Second), Attempt: 1}, ends: true},
		"during the next run, if fires during it are skipped": {failure: failed(fire(3, 1), 150*time.Second), watermark: fire(6, 1).Watermark(), running: new(fire(6, 1)), skips: true, failing: true},
		"during the run after a trigger":                      {failure: failed(fire(3, 1), 1), watermark: fire(4, 1).Watermark().Max(triggered(1, 1).Watermark()), running: new(fire(4, 1))},
	} {
		t.Run(name, func(t *testing.T) {
			programs := map[int]due.Program{number: coordtest.Minutely{}, number + 1: coordtest.Minutely{}}
			if c.ends {
				programs[number] = endCounter{}
			}
			if c.unknown {
				delete(programs, number)
			}
			plan := plan
			if c.skips {
				plan = plan.Clone()
				plan.Epochs[0] = epochOf(t, number, coordtest.Start, `,"on_overlap":"skip"`)
			}
			var running record.Runs
			if c.running != nil {
				running = running.With(shardset.Of(0), *c.running)
			}
			marks := record.Watermarks{}.Raise(shardset.Of(0), c.watermark)
			got := due.FailingShards(plan, programs, marks, running, []record.Failure{c.failure})
			assert.Equal(t, c.failing, got.Has(0))
		})
	}
}

// endCounter is a program whose fires count from the ends of runs.
type endCounter struct{ coordtest.Minutely }

func (endCounter) CountsEnds() bool { return true }

// epochOf returns an epoch whose definition has more fields.
func epochOf(t *testing.T, number int, from record.Instant, more string) record.Epoch {
	t.Helper()
	e, err := record.NewEpoch(number, from, json.RawMessage(coordtest.Def("job", 0, 1, more)))
	require.NoError(t, err)
	return e
}

func TestSkippedForAll(t *testing.T) {
	const through = record.Instant(100)
	follower := epochOf(t, 1, 50, `,"schedule":"after other"`)
	plan := func(e record.Epoch, released ...record.Instant) *record.Plan {
		for _, at := range released {
			e.Released = append(e.Released, record.Release{At: at})
		}
		return &record.Plan{Job: "job", Epochs: []record.Epoch{e}, Followed: &record.Followed{Through: through}}
	}
	later, atOnce := follower, follower
	later.From, atOnce.From = through+1, through
	followsNone := plan(epochOf(t, 1, 50, ""))
	unread := plan(follower)
	unread.Followed = nil
	for name, c := range map[string]struct {
		plan *record.Plan
		want record.Instant
	}{
		"is the latest fire that is not released":        {plan(follower, 80, 90), through},
		"is the latest fire if none is released":         {plan(follower), through},
		"is none if the latest fire is released":         {plan(follower, 80, through), 0},
		"is none if a later one is released":             {plan(follower, through+1), 0},
		"is none before the epoch":                       {plan(later), 0},
		"is one at the begin of the epoch":               {plan(atOnce), through},
		"is none of a job that follows no other":         {followsNone, 0},
		"is none if the leader has not followed any yet": {unread, 0},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, c.want, due.SkippedForAll(c.plan)) })
	}
}
