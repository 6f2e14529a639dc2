package coordinator

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

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
func (p *planning) definition() {
	if p.p.Paused { // a paused job takes it up when it resumes
		return
	}
	last := p.p.Last()
	if p.p.Stopped {
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
	job, ok := p.jobs[p.segment]
	if !ok || job.Revision < last.Job().Revision || bytes.Equal(job.def, last.Def) {
		return
	}
	if !p.room() {
		return
	}
	last.Until = max(p.now.Add(p.skew), last.From+1)
	p.because("end generation %d for revision %d", last.Gen, job.Revision)
}

// room reports whether the plan has room for one more epoch. If not, that is its problem.
func (p *planning) room() bool {
	if len(p.p.Epochs) < maxEpochs {
		return true
	}
	p.full = true
	problem := "a new definition waits until fires of earlier ones have been served"
	if !p.p.Disabled.IsZero() {
		problem += fmt.Sprintf(", perhaps those that wait until shards %s are enabled", p.p.Disabled)
	}
	p.addProblem(problem)
	return false
}

// succeed begins the epoch that follows one that has been ended.
func (p *planning) succeed(ended *record.Epoch) {
	through, ok := p.claimed()
	if !ok {
		return
	}
	def := ended.Def // if the new one has gone meanwhile
	if job, ok := p.jobs[p.segment]; ok && job.Revision >= ended.Job().Revision {
		def = job.def
	}
	from, until := max(ended.Until, through+1), ended.Until
	for i := range p.p.Epochs { // those that ended with it as well, up to the next
		if e := &p.p.Epochs[i]; e.Until == until {
			if e.Until = from; i+1 < len(p.p.Epochs) {
				e.Until = min(from, p.p.Epochs[i+1].From)
			}
		}
	}
	p.takeReset()
	p.append(from, def)
	p.because("begin generation %d", p.p.Last().Gen)
}

// resetDue reports whether an operator has asked for a reset that the plan does not have yet.
func (p *planning) resetDue() bool { return p.resetDueIn(p.p) }

func (p *planning) resetDueIn(plan *record.Plan) bool {
	c, ok := p.control[p.segment]
	return ok && c.Resets > plan.Resets
}

// takeReset takes a reset that is due for done by the epoch that is about to begin.
func (p *planning) takeReset() {
	if p.resetDue() {
		p.p.Resets = p.control[p.segment].Resets
		p.because("reset")
	}
}

// reset starts the job afresh, by the two changes of another definition. The first ends all
// epochs, also those that a wrong clock had end or begin later. The second begins the next, and
// takes the reset for done: a leader that crashes before it leaves it due.
func (p *planning) reset(last *record.Epoch) {
	if at := p.now.Add(p.skew); last.Until == 0 || last.Until > at {
		p.endAll(at)
		p.because("end generation %d for a reset", last.Gen)
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
func (p *planning) claimed() (through record.Instant, whole bool) {
	claimed, whole := p.allMarks()
	if p.resetDue() {
		return throughBy(claimed, p.now.Add(p.skew)), whole
	}
	through = p.p.Last().From - 1
	for _, g := range claimed {
		if g.Gen == p.p.Last().Gen {
			through = max(through, g.Fire)
		}
	}
	return through, whole
}

// throughBy returns the last fire of marks that is not after limit: a reset forgets the others,
// which only a wrong clock can have claimed.
func throughBy(marks record.Marks, limit record.Instant) (through record.Instant) {
	for _, g := range marks {
		if g.Fire <= limit {
			through = max(through, g.Fire)
		}
	}
	return through
}

// allMarks returns the watermarks of the plan and of all owners, or false if it needs to look
// first.
func (p *planning) allMarks() (claimed record.Marks, whole bool) {
	claimed, whole = slices.Clone(p.p.Marks), true
	for _, inc := range slices.Sorted(maps.Keys(p.p.Owners)) {
		l, ok := p.looked(inc, p.old.rev)
		switch {
		case !ok:
			p.looks[inc], whole = true, false
		case p.unreadable(inc, l):
			whole = false
		default:
			claimed = append(claimed, l.claimsOf(p.segment).Marks...)
		}
	}
	return claimed, whole
}

// append begins a new epoch.
func (p *planning) append(from record.Instant, def json.RawMessage) {
	e, err := record.NewEpoch(p.p.Last().Gen+1, from, def)
	if err != nil { // the view holds only definitions that parse
		return
	}
	p.p.Epochs = append(p.p.Epochs, e)
}

// triggers moves what operators triggered from the control record into the plan, in one
// commit.
func (p *planning) triggers() {
	c, ok := p.control[p.segment]
	if !ok || len(c.Triggers) == 0 {
		return
	}
	if len(p.p.Triggers)+len(c.Triggers) > record.MaxTriggers {
		p.full = true
		return
	}
	for _, t := range c.Triggers {
		if n := len(p.p.Triggers); n > 0 && p.p.Triggers[n-1].Number >= t.Number {
			continue
		}
		t.Gen = p.epochAt(p.now).Gen
		p.p.Triggers = append(p.p.Triggers, t)
		p.upkeeping("trigger %d", t.Number)
	}
	rest := *c.Control
	rest.Triggers = nil
	value, err := record.Encode(&rest)
	if err != nil {
		return
	}
	p.c.ops = append(p.c.ops, registry.Set(p.keys.Control(p.segment), c.rev, value))
}

// epochAt returns the epoch that an instant belongs to, the first if it is before all.
func (p *planning) epochAt(at record.Instant) *record.Epoch {
	e := &p.p.Epochs[0]
	for i := range p.p.Epochs {
		if p.p.Epochs[i].From <= at {
			e = &p.p.Epochs[i]
		}
	}
	return e
}

// clearable reports that it is time to clear, and that there is a plan to clear.
func (v *view) clearable() bool {
	if !v.tidy {
		return false
	}
	for _, p := range v.plans {
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
func (p *planning) clear() {
	marks, running := p.p.Marks, record.Runs(nil)
	for _, inc := range slices.Sorted(maps.Keys(p.p.Owners)) {
		l, ok := p.looked(inc, p.old.rev)
		if !ok {
			p.looks[inc] = true
			return
		}
		if l.broken[p.segment] {
			return
		}
		claims := l.claimsOf(p.segment)
		marks = marks.Fold(claims.Marks, p.p.Owners[inc])
		for _, g := range slices.Concat(claims.Running, unserved(claims.Reruns, claims.Marks)) {
			running = running.With(g.Shards, g.Ref)
		}
		p.clearReruns(inc, l)
	}
	p.clearTriggers(marks, running)
	p.clearEpochs(marks, running)
	if p.full && len(p.c.upkeep) == 0 {
		for inc := range p.p.Owners {
			p.pending[inc] = true // what it claims next may make room
		}
	}
}

// clearReruns drops the pending re-runs that an owner has claimed. It may look at claims of
// long ago: they only grow while the plan names the owner, which the change makes sure of.
func (p *planning) clearReruns(inc string, l look) {
	item, ok := l.claims[p.segment]
	if !ok {
		return
	}
	var mine record.Runs
	for _, g := range p.p.Reruns {
		if part := g.Shards.Intersect(p.p.Owners[inc]); !part.IsZero() {
			mine = mine.With(part, g.Ref)
		}
	}
	served := mine.Shards().Minus(unserved(mine, item.Marks).Shards())
	if served.IsZero() {
		return
	}
	p.p.Reruns = p.p.Reruns.Without(served)
	p.upkeeping("clear re-runs of %s", served)
}

func (p *planning) clearTriggers(marks record.Marks, running record.Runs) {
	now := jobProgress{marks: marks, running: running, reruns: p.p.Reruns}
	p.p.Triggers = slices.DeleteFunc(p.p.Triggers, func(t record.Trigger) bool {
		if !now.triggerServed(t, p.targets(t)) {
			return false
		}
		p.upkeeping("clear trigger %d", t.Number)
		return true
	})
}

// targets returns the shards that a trigger is for.
func (p *planning) targets(t record.Trigger) shardset.Set {
	e, ok := p.p.Epoch(t.Gen)
	if !ok {
		return shardset.Set{}
	}
	return targets(t, e)
}

func targets(t record.Trigger, e *record.Epoch) shardset.Set {
	all := shardset.Range(0, e.Job().Shards)
	if t.Shards == nil {
		return all
	}
	return all.Intersect(*t.Shards)
}

func usesTrigger(runs record.Runs, number uint64) bool {
	return slices.ContainsFunc(runs, func(g record.RunGroup) bool { return g.Trigger == number })
}

func usesGen(runs record.Runs, gen int) bool {
	return slices.ContainsFunc(runs, func(g record.RunGroup) bool { return g.Gen == gen })
}

// clearEpochs drops epochs that are over and of which nothing is owed, running or
// triggered. One that something waits for, perhaps for long, as the trigger of a disabled
// shard does, holds up none of those after it.
func (p *planning) clearEpochs(marks record.Marks, running record.Runs) {
	last := p.p.Last().Gen
	p.p.Epochs = slices.DeleteFunc(p.p.Epochs, func(e record.Epoch) bool {
		if e.Gen == last || e.Until > p.now || usesGen(running, e.Gen) || usesGen(p.p.Reruns, e.Gen) ||
			slices.ContainsFunc(p.p.Triggers, func(t record.Trigger) bool { return t.Gen == e.Gen }) || p.owed(&e, marks) {
			return false
		}
		p.upkeeping("clear generation %d", e.Gen)
		return true
	})
	p.dropBeyond(p.p.Shards())
}

// dropBeyond forgets shards that no total in force has any more.
func (p *planning) dropBeyond(total int) {
	beyond := shardset.Range(total, record.MaxShards)
	for inc, shards := range p.p.Owners {
		p.p.Owners[inc] = shards.Minus(beyond)
	}
	p.p.Owners = withoutEmpty(p.p.Owners)
	p.p.Frozen = p.p.Frozen.Minus(beyond)
	p.p.Marks = p.p.Marks.Without(beyond)
}

// owed reports whether fires of an epoch that is over wait to be claimed or skipped.
func (p *planning) owed(e *record.Epoch, marks record.Marks) bool {
	parts := marks.Split(shardset.Range(0, e.Job().Shards))
	prog, err := p.compile(e.Def)
	if err != nil {
		return p.perhapsOwed(e, parts)
	}
	for _, part := range parts {
		if owed, ok := owedOf(e, prog, part.Mark, p.now, false); ok && owed.any() {
			return true
		}
	}
	return false
}

// perhapsOwed stands in for owed where the leader cannot tell the fires of an epoch. Whoever
// offers the job can, and serves them before those of later epochs; if nobody does, nobody
// will run them, and how many there are is not known.
func (p *planning) perhapsOwed(e *record.Epoch, parts record.Marks) bool {
	if !slices.ContainsFunc(parts, func(part record.MarkGroup) bool { return part.Gen <= e.Gen }) {
		return false
	}
	if p.offered(p.p.Job) {
		return true
	}
	p.because("give up what generation %d may owe: nobody who is there understands its definition", e.Gen)
	return false
}
