package claiming

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/group/due"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

// counting is a program whose fires count from ends.
type counting struct{ coordtest.Minutely }

func (counting) CountsEnds() bool { return true }

func TestClaim_FiresThatCountFromEnds(t *testing.T) {
	const ms = time.Millisecond
	claimed := coordtest.Fire(1, 1).Watermark()
	end := coordtest.At(1).Add(10*time.Second + ms/2) // is rounded up
	for name, c := range map[string]struct {
		change func(*Input)
		ended  EndedRun
		want   record.Watermark
	}{
		"the end raises the watermark": {
			want: record.Watermark{Epoch: 1, Fire: coordtest.At(1).Add(10*time.Second + ms)},
		},
		"an end at a whole millisecond is not rounded": {
			ended: EndedRun{At: coordtest.At(1).Add(9 * time.Second)},
			want:  record.Watermark{Epoch: 1, Fire: coordtest.At(1).Add(9 * time.Second)},
		},
		"a failure is an end": {
			ended: EndedRun{Err: errors.New("out of order")},
			want:  record.Watermark{Epoch: 1, Fire: coordtest.At(1).Add(10*time.Second + ms)},
		},
		"an end after the decision's time counts as one at that time": {
			change: func(in *Input) { in.Now = coordtest.At(1).Add(5 * time.Second) },
			want:   record.Watermark{Epoch: 1, Fire: coordtest.At(1).Add(5 * time.Second)},
		},
		"a run that is handed back has not ended": {
			ended: EndedRun{Err: errors.New("draining"), HandedBack: true},
			want:  claimed,
		},
		"a run that is retried has not ended": {
			ended: EndedRun{Err: errors.New("out of order"), Retry: true, RetryIn: time.Hour},
			want:  claimed,
		},
		"only another epoch counts from ends": {
			change: func(in *Input) { in.Programs = map[int]due.Program{1: coordtest.Minutely{}, 2: counting{}} },
			want:   claimed,
		},
		"another epoch does not count from ends": {
			change: func(in *Input) { in.Programs = map[int]due.Program{1: counting{}, 2: coordtest.Minutely{}} },
			want:   record.Watermark{Epoch: 1, Fire: coordtest.At(1).Add(10*time.Second + ms)},
		},
		"no epoch counts from ends": {
			change: func(in *Input) { in.Programs[1] = coordtest.Minutely{} },
			want:   claimed,
		},
		"the run is not on record": {
			change: func(in *Input) { in.Claims.Running = nil },
			want:   claimed,
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := claimant(t, 1)
			in.Programs = map[int]due.Program{1: counting{}}
			in.Claims.Watermarks = in.Claims.Watermarks.Raise(shardset.Of(0), claimed)
			in.Claims.Running = coordtest.Runs(shardset.Of(0), coordtest.Fire(1, 1))
			in.Now, in.MayClaim = coordtest.At(2), false
			if c.ended.At == 0 {
				c.ended.At = end
			}
			in.Ended = []EndedRun{c.ended}
			if c.change != nil {
				c.change(in)
			}
			assert.Equal(t, claimed.Max(c.want), in.Decide().Claims.Watermarks.Of(0))
		})
	}
}
