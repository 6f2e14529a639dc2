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

func TestFirstUnclaimed(t *testing.T) {
	at := coordtest.At
	mark := func(epoch, n int) record.Watermark { return record.Watermark{Epoch: epoch, Fire: at(n), Attempt: 1} }
	for name, c := range map[string]struct {
		follows bool
		mark    record.Watermark
		until   record.Instant
		want    record.Instant
	}{
		"the fire after the watermark":                  {mark: mark(1, 3), want: at(4)},
		"the first fire of the epoch":                   {mark: mark(0, 9), want: at(1)},
		"none if the shard is past the epoch":           {mark: mark(2, 1)},
		"none if the epoch ends before the next fire":   {mark: mark(1, 3), until: at(4)},
		"the release after the watermark":               {follows: true, mark: mark(1, 2), want: at(4)},
		"the first release for an earlier watermark":    {follows: true, mark: mark(0, 9), want: at(2)},
		"none if all releases are claimed":              {follows: true, mark: mark(1, 4)},
		"no release if the shard is past the epoch":     {follows: true, mark: mark(2, 1)},
		"a release of an instant after the epoch's end": {follows: true, mark: mark(1, 2), until: at(1), want: at(4)},
	} {
		t.Run(name, func(t *testing.T) {
			e := coordtest.Epoch(t, 1, coordtest.Start, 1)
			e.Until = c.until
			var prog due.Program = coordtest.Minutely{}
			if c.follows {
				prog = coordtest.Following{}
				e.Released = []record.Release{{At: at(2), Released: at(2) + 1}, {At: at(4), Released: at(4) + 1}}
			}
			assert.Equal(t, c.want, due.FirstUnclaimed(&e, prog, c.mark))
		})
	}
}

func TestOldestUnclaimed_ReleasedFire(t *testing.T) {
	p := coordtest.PlanOfOwnShards(t, 1)
	p.Epochs[0].From = coordtest.At(8)
	p.Epochs[0].Released = []record.Release{{At: coordtest.At(1), Released: coordtest.At(7)}, {At: coordtest.At(2), Released: coordtest.At(9)}}
	programs := map[int]due.Program{1: coordtest.Following{}}
	oldest := func(n int, marks record.Watermarks) record.Instant {
		return due.OldestUnclaimed(p, programs, due.Progress{Watermarks: marks}, shardset.Of(0), coordtest.At(n))
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

// counting is a program that may count ends.
type counting struct {
	coordtest.Minutely
	counts bool
}

func (p counting) CountsEnds() bool { return p.counts }

func TestCountsEnds(t *testing.T) {
	assert.False(t, due.CountsEnds(coordtest.Minutely{}))
	assert.False(t, due.CountsEnds(counting{}))
	assert.True(t, due.CountsEnds(counting{counts: true}))
}

func TestDue_HasAny(t *testing.T) {
	assert.False(t, (&due.Due{Through: coordtest.At(1).Time(), Wake: coordtest.At(2).Time()}).HasAny())
	assert.True(t, (&due.Due{Fire: coordtest.At(1).Time()}).HasAny())
	assert.True(t, (&due.Due{Skipped: 1}).HasAny())
}

// notFollowing has the methods of a Follower, but its own schedule.
type notFollowing struct{ coordtest.Following }

func (notFollowing) FollowsJobs() bool { return false }

func TestInEpoch(t *testing.T) {
	at := coordtest.At
	fire := func(n int) due.Due {
		return due.Due{Fire: at(n).Time(), Through: at(n).Time(), Wake: at(n + 1).Time()}
	}
	for name, c := range map[string]struct {
		prog     due.Program
		until    record.Instant
		mark     record.Watermark
		now      int
		disabled bool
		want     due.Due
		ok       bool
	}{
		"a due fire":                        {prog: coordtest.Minutely{}, mark: record.Watermark{Epoch: 1, Fire: at(1)}, now: 2, want: fire(2), ok: true},
		"a shard that is past the epoch":    {prog: coordtest.Minutely{}, mark: record.Watermark{Epoch: 2}, now: 2},
		"claimed before the epoch's end":    {prog: coordtest.Minutely{}, until: at(3), mark: record.Watermark{Epoch: 1, Fire: at(2)}, now: 5, ok: true},
		"claimed up to the epoch's end":     {prog: coordtest.Minutely{}, until: at(3), mark: record.Watermark{Epoch: 1, Fire: at(3)}, now: 5},
		"claimed past the epoch's end":      {prog: coordtest.Minutely{}, until: at(3), mark: record.Watermark{Epoch: 1, Fire: at(4)}, now: 5},
		"a disabled shard skips":            {prog: coordtest.Minutely{}, mark: record.Watermark{Epoch: 1, Fire: at(1)}, now: 2, disabled: true, want: due.Due{Skipped: 1, Through: at(2).Time(), Wake: at(3).Time()}, ok: true},
		"a follower with its own schedule":  {prog: notFollowing{}, mark: record.Watermark{Epoch: 1, Fire: at(1)}, now: 2, want: fire(2), ok: true},
		"a released fire":                   {prog: coordtest.Following{}, until: at(1), mark: record.Watermark{Epoch: 1, Fire: at(1)}, now: 5, want: due.Due{Fire: at(2).Time(), Through: at(2).Time(), Wake: at(6).Time()}, ok: true},
		"a disabled shard skips a release":  {prog: coordtest.Following{}, mark: record.Watermark{Epoch: 1}, now: 5, disabled: true, want: due.Due{Skipped: 1, Through: at(2).Time(), Wake: at(6).Time()}, ok: true},
		"a follower that is past the epoch": {prog: coordtest.Following{}, mark: record.Watermark{Epoch: 2}, now: 5},
	} {
		t.Run(name, func(t *testing.T) {
			e := coordtest.Epoch(t, 1, at(0)+1, 1)
			e.Until = c.until
			e.Released = []record.Release{{At: at(2), Released: at(5)}, {At: at(4), Released: at(6)}}
			got, ok := due.InEpoch(&e, c.prog, c.mark, at(c.now), c.disabled)
			assert.Equal(t, c.ok, ok)
			assert.Equal(t, c.want, got)
		})
	}
}

// passing is a program that passes fires without one that runs or is skipped.
type passing struct{ coordtest.Minutely }

func (passing) Due(_, _, now time.Time) due.Due { return due.Due{Through: now} }

func TestHasUnclaimed_OtherPrograms(t *testing.T) {
	e := coordtest.Epoch(t, 1, coordtest.Start, 1)
	assert.True(t, due.HasUnclaimed(&e, passing{}, record.Watermark{}, coordtest.At(1)), "the watermark has to pass the fires")
	assert.True(t, due.HasUnclaimed(&e, latest{}, record.Watermark{}, coordtest.At(1)), "the watermark may stay")
}

// latest is Minutely without Through.
type latest struct{ coordtest.Minutely }

func (p latest) Due(last, until, now time.Time) due.Due {
	d := p.Minutely.Due(last, until, now)
	d.Through = time.Time{}
	return d
}

func TestTriggerTargets(t *testing.T) {
	e := coordtest.Epoch(t, 1, coordtest.Start, 3)
	some := shardset.Of(1, 2, 3)
	assert.Equal(t, shardset.Of(0, 1, 2), due.TriggerTargets(record.Trigger{}, &e))
	assert.Equal(t, shardset.Of(1, 2), due.TriggerTargets(record.Trigger{Shards: &some}, &e), "the epoch has no shard 3")
}
