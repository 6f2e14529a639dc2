package due_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/rota-dev/rota/coordinator/internal/coordtest"
	"github.com/rota-dev/rota/coordinator/internal/due"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

func TestHasUnclaimed(t *testing.T) {
	at := coordtest.At
	mark := func(epoch, n int) record.Watermark { return record.Watermark{Epoch: epoch, Fire: at(n), Attempt: 1} }
	for name, c := range map[string]struct {
		follows bool
		mark    record.Watermark
		until   record.Instant
		through record.Instant
		want    bool
	}{
		"a fire up to the instant is due":                  {through: at(1), want: true},
		"all fires up to it are claimed":                   {mark: mark(1, 3), through: at(3)},
		"the fire is claimed in an earlier epoch only":     {mark: mark(0, 3), through: at(3), want: true},
		"the shard has claimed fires of a later epoch":     {mark: mark(2, 1), through: at(9)},
		"the fire is not before the end of the epoch":      {mark: mark(1, 2), until: at(3), through: at(3)},
		"a release up to the instant is not claimed":       {follows: true, through: at(2), want: true},
		"a release after it is not claimed":                {follows: true, mark: mark(1, 2), through: at(3)},
		"all releases are claimed":                         {follows: true, mark: mark(1, 4), through: at(9)},
		"releases belong to the epoch after its end":       {follows: true, mark: mark(1, 2), until: at(1), through: at(4), want: true},
		"releases of an earlier epoch than the shard's":    {follows: true, mark: mark(2, 1), through: at(9)},
		"releases before the epoch began, of another mark": {follows: true, mark: mark(0, 9), through: at(2), want: true},
	} {
		t.Run(name, func(t *testing.T) {
			e := coordtest.Epoch(t, 1, coordtest.Start, 1)
			e.Until = c.until
			var prog due.Program = coordtest.Minutely{}
			if c.follows {
				prog, e.From = coordtest.Following{}, at(3)
				e.Released = []record.Release{{At: at(2), Released: at(5)}, {At: at(4), Released: at(6)}}
			}
			assert.Equal(t, c.want, due.HasUnclaimed(&e, prog, c.mark, c.through))
		})
	}
}

func TestOldestUnclaimed_ReleasedFire(t *testing.T) {
	p := coordtest.PlanOfOwnShards(t, 1)
	p.Epochs[0].From = coordtest.At(8)
	p.Epochs[0].Released = []record.Release{{At: coordtest.At(1), Released: coordtest.At(7)}, {At: coordtest.At(2), Released: coordtest.At(9)}}
	programs := map[int]due.Program{1: coordtest.Following{}}
	oldest := func(n int, marks record.Watermarks) record.Instant {
		return due.OldestUnclaimed(p, programs, marks, nil, shardset.Of(0), coordtest.At(n))
	}
	assert.Equal(t, coordtest.At(7), oldest(9, nil), "due from the release on, which may precede the epoch")
	claimed := record.Watermarks{}.Raise(shardset.Of(0), coordtest.Fire(1, 1).Watermark())
	assert.Equal(t, coordtest.At(9), oldest(9, claimed))
	assert.Zero(t, oldest(8, claimed))
}

func TestPassDue(t *testing.T) {
	e := coordtest.Epoch(t, 1, coordtest.Start, 1)
	e.Released = []record.Release{{At: coordtest.At(1), Released: coordtest.At(7)}, {At: coordtest.At(2), Released: coordtest.At(9)}}
	assert.Equal(t, coordtest.At(8), due.PassDue(&e, coordtest.Minutely{}, record.Watermark{}, coordtest.At(8)).Fire)
	assert.Equal(t, coordtest.At(1), due.PassDue(&e, coordtest.Following{}, record.Watermark{}, coordtest.At(8)).Fire)
	assert.Equal(t, coordtest.At(2), due.PassDue(&e, coordtest.Following{}, record.Watermark{}, coordtest.At(9)).Fire)
}
