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

// skipping is a program that skips all due fires.
type skipping struct{ coordtest.Minutely }

func (p skipping) Due(last, until, now time.Time) due.Due { return p.SkipDue(last, until, now) }

func TestOldestUnclaimed(t *testing.T) {
	at, all := coordtest.At, shardset.Range(0, 4)
	claimed := func(n int, shards ...int) record.Watermarks {
		return record.Watermarks{}.Raise(shardset.Of(shards...), coordtest.Fire(n, 1).Watermark())
	}
	for name, c := range map[string]struct {
		change   func(*record.Plan)
		programs map[int]due.Program
		marks    record.Watermarks
		reruns   record.Runs
		now      int
		want     record.Instant
	}{
		"no fire is due":                      {now: 0},
		"no fire was claimed":                 {now: 3, want: at(1)},
		"the shard with the oldest watermark": {marks: append(claimed(4, 0, 1, 3), claimed(2, 2)...), now: 5, want: at(3)},
		"all due fires are claimed":           {marks: claimed(5, 0, 1, 2, 3), now: 5},
		"fires that will be skipped":          {programs: map[int]due.Program{1: skipping{}}, now: 5},
		"a definition without a program":      {programs: map[int]due.Program{}, now: 5},
		"a paused job":                        {change: func(p *record.Plan) { p.Paused = true }, now: 5},
		"disabled shards":                     {change: func(p *record.Plan) { p.Disabled = all }, now: 5},
		"one shard is not disabled":           {change: func(p *record.Plan) { p.Disabled = shardset.Of(0, 1, 2) }, marks: claimed(3, 3), now: 5, want: at(4)},
		"a re-run":                            {marks: claimed(5, 0, 1, 2, 3), reruns: coordtest.Runs(shardset.Of(1), coordtest.Fire(2, 2)), now: 5},
		"a re-run that no watermark covers":   {marks: claimed(5, 0, 1, 2, 3), reruns: coordtest.Runs(shardset.Of(1), coordtest.Fire(5, 2)), now: 5, want: at(5)},
		"a retry that waits":                  {marks: claimed(5, 0, 1, 2, 3), reruns: coordtest.Runs(shardset.Of(1), coordtest.Fire(5, 1).RetryAt(at(5)+1, time.Hour)), now: 5},
		"a retry whose time has come":         {marks: append(claimed(5, 0, 2, 3), claimed(4, 1)...), reruns: coordtest.Runs(shardset.Of(1), coordtest.Fire(4, 1).RetryAt(at(5), time.Hour)), now: 5, want: at(5)},
		"a retry at its time":                 {marks: claimed(5, 0, 1, 2, 3), reruns: coordtest.Runs(shardset.Of(1), coordtest.Fire(5, 1).RetryAt(at(6), time.Hour)), now: 6, programs: map[int]due.Program{}, want: at(6)},
		"a re-run before the oldest fire":     {marks: claimed(2, 0, 1, 2, 3), reruns: coordtest.Runs(shardset.Of(1), coordtest.Fire(2, 2)), now: 5, want: at(2)},
		"a retry after the oldest fire":       {marks: claimed(2, 0, 1, 2, 3), reruns: coordtest.Runs(shardset.Of(1), coordtest.Fire(2, 1).RetryAt(at(5), time.Hour)), now: 5, want: at(3)},
		"shards that the epoch does not have": {change: func(p *record.Plan) { *p.Last() = coordtest.Epoch(t, 1, coordtest.Start, 2) }, marks: claimed(5, 0, 1), now: 5},
		"an ended epoch":                      {change: func(p *record.Plan) { p.Last().Until = at(3) }, marks: claimed(2, 0, 1, 2, 3), now: 5},
		"an ended epoch with a due fire":      {change: func(p *record.Plan) { p.Last().Until = at(3) }, marks: claimed(1, 0, 1, 2, 3), now: 5, want: at(2)},
		"two epochs, the second of more shards": {
			change: func(p *record.Plan) {
				p.Last().Until = at(3)
				p.Epochs = append(p.Epochs, coordtest.Epoch(t, 2, at(3), 4))
			},
			programs: map[int]due.Program{1: coordtest.Minutely{}, 2: coordtest.Minutely{}}, marks: claimed(2, 0, 1, 2, 3), now: 5, want: at(3),
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := coordtest.PlanOfOwnShards(t, 4)
			if c.change != nil {
				c.change(p)
			}
			if c.programs == nil {
				c.programs = map[int]due.Program{1: coordtest.Minutely{}}
			}
			assert.Equal(t, c.want, due.OldestUnclaimed(p, c.programs, due.Progress{Watermarks: c.marks, Pending: []due.Pending{{Runs: c.reruns}}}, all, at(c.now)))
		})
	}
}
