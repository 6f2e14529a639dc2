package planning

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/rota-dev/rota/coordinator/internal/due"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/registry"
)

// maxEpochs bounds how many definitions a plan holds at once: the one in force and those
// of which fires are still owed.
const maxEpochs = 8

// definition brings a new definition into the plan, by two changes. The first ends the
// epoch in force, at an instant that no clock within the allowed skew has reached. But a
// commit may take its time, so that fires after that instant are claimed before it; none
// is after it. So the second change, which begins the new epoch, rests on looks at all
// owners' claims that were begun after the first, and counts from after every fire that
// has been claimed: all runs of a fire name one total and one definition, however slow
// a commit is.
func (p *jobPlanner) definition() {
	if p.next.Paused { // a paused job takes it up when it resumes
		return
	}
	last := p.next.Last()
	if p.next.Stopped {
		p.succeedStopped(last)
		return
	}
	if p.resetDue() {
		p.reset(last)
		return
	}
	if last.Until != 0 {
		p.succeed(last)
		return
	}
	job, ok := p.Jobs[p.segment]
	if !ok || job.Revision < last.Job().Revision || bytes.Equal(job.Def, last.Def) {
		return
	}
	if !p.room() {
		return
	}
	last.Until = max(p.Now.Add(p.Skew), last.From+1)
	p.because("end epoch %d for revision %d", last.Number, job.Revision)
}

// room reports whether the plan has room for one more epoch. If not, that is its problem.
func (p *jobPlanner) room() bool {
	if len(p.next.Epochs) < maxEpochs {
		return true
	}
	p.needsRoom = true
	problem := "a new definition waits until fires of earlier ones have been served"
	if !p.next.Disabled.IsZero() {
		problem += fmt.Sprintf(", perhaps those that wait until shards %s are enabled", p.next.Disabled)
	}
	p.addProblem(problem)
	return false
}

// succeed begins the epoch that follows one that has been ended.
func (p *jobPlanner) succeed(ended *record.Epoch) {
	through, ok := p.claimed()
	if !ok {
		return
	}
	def := ended.Def // if the new one has gone meanwhile
	if job, ok := p.Jobs[p.segment]; ok && job.Revision >= ended.Job().Revision {
		def = job.Def
	}
	from, until := max(ended.Until, through+1), ended.Until
	for i := range p.next.Epochs { // those that ended with it as well, up to the next
		if e := &p.next.Epochs[i]; e.Until == until {
			if e.Until = from; i+1 < len(p.next.Epochs) {
				e.Until = min(from, p.next.Epochs[i+1].From)
			}
		}
	}
	p.takeReset()
	p.append(from, def)
	p.because("begin epoch %d", p.next.Last().Number)
}

// resetDue reports whether an operator has asked for a reset that the plan does not have yet.
func (p *jobPlanner) resetDue() bool { return p.resetDueIn(p.next) }

func (p *jobPlanner) resetDueIn(plan *record.Plan) bool {
	c, ok := p.Control[p.segment]
	return ok && c.Resets > plan.Resets
}

// takeReset takes a reset that is due for done by the epoch that is about to begin.
func (p *jobPlanner) takeReset() {
	if p.resetDue() {
		p.next.Resets = p.Control[p.segment].Resets
		p.because("reset")
	}
}

// reset starts the job afresh, by the two changes of another definition. The first ends all
// epochs, also those that a wrong clock had end or begin later. The second begins the next, and
// takes the reset for done: a leader that crashes before it leaves it due.
func (p *jobPlanner) reset(last *record.Epoch) {
	if at := p.Now.Add(p.Skew); last.Until == 0 || last.Until > at {
		p.endAll(at)
		p.because("end epoch %d for a reset", last.Number)
		return
	}
	if p.room() {
		p.succeed(last)
	}
}

// claimed returns after which fires the next epoch may begin, or false if it needs to look at
// claims first. By clocks that were wrong fires may have been claimed further than now: no fire
// is to have runs of two epochs. All claims of earlier epochs lie before the newest, also where
// the watermark has gone with a shard, or a reset has forgotten them.
func (p *jobPlanner) claimed() (through record.Instant, whole bool) {
	claimed, whole := p.allMarks()
	if p.resetDue() {
		return throughBy(claimed, p.Now.Add(p.Skew)), whole
	}
	through = p.next.Last().From - 1
	for _, g := range claimed {
		if g.Epoch == p.next.Last().Number {
			through = max(through, g.Fire)
		}
	}
	return through, whole
}

// throughBy returns the last fire of marks that is not after limit: a reset forgets the others,
// which only a wrong clock can have claimed.
func throughBy(marks record.Watermarks, limit record.Instant) (through record.Instant) {
	for _, g := range marks {
		if g.Fire <= limit {
			through = max(through, g.Fire)
		}
	}
	return through
}

// allMarks returns the watermarks of the plan and of all owners, or false if it needs to look
// first.
func (p *jobPlanner) allMarks() (claimed record.Watermarks, whole bool) {
	claimed, whole = slices.Clone(p.next.Watermarks), true
	for _, inc := range slices.Sorted(maps.Keys(p.next.Owners)) {
		l, ok := p.looked(inc, p.prev.Rev)
		switch {
		case !ok:
			p.looks[inc], whole = true, false
		case p.unreadable(inc, l):
			whole = false
		default:
			claimed = append(claimed, l.claimsOf(p.segment).Watermarks...)
		}
	}
	return claimed, whole
}

// append begins a new epoch.
func (p *jobPlanner) append(from record.Instant, def json.RawMessage) {
	e, err := record.NewEpoch(p.next.Last().Number+1, from, def)
	if err != nil { // the view holds only definitions that parse
		return
	}
	p.next.Epochs = append(p.next.Epochs, e)
}

// triggers moves what operators triggered from the control record into the plan, in one
// commit.
func (p *jobPlanner) triggers() {
	c, ok := p.Control[p.segment]
	if !ok || len(c.Triggers) == 0 {
		return
	}
	if len(p.next.Triggers)+len(c.Triggers) > record.MaxTriggers {
		p.needsRoom = true
		return
	}
	for _, t := range c.Triggers {
		if n := len(p.next.Triggers); n > 0 && p.next.Triggers[n-1].Number >= t.Number {
			continue
		}
		t.Epoch = p.epochAt(p.Now).Number
		p.next.Triggers = append(p.next.Triggers, t)
		p.upkeeping("trigger %d", t.Number)
	}
	rest := *c.Control
	rest.Triggers = nil
	value, err := record.Encode(&rest)
	if err != nil {
		return
	}
	p.change.ops = append(p.change.ops, registry.Set(p.Keys.Control(p.segment), c.Rev, value))
}

// epochAt returns the epoch that an instant belongs to, the first if it is before all.
func (p *jobPlanner) epochAt(at record.Instant) *record.Epoch {
	e := &p.next.Epochs[0]
	for i := range p.next.Epochs {
		if p.next.Epochs[i].From <= at {
			e = &p.next.Epochs[i]
		}
	}
	return e
}

// Clearable reports that it is time to clear, and that there is a plan to clear.
func (v *View) NeedsClearing() bool {
	if !v.SlowTick {
		return false
	}
	for _, p := range v.Plans {
		if clearable(p.Plan) {
			return true
		}
	}
	return false
}

// clearable reports that there may be something to clear in a plan.
func clearable(p *record.Plan) bool {
	return len(p.Reruns) > 0 || len(p.Triggers) > 0 || len(p.Epochs) > 1
}

// clear drops from the plan what has been served: pending re-runs that were claimed,
// triggers that all their shards have claimed, and epochs of which nothing is owed. It
// rests on looks at all owners.
func (p *jobPlanner) clear() {
	marks, running := p.next.Watermarks, record.Runs(nil)
	for _, inc := range slices.Sorted(maps.Keys(p.next.Owners)) {
		l, ok := p.looked(inc, p.prev.Rev)
		if !ok {
			p.looks[inc] = true
			return
		}
		if l.Unreadable[p.segment] {
			return
		}
		claims := l.claimsOf(p.segment)
		marks = marks.Fold(claims.Watermarks, p.next.Owners[inc])
		for _, g := range slices.Concat(claims.Running, due.Unclaimed(claims.Reruns, claims.Watermarks)) {
			running = running.With(g.Shards, g.Ref)
		}
		p.clearReruns(inc, l)
	}
	p.clearTriggers(marks, running)
	p.clearEpochs(marks, running)
	if p.needsRoom && len(p.change.Upkeep) == 0 {
		for inc := range p.next.Owners {
			p.pending[inc] = true // what it claims next may make room
		}
	}
}

// clearReruns drops the pending re-runs that an owner has claimed. It may look at claims of
// long ago: they only grow while the plan names the owner, which the change makes sure of.
func (p *jobPlanner) clearReruns(inc string, l FreshRead) {
	item, ok := l.Claims[p.segment]
	if !ok {
		return
	}
	var mine record.Runs
	for _, g := range p.next.Reruns {
		if part := g.Shards.Intersect(p.next.Owners[inc]); !part.IsZero() {
			mine = mine.With(part, g.Ref)
		}
	}
	served := mine.Shards().Minus(due.Unclaimed(mine, item.Watermarks).Shards())
	if served.IsZero() {
		return
	}
	p.next.Reruns = p.next.Reruns.Without(served)
	p.upkeeping("clear re-runs of %s", served)
}

func (p *jobPlanner) clearTriggers(marks record.Watermarks, running record.Runs) {
	now := JobProgress{Watermarks: marks, Running: running, Reruns: p.next.Reruns}
	p.next.Triggers = slices.DeleteFunc(p.next.Triggers, func(t record.Trigger) bool {
		if !now.TriggerServed(t, p.targets(t)) {
			return false
		}
		p.upkeeping("clear trigger %d", t.Number)
		return true
	})
}

// targets returns the shards that a trigger is for.
func (p *jobPlanner) targets(t record.Trigger) shardset.Set {
	e, ok := p.next.Epoch(t.Epoch)
	if !ok {
		return shardset.Set{}
	}
	return due.TriggerTargets(t, e)
}

func usesTrigger(runs record.Runs, number uint64) bool {
	return slices.ContainsFunc(runs, func(g record.RunGroup) bool { return g.Trigger == number })
}

func usesGen(runs record.Runs, gen int) bool {
	return slices.ContainsFunc(runs, func(g record.RunGroup) bool { return g.Epoch == gen })
}

// clearEpochs drops epochs that are over and of which nothing is owed, running or
// triggered. One that something waits for, perhaps for long, as the trigger of a disabled
// shard does, holds up none of those after it.
func (p *jobPlanner) clearEpochs(marks record.Watermarks, running record.Runs) {
	last := p.next.Last().Number
	p.next.Epochs = slices.DeleteFunc(p.next.Epochs, func(e record.Epoch) bool {
		if e.Number == last || e.Until > p.Now || usesGen(running, e.Number) || usesGen(p.next.Reruns, e.Number) ||
			slices.ContainsFunc(p.next.Triggers, func(t record.Trigger) bool { return t.Epoch == e.Number }) || p.owed(&e, marks) {
			return false
		}
		p.upkeeping("clear epoch %d", e.Number)
		return true
	})
	p.dropBeyond(p.next.Shards())
}

// dropBeyond forgets shards that no total in force has any more.
func (p *jobPlanner) dropBeyond(total int) {
	beyond := shardset.Range(total, record.MaxShards)
	for inc, shards := range p.next.Owners {
		p.next.Owners[inc] = shards.Minus(beyond)
	}
	p.next.Owners = withoutEmpty(p.next.Owners)
	p.next.Frozen = p.next.Frozen.Minus(beyond)
	p.next.Watermarks = p.next.Watermarks.Without(beyond)
}

// owed reports whether fires of an epoch that is over wait to be claimed or skipped.
func (p *jobPlanner) owed(e *record.Epoch, marks record.Watermarks) bool {
	parts := marks.Split(shardset.Range(0, e.Job().Shards))
	prog, err := p.Compile(e.Def)
	if err != nil {
		return p.perhapsOwed(e, parts)
	}
	for _, part := range parts {
		if owed, ok := due.InEpoch(e, prog, part.Watermark, p.Now, false); ok && owed.HasAny() {
			return true
		}
	}
	return false
}

// perhapsOwed stands in for owed where the leader cannot tell the fires of an epoch. Whoever
// offers the job can, and serves them before those of later epochs; if nobody does, nobody
// will run them, and how many there are is not known.
func (p *jobPlanner) perhapsOwed(e *record.Epoch, parts record.Watermarks) bool {
	if !slices.ContainsFunc(parts, func(part record.WatermarkGroup) bool { return part.Epoch <= e.Number }) {
		return false
	}
	if p.IsOffered(p.next.Job) {
		return true
	}
	p.because("give up what epoch %d may owe: nobody who is there understands its definition", e.Number)
	return false
}
