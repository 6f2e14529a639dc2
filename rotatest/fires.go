package rotatest

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/schedule"
)

// epoch is a span of time under one definition of a job: from is in it, until, if not
// zero, is not.
type epoch struct {
	number      int
	from, until record.Instant
	shards      shardset.Set
	tracking    string
	schedule    schedule.Schedule
	always      bool // runs are daemons
	countsEnds  bool // fires count from the ends of runs, so a shard that runs has none
	unbounded   bool // failed runs are retried without bound
}

func newEpoch(e *record.Epoch) epoch {
	var def struct {
		Schedule schedule.Schedule
		Retry    struct{ Max int }
	}
	// A job without a schedule, or with one that cannot be read here, has no fires.
	if json.Unmarshal(e.Def, &def) != nil {
		def.Schedule = schedule.OnTrigger()
	}
	return epoch{
		number: e.Number, from: e.From, until: e.Until, shards: shardset.Range(0, e.Job().Shards), tracking: e.Job().Tracking, schedule: def.Schedule,
		always: e.Job().Always, countsEnds: def.Schedule.CountsEnds(), unbounded: def.Retry.Max < 0,
	}
}

// tracksRuns reports whether records show, also after a crash, which runs have not ended.
func (e epoch) tracksRuns() bool { return e.tracking == "" || e.tracking == record.TrackRuns }

// after returns the instant after which a shard with mark m has fires of e to come, or
// false if m is beyond e.
func (e *epoch) after(m record.Watermark) (record.Instant, bool) {
	if m.Epoch == e.number {
		return m.Fire, true
	}
	return 0, m.Epoch < e.number
}

// next returns the first fire of e after an instant, zero if there is none.
func (e *epoch) next(after record.Instant) record.Instant {
	fires, err := e.schedule.Next(max(after, e.from-1).Time(), 1)
	if err != nil || len(fires) == 0 {
		return 0
	}
	fire := record.InstantOf(fires[0])
	if e.until != 0 && fire >= e.until {
		return 0
	}
	return fire
}

// count returns how many fires of e a shard passes over when its mark rises. Of fires that count from ends there is
// one at most: the next one would count from the end of its run.
func (e *epoch) count(from, to record.Watermark) int {
	after, ok := e.after(from)
	if !ok || to.Epoch < e.number || to.Epoch > e.number && e.until == 0 {
		return 0
	}
	n := 0
	for fire := e.next(after); fire != 0 && (to.Epoch > e.number || fire <= to.Fire); fire = e.next(fire) {
		if n++; e.countsEnds {
			break
		}
	}
	return n
}

// nextFire returns the first fire of a job after now by its definitions in force. For a
// paused job, which has none, it is that of the newest definition.
func (b *model) nextFire(job string, now time.Time) (time.Time, error) {
	all := b.named(job)
	if len(all) == 0 {
		return time.Time{}, executor.ErrUnknownJob
	}
	var first record.Instant
	for _, j := range all {
		if fire := j.nextFire(record.InstantOf(now)); fire != 0 && (first == 0 || fire < first) {
			first = fire
		}
	}
	if first == 0 {
		return time.Time{}, errors.New("there is none")
	}
	return first.Time(), nil
}

func (j *jobModel) nextFire(now record.Instant) record.Instant {
	if j.plan == nil {
		return 0
	}
	for i := range j.plan.Epochs { // one begins where the one before ends
		e := j.epochs[j.plan.Epochs[i].Number]
		if fire := e.next(now); fire != 0 {
			return fire
		}
	}
	e := j.epochs[j.plan.Last().Number]
	e.until = 0
	return e.next(now)
}
