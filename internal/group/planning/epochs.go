package planning

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"

	"github.com/rota-dev/rota/internal/record"
)

// maxEpochs bounds how many epochs a plan holds: the one in force and those with fires that are
// still due.
const maxEpochs = 8

// maxResumedEpochs bounds them for a resume. It may exceed maxEpochs, since the job has no fires until it begins an epoch. A job
// that is offered again begins one above either bound; record.MaxEpochs has room for it.
const maxResumedEpochs = record.MaxEpochs / 2

// applyDefinition replaces the definition in force by a new one, with two changes. The first ends
// the epoch in force at an instant that no clock within the allowed skew has reached. Its commit
// may be slow, so that owners claim fires after that instant before it; they claim none after it.
// The second change begins the new epoch. It requires reads of all owners' claims that began after
// the first change, and the new epoch begins after every claimed fire. So all runs of a fire have
// the same shard total and definition, however slow a commit is.
func (p *jobPlanner) applyDefinition() {
	if p.next.Paused { // the resume applies it
		return
	}
	last := p.next.Last()
	switch {
	case p.next.Stopped:
		p.succeedStopped(last)
	case p.isResetDue(p.next):
		p.applyReset(last)
	case last.Until != 0:
		p.succeedEnded(last)
	case p.hasNewDefinition(last):
		if !p.hasRoom() {
			p.waitForRoom("a new definition")
			return
		}
		last.Until = max(p.Now.Add(p.Skew), last.From+1)
		p.explain("end epoch %d for revision %d", last.Number, p.Jobs[p.segment].Revision)
	}
}

// hasEpochToChange reports whether the last epoch ends, or another is to begin.
func (p *jobPlanner) hasEpochToChange() bool {
	last := p.prev.Last()
	switch {
	case p.prev.Paused:
		return false
	case p.prev.Stopped: // its last epoch has ended; the resume resets the job
		return p.hasNewDefinition(last)
	}
	return last.Until != 0 || p.isResetDue(p.prev.Plan) || p.hasNewDefinition(last)
}

// hasNewDefinition reports whether the stored definition is to replace that of the last epoch.
func (p *jobPlanner) hasNewDefinition(last *record.Epoch) bool {
	job, ok := p.Jobs[p.segment]
	return ok && job.Revision >= last.Job().Revision && !bytes.Equal(job.Def, last.Def)
}

// newestDefinition returns the definition for a new epoch.
func (p *jobPlanner) newestDefinition() []byte {
	if job, ok := p.Jobs[p.segment]; ok {
		return job.Def
	}
	return p.next.Last().Def // the stored one has been deleted
}

// hasRoom reports whether the plan has room for another epoch.
func (p *jobPlanner) hasRoom() bool { return len(p.next.Epochs) < maxEpochs }

// hasRoomToResume reports whether the plan has room for the epoch of a resume, and waits for room if it has none.
func (p *jobPlanner) hasRoomToResume() bool {
	if len(p.next.Epochs) < maxResumedEpochs {
		return true
	}
	p.waitForRoom("the resume of the schedule")
	return false
}

// waitForRoom has served epochs cleared at once, and adds a problem with the part that waits.
func (p *jobPlanner) waitForRoom(part string) {
	p.needsRoom = true
	problem := fmt.Sprintf("%s waits until fires of earlier ones have been served", part)
	if !p.next.Disabled.IsZero() {
		problem += fmt.Sprintf(", perhaps those that wait until shards %s are enabled", p.next.Disabled)
	}
	p.addProblem(problem)
}

// succeedEnded begins the epoch after one that has been ended.
func (p *jobPlanner) succeedEnded(ended *record.Epoch) {
	if !p.hasRoomToResume() {
		return
	}
	through, missing := p.nextEpochAfter()
	if missing.any() {
		p.reportGaps(missing)
		return
	}
	def := ended.Def // if the new one has been deleted since
	if job, ok := p.Jobs[p.segment]; ok && job.Revision >= ended.Job().Revision {
		def = job.Def
	}
	from, until := max(ended.Until, through+1), ended.Until
	for i := range p.next.Epochs { // all epochs with the same end now end where the next one begins
		if e := &p.next.Epochs[i]; e.Until == until {
			if e.Until = from; i+1 < len(p.next.Epochs) {
				e.Until = min(from, p.next.Epochs[i+1].From)
			}
		}
	}
	p.completeReset()
	p.appendEpoch(from, def)
	p.explain("begin epoch %d", p.next.Last().Number)
}

// succeedStopped replaces the definition of a job whose schedule is stopped, for its triggers. The
// new epoch ends where it begins, so it contains no fire, and no other epoch changes. The stop was
// the first of the two changes that applyDefinition describes; this is the second.
func (p *jobPlanner) succeedStopped(last *record.Epoch) {
	if p.prev.Last().Until == 0 || !p.hasNewDefinition(last) {
		return
	}
	if !p.hasRoom() {
		p.waitForRoom("a new definition")
		return
	}
	through, missing := p.nextEpochAfter()
	if missing.any() {
		p.reportGaps(missing)
		return
	}
	from := max(last.Until, through+1)
	p.appendEpoch(from, p.Jobs[p.segment].Def)
	p.next.Last().Until = from
	p.explain("begin epoch %d, for triggers", p.next.Last().Number)
}

// isResetDue reports whether an operator has requested a reset that a plan does not contain yet.
func (p *jobPlanner) isResetDue(plan *record.Plan) bool {
	c, ok := p.Control[p.segment]
	return ok && c.Resets > plan.Resets
}

// completeReset records that the epoch which is about to begin is the one that a reset asked for.
func (p *jobPlanner) completeReset() {
	if p.isResetDue(p.next) {
		p.next.Resets = p.Control[p.segment].Resets
		p.explain("reset")
	}
}

// applyReset starts the job afresh, with two changes as for a definition. The first ends all
// epochs, also those that a wrong clock had end or begin later. The second begins the next epoch
// and completes the reset; if the leader crashes before that, the reset is still due.
func (p *jobPlanner) applyReset(last *record.Epoch) {
	if at := p.Now.Add(p.Skew); last.Until == 0 || last.Until > at {
		p.endEpochs(at)
		p.explain("end epoch %d for a reset", last.Number)
		return
	}
	if !p.hasRoom() {
		p.waitForRoom("a new definition")
		return
	}
	p.succeedEnded(last)
}

// nextEpochAfter returns the last claimed fire, after which the next epoch may begin, since a fire
// must not have runs of two epochs. A wrong clock may have claimed fires after now. The new epoch
// begins after those as well, unless a reset is due: a reset drops them. Claims of earlier
// epochs precede the newest one, also where the watermark has moved with its shard.
func (p *jobPlanner) nextEpochAfter() (through record.Instant, missing gaps) {
	claimed, missing := p.collectWatermarks()
	if p.isResetDue(p.next) {
		return lastFireUntil(claimed, p.Now.Add(p.Skew)), missing
	}
	last := p.next.Last()
	through = last.From - 1
	for _, g := range claimed {
		if g.Epoch == last.Number {
			through = max(through, g.Fire)
		}
	}
	return through, missing
}

// lastFireUntil returns the last fire of watermarks that is not after limit.
func lastFireUntil(marks record.Watermarks, limit record.Instant) (last record.Instant) {
	for _, g := range marks {
		if g.Fire <= limit {
			last = max(last, g.Fire)
		}
	}
	return last
}

// endEpochs ends all epochs at an instant that have not ended by then.
func (p *jobPlanner) endEpochs(at record.Instant) {
	for i := range p.next.Epochs {
		e := &p.next.Epochs[i]
		e.Until = min(cmp.Or(e.Until, at), at)
	}
}

// appendEpoch begins a new epoch.
func (p *jobPlanner) appendEpoch(from record.Instant, def json.RawMessage) {
	e, err := record.NewEpoch(p.next.Last().Number+1, from, def)
	if err != nil { // the view holds only definitions that parse
		return
	}
	e.Stored = p.storedDefinition(def)
	p.next.Epochs = append(p.next.Epochs, e)
}

// epochAt returns the epoch that an instant belongs to, the first if it precedes all.
func (p *jobPlanner) epochAt(at record.Instant) *record.Epoch {
	e := &p.next.Epochs[0]
	for i := range p.next.Epochs {
		if p.next.Epochs[i].From <= at {
			e = &p.next.Epochs[i]
		}
	}
	return e
}
