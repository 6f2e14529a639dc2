package explain

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rota-dev/rota/internal/count"
	"github.com/rota-dev/rota/internal/group/planning"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/scheduletext"
)

// checkFollowed checks that a job which follows others has the fire: each followed job has ended its fire of
// that instant, as the schedule wants it, and the leader has released it.
func (s *subject) checkFollowed(e *record.Epoch, after *scheduletext.After) result {
	names := fmt.Sprintf("%q", strings.Join(after.Jobs, ", "))
	if s.fire == 0 {
		return stop("explain the fires of the followed jobs", "the job follows %s, and no fire of them is on record as ended", names)
	}
	for _, r := range e.Released {
		if r.At == s.fire {
			return pass("the followed fire of %s has ended; it was released at %s", names, seconds(r.Released))
		}
	}
	if s.state != notClaimed {
		return pass("the job follows %s, and the fire is on record", names)
	}
	fires := map[string]record.EndedFire{}
	for _, name := range after.Jobs {
		plan := s.Followed[name]
		if plan == nil || plan.Fires == nil || s.fire < plan.Fires.From {
			return unclear("the job follows %q, whose ends at that instant are not on record", name)
		}
		if ended, found := endedFire(plan.Fires, s.fire); found {
			fires[name] = ended
			continue
		}
		switch n := len(plan.Fires.Ended); {
		case plan.Fires.Through < s.fire:
			return stop(fmt.Sprintf("explain that fire of %q", name), "the job follows %q, of which the fire of that instant, or an earlier one, has not ended", name)
		case n > 0 && plan.Fires.Ended[0].At > s.fire:
			return unclear("the job follows %q, whose ends at that instant are not on record any more", name)
		}
		return stop("", "the job follows %q, which has no fire at that instant", name)
	}
	if !planning.WantsFire(after, fires) {
		var ends []string
		for _, name := range after.Jobs {
			f := fires[name]
			ends = append(ends, fmt.Sprintf("of %s of %q, %d failed and %d did not run", count.Of(f.Shards, "shard"), name, f.Failed, f.Skipped))
		}
		r := stop(fmt.Sprintf("explain that fire of %s; trigger this job to make up for it", names), "the followed fire did not end as the schedule wants it (%s): %s", describeOn(after.On), strings.Join(ends, "; "))
		r.summary = "is no fire of this job: " + r.detail
		return r
	}
	if s.Plan.Followed == nil || s.Plan.Followed.Through < s.fire {
		return s.stopForLeader("wait for the leader; if it takes long, look at its log", "the followed fire of %s has ended, and the leader has not released it yet", names)
	}
	return unclear("the followed fire of %s has ended, and it is not among the released ones", names)
}

// describeOn names the outcome of followed fires after which a job fires.
func describeOn(on string) string {
	switch on {
	case scheduletext.AfterEnd:
		return "on end"
	case scheduletext.AfterFailure:
		return "on failure"
	}
	return "on success"
}

// endedFire returns the end of the scheduled fire of an instant.
func endedFire(fires *record.Fires, at record.Instant) (record.EndedFire, bool) {
	i := slices.IndexFunc(fires.Ended, func(f record.EndedFire) bool { return f.At == at })
	if i < 0 {
		return record.EndedFire{}, false
	}
	return fires.Ended[i], true
}

// newestFollowed returns the newest fire of the followed jobs that has come, zero if none is known.
func (s *subject) newestFollowed(after *scheduletext.After) (newest record.Instant) {
	if s.mark.Attempt > 0 {
		newest = s.mark.Fire
	}
	note := func(at record.Instant) {
		if at <= s.Now {
			newest = max(newest, at)
		}
	}
	for _, e := range s.Plan.Epochs {
		for _, r := range e.Released {
			note(r.At)
		}
	}
	for _, name := range after.Jobs {
		plan := s.Followed[name]
		if plan == nil {
			continue
		}
		if plan.Fires != nil {
			for _, f := range plan.Fires.Ended {
				note(f.At)
			}
		}
		last := *plan.Last()
		if s.Compile == nil || last.Job().After != nil || plan.Paused || plan.Stopped || last.From > s.Now {
			continue
		}
		if prog, err := s.Compile(last.Def); err == nil {
			note(record.InstantOf(prog.SkipDue((last.From - 1).Time(), last.Until.Time(), s.Now.Time()).Through))
		}
	}
	return newest
}
