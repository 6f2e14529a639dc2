package due_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

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
		failing   bool
	}{
		"after the failed run":                         {failure: failed(fire(3, 1), 1), watermark: fire(3, 1).Watermark(), failing: true},
		"after a later run":                            {failure: failed(fire(3, 1), 1), watermark: fire(4, 1).Watermark()},
		"after a later attempt":                        {failure: failed(fire(3, 1), 1), watermark: fire(3, 2).Watermark()},
		"during the next run":                          {failure: failed(fire(3, 1), 1), watermark: fire(4, 1).Watermark(), running: new(fire(4, 1)), failing: true},
		"during the run after the next one":            {failure: failed(fire(3, 1), 1), watermark: fire(5, 1).Watermark(), running: new(fire(5, 1))},
		"during the latest of those that it delayed":   {failure: failed(fire(3, 1), 150*time.Second), watermark: fire(5, 1).Watermark(), running: new(fire(5, 1)), failing: true},
		"during its retry":                             {failure: failed(fire(3, 1), 1), watermark: fire(3, 2).Watermark(), running: new(fire(3, 2)), failing: true},
		"during an attempt after a crash":              {failure: failed(fire(3, 1), 1), watermark: fire(3, 3).Watermark(), running: new(fire(3, 3))},
		"during the next run of a daemon":              {failure: failed(fire(3, 1), 1), watermark: fire(4, 1).Watermark(), running: new(fire(4, 1)), ends: true},
		"after fires that were skipped during the run": {failure: failed(fire(3, 1), 150*time.Second), watermark: fire(5, 0).Watermark(), failing: true},
		"after a fire that was skipped later":          {failure: failed(fire(3, 1), 30*time.Second), watermark: fire(4, 0).Watermark()},
		"at the end from which the next fire counts":   {failure: failed(fire(3, 1), 5*time.Second), watermark: record.Watermark{Epoch: number, Fire: coordtest.At(3) + record.Instant(5*time.Second)}, ends: true, failing: true},
		"at that end, recorded a while later":          {failure: failed(fire(3, 1), 5*time.Second), watermark: record.Watermark{Epoch: number, Fire: coordtest.At(3) + record.Instant(4901*time.Millisecond)}, ends: true, failing: true},
		"at that end, rounded up":                      {failure: failed(fire(3, 1), 5*time.Second+1), watermark: record.Watermark{Epoch: number, Fire: coordtest.At(3) + record.Instant(5001*time.Millisecond)}, ends: true, failing: true},
		"of an earlier fire than the end of another":   {failure: failed(fire(3, 1), 5*time.Second), watermark: record.Watermark{Epoch: number, Fire: coordtest.At(2)}, ends: true},
		"at a later end":                               {failure: failed(fire(3, 1), 5*time.Second), watermark: record.Watermark{Epoch: number, Fire: coordtest.At(3) + record.Instant(9*time.Second)}, ends: true},
		"of a trigger":                                 {failure: failed(triggered(2, 1), 1), watermark: fire(3, 1).Watermark().Max(triggered(2, 1).Watermark()), failing: true},
		"of a trigger, during the next run":            {failure: failed(triggered(2, 1), 1), watermark: fire(4, 1).Watermark().Max(triggered(2, 1).Watermark()), running: new(fire(4, 1)), failing: true},
		"of a trigger, during the next trigger":        {failure: failed(triggered(2, 1), 1), watermark: fire(3, 1).Watermark().Max(triggered(3, 1).Watermark()), running: new(triggered(3, 1)), failing: true},
		"during a trigger":                             {failure: failed(fire(3, 1), 1), watermark: fire(3, 1).Watermark().Max(triggered(1, 1).Watermark()), running: new(triggered(1, 1)), failing: true},
		"during a trigger after others":                {failure: failed(fire(3, 1), 1), watermark: fire(3, 1).Watermark().Max(triggered(4, 1).Watermark()), running: new(triggered(4, 1))},
		"during the run after a trigger":               {failure: failed(fire(3, 1), 1), watermark: fire(4, 1).Watermark().Max(triggered(1, 1).Watermark()), running: new(fire(4, 1))},
	} {
		t.Run(name, func(t *testing.T) {
			programs := map[int]due.Program{number: coordtest.Minutely{}}
			if c.ends {
				programs[number] = endCounter{}
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
