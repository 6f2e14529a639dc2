package due

import (
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

// FailingShards returns the shards whose last ended run failed, as far as the failures on record name them. A run that
// has not ended changes nothing; of jobs whose fires count from the ends of runs, a shard that runs counts as healthy, since
// the run of a daemon lasts. A skipped fire also ends a failure, unless it came due before the end of the failed run, or the leader skipped
// it for a job that follows others.
func FailingShards(p *record.Plan, programs map[int]Program, watermarks record.Watermarks, running record.Runs, failures []record.Failure) shardset.Set {
	var failing []int
	for i := range failures {
		f := &failures[i]
		for shard := range f.Shards.All() {
			mark := watermarks.Of(shard)
			isLast := isLastEnd(f, mark) || isPassed(f, programs, mark)
			if run, runs := running.Of(shard); runs {
				isLast = isLastBefore(f, p, programs, mark, run)
			}
			if isLast {
				failing = append(failing, shard)
			}
		}
	}
	return shardset.Of(failing...)
}

// isLastEnd reports whether a failure is that of the last run of a shard that does not run.
func isLastEnd(f *record.Failure, mark record.Watermark) bool {
	if f.Trigger > 0 {
		return f.Trigger == mark.Trigger && f.At >= mark.Fire
	}
	return f.Fire == mark.Fire && IsLastFailure(f.Attempt, f.Error, mark.Attempt) && mark.Trigger <= f.LastTrigger
}

// isPassed reports whether a failure is that of the last run of a shard whose watermark has passed the failed run without another
// one: to the end of the run from which the next fire counts, or to a fire that came due during the run and was skipped.
func isPassed(f *record.Failure, programs map[int]Program, mark record.Watermark) bool {
	switch prog := programs[f.Epoch]; {
	case f.Trigger > 0, f.Again, mark.Trigger > f.LastTrigger, mark.Epoch != f.Epoch, prog == nil:
		return false
	case CountsEnds(prog): // f.At is when the end was recorded, which may be later
		return mark.Attempt == 0 && mark.Fire > f.Fire && mark.Fire <= EndOf(f.At)
	}
	return mark.Attempt == 0 && mark.Fire > f.Fire && mark.Fire <= f.At
}

// isLastBefore reports whether a failure is that of the last run before one that has not ended. It returns false if
// the records do not show that.
func isLastBefore(f *record.Failure, p *record.Plan, programs map[int]Program, mark record.Watermark, run record.Ref) bool {
	e, known := p.Epoch(run.Epoch)
	prog := programs[run.Epoch]
	switch {
	case CountsEnds(prog):
		return false
	case f.Trigger == run.Trigger && f.Fire == run.Fire:
		return f.Attempt == run.Attempt-1
	case run.Attempt > 1: // the attempt before it may have crashed
		return false
	case run.Trigger > 0 && f.Trigger > 0:
		return f.Trigger == run.Trigger-1 && f.At >= mark.Fire
	case run.Trigger > 0:
		return f.Fire == mark.Fire && IsLastFailure(f.Attempt, f.Error, mark.Attempt) && run.Trigger == f.LastTrigger+1
	case !known || prog == nil || mark.Trigger > f.LastTrigger: // which is at least f.Trigger
		return false
	}
	last := f.Fire
	if f.Trigger > 0 {
		last = f.At
	}
	if e.Job().SkipsOverlapping() {
		last = max(last, f.At) // fires that came due during the run are skipped
	}
	next, _ := InEpoch(e, prog, record.Watermark{Epoch: f.Epoch, Fire: last, Attempt: f.Attempt}, max(f.At, last), false)
	if next.Fire.IsZero() {
		next.Fire = next.Wake
	}
	return record.InstantOf(next.Fire) == run.Fire
}

// SkippedForAll returns the latest fire of a job that follows others if the leader skipped it for all shards; the
// watermarks do not cover it. It is zero if the leader released the latest one, or if there is none.
func SkippedForAll(p *record.Plan) record.Instant {
	last := p.Last()
	if p.Followed == nil || last.Job().After == nil || p.Followed.Through < last.From {
		return 0
	}
	for _, r := range last.Released {
		if r.At >= p.Followed.Through {
			return 0
		}
	}
	return p.Followed.Through
}
