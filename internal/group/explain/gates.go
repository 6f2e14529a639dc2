package explain

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/group/claiming"
	"github.com/rota-dev/rota/internal/group/due"
	"github.com/rota-dev/rota/internal/record"
)

// gates are the conditions of a run, in the order in which they are checked.
var gates = []struct {
	name   string
	before bool // it matters only until the fire is claimed or skipped
	check  func(*subject) result
}{
	{"defined", false, (*subject).checkDefined},
	{"offered", true, (*subject).checkOffered},
	{"in force", false, (*subject).checkInForce},
	{"due", false, (*subject).checkDue},
	{"intent", true, (*subject).checkIntent},
	{"leader", true, (*subject).checkLeader},
	{"owner", true, (*subject).checkOwner},
	{"frozen", true, (*subject).checkFrozen},
	{"ahead", true, (*subject).checkAhead},
	{"pool", true, (*subject).checkPool},
	{"claimed", false, (*subject).checkClaimed},
	{"retry", true, (*subject).checkRetry},
	{"worker", false, (*subject).checkWorker},
	{"running", false, (*subject).checkRunning},
	{"outcome", false, (*subject).checkOutcome},
}

// GateNames returns the names of all gates, in the order in which they are checked.
func GateNames() []string {
	var names []string
	for _, g := range gates {
		names = append(names, g.name)
	}
	return names
}

// result is the result of a gate.
type result struct {
	Verdict
	detail  string
	do      string
	summary string // replaces the general one
	last    bool   // the gates after it do not apply
	verb    Verb
	target  string // the instance that verb is for, if it is for one
}

// with adds the verb that helps.
func (r result) with(v Verb) result {
	r.verb = v
	return r
}

// withDrainOf adds that the shards of an instance can be moved.
func (r result) withDrainOf(instance string) result {
	r.verb, r.target = Disable, instance
	return r
}

// ends returns r as the last gate.
func (r result) ends() result {
	r.last = true
	return r
}

func pass(format string, args ...any) result {
	return result{Verdict: OK, detail: fmt.Sprintf(format, args...)}
}

// lookUp returns r with the advice to look for the outcome where it may be on record.
func (r result) lookUp() result {
	r.last, r.do = true, "look into the run history, or the log of that time"
	return r.with(History)
}

func unclear(format string, args ...any) result {
	return result{Verdict: Unknown, detail: fmt.Sprintf(format, args...)}
}

// stop stops the fire. The first text is what to do.
func stop(do, format string, args ...any) result {
	return result{Verdict: Stop, detail: fmt.Sprintf(format, args...), do: do}
}

// state is how far a fire has got, by the watermark, the runs and the pending re-runs of its shard.
type state int

const (
	notClaimed   state = iota
	rerunPending       // an attempt has ended, and another is on record
	claimed            // the run is on record and has not ended
	settled            // its watermark covers the fire, and no run of it is left
)

// subject is a fire or a triggered run of a shard that is explained.
type subject struct {
	*Records
	shard   int
	fire    record.Instant
	trigger uint64        // the number of the trigger; zero: a fire of the schedule
	epoch   *record.Epoch // that the fire belongs to; nil: none on record
	program due.Program   // of epoch; nil: it is not known
	owner   string        // incarnation
	mark    record.Watermark
	state   state
	run     record.Ref // of the fire, if state is claimed or rerunPending
	runner  string     // the incarnation that claimed run
}

// explainShard explains a fire of one shard.
func (r *Records) explainShard(shard int, fire record.Instant) Answer {
	s := r.newSubject(shard, fire)
	a := Answer{Fire: s.fire}
	var end result
	for _, g := range gates {
		if g.before && (s.state == settled || s.state == claimed) {
			continue
		}
		res := g.check(s)
		if res.Verdict == "" {
			continue // it does not apply
		}
		if g.name == "due" && s.fire == 0 && s.isHeldUp() {
			res = pass("no fire is due; %s", res.detail)
		}
		a.Gates = append(a.Gates, Gate{g.name, res.Verdict, res.detail})
		if end = res; res.Verdict == Stop || res.last {
			break
		}
	}
	a.Stops, a.Do, a.Verb, a.Target = end.Verdict == Stop, end.do, end.verb, end.target
	last := a.Gates[len(a.Gates)-1].Name
	a.Summary = s.summarize(last, end)
	if n := s.waitingTrigger(); n > 0 && a.Stops {
		a.Summary += fmt.Sprintf(" Trigger %d of the shard waits too.", n)
	}
	if h, held := s.findHoldAfter(last, end); held {
		a.Summary += " " + capitalize(h.what) + ", so no further run of it begins."
		first, later := "", end.do
		if rest, failed := strings.CutPrefix(end.do, removeCause); failed { // a resumed job would fail again
			first, later = removeCause, rest
		}
		a.Do, a.Verb, a.Target = first+strings.TrimSuffix(h.do+", then "+later, ", then "), h.verb, ""
		if h.verb == "" { // no act on a job that is to be deleted
			a.Do = h.do
		}
	}
	return a
}

// findHoldAfter returns what keeps the shard from running again, if that fire has failed, is lost or was skipped. The gates
// before the claim, of which one is the intent, are not checked then.
func (s *subject) findHoldAfter(gate string, end result) (hold, bool) {
	if s.state != settled || end.Verdict != Stop || gate != "claimed" && gate != "outcome" {
		return hold{}, false
	}
	if h, held := s.findHold(); held || gate == "claimed" {
		return h, held
	}
	h, held := s.findDisabled()
	h.do = "enable the shard" // the fire is not one of those that its owner skips
	return h, held
}

// isHeldUp reports whether one of the gates from the intent to the move would stop the next fire. Without
// it, the answer for a job that is paused before its first fire would be that the fire is to come.
func (s *subject) isHeldUp() bool {
	for _, g := range gates {
		switch g.name {
		case "intent", "leader", "owner", "frozen":
			if g.check(s).Verdict == Stop {
				return true
			}
		}
	}
	return false
}

// newSubject finds the fire, its epoch and how far it has got.
func (r *Records) newSubject(shard int, fire record.Instant) *subject {
	s := &subject{Records: r, shard: shard, fire: fire}
	if r.Plan == nil {
		return s
	}
	s.owner, s.mark = r.Plan.OwnerOf(shard), r.progress.Watermarks.Of(shard)
	if fire == 0 {
		s.fire = s.newestFire()
	}
	if e := r.Plan.EpochAt(s.fire); e != nil {
		s.epoch, s.program = e, r.programs[e.Number]
	}
	s.findState()
	if run, found := s.newestTriggered(fire); found && s.prefers(run, fire) {
		s.trigger, s.fire, s.epoch, s.program = run.Trigger, run.Fire, nil, s.programs[run.Epoch]
		if e, ok := r.Plan.Epoch(run.Epoch); ok {
			s.epoch = e
		}
		s.findState()
	}
	return s
}

// newestTriggered returns the newest triggered run of the shard that is on record: of the instant asked for, or of any if
// that is zero. A trigger whose runs have ended without a failure has no instant on record.
func (s *subject) newestTriggered(asked record.Instant) (newest record.Ref, found bool) {
	note := func(run record.Ref) {
		if run.Trigger > newest.Trigger && (asked == 0 || run.Fire == asked) {
			newest, found = run, true
		}
	}
	for _, runs := range s.runners {
		if run, ok := runs.Of(s.shard); ok {
			note(run)
		}
	}
	for _, g := range s.pending {
		if g.Shards.Has(s.shard) {
			note(g.Ref)
		}
	}
	for _, f := range s.failures {
		if f.Shards.Has(s.shard) && (asked != 0 || f.Trigger == s.mark.Trigger) {
			note(f.Ref)
		}
	}
	for _, t := range s.Plan.Triggers {
		if e, ok := s.Plan.Epoch(t.Epoch); ok && t.Number > s.mark.Trigger && due.TriggerTargets(t, e).Has(s.shard) {
			note(record.Ref{Epoch: t.Epoch, Fire: t.FireTime(), Trigger: t.Number, Attempt: 1})
		}
	}
	return newest, found
}

// prefers reports whether to explain a triggered run in place of the fire that was found. If an instant is asked for, it
// does so unless the schedule has the instant. Otherwise it does so if there is no fire, or if the run failed after
// the fire had succeeded: the shard then counts as failing.
func (s *subject) prefers(run record.Ref, asked record.Instant) bool {
	if asked != 0 {
		e, known := s.Plan.Epoch(run.Epoch)
		prog := s.programs[run.Epoch]
		return known && prog != nil && !due.CountsEnds(prog) && !s.schedules(e, prog)
	}
	if s.fire == 0 {
		return true
	}
	if _, failed := s.findFailure(0); failed || s.state != settled || s.mark.Attempt == 0 || run.Fire == s.fire {
		return false
	}
	return slices.ContainsFunc(s.failures, func(f record.Failure) bool {
		return f.Trigger == run.Trigger && f.Shards.Has(s.shard) && f.At >= s.fire
	})
}

// newestFire returns the newest instant of the schedule that has come, zero if none is known. It ignores the end
// of the newest definition, which ends when the job is paused: the fires after that need an explanation too.
func (s *subject) newestFire() record.Instant {
	if run, busy := s.findUnended(); busy {
		if run.Trigger > 0 {
			return 0
		}
		return run.Fire
	}
	if after := s.Plan.Last().Job().After; after != nil {
		return s.newestFollowed(after)
	}
	for i, e := range slices.Backward(s.Plan.Epochs) {
		prog := s.programs[e.Number]
		if prog == nil || s.shard >= e.Job().Shards {
			continue
		}
		if i == len(s.Plan.Epochs)-1 {
			e.Until = 0
		}
		if due.CountsEnds(prog) {
			if found, ok := due.InEpoch(&e, prog, s.mark, s.Now, false); ok && !found.Fire.IsZero() {
				return record.InstantOf(found.Fire)
			}
			if failed, found := s.lastFailed(); found {
				return failed.Fire
			}
			continue
		}
		if through := prog.SkipDue((e.From - 1).Time(), e.Until.Time(), s.Now.Time()).Through; !through.IsZero() && e.From <= s.Now {
			return record.InstantOf(through)
		}
	}
	if len(s.programs) == 0 || s.mark.Attempt > 0 {
		return s.mark.Fire
	}
	return 0
}

// findUnended returns the run of the shard that has not ended, or is to be made again, if the next fire counts from its end.
func (s *subject) findUnended() (record.Ref, bool) {
	for _, inc := range sortedKeys(s.runners) {
		if run, ok := s.runners[inc].Of(s.shard); ok {
			return run, due.CountsEnds(s.programs[run.Epoch])
		}
	}
	run, ok := s.pending.Of(s.shard)
	return run, ok && due.CountsEnds(s.programs[run.Epoch])
}

// lastFailed returns the failure of the last run of a shard that runs nothing, if it failed. The watermark of a shard whose fires
// count from ends names the end of that run, not its fire.
func (s *subject) lastFailed() (record.Failure, bool) {
	i := slices.IndexFunc(s.failures, func(f record.Failure) bool {
		return f.Trigger == 0 && due.FailingShards(s.Plan, s.programs, s.progress.Watermarks, nil, []record.Failure{f}).Has(s.shard)
	})
	if i < 0 {
		return record.Failure{}, false
	}
	return s.failures[i], true
}

// findState finds out how far the fire has got.
func (s *subject) findState() {
	s.state = notClaimed
	for _, inc := range sortedKeys(s.runners) {
		if run, ok := s.runners[inc].Of(s.shard); ok && s.isOfFire(run) {
			s.state, s.run, s.runner = claimed, run, inc
			return
		}
	}
	for _, g := range s.pending {
		if g.Shards.Has(s.shard) && s.isOfFire(g.Ref) {
			s.state, s.run = rerunPending, g.Ref
			return
		}
	}
	if s.fire == 0 {
		return
	}
	fire := record.Ref{Epoch: s.mark.Epoch, Fire: s.fire, Trigger: s.trigger}
	if s.epoch != nil {
		fire.Epoch = s.epoch.Number
	}
	if s.mark.Covers(fire) {
		s.state = settled
	}
}

// find returns the run that a gate of the owner's decision on the shard is about, and whether the decision meets the gate.
func (s *subject) find(g claiming.Gate) (record.Ref, bool) {
	return s.findRun(g, func(record.Ref) bool { return true })
}

func (s *subject) findRun(g claiming.Gate, matches func(record.Ref) bool) (record.Ref, bool) {
	return s.traces[s.owner].Find(s.shard, g, matches)
}

func (s *subject) meets(g claiming.Gate) bool {
	_, found := s.find(g)
	return found
}

// isOfFire reports whether a run is of the fire or of the trigger.
func (s *subject) isOfFire(r record.Ref) bool {
	if s.trigger > 0 {
		return r.Trigger == s.trigger
	}
	return r.Trigger == 0 && r.Fire == s.fire && (s.epoch == nil || r.Epoch == s.epoch.Number)
}

// summarize returns the sentences that answer the question, from the last gate that was checked.
func (s *subject) summarize(gate string, end result) string {
	if s.Rests && gate == "in force" && end.summary == "" {
		return capitalize(end.detail) + "."
	}
	if s.fire == 0 && gate == "due" {
		return "No fire: " + end.detail + "."
	}
	if s.fire == 0 {
		return "No fire can run: " + end.detail + "."
	}
	fire := "The fire of " + s.fire.String()
	switch {
	case s.trigger > 0:
		fire = fmt.Sprintf("The run of trigger %d, of %v,", s.trigger, s.fire)
	case s.isDaemon():
		fire = fmt.Sprintf("The daemon (fire %v)", s.fire)
	}
	switch {
	case end.summary != "":
		return fire + " " + end.summary + "."
	case end.Verdict == Stop && s.state == rerunPending:
		return fmt.Sprintf("%s %s: %s.", fire, s.describeEnded(), end.detail)
	case end.Verdict == Stop:
		return fmt.Sprintf("%s has not run: %s.%s", fire, end.detail, s.describeFate())
	default:
		return fmt.Sprintf("%s: %s.", strings.TrimSuffix(fire, ","), end.detail)
	}
}

// isDaemon reports whether the fire is the run of a daemon.
func (s *subject) isDaemon() bool {
	if s.Plan == nil || s.trigger > 0 {
		return false
	}
	e := s.epoch
	if e == nil {
		e = s.Plan.Last()
	}
	return e.Job().Always
}

// describeEnded describes the attempts that were made at a fire of which another is on record.
func (s *subject) describeEnded() string {
	if !s.run.IsRetry() {
		return fmt.Sprintf("is to be run again, as attempt %d", s.run.Attempt)
	}
	return fmt.Sprintf("failed%s and is to be retried, as attempt %d", times(s.run.Retries), s.run.Attempt)
}

// times returns how often something happened, "" for once.
func times(n int) string {
	if n < 2 {
		return ""
	}
	return fmt.Sprintf(" %d times", n)
}

// describeFate returns a sentence about how late a fire is that is not claimed, and whether it will run.
func (s *subject) describeFate() string {
	late := time.Duration(s.Now - s.fire)
	if s.trigger > 0 || s.epoch == nil || s.program == nil || s.epoch.Job().After != nil || late < 0 || s.state != notClaimed || s.meets(claiming.Paused) {
		return ""
	}
	if s.isDaemon() { // which has no time to be late for
		return fmt.Sprintf(" It is to run since %s.", seconds(s.fire))
	}
	text := fmt.Sprintf(" It is %v late", late.Round(time.Second))
	found, ok := due.InEpoch(s.epoch, s.program, s.mark, s.Now, s.meets(claiming.Disabled))
	switch {
	case !ok:
		return ""
	case !found.Through.IsZero() && record.InstantOf(found.Through) >= s.fire && record.InstantOf(found.Fire) != s.fire:
		return text + ", and its policy would skip it now."
	}
	return text + " and still due."
}

// seconds returns an instant of a clock without its fraction of a second. Fires have all their digits.
func seconds(at record.Instant) string { return at.Time().Format(time.RFC3339) }

// isLive reports whether the session of an incarnation exists.
func (r *Records) isLive(inc string) bool { return r.Live[record.SessionOf(inc)] }

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
