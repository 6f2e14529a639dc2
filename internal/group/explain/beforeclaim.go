package explain

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/count"
	"github.com/rota-dev/rota/internal/group/claiming"
	"github.com/rota-dev/rota/internal/group/due"
	"github.com/rota-dev/rota/internal/group/planning"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

const restoreRecord = "restore or delete the record; see docs/protocol/record-edits.md"

// damage returns the rule that a damaged record breaks.
func (s *subject) damage(key registry.Key) (rule string, damaged bool) {
	rule, damaged = s.Unreadable[key]
	return rule, damaged
}

func (s *subject) checkDefined() result {
	segment := record.Segment(s.Job)
	for _, key := range []registry.Key{s.Keys.Job(segment), s.Keys.Plan(segment)} {
		if rule, damaged := s.damage(key); damaged && !(key == s.Keys.Job(segment) && s.Plan != nil) {
			return stop(restoreRecord, "%s cannot be read: %s", key, rule)
		}
	}
	if rule, damaged := s.damage(s.Keys.Defined(segment)); damaged && s.Definition == nil && s.Plan == nil {
		return stop(restoreRecord, "%s cannot be read: %s", s.Keys.Defined(segment), rule)
	}
	switch {
	case s.isDeleted() && s.Plan == nil:
		return s.stopForLeader("", "the job was deleted%s, and the leader has not deleted its records yet", s.deletionText())
	case s.Definition == nil && s.Plan == nil:
		return stop("check the names of the job, the namespace and the group; if they are right, start a process that registers the job", "no process has stored a definition of the job")
	case s.Definition == nil:
		return unclear("the stored definition is missing or cannot be read; the plan has revision %d", s.Plan.Last().Job().Revision)
	}
	return pass("revision %d is stored", s.Stored.Revision)
}

// inForce returns the definition by which shards are assigned, or the name alone if there is none.
func (s *subject) inForce() record.Job {
	if job := s.leader.InForce(record.Segment(s.Job)); job.Name != "" {
		return job
	}
	return record.Job{Name: s.Job}
}

func (s *subject) checkOffered() result {
	offers, unsupported, live := 0, 0, 0
	for inc, m := range s.Members {
		if !s.isLive(inc) {
			continue
		}
		live++
		if m.Offers(s.inForce()) {
			offers++
		} else if m.LacksSupport(s.inForce()) {
			unsupported++
		}
	}
	switch {
	case offers > 0:
		verb := "offer"
		if offers == 1 {
			verb = "offers"
		}
		return pass("%d of %s %s the job", offers, instances(live), verb)
	case s.owner != "" && s.isAwaited(s.owner):
		return pass("no live instance offers it; %s is awaited", record.InstanceOf(s.owner))
	case unsupported > 0:
		return stop("finish the upgrade, or start an instance of the newer version",
			"%s: %s", planning.UnsupportedProblem, plural(unsupported, "instance registers it", "instances register it"))
	}
	detail := fmt.Sprintf("%s; %s in the group", planning.UnofferedProblem, are(live))
	if s.Plan != nil && s.Plan.Unoffered != 0 {
		detail += fmt.Sprintf(", and since %s none has. After %v its due fires are skipped", seconds(s.Plan.Unoffered), planning.MaxUnoffered)
	}
	return stop(s.adviseUnoffered(), "%s", detail)
}

// adviseUnoffered returns what to do about a job that no live instance offers.
func (s *subject) adviseUnoffered() string {
	if kind := s.inForce().Kind; kind != "" {
		return fmt.Sprintf("start a process that registers the kind %q; if it was removed on purpose, delete the job", kind)
	}
	return fmt.Sprintf("start a process that registers the job; if it was removed or renamed on purpose: rota retire %s", s.Job)
}

// isAwaited reports whether the shards of an absent incarnation wait for its return, if it has not been absent for too long: the records
// do not show for how long it has been.
func (s *subject) isAwaited(inc string) bool { return s.leader.IsAwaited(record.Segment(s.Job), inc) }

// noLeader is the remedy if the leader is to act and there is none.
const noLeader = "start an instance, since the group has no leader"

// stopForLeader is stop for a fire that waits for an act of the leader.
func (s *subject) stopForLeader(do, format string, args ...any) result {
	if s.Leader == "" {
		do = noLeader + "; see elections in docs/operating/messages.md"
		format = strings.ReplaceAll(format, "the leader has not", "no leader has")
	}
	return stop(do, format, args...)
}

func (s *subject) checkInForce() result {
	if s.Rests {
		return s.checkRest()
	}
	if s.Plan == nil {
		do := "look at the leader's log"
		if s.Leader == "" {
			do = "start an instance that can lead; see the log line \"no leader\" or the elections in docs/operating/messages.md"
		}
		return stop(do, "no leader has made a plan yet (leader: %s)", s.leaderText())
	}
	last := s.Plan.Last()
	if s.trigger > 0 && s.epoch == nil {
		return pass("the definition of the run is not in the plan any more; revision %d is in force", last.Job().Revision)
	}
	pending := ""
	if s.Definition != nil && s.Stored.Revision > last.Job().Revision {
		pending = fmt.Sprintf("; revision %d is stored, and not in force yet", s.Stored.Revision)
	}
	for _, other := range s.findOthers() {
		pending += "; " + other.String()
	}
	if s.fire == 0 {
		return pass("revision %d%s", last.Job().Revision, pending)
	}
	if e := s.epoch; e != nil {
		if s.shard >= e.Job().Shards {
			return stop("", "revision %d, in force at that instant, has only %s", e.Job().Revision, count.Of(e.Job().Shards, "shard"))
		}
		return pass("revision %d was in force at that instant, since %s%s", e.Job().Revision, seconds(e.From), pending)
	}
	first := &s.Plan.Epochs[0]
	switch {
	case last.Until != 0 && s.fire >= last.Until && (s.Plan.Paused || s.Plan.Stopped):
		return pass("revision %d, until %s%s", last.Job().Revision, seconds(last.Until), pending)
	case last.Until != 0 && s.fire >= last.Until:
		return s.stopForLeader("wait for the leader", "revision %d was in force until %s, and the leader has not begun the next definition%s", last.Job().Revision, seconds(last.Until), pending)
	case s.fire < first.From && first.Number == 1:
		return stop("", "the job exists since %s, which is later; earlier fires are not due", seconds(first.From))
	case s.fire < first.From:
		return unclear("definitions before %s are not in the plan any more, so the fire was run or skipped, or never due", seconds(first.From)).lookUp()
	}
	next := first
	for i := range s.Plan.Epochs {
		if e := &s.Plan.Epochs[i]; e.From > s.fire {
			next = e
			break
		}
	}
	return stop("", "no definition was in force at that instant: fires count again from %s, after a pause, a reset or a new definition", seconds(next.From))
}

// scheduleText returns the text of the schedule of an epoch.
func scheduleText(e *record.Epoch) string {
	if text := scheduleOf(e); text != "" {
		return fmt.Sprintf("the schedule %q", text)
	}
	return "the schedule"
}

// scheduleOf returns the schedule as the definition of an epoch has it, "" if the definition has another form.
func scheduleOf(e *record.Epoch) string {
	var d struct {
		Schedule string `json:"schedule"`
	}
	_ = json.Unmarshal(e.Def, &d)
	return d.Schedule
}

func (s *subject) checkDue() result {
	if s.trigger > 0 {
		return pass("trigger %d requested the run", s.trigger)
	}
	e := s.epoch
	if e == nil { // the job is paused, or its schedule stopped
		e = s.Plan.Last()
	}
	if after := e.Job().After; after != nil {
		return s.checkFollowed(e, after)
	}
	prog := s.programs[e.Number]
	switch {
	case prog == nil && s.fire == 0:
		return stop("give an instant", "no fire is on record, and the schedules of the job are not known here")
	case prog == nil:
		return unclear("whether %s has the instant is not known here", scheduleText(e))
	case s.fire == 0:
		return s.describeNoFire(e, prog)
	case s.fire > s.Now && s.state == notClaimed:
		if s.schedules(e, prog) {
			return stop("", "the fire is due in %v", time.Duration(s.fire-s.Now).Round(time.Second))
		}
	case s.schedules(e, prog):
		return pass("%s has the instant", scheduleText(e))
	}
	if due.CountsEnds(prog) {
		if s.state != notClaimed {
			return pass("%s counts from the ends of runs, and the fire is on record", scheduleText(e))
		}
		return unclear("%s counts from the ends of runs, so its earlier instants are not on record. %s", scheduleText(e), s.describeNext(e, prog))
	}
	r := stop("ask for an instant of the schedule", "%s does not have the instant. %s", scheduleText(e), s.describeNext(e, prog))
	if others := s.findOthers(); len(others) > 0 {
		r.detail += fmt.Sprintf(". %v", others[0])
		r.do = "ask for an instant of the schedule, or raise the revision of the definition that should be in force"
	}
	return r
}

// findOthers returns the definitions of live members that are not the stored one.
func (s *subject) findOthers() []record.OtherDefinition {
	if s.Definition == nil {
		return nil
	}
	var live []*record.Member
	for _, inc := range sortedKeys(s.Members) {
		if m := s.Members[inc]; s.isLive(inc) && !m.Draining {
			live = append(live, &m)
		}
	}
	return record.FindOthers(live, s.Job, s.Stored.Revision)
}

// describeNoFire describes a shard that has had no fire, and whose triggers, if there were any, have ended without a
// failure on record.
func (s *subject) describeNoFire(e *record.Epoch, prog due.Program) result {
	next := s.describeNext(e, prog)
	if s.mark.Trigger == 0 {
		return stop("", "%s", next)
	}
	r := pass("%s; trigger %d of the shard was claimed as attempt %d and has ended, and no failure of it is on record", next, s.mark.Trigger, s.mark.TriggerAttempt)
	r.last = true
	return r
}

// schedules reports whether the schedule of an epoch has the fire. A fire is due alone at its own instant.
func (s *subject) schedules(e *record.Epoch, prog due.Program) bool {
	if due.CountsEnds(prog) {
		found, ok := due.InEpoch(e, prog, s.mark, s.fire, false)
		return ok && record.InstantOf(found.Fire) == s.fire
	}
	return record.InstantOf(prog.Due((s.fire-1).Time(), time.Time{}, s.fire.Time()).Fire) == s.fire
}

// describeNext names the next fire.
func (s *subject) describeNext(e *record.Epoch, prog due.Program) string {
	from, until := max(s.Now, e.From-1), e.Until
	if s.epoch == nil { // the job is paused or its schedule stopped, and would go on with this definition
		until = 0
	}
	if due.CountsEnds(prog) {
		found, ok := due.InEpoch(e, prog, s.mark, s.Now, false)
		if !ok || found.Wake.IsZero() {
			return "it has no next fire yet"
		}
		return fmt.Sprintf("the next fire is at %v", record.InstantOf(found.Wake))
	}
	next := prog.Due(from.Time(), until.Time(), from.Time()).Wake
	if next.IsZero() && scheduleOf(e) == "on trigger" {
		return "the job runs by triggers only"
	}
	if next.IsZero() {
		return "it has no further fire"
	}
	return fmt.Sprintf("the next fire is at %v", record.InstantOf(next))
}

// hold is an intent that keeps runs from beginning.
type hold struct {
	what, do string
	verb     Verb
	effect   string // on the fire
}

// findHold returns what keeps every run of the shard from beginning, apart from a disabled shard.
func (s *subject) findHold() (hold, bool) {
	if !s.meets(claiming.Paused) {
		return hold{}, false
	}
	effect := "; fires that were due before wait for the resume"
	switch {
	case s.state == rerunPending:
		effect = fmt.Sprintf("; attempt %d waits for the resume", s.run.Attempt)
	case s.trigger > 0:
		effect = "; triggers wait for the resume"
	case s.epoch == nil:
		effect = "; fires that come due during the pause are never run"
	}
	switch since := s.Plan.Last().Until; {
	case s.isDeleted():
		return hold{"the job was deleted" + s.deletionText(), "", "", ", so no run of it begins"}, true
	case s.Control != nil && s.Control.Retiring != nil:
		do := "deploy without the job, and the leader deletes it; to keep it: rota unretire " + s.Job
		if s.Leader == "" {
			do = noLeader + ", and deploy without the job; to keep it: rota unretire " + s.Job
		}
		return hold{"the job is retiring" + sinceText(s.Control.Retiring), do, "", ", so no run of it begins"}, true
	case s.Plan.GroupPause != nil && since != 0:
		return hold{"all jobs of the group are paused" + heldText(s.Group.HeldBy) + ", this one since " + seconds(since), "resume the group", ResumeGroup, effect}, true
	case s.Plan.GroupPause != nil:
		return hold{"all jobs of the group are paused" + heldText(s.Group.HeldBy), "resume the group", ResumeGroup, effect}, true
	case s.Control != nil && !s.Control.Paused:
		return hold{}, false // a resume is stored
	case since != 0:
		return hold{"the job is paused since " + seconds(since) + s.heldText(), "resume the job", Resume, effect}, true
	}
	return hold{"the job is paused" + s.heldText(), "resume the job", Resume, effect}, true
}

// findDisabled returns the effect that a disabled shard has on the fire.
func (s *subject) findDisabled() (hold, bool) {
	if !s.meets(claiming.Disabled) {
		return hold{}, false
	}
	h := hold{"the shard is disabled", "enable the shard", Enable, ", and its re-run waits until it is enabled"}
	if s.Control != nil {
		h.what += sinceText(s.Control.Acts.DisabledShard(s.shard))
	}
	switch reason, dropped := s.findDrop(); {
	case dropped:
		h.effect = ", and its owner " + reason
	case s.state == rerunPending:
	case s.trigger > 0:
		h.effect = ", and its triggers wait until it is enabled"
	default:
		h.do += "; " + s.makeUp("trigger it to make up for skipped fires")
		h.effect = ", and its owner skips its fires"
	}
	return h, true
}

// waitingTrigger returns the first trigger of the shard of which no run has been claimed; zero for none.
func (s *subject) waitingTrigger() uint64 {
	if s.Plan == nil || s.trigger > 0 {
		return 0
	}
	for _, t := range s.Plan.Triggers {
		if e, ok := s.Plan.Epoch(t.Epoch); ok && t.Number > s.mark.Trigger && due.TriggerTargets(t, e).Has(s.shard) {
			return t.Number
		}
	}
	return 0
}

// makeUp returns how to make up for a skipped fire: as do says, or by the trigger that waits already.
func (s *subject) makeUp(do string) string {
	if n := s.waitingTrigger(); n > 0 {
		return fmt.Sprintf("trigger %d of the shard waits, and runs then", n)
	}
	return do
}

func (h hold) stop() result { return stop(h.do, "%s", h.what+h.effect).with(h.verb) }

func (s *subject) checkIntent() result {
	key := s.Keys.Control(record.Segment(s.Job))
	rule, damaged := s.damage(key)
	applied := s.Control == nil || s.Control.Paused == s.Plan.Paused && s.Control.Stopped == s.Plan.Stopped
	held, isHeld := s.findHold()
	disabled, isDisabled := s.findDisabled()
	switch {
	case isHeld:
		return held.stop()
	case s.meets(claiming.Paused):
		return s.stopForLeader("wait for the leader", "the job is paused; a resume is stored, and the leader has not applied it")
	case s.Plan.Stopped && s.epoch == nil && s.trigger == 0:
		return stop("resume the job, or trigger it", "the schedule of the job is stopped since %s%s; the job runs by triggers only", seconds(s.Plan.Last().Until), s.heldText()).with(Resume)
	case isDisabled:
		return disabled.stop()
	case s.Control != nil && s.Control.Retiring != nil:
		return pass("a retirement is stored, and not in force yet")
	case s.Control != nil && s.Control.Paused && !applied:
		return pass("a pause is stored, and not in force yet")
	case s.Control != nil && s.Control.Disabled.Has(s.shard):
		return pass("the shard is disabled by a record that is not in force yet")
	case damaged:
		return unclear("%s cannot be read (%s); the plan is not paused", key, rule)
	}
	return pass("neither the job is paused nor the shard disabled")
}

// heldText returns who paused the job or stopped its schedule, and why.
func (s *subject) heldText() string {
	if s.Control == nil {
		return ""
	}
	return heldText(s.Control.HeldBy)
}

// heldText returns who performed an act and why, "" if that is not on record.
func heldText(by *record.Act) string {
	switch {
	case by == nil || by.By == "" && by.Reason == "":
		return ""
	case by.Reason == "":
		return " by " + by.By
	case by.By == "":
		return fmt.Sprintf(" (%s)", by.Reason)
	}
	return fmt.Sprintf(" by %s (%s)", by.By, by.Reason)
}

// sinceText returns when an act was performed, by whom and why, as far as it is on record.
func sinceText(by *record.Act) string {
	if by == nil || by.At == 0 {
		return heldText(by)
	}
	return " since " + seconds(by.At) + heldText(by)
}

func (s *subject) leaderText() string {
	if s.Leader == "" {
		return "none"
	}
	return fmt.Sprintf("%s, term %d", s.Leader, s.Term)
}

func (s *subject) checkLeader() result {
	if s.Leader != "" {
		return pass("%s leads, term %d", s.Leader, s.Term)
	}
	const do = "see elections in docs/operating/messages.md; start an instance if none is alive"
	switch {
	case s.owner == "":
		return stop(do, "the group has no leader, so the shard gets no owner")
	case !s.isLive(s.owner):
		return stop(do, "the group has no leader, so the shard of %s, whose session has expired, is not reassigned", record.InstanceOf(s.owner))
	case s.Plan.Frozen.Has(s.shard):
		return stop(do, "the group has no leader, so the frozen shard is not moved")
	}
	return pass("the group has none; owners go on with their shards")
}

func (s *subject) checkOwner() result {
	if s.owner == "" {
		return s.explainUnowned()
	}
	name := record.InstanceOf(s.owner)
	m, known := s.Members[s.owner]
	skew, skewed := s.Skewed[s.owner]
	switch {
	case !s.isLive(s.owner) && s.isAwaited(s.owner):
		return stop(fmt.Sprintf("start %s again; or disable it, so that its shards move", name), "the session of the owner %s has expired; its shards wait up to %v for its return (restart grace)",
			name, min(time.Duration(m.RestartGrace), planning.MaxRestartGrace)).withDrainOf(name)
	case !s.isLive(s.owner):
		return stop("wait for the failover; if it takes long, look at the leader's log", "the session of the owner %s has expired, and the leader has not reassigned the shard yet", name)
	case !known:
		return unclear("%s owns the shard, and its member record is missing or cannot be read", name)
	case skewed:
		return stop("set the clock of "+name, "the clock of the owner %s is %s the fleet's median, so it claims nothing", name, aheadText(time.Duration(skew)))
	case s.meets(claiming.Blocked):
		return stop("end the process of "+name, "the owner %s may not run the shard, since a handler of its earlier session has not returned", name)
	case slices.Contains(m.Unsupported, s.Job):
		return stop("finish the upgrade", "the owner %s does not support a definition in force", name)
	case m.Draining && s.isAwaited(s.owner):
		return stop("wait for the restart of "+name, "the owner %s drains and claims nothing; its shards wait for its return (restart grace)", name)
	case m.Draining:
		return stop("wait for the move", "the owner %s drains and claims nothing; the shard is about to move", name)
	}
	return pass("%s", name)
}

func aheadText(d time.Duration) string {
	if d.Abs() > 10*time.Second {
		d = d.Round(time.Second) // the comparison is no more exact than a message takes
	}
	if d < 0 {
		return fmt.Sprintf("%v behind", -d)
	}
	return fmt.Sprintf("%v ahead of", d)
}

// explainUnowned names the reason why each live instance that offers the job does not own the shard.
func (s *subject) explainUnowned() result {
	wanted := s.leader.InForce(record.Segment(s.Job)).RunOn
	reasons, remedies := map[string][]string{}, map[string]bool{}
	var enable []string // commands
	offers, free := 0, 0
	for _, inc := range sortedKeys(s.Members) {
		m := s.Members[inc]
		if !s.isLive(inc) || !m.Offers(s.inForce()) {
			continue
		}
		offers++
		reason, remedy := "", ""
		disabled := s.findExclusion(&m)
		switch skew, skewed := s.Skewed[inc]; {
		case m.Draining:
			reason, remedy = "draining", "start an instance"
		case skewed:
			reason, remedy = fmt.Sprintf("clock %s the fleet's median", aheadText(time.Duration(skew))), "set the clock"
		case disabled != nil:
			reason, enable = "disabled"+sinceText(disabled.by), append(enable, disabled.command)
		case !record.HasLabels(m.Labels, wanted):
			reason, remedy = "without the labels "+record.LabelsText(wanted), "start an instance with the labels; or correct run_on and raise the revision"
		case m.Blocked[s.Job].Has(s.shard):
			reason, remedy = "with a handler of an earlier session that has not returned", "end that process"
		default:
			free++
			continue
		}
		reasons[reason] = append(reasons[reason], m.Name)
		if remedy != "" {
			remedies[remedy] = true
		}
	}
	if slices.Sort(enable); len(enable) > 0 {
		remedies["enable the instance or its host: "+nameSome(slices.Compact(enable))] = true
	}
	detail := "the shard has no owner"
	if free > 0 {
		if s.Plan.Problem != "" {
			return stop("see the problem in docs/operating/messages.md", "%s: %s", detail, s.Plan.Problem)
		}
		return stop("wait for the leader; if it takes long, look at its log", "%s yet, though %s may own it", detail, instances(free))
	}
	var all []string
	for _, reason := range sortedKeys(reasons) {
		all = append(all, fmt.Sprintf("%s: %s", reason, nameSome(reasons[reason])))
	}
	if len(all) == 0 {
		return stop(s.adviseUnoffered(), "%s: %s", detail, planning.UnofferedProblem)
	}
	return stop(strings.Join(sortedKeys(remedies), "; "), "%s: %s, and none may own it (%s)", detail, offer(offers), strings.Join(all, "; "))
}

// exclusion is the act that disabled an instance, and the command that ends that.
type exclusion struct {
	by      *record.Act // nil: it is not on record
	command string
}

// findExclusion returns why a member may own no shards of the job, nil if it is not disabled.
func (s *subject) findExclusion(m *record.Member) *exclusion {
	has := func(names []string, name string) bool { return name != "" && slices.Contains(names, name) }
	switch g, c := &s.Group, s.Control; {
	case has(g.Instances, m.Name):
		return &exclusion{g.Acts.DisabledInstance(m.Name), "rota undrain " + m.Name}
	case has(g.Hosts, m.Host):
		return &exclusion{g.Acts.DisabledHost(m.Host), "rota enable --host " + m.Host}
	case c == nil:
		return nil
	case has(c.Instances, m.Name):
		return &exclusion{c.Acts.DisabledInstance(m.Name), fmt.Sprintf("rota enable %s --instance %s", s.Job, m.Name)}
	case has(c.Hosts, m.Host):
		return &exclusion{c.Acts.DisabledHost(m.Host), fmt.Sprintf("rota enable %s --host %s", s.Job, m.Host)}
	}
	return nil
}

// nameSome joins names and counts those after the first few.
func nameSome(names []string) string {
	const most = 5
	if more := len(names) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), more)
	}
	return strings.Join(names, ", ")
}

func instances(n int) string { return count.Of(n, "instance") }

func offer(n int) string { return plural(n, "instance offers the job", "instances offer the job") }

func are(n int) string {
	if n == 1 {
		return "1 instance is"
	}
	return fmt.Sprintf("%d instances are", n)
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

func (s *subject) checkFrozen() result {
	if !s.meets(claiming.Frozen) {
		return pass("the shard is not about to move")
	}
	from := record.InstanceOf(s.owner)
	if m, known := s.Members[s.owner]; known {
		if x := s.findExclusion(&m); x != nil {
			from += ", which is disabled" + sinceText(x.by)
		}
	}
	for _, inc := range sortedKeys(s.runners) {
		if run, ok := s.runners[inc].Of(s.shard); ok {
			return stop("wait for the run to end, or cancel it", "the shard is frozen, since it is to move from %s; it moves when %s has ended", from, describeRun(run)).with(Cancel)
		}
	}
	return stop("wait for the leader; if it takes long, look at its log", "the shard is frozen, since it is to move from %s; the leader has to read its owner's claims", from)
}

func describeRun(r record.Ref) string {
	if r.Trigger > 0 {
		return fmt.Sprintf("the run of trigger %d (attempt %d)", r.Trigger, r.Attempt)
	}
	return fmt.Sprintf("the run of %v (attempt %d)", r.Fire, r.Attempt)
}

func (s *subject) checkAhead() result {
	if run, runs := s.find(claiming.Running); runs {
		detail := fmt.Sprintf("%s has not ended on %s, and a shard has one run at a time", describeRun(run), record.InstanceOf(s.owner))
		if s.trigger == 0 && s.state == notClaimed && s.epoch != nil && s.epoch.Job().SkipsOverlapping() && due.ClaimedOnTime(run) {
			r := stop("only if the run hangs, cancel it; a timeout bounds it", "%s. The job skips the fires that come due meanwhile (overlap)", detail).with(Cancel)
			r.summary = "is to be skipped, as " + detail + ": the job skips the fires that come due meanwhile (overlap)"
			return r
		}
		return stop("wait for its end, which a timeout bounds; or cancel it", "%s", detail).with(Cancel)
	}
	if retry, waits := s.find(claiming.Waits); waits && !s.isOfFire(retry) {
		return stop("wait", "a retry of %v (attempt %d) goes first, and waits until %s", retry.Fire, retry.Attempt, seconds(retry.NotBefore))
	}
	first, found := s.find(claiming.Claims)
	slotless := ""
	if !found { // runs without a slot and those without a program go first, too
		if first, found = s.find(claiming.NoSlot); found {
			slotless = ", and waits for a slot of pool " + s.epochOf(first).Job().Pool
		} else {
			first, found = s.find(claiming.Unsupported)
		}
	}
	earlier := func(r record.Ref) bool { return s.trigger == 0 && s.epoch != nil && r.Epoch < s.epoch.Number }
	_, dropped := s.findDrop()
	switch next, waits := s.findRun(claiming.NotDue, earlier); {
	case s.state == rerunPending && (!found || s.isOfFire(first) || dropped):
		return pass("the re-run of this fire goes first")
	case waits:
		return stop("wait", "the fires of revision %d, an earlier definition, go first, and the next one is due at %v", s.revision(next), next.Fire)
	case !found || s.isOfFire(first):
	case first.Attempt > 1:
		return stop("wait", "%s goes first%s", describeRun(first), slotless)
	case first.Trigger > 0:
		i := slices.IndexFunc(s.Plan.Triggers, func(t record.Trigger) bool { return t.Number == first.Trigger })
		return stop("wait", "trigger %d of %s goes first%s", first.Trigger, seconds(s.Plan.Triggers[i].At), slotless)
	case earlier(first) && first.Attempt == 1:
		return stop("wait", "the fire of %v goes first: it is due by revision %d, an earlier definition%s", first.Fire, s.revision(first), slotless)
	case earlier(first) && s.mark.Epoch <= first.Epoch:
		return unclear("fires of revision %d, an earlier definition whose schedule is not known here, may go first", s.revision(first))
	}
	return pass("no run, re-run or trigger of the shard goes first")
}

// revision returns the revision of the definition of a run.
func (s *subject) revision(r record.Ref) int { return s.epochOf(r).Job().Revision }
