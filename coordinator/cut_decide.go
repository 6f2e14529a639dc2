package coordinator

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/registry"
)

// decision is what a view calls for.
type decision struct {
	changes []change // of plans, by segment
	burials []burial // of incarnations that own nothing any more
	looks   []string // incarnations whose claims must be read first; then decide again
	pending []string // incarnations that run shards which wait to move: follow their claims
}

// change is a new plan for a job, with what must hold and go with it. All of a change is
// committed at once, with the term, or nothing.
type change struct {
	segment string
	rev     registry.Rev // of the plan it replaces; zero to create it
	plan    *record.Plan
	dead    []registry.SessionID
	conds   []registry.Cond
	ops     []registry.Op
	why     []string // for the log, and for the plan
	upkeep  []string // for the log only: what there is of it day by day would hide the rest
}

// burial removes what an incarnation left behind once its shards have gone.
type burial struct {
	incarnation string
	parts       []share // the last one deletes the member record, so that what is left can be found again
}

// decide is planning: a pure function from a view to what has to be done. It is run
// whenever the view changes and on a slow tick, so that nothing depends on having seen
// an event.
func decide(v *view) decision {
	d := decision{}
	v.dead = v.deadMembers()
	v.silent = v.silentMembers()
	v.awaitReturns()
	segments := v.segments()
	want := v.assignments(segments)
	looks, pending := map[string]bool{}, map[string]bool{}
	for i, seg := range segments {
		if len(want[i].owners) == 0 && want[i].problem == "" {
			v.explainUnowned(seg, &want[i])
		}
		if plan, ok := v.plans[seg]; ok && len(v.silent) > 0 {
			want[i].problem = joinProblems(want[i].problem, v.aheadProblem(plan.Plan))
		}
		if key, ok := v.spoilt[seg]; ok {
			want[i].problem = joinProblems(want[i].problem, fmt.Sprintf("%s cannot be read", key))
		}
		p := planning{view: v, segment: seg, desired: want[i], looks: looks, pending: pending}
		if c, ok := p.run(); ok {
			d.changes = append(d.changes, c)
		}
	}
	d.burials = v.burials(looks, d.changes)
	d.looks = slices.Sorted(maps.Keys(looks))
	d.pending = slices.Sorted(maps.Keys(pending))
	return d
}

// explainUnowned finds out why a job has no owners where the assignment does not know.
func (v *view) explainUnowned(segment string, d *desired) {
	switch job := v.jobNow(segment).Name; {
	case v.puzzling(job):
		d.problem = notUnderstood
	case v.unoffered(segment, job):
		d.problem, d.unoffered = notOffered, true
	}
}

// segments returns all jobs that have a plan or a definition, sorted.
func (v *view) segments() []string {
	segs := make([]string, 0, len(v.plans)+8)
	for seg := range v.plans {
		segs = append(segs, seg)
	}
	for seg := range v.jobs {
		if _, ok := v.plans[seg]; !ok && !v.broken[seg] {
			segs = append(segs, seg)
		}
	}
	slices.Sort(segs)
	return segs
}

// planning is the making of one job's next plan.
type planning struct {
	*view
	segment string
	desired desired
	looks   map[string]bool
	pending map[string]bool

	old  planItem
	p    *record.Plan // the next plan; a clone of old until something changes
	c    change
	full bool // something waits for room in the plan: what has been served is cleared at once
}

// run returns the change that the view calls for, if any.
func (p *planning) run() (change, bool) {
	p.c.segment = p.segment
	old, ok := p.plans[p.segment]
	if !ok {
		return p.create()
	}
	if p.restore[p.segment] {
		return p.restorePlan()
	}
	if p.old = old; p.settled() {
		return change{}, false
	}
	p.p = old.Clone()
	p.c.rev, p.c.plan = old.rev, p.p
	p.offeredAgain()
	p.intent()
	p.definition()
	p.triggers()
	p.inherit()
	p.failOver()
	p.move()
	p.noteUnoffered()
	if (p.tidy || p.full) && clearable(p.p) {
		p.clear()
	}
	p.problem(p.desired.problem)
	return p.c, len(p.c.why)+len(p.c.upkeep) > 0
}

// settled reports that the plan is what it should be, at a glance and without a copy: a
// leader of ten thousand jobs sees that of nearly all of them each time.
func (p *planning) settled() bool {
	old := p.old
	if p.tidy && clearable(old.Plan) || p.bereaved() || old.Problem != p.desired.problem || !old.Frozen.IsZero() || len(old.Owners) != len(p.desired.owners) {
		return false
	}
	for inc, want := range p.desired.owners {
		if !p.alive(inc) || !want.Equal(old.Owners[inc]) {
			return false
		}
	}
	if p.desired.unoffered != (old.Unoffered != 0) {
		return false
	}
	if c, ok := p.control[p.segment]; ok && (c.Paused != old.Paused || c.Stopped != old.Stopped || !c.Disabled.Equal(old.Disabled) || len(c.Triggers) > 0) {
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
	job, ok := p.jobs[p.segment]
	return old.Last().Until == 0 && (!ok || bytes.Equal(job.def, old.Last().Def))
}

// create makes the first plan of a job, once somebody offers it, also one who may not run
// it: its fires count from then on.
func (p *planning) create() (change, bool) {
	job, ok := p.jobs[p.segment]
	if !ok || len(p.desired.owners) == 0 && !p.desired.barred {
		return change{}, false
	}
	was, ok := p.before(job)
	if !ok {
		return change{}, false
	}
	first, err := record.NewEpoch(was.gen+1, max(p.now, was.through+1), job.def)
	if err != nil { // the view holds only definitions that parse
		return change{}, false
	}
	p.p = &record.Plan{
		Format: record.Format, Job: job.Name, Epochs: []record.Epoch{first},
		Owners: map[string]shardset.Set{}, Paused: job.StartPaused,
	}
	if c, ok := p.control[p.segment]; ok {
		p.p.Paused, p.p.Stopped, p.p.Disabled, p.p.Resets = c.Paused, c.Stopped, c.Disabled, c.Resets
	}
	if p.p.Paused || p.p.Stopped {
		p.p.Last().Until = p.now // what falls due before the first resume is not owed
	}
	p.c.plan = p.p
	p.keepRunning(was.running)
	p.give(p.unowned())
	p.triggers()
	p.problem(p.desired.problem)
	p.because("create")
	return p.c, true
}

func (p *planning) because(format string, args ...any) {
	p.c.why = append(p.c.why, fmt.Sprintf(format, args...))
}

func (p *planning) upkeeping(format string, args ...any) {
	p.c.upkeep = append(p.c.upkeep, fmt.Sprintf(format, args...))
}

// note writes down in the plan why it is as it is. That is no part of planning: nothing
// rests on it, and it is no reason to write a plan.
func (c *change) note(d record.Decision) {
	if len(c.why) > 0 {
		d.What = strings.Join(c.why, "; ")
		c.plan.Note(d)
	}
}

// addProblem adds a text to the problem that the plan is to name.
func (p *planning) addProblem(text string) {
	p.desired.problem = joinProblems(p.desired.problem, text)
}

// problem keeps in the plan why it is not what it should be.
func (p *planning) problem(text string) {
	if p.p.Problem != text {
		p.p.Problem = text
		p.because("problem %q", text)
	}
}

// intent copies what operators want into the plan, so that the condition with which every
// claim names the plan makes a pause exact, and the disabling of shards.
func (p *planning) intent() {
	c, ok := p.control[p.segment]
	if !ok {
		return
	}
	if more := c.Disabled.Minus(p.p.Disabled); !more.IsZero() {
		p.because("disable %s", more)
	}
	if less := p.p.Disabled.Minus(c.Disabled); !less.IsZero() {
		p.because("enable %s", less)
	}
	p.p.Disabled = c.Disabled
	if c.Paused != p.p.Paused || c.Stopped != p.p.Stopped {
		p.pause(c.Paused, c.Stopped)
	}
}

// pause pauses a job, stops its schedule, or ends that with a new generation. The new generation
// begins after all fires that owners have claimed, so it waits for reads of their claims.
func (p *planning) pause(paused, stopped bool) {
	if paused || stopped {
		p.p.Paused, p.p.Stopped = paused, stopped
		p.endAll(p.now) // what would fall due from now on is not owed
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
	p.p.Paused, p.p.Stopped = false, false
	from := max(p.now.Add(p.skew), through+1)
	p.endAll(from)
	p.takeReset()
	p.append(from, p.newest())
	p.because("resume")
}

// unowned returns the shards that nobody owns.
func (p *planning) unowned() shardset.Set {
	all := shardset.Range(0, p.p.Shards())
	for _, shards := range p.p.Owners {
		all = all.Minus(shards)
	}
	return all
}

// give gives shards that nobody owns to those who should have them. What the plan says of
// them is complete: whoever took them from their last owner folded its claims in.
func (p *planning) give(shards shardset.Set) {
	for _, inc := range slices.Sorted(maps.Keys(p.desired.owners)) {
		part := p.desired.owners[inc].Intersect(shards)
		if part.IsZero() {
			continue
		}
		p.p.Owners[inc] = p.p.Owners[inc].Union(part)
		p.because("give %s to %s", part, instanceOf(inc))
	}
}

// move takes shards from owners who should not have them and gives them to those who
// should. Idle shards of a member that drains move at once: its record shows that it
// claims nothing more. Those of others are frozen first, so that no claim can come
// between the look at their owner's claims and the move; what turns out to be running
// stays frozen with its owner until it has ended, and nobody else waits.
func (p *planning) move() {
	frozen := shardset.Set{}
	for _, inc := range slices.Sorted(maps.Keys(p.p.Owners)) {
		if _, known := p.members[inc]; !known || !p.alive(inc) {
			// Its record has not been delivered yet, or it is failOver's business.
			frozen = frozen.Union(p.p.Frozen.Intersect(p.p.Owners[inc]))
			continue
		}
		if leave := p.p.Owners[inc].Minus(p.desired.owners[inc]); !leave.IsZero() {
			frozen = frozen.Union(p.take(inc, leave))
		}
	}
	if !frozen.Equal(p.p.Frozen) {
		if more := frozen.Minus(p.p.Frozen); !more.IsZero() {
			p.because("freeze %s", more)
		}
		if less := p.p.Frozen.Minus(frozen); !less.IsZero() {
			p.because("unfreeze %s", less)
		}
		p.p.Frozen = frozen
	}
	p.p.Owners = withoutEmpty(p.p.Owners)
	p.give(p.unowned())
}

// take removes from a live owner those of shards that are known to be idle, and returns
// the ones that must be or stay frozen.
func (p *planning) take(inc string, shards shardset.Set) (frozen shardset.Set) {
	m := p.members[inc]
	fenced := shards // nothing can be claimed on these any more
	since := m.rev
	if !m.Draining {
		fenced = shards.Intersect(p.old.Frozen)
		since = p.old.rev
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
		p.p.Owners[inc] = p.p.Owners[inc].Minus(idle)
		p.because("take %s from %s", idle, instanceOf(inc))
		shards = shards.Minus(idle)
		if item, ok := l.claims[p.segment]; ok && m.Draining && p.p.Owners[inc].IsZero() {
			p.inheritFrom(inc, item) // it will write no more of this job
		}
	}
	return shards
}

// unreadable reports, and says in the plan, that an owner's claims cannot be read: its
// shards stay where they are until somebody has mended or removed the record.
func (p *planning) unreadable(inc string, l look) bool {
	if l.broken[p.segment] {
		p.addProblem(fmt.Sprintf("%s cannot be read", p.keys.Claims(inc, p.segment)))
		return true
	}
	return false
}

// fold brings into the plan the watermarks and the runs handed back that an owner recorded for
// shards that leave it.
func (p *planning) fold(claims record.Claims, shards shardset.Set) {
	p.p.Marks = p.p.Marks.Fold(claims.Marks, shards)
	p.p.Reruns = unserved(p.p.Reruns, p.p.Marks)
	for _, g := range unserved(claims.Reruns.Within(shards), p.p.Marks) {
		p.p.Reruns = p.p.Reruns.With(g.Shards, g.Ref)
		p.because("retry %s, handed back", g.Shards)
	}
}

// unserved returns the pending re-runs that have not been claimed according to marks.
func unserved(reruns record.Runs, marks record.Marks) record.Runs {
	out := reruns
	for _, g := range reruns {
		for _, part := range marks.Split(g.Shards) {
			if part.Mark.Covers(g.Ref) {
				out = out.Without(part.Shards)
			}
		}
	}
	return out
}
