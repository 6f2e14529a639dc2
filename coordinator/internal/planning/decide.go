package planning

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rota-dev/rota/coordinator/internal/batch"
	"github.com/rota-dev/rota/coordinator/internal/due"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/registry"
)

// Decision is what a view calls for.
type Decision struct {
	Changes  []Change  // of plans, by segment
	Reapings []Reaping // of incarnations that own nothing any more
	Reads    []string  // incarnations whose claims must be read first; then decide again
	Follow   []string  // incarnations that run shards which wait to move: follow their claims
}

// Change is a new plan for a job, with what must hold and go with it. All of a change is
// committed at once, with the term, or nothing.
type Change struct {
	Segment string
	rev     registry.Rev // of the plan it replaces; zero to create it
	Plan    *record.Plan
	Expired []registry.SessionID
	conds   []registry.Cond
	ops     []registry.Op
	Why     []string // for the log, and for the plan
	Upkeep  []string // for the log only: what there is of it day by day would hide the rest
}

// Reaping removes what an incarnation left behind once its shards have gone.
type Reaping struct {
	Incarnation string
	Parts       []batch.Share // the last one deletes the member record, so that what is left can be found again
}

// Decide is planning: a pure function from a view to what has to be done. It is run
// whenever the view changes and on a slow tick, so that nothing depends on having seen
// an event.
func Decide(v *View) Decision {
	d := Decision{}
	v.expired = v.ExpiredMembers()
	v.skewReports = v.silentMembers()
	v.awaitReturns()
	segments := v.segments()
	want := v.assignments(segments)
	looks, pending := map[string]bool{}, map[string]bool{}
	for i, seg := range segments {
		if len(want[i].owners) == 0 && want[i].problem == "" {
			v.explainUnowned(seg, &want[i])
		}
		if plan, ok := v.Plans[seg]; ok && len(v.skewReports) > 0 {
			want[i].problem = joinProblems(want[i].problem, v.aheadProblem(plan.Plan))
		}
		if key, ok := v.UnreadableInputs[seg]; ok {
			want[i].problem = joinProblems(want[i].problem, fmt.Sprintf("%s cannot be read", key))
		}
		p := jobPlanner{View: v, segment: seg, desired: want[i], looks: looks, pending: pending}
		if c, ok := p.run(); ok {
			d.Changes = append(d.Changes, c)
		}
	}
	d.Reapings = v.burials(looks, d.Changes)
	d.Reads = slices.Sorted(maps.Keys(looks))
	d.Follow = slices.Sorted(maps.Keys(pending))
	return d
}

// explainUnowned finds out why a job has no owners where the assignment does not know.
func (v *View) explainUnowned(segment string, d *desired) {
	switch job := v.jobNow(segment).Name; {
	case v.puzzling(job):
		d.problem = UnsupportedProblem
	case v.unoffered(segment, job):
		d.problem, d.unoffered = UnofferedProblem, true
	}
}

// segments returns all jobs that have a plan or a definition, sorted.
func (v *View) segments() []string {
	segs := make([]string, 0, len(v.Plans)+8)
	for seg := range v.Plans {
		segs = append(segs, seg)
	}
	for seg := range v.Jobs {
		if _, ok := v.Plans[seg]; !ok && !v.UnreadablePlans[seg] {
			segs = append(segs, seg)
		}
	}
	slices.Sort(segs)
	return segs
}

// planning is the making of one job's next plan.
type jobPlanner struct {
	*View
	segment string
	desired desired
	looks   map[string]bool
	pending map[string]bool

	prev      PlanRecord
	next      *record.Plan // the next plan; a clone of old until something changes
	change    Change
	needsRoom bool // something waits for room in the plan: what has been served is cleared at once
}

// run returns the change that the view calls for, if any.
func (p *jobPlanner) run() (Change, bool) {
	p.change.Segment = p.segment
	old, ok := p.Plans[p.segment]
	if !ok {
		return p.create()
	}
	if p.EditedPlans[p.segment] {
		return p.restorePlan()
	}
	if p.prev = old; p.settled() {
		return Change{}, false
	}
	p.next = old.Clone()
	p.change.rev, p.change.Plan = old.Rev, p.next
	p.offeredAgain()
	p.intent()
	p.definition()
	p.triggers()
	p.inherit()
	p.failOver()
	p.move()
	p.noteUnoffered()
	if (p.SlowTick || p.needsRoom) && clearable(p.next) {
		p.clear()
	}
	p.problem(p.desired.problem)
	return p.change, len(p.change.Why)+len(p.change.Upkeep) > 0
}

// settled reports that the plan is what it should be, at a glance and without a copy: a
// leader of ten thousand jobs sees that of nearly all of them each time.
func (p *jobPlanner) settled() bool {
	old := p.prev
	if p.SlowTick && clearable(old.Plan) || p.bereaved() || old.Problem != p.desired.problem || !old.Frozen.IsZero() || len(old.Owners) != len(p.desired.owners) {
		return false
	}
	for inc, want := range p.desired.owners {
		if !p.Alive(inc) || !want.Equal(old.Owners[inc]) {
			return false
		}
	}
	if p.desired.unoffered != (old.Unoffered != 0) {
		return false
	}
	if c, ok := p.Control[p.segment]; ok && (c.Paused != old.Paused || c.Stopped != old.Stopped || !c.Disabled.Equal(old.Disabled) || len(c.Triggers) > 0) {
		return false
	}
	if old.Paused {
		return true
	}
	if old.Stopped {
		return !p.newer(old.Last())
	}
	if p.resetDueIn(old.Plan) {
		return false
	}
	job, ok := p.Jobs[p.segment]
	return old.Last().Until == 0 && (!ok || bytes.Equal(job.Def, old.Last().Def))
}

// create makes the first plan of a job, once somebody offers it, also one who may not run
// it: its fires count from then on.
func (p *jobPlanner) create() (Change, bool) {
	job, ok := p.Jobs[p.segment]
	if !ok || len(p.desired.owners) == 0 && !p.desired.barred {
		return Change{}, false
	}
	was, ok := p.before(job)
	if !ok {
		return Change{}, false
	}
	first, err := record.NewEpoch(was.gen+1, max(p.Now, was.through+1), job.Def)
	if err != nil { // the view holds only definitions that parse
		return Change{}, false
	}
	p.next = &record.Plan{
		Format: record.Format, Job: job.Name, Epochs: []record.Epoch{first},
		Owners: map[string]shardset.Set{}, Paused: job.StartPaused,
	}
	if c, ok := p.Control[p.segment]; ok {
		p.next.Paused, p.next.Stopped, p.next.Disabled, p.next.Resets = c.Paused, c.Stopped, c.Disabled, c.Resets
	}
	if p.next.Paused || p.next.Stopped {
		p.next.Last().Until = p.Now // what falls due before the first resume is not owed
	}
	p.change.Plan = p.next
	p.keepRunning(was.running)
	p.give(p.unowned())
	p.triggers()
	p.problem(p.desired.problem)
	p.because("create")
	return p.change, true
}

func (p *jobPlanner) because(format string, args ...any) {
	p.change.Why = append(p.change.Why, fmt.Sprintf(format, args...))
}

func (p *jobPlanner) upkeeping(format string, args ...any) {
	p.change.Upkeep = append(p.change.Upkeep, fmt.Sprintf(format, args...))
}

// Note writes down in the plan why it is as it is. That is no part of planning: nothing
// rests on it, and it is no reason to write a plan.
func (c *Change) NoteDecision(d record.Decision) {
	if len(c.Why) > 0 {
		d.What = strings.Join(c.Why, "; ")
		c.Plan.Note(d)
	}
}

// addProblem adds a text to the problem that the plan is to name.
func (p *jobPlanner) addProblem(text string) {
	p.desired.problem = joinProblems(p.desired.problem, text)
}

// problem keeps in the plan why it is not what it should be.
func (p *jobPlanner) problem(text string) {
	if p.next.Problem != text {
		p.next.Problem = text
		p.because("problem %q", text)
	}
}

// intent copies what operators want into the plan, so that the condition with which every
// claim names the plan makes a pause exact, and the disabling of shards.
func (p *jobPlanner) intent() {
	c, ok := p.Control[p.segment]
	if !ok {
		return
	}
	if more := c.Disabled.Minus(p.next.Disabled); !more.IsZero() {
		p.because("disable %s", more)
	}
	if less := p.next.Disabled.Minus(c.Disabled); !less.IsZero() {
		p.because("enable %s", less)
	}
	p.next.Disabled = c.Disabled
	if c.Paused != p.next.Paused || c.Stopped != p.next.Stopped {
		p.pause(c.Paused, c.Stopped)
	}
}

// pause pauses a job, stops its schedule, or ends that with a new generation. The new generation
// begins after all fires that owners have claimed, so it waits for reads of their claims.
func (p *jobPlanner) pause(paused, stopped bool) {
	if paused || stopped {
		p.next.Paused, p.next.Stopped = paused, stopped
		p.endAll(p.Now) // what would fall due from now on is not owed
		if stopped {
			p.because("stop the schedule")
		} else {
			p.because("pause")
		}
		return
	}
	through, ok := p.claimed()
	if !ok {
		return
	}
	p.next.Paused, p.next.Stopped = false, false
	from := max(p.Now.Add(p.Skew), through+1)
	p.endAll(from)
	p.takeReset()
	p.append(from, p.newest())
	p.because("resume")
}

// unowned returns the shards that nobody owns.
func (p *jobPlanner) unowned() shardset.Set {
	all := shardset.Range(0, p.next.Shards())
	for _, shards := range p.next.Owners {
		all = all.Minus(shards)
	}
	return all
}

// give gives shards that nobody owns to those who should have them. What the plan says of
// them is complete: whoever took them from their last owner folded its claims in.
func (p *jobPlanner) give(shards shardset.Set) {
	for _, inc := range slices.Sorted(maps.Keys(p.desired.owners)) {
		part := p.desired.owners[inc].Intersect(shards)
		if part.IsZero() {
			continue
		}
		p.next.Owners[inc] = p.next.Owners[inc].Union(part)
		p.because("give %s to %s", part, record.InstanceOf(inc))
	}
}

// move takes shards from owners who should not have them and gives them to those who
// should. Idle shards of a member that drains move at once: its record shows that it
// claims nothing more. Those of others are frozen first, so that no claim can come
// between the look at their owner's claims and the move; what turns out to be running
// stays frozen with its owner until it has ended, and nobody else waits.
func (p *jobPlanner) move() {
	frozen := shardset.Set{}
	for _, inc := range slices.Sorted(maps.Keys(p.next.Owners)) {
		if _, known := p.Members[inc]; !known || !p.Alive(inc) {
			// Its record has not been delivered yet, or it is failOver's business.
			frozen = frozen.Union(p.next.Frozen.Intersect(p.next.Owners[inc]))
			continue
		}
		if leave := p.next.Owners[inc].Minus(p.desired.owners[inc]); !leave.IsZero() {
			frozen = frozen.Union(p.take(inc, leave))
		}
	}
	if !frozen.Equal(p.next.Frozen) {
		if more := frozen.Minus(p.next.Frozen); !more.IsZero() {
			p.because("freeze %s", more)
		}
		if less := p.next.Frozen.Minus(frozen); !less.IsZero() {
			p.because("unfreeze %s", less)
		}
		p.next.Frozen = frozen
	}
	p.next.Owners = withoutEmpty(p.next.Owners)
	p.give(p.unowned())
}

// take removes from a live owner those of shards that are known to be idle, and returns
// the ones that must be or stay frozen.
func (p *jobPlanner) take(inc string, shards shardset.Set) (frozen shardset.Set) {
	m := p.Members[inc]
	fenced := shards // nothing can be claimed on these any more
	since := m.Rev
	if !m.Draining {
		fenced = shards.Intersect(p.prev.Frozen)
		since = p.prev.Rev
	}
	if fenced.IsZero() {
		return shards
	}
	l, ok := p.looked(inc, since)
	if !ok {
		p.looks[inc] = true
		return shards
	}
	if p.unreadable(inc, l) {
		return shards
	}
	claims := l.claimsOf(p.segment)
	running := claims.Running.Shards().Intersect(fenced)
	if !running.IsZero() {
		p.pending[inc] = true
	}
	if idle := fenced.Minus(running); !idle.IsZero() {
		p.fold(claims, idle)
		p.next.Owners[inc] = p.next.Owners[inc].Minus(idle)
		p.because("take %s from %s", idle, record.InstanceOf(inc))
		shards = shards.Minus(idle)
		if item, ok := l.Claims[p.segment]; ok && m.Draining && p.next.Owners[inc].IsZero() {
			p.inheritFrom(inc, item) // it will write no more of this job
		}
	}
	return shards
}

// unreadable reports, and says in the plan, that an owner's claims cannot be read: its
// shards stay where they are until somebody has mended or removed the record.
func (p *jobPlanner) unreadable(inc string, l FreshRead) bool {
	if l.Unreadable[p.segment] {
		p.addProblem(fmt.Sprintf("%s cannot be read", p.Keys.Claims(inc, p.segment)))
		return true
	}
	return false
}

// fold brings into the plan the watermarks and the runs handed back that an owner recorded for
// shards that leave it.
func (p *jobPlanner) fold(claims record.Claims, shards shardset.Set) {
	p.next.Watermarks = p.next.Watermarks.Fold(claims.Watermarks, shards)
	p.next.Reruns = due.Unclaimed(p.next.Reruns, p.next.Watermarks)
	for _, g := range due.Unclaimed(claims.Reruns.Within(shards), p.next.Watermarks) {
		p.next.Reruns = p.next.Reruns.With(g.Shards, g.Ref)
		p.because("retry %s, handed back", g.Shards)
	}
}
