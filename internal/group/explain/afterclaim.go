package explain

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rota-dev/rota/internal/count"
	"github.com/rota-dev/rota/internal/group/claiming"
	"github.com/rota-dev/rota/internal/group/due"
	"github.com/rota-dev/rota/internal/record"
)

func (s *subject) checkClaimed() result {
	if s.owner != "" {
		key := s.Keys.Claims(s.owner, record.Segment(s.Job))
		if rule, damaged := s.damage(key); damaged && s.state != claimed {
			r := unclear("%s cannot be read (%s), so it is not known what is claimed", key, rule)
			r.last, r.do = true, restoreRecord
			return r
		}
	}
	switch s.state {
	case claimed:
		return pass("attempt %d, by %s", s.run.Attempt, record.InstanceOf(s.runner))
	case rerunPending:
		return pass("attempt %d was claimed and has ended; attempt %d is on record", s.run.Attempt-1, s.run.Attempt)
	case settled:
		return s.describeSettled()
	}
	return s.explainUnclaimed()
}

// describeSettled describes the watermark that covers the fire.
func (s *subject) describeSettled() result {
	switch m := s.mark; {
	case s.trigger > 0 && m.Trigger > s.trigger:
		return pass("trigger %d of the shard was claimed later", m.Trigger)
	case s.trigger > 0:
		return pass("attempt %d, by %s", m.TriggerAttempt, s.claimer())
	case m.Fire == s.fire && m.Attempt > 0:
		return pass("attempt %d, by %s", m.Attempt, s.claimer())
	case m.Fire == s.fire:
		if s.meets(claiming.Disabled) {
			r := stop("enable the shard; "+s.makeUp("trigger it to make up for skipped fires"), "the fire was skipped by %s; the shard is disabled", s.claimer()).with(Enable)
			r.summary = "was skipped; the shard is disabled"
			return r
		}
		r := stop("see misfire, catchup_window and overlap of the job; "+s.makeUp("trigger the shard to make up for it"),
			"the fire was skipped by %s: by the misfire policy, the catch-up window or the overlap policy, or since the shard was disabled. The records do not hold which", s.claimer()).with(Trigger)
		r.summary = "was skipped"
		return r
	case s.isAhead():
		return stop("correct the clock, then reset the job, which starts it afresh",
			"the shard's watermark is %v, which lies ahead: a wrong clock claimed fires before their time", m.Fire).with(Reset)
	default:
		return pass("the watermark of the shard is %v, which is later: the fire was claimed or skipped before", m.Fire)
	}
}

// isAhead reports whether an owner reports the shard's watermark as ahead of all clocks.
func (s *subject) isAhead() bool {
	for _, m := range s.Members {
		if ahead := m.Ahead[s.Job]; ahead.Epoch == s.mark.Epoch && ahead.At >= s.mark.Fire && s.mark.Fire > s.Now {
			return true
		}
	}
	return false
}

// claimer names the instance whose claims record has the watermark.
func (s *subject) claimer() string {
	for _, inc := range sortedKeys(s.Claims) {
		m := s.Claims[inc].Watermarks.Of(s.shard)
		claimsFire := m.Epoch == s.mark.Epoch && m.Fire == s.mark.Fire && m.Attempt == s.mark.Attempt
		claimsTrigger := m.Trigger == s.mark.Trigger && m.TriggerAttempt == s.mark.TriggerAttempt
		if s.trigger == 0 && claimsFire || s.trigger > 0 && claimsTrigger {
			return record.InstanceOf(inc)
		}
	}
	return "an earlier owner"
}

// explainUnclaimed explains why the owner, which could claim the fire, has not.
func (s *subject) explainUnclaimed() result {
	name := record.InstanceOf(s.owner)
	run, found := s.find(claiming.Claims)
	ofEpoch := func(r record.Ref) bool { return s.epoch != nil && r.Epoch == s.epoch.Number }
	switch {
	case s.trigger > 0, found && s.isOfFire(run):
		return stop(fmt.Sprintf("if it stays so, look at the log of %s for \"store unreachable\" and for ERROR", name),
			"%s owns the shard and may claim the %s, and has not yet", name, s.what())
	case s.epoch == nil || s.program == nil:
		return unclear("%s has not claimed the fire; its watermark is %v", name, s.mark.Fire).ends()
	case found && run.Fire < s.fire:
		return stop("wait", "the fire of %v goes first: the misfire policy runs the oldest first", run.Fire)
	case found:
		return stop("see misfire of the job; "+s.makeUp("trigger the shard to make up for it"), "%s will skip it: the misfire policy runs that of %v in its place", name, run.Fire)
	}
	if _, skips := s.findRun(claiming.Skips, ofEpoch); skips {
		return stop("see misfire and catchup_window of the job; "+s.makeUp("trigger the shard to make up for it"), "%s will skip it, since it is too late for the job's policy", name)
	}
	if next, waits := s.findRun(claiming.NotDue, ofEpoch); waits {
		return stop("wait", "%s claims no fire of the shard before %v", name, next.Fire)
	}
	return unclear("the watermark of the shard is %v", s.mark.Fire).ends()
}

// what returns the word for the subject.
func (s *subject) what() string {
	if s.trigger > 0 {
		return "run"
	}
	return "fire"
}

func (s *subject) runText() string {
	if s.trigger > 0 {
		return "attempt at the run"
	}
	return "run of the fire"
}

func (s *subject) checkRetry() result {
	if s.state != rerunPending {
		return pass("no attempt at the %s waits", s.what())
	}
	if reason, dropped := s.findDrop(); dropped {
		return stop("wait, and retry the "+s.what()+" then", "%s %s", record.InstanceOf(s.owner), reason)
	}
	if s.meets(claiming.Waits) {
		r := stop("wait, or cancel the retry, and retry the "+s.what()+" then", "attempt %d failed%s; attempt %d waits until %s", s.run.Attempt-1, s.failureText(s.run.Attempt-1), s.run.Attempt, seconds(s.run.NotBefore))
		r.summary = fmt.Sprintf("failed%s and is retried: attempt %d waits until %s", times(s.run.Retries), s.run.Attempt, seconds(s.run.NotBefore))
		if failed := s.failureText(s.run.Attempt - 1); failed != "" {
			r.summary += fmt.Sprintf(". Attempt %d ended with%s", s.run.Attempt-1, failed)
		}
		return r
	}
	return stop(fmt.Sprintf("if it stays so, look at the log of %s", record.InstanceOf(s.owner)),
		"attempt %d may begin, and %s has not claimed it yet", s.run.Attempt, record.InstanceOf(s.owner))
}

// findDrop returns why the owner ends the fire without the attempt that is on record, if it does.
func (s *subject) findDrop() (reason string, dropped bool) {
	for gate, reason := range map[claiming.Gate]string{
		claiming.Lost:      "the newest definition counts crashed runs as failed (on_crash)",
		claiming.Cancelled: "an operator has cancelled the run",
	} {
		if _, found := s.findRun(gate, func(r record.Ref) bool { return r == s.run }); found {
			return fmt.Sprintf("does not make attempt %d: %s", s.run.Attempt, reason), true
		}
	}
	return "", false
}

// failureText returns the recorded error of an attempt, after a colon; "" if there is none.
func (s *subject) failureText(attempt int) string {
	if f, found := s.findFailure(attempt); found && f.Error != "" {
		return ": " + f.Error
	}
	return ""
}

// findFailure returns the recorded failure of an attempt at the fire; attempt 0 means the last one.
func (s *subject) findFailure(attempt int) (last record.Failure, found bool) {
	for _, f := range s.failures {
		isAttempt := attempt == 0 || due.IsLastFailure(f.Attempt, f.Error, attempt)
		if f.Trigger != s.trigger || f.Fire != s.fire || !f.Shards.Has(s.shard) || !isAttempt {
			continue
		}
		if !found || f.Attempt > last.Attempt {
			last, found = f, true
		}
	}
	return last, found
}

func (s *subject) checkWorker() result {
	if s.state != claimed {
		return pass("no %s waits", s.runText())
	}
	w := s.Members[s.runner].Waiting[s.Job]
	switch {
	case w.Shards.Has(s.shard):
		r := stop("raise the workers or max_running, or start more instances; see docs/sizing.md",
			"attempt %d is claimed by %s and waits for a worker, behind %s; runs of the job wait since %s", s.run.Attempt, record.InstanceOf(s.runner), w.Behind, seconds(w.Since))
		r.summary = fmt.Sprintf("is claimed and waits for a worker of %s since %s, behind %s", record.InstanceOf(s.runner), seconds(w.Since), w.Behind)
		return r
	case w.More > 0:
		return unclear("%s of %s are waiting for a worker, and their numbers are not on record", count.Of(w.More, "more shard"), record.InstanceOf(s.runner))
	case strings.Contains(scheduleOf(s.epochOf(s.run)), " spread "):
		return unclear("%s spreads the starts of runs, so the run may not have begun", scheduleText(s.epochOf(s.run)))
	}
	return pass("no wait for a worker of 10 s or more is on record")
}

// epochOf returns the epoch of a run, or the newest one if that is not on record.
func (s *subject) epochOf(r record.Ref) *record.Epoch {
	if e, ok := s.Plan.Epoch(r.Epoch); ok {
		return e
	}
	return s.Plan.Last()
}

func (s *subject) checkRunning() result {
	if s.state != claimed {
		return pass("no %s is on record as running", s.runText())
	}
	name := record.InstanceOf(s.runner)
	if !s.isLive(s.runner) {
		r := s.stopForLeader("wait for the failover; if it takes long, look at the leader's log", "the session of %s expired during attempt %d, and the leader has not failed the run over yet", name, s.run.Attempt)
		r.summary = fmt.Sprintf("was claimed by %s, whose session has expired; the leader has not failed it over yet", name)
		if s.Leader == "" {
			r.summary = fmt.Sprintf("was claimed by %s, whose session has expired, and the group has no leader to fail it over", name)
		}
		return r
	}
	detail := fmt.Sprintf("attempt %d, claimed by %s, has not ended on record", s.run.Attempt, name)
	if !due.TracksRuns(s.epochOf(s.run).Job()) {
		detail += "; the job tracks claims only, so an end is recorded with the next claim"
	}
	r := pass("%s", detail)
	r.last, r.summary = true, fmt.Sprintf("runs on %s, as attempt %d", name, s.run.Attempt)
	if s.run.IsRetry() {
		r.summary += fmt.Sprintf(", and failed%s before%s", times(s.run.Retries), s.failureText(s.run.Attempt-1))
	}
	return r
}

func (s *subject) checkOutcome() result {
	exact, attempt := s.mark.Fire == s.fire && s.mark.Attempt > 0, s.mark.Attempt
	if s.trigger > 0 {
		exact, attempt = s.mark.Trigger == s.trigger, s.mark.TriggerAttempt
	}
	if !exact {
		attempt = 0
	}
	if f, found := s.findFailure(attempt); found {
		if f.Again && !exact { // its retry has run, or was cancelled, since a later fire is claimed
			r := unclear("attempt %d failed at %s: %s. It was to be made again, and the records do not hold how that ended", f.Attempt, seconds(f.At), f.Error)
			r.summary = fmt.Sprintf("failed as attempt %d at %s with: %s. It was to be made again; only the run history has how that ended", f.Attempt, seconds(f.At), f.Error)
			return r.lookUp()
		}
		return s.describeFailure(f)
	}
	ended, tracked := s.findEndedFire()
	r := result{Verdict: Unknown}
	switch {
	case tracked && ended.Failed+ended.Skipped == 0:
		r.Verdict, r.last = OK, true
		r.detail = fmt.Sprintf("all runs of the %s have ended by %s, and none has failed", count.Of(ended.Shards, "shard"), seconds(ended.Ended))
		r.summary = fmt.Sprintf("succeeded: the runs of all shards had ended at %s, and none had failed", seconds(ended.Ended))
	case tracked:
		r.detail = fmt.Sprintf("of %s, %d failed and %d did not run; whether this shard is one of them is not on record", count.Of(ended.Shards, "shard"), ended.Failed, ended.Skipped)
		r.summary = "has ended: " + r.detail
	case !exact:
		r.detail = "not on record: the records hold the last fire of each shard and a few failures"
		r.summary = "was run or skipped: a later one is claimed, and only the run history has its outcome"
	case !due.TracksRuns(s.epochOf(record.Ref{Epoch: s.mark.Epoch}).Job()):
		r.detail = "the job tracks claims only: the run has ended or its instance crashed"
		r.summary = fmt.Sprintf("was claimed as attempt %d; whether it succeeded is not on record", attempt)
	case s.mayHaveFailed():
		r.detail = "the run has ended. Its failure may have been displaced by newer ones, or be among those that are counted only"
		r.summary = fmt.Sprintf("was run as attempt %d; whether it succeeded is not on record", attempt)
	default:
		r.Verdict, r.last = OK, true
		r.detail = "the run has ended, and no failure of it is on record"
		r.summary = fmt.Sprintf("succeeded, as attempt %d by %s", attempt, s.claimer())
	}
	if r.Verdict == OK {
		return r
	}
	return r.lookUp()
}

// findEndedFire returns the recorded end of the fire, which plans hold of jobs that other jobs follow.
func (s *subject) findEndedFire() (record.EndedFire, bool) {
	if s.Plan.Fires == nil || s.trigger > 0 {
		return record.EndedFire{}, false
	}
	return endedFire(s.Plan.Fires, s.fire)
}

// removeCause begins the advice about a failed run.
const removeCause = "remove the cause, then "

func (s *subject) describeFailure(f record.Failure) result {
	if f.Error == due.CrashedRunError {
		r := stop("retry the "+s.what()+"; see on_crash and max_attempts of the job", "attempt %d was lost at %s: %s, and it is not made again", f.Attempt, seconds(f.At), f.Error).with(Retry)
		r.summary = fmt.Sprintf("was lost: the session of its owner expired during attempt %d, at %s or before, and it is not made again", f.Attempt, seconds(f.At))
		return r
	}
	if last := s.mark.Trigger; last > f.LastTrigger && !s.hasFailedTrigger(last) {
		r := unclear("attempt %d failed at %s: %s. Trigger %d of the shard was claimed later, and no failure of it is on record", f.Attempt, seconds(f.At), f.Error, last)
		r.summary = fmt.Sprintf("failed: attempt %d ended at %s with: %s. Later, trigger %d has run the shard again, if an operator has retried the fire by it", f.Attempt, seconds(f.At), f.Error, last)
		r.last, r.do = true, "see the acts on the job, which have the fire of a retry"
		return r
	}
	do := removeCause + "retry the " + s.what()
	if f.OwnParam {
		do += " with the parameter of its trigger"
	}
	r := stop(do, "attempt %d failed at %s: %s", f.Attempt, seconds(f.At), f.Error).with(Retry)
	r.summary = fmt.Sprintf("failed: attempt %d ended at %s with: %s", f.Attempt, seconds(f.At), f.Error)
	if due.CountsEnds(s.program) && !s.Plan.Paused {
		if last, found := s.lastFailed(); found && last.Fire == f.Fire {
			r.summary += ". " + capitalize(s.describeNext(s.epoch, s.program))
		}
	}
	return r
}

func capitalize(text string) string { return strings.ToUpper(text[:1]) + text[1:] }

// hasFailedTrigger reports whether a failure of a trigger is on record for the shard.
func (s *subject) hasFailedTrigger(number uint64) bool {
	return slices.ContainsFunc(s.failures, func(f record.Failure) bool { return f.Trigger == number && f.Shards.Has(s.shard) })
}

// mayHaveFailed reports whether the run of the fire may have failed without a failure on record: the
// oldest ones are dropped first, and the numbers of some shards are only counted.
func (s *subject) mayHaveFailed() bool {
	if len(s.failures) == 0 {
		return false
	}
	oldest := s.failures[0].At
	for _, f := range s.failures {
		oldest = min(oldest, f.At)
		if f.Trigger == s.trigger && f.Fire == s.fire && f.More > 0 {
			return true
		}
	}
	return oldest > s.fire
}
