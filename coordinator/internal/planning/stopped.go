package planning

import (
	"bytes"

	"github.com/rota-dev/rota/internal/record"
)

// newer reports whether the job has another definition than that of its last epoch, which is to
// replace it.
func (p *jobPlanner) newer(last *record.Epoch) bool {
	job, ok := p.Jobs[p.segment]
	return ok && job.Revision >= last.Job().Revision && !bytes.Equal(job.Def, last.Def)
}

// succeedStopped brings a new definition into the plan of a job whose schedule is stopped, for
// triggers to run by: an epoch that ends where it begins, so that no fire is in it. What ended
// before stays as it is. As in succeed this is the second of two changes, and rests on looks at
// all owners that were begun after the first: all runs of a fire name one definition.
func (p *jobPlanner) succeedStopped(last *record.Epoch) {
	if p.prev.Last().Until == 0 || !p.newer(last) {
		return
	}
	if !p.room() {
		return
	}
	through, ok := p.claimed()
	if !ok {
		return
	}
	from := max(last.Until, through+1)
	p.append(from, p.Jobs[p.segment].Def)
	p.next.Last().Until = from
	p.because("begin epoch %d, for triggers", p.next.Last().Number)
}
