package schedule

import (
	"fmt"
	"strings"

	"github.com/rota-dev/rota/internal/scheduletext"
)

// AfterJob fires when a fire of the job with the given name has ended: all its shards have run it, retries and
// re-runs included, and all have succeeded. The fire is the same instant as that of the followed job, or the
// instant of its trigger, and Run.FireTime is that instant. Triggers of some shards count as well.
//
// With several jobs, they should have the same schedule: a fire comes after all of them have ended the fire of
// the same instant. If one has no fire of that instant, it is skipped.
//
// A fire of which a run failed, or was lost or skipped, is no fire of this job: it counts as skipped, with
// the reason SkipUpstream. OnEnd and OnFailure change that. A fire that ends while this job is paused is never run.
// Job.OnMisfire and Job.CatchupWindow apply from the end of the followed fire on: with RunOnce, of several fires
// that wait only the latest runs.
//
// The followed jobs must be in the same group, with TrackRuns. FixedDelay and Always cannot be followed, as their
// shards have no fires in common. The order of fires is that of the instants: a fire waits until all earlier ones
// have ended, too. In, From, Until and Spread do not apply. Register refuses jobs that follow each other in a circle;
// Status.Problem names circles over several processes, and followed jobs that do not exist.
func AfterJob(name string, more ...string) Schedule {
	return Schedule{text: scheduletext.After{On: scheduletext.AfterSuccess, Jobs: append([]string{name}, more...)}.String()}
}

// OnEnd returns an AfterJob schedule that fires however the followed fires have ended.
func (s Schedule) OnEnd() Schedule { return s.onOutcome(scheduletext.AfterEnd) }

// OnFailure returns an AfterJob schedule that fires if a run of a followed fire has failed or was lost. Fires that succeeded do
// not count as skipped.
func (s Schedule) OnFailure() Schedule { return s.onOutcome(scheduletext.AfterFailure) }

func (s Schedule) onOutcome(kind string) Schedule {
	words := strings.Fields(s.String())
	if words[0] != scheduletext.AfterSuccess {
		return Schedule{text: kind + " " + s.String()} // kept, for check to refuse it
	}
	return Schedule{text: strings.Join(append([]string{kind}, words[1:]...), " ")}
}

// After returns the names of the jobs that s follows, nil if it is no AfterJob schedule.
func (s Schedule) After() []string {
	a, err := scheduletext.ParseAfter(s.String())
	if err != nil || a == nil {
		return nil
	}
	return a.Jobs
}

// parseAfter reads the text of an AfterJob schedule, or returns false if it is of another kind.
func parseAfter(words []string) (s Schedule, is bool, err error) {
	a, err := scheduletext.ParseAfter(strings.Join(words, " "))
	if a == nil && err == nil {
		return Schedule{}, false, nil
	}
	if err != nil {
		return Schedule{text: strings.Join(words, " ")}, true, err
	}
	return Schedule{text: a.String()}, true, nil
}

// checkAfter returns the rule that an AfterJob schedule breaks, or nil.
func checkAfter(kind []string, all modifiers) (is bool, err error) {
	a, err := scheduletext.ParseAfter(strings.Join(kind, " "))
	switch {
	case err != nil:
		return true, err
	case a == nil:
		return false, nil
	case len(all) > 0:
		return true, fmt.Errorf("%q does not apply to a schedule that follows jobs", all[0].word)
	}
	return true, nil
}
