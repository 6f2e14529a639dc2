package coordinator

import (
	"github.com/rota-dev/rota/internal/record"
)

// A clock that was wrong leaves things behind when it is right again: watermarks ahead of all
// clocks, as nobody could tell while its owner was alone, or a generation that begins then. Its
// shards would be silent until that time comes. Whoever owns them finds it out, when it looks for
// what is due, and says so in its record. The leader, if it sees the same by its own clock, ends
// the generation and begins another by the same definition, by the two changes that bring in any
// other: what has been claimed of one generation says nothing of the next.
//
// So fires that were claimed before their time are claimed at their time again. They are the
// same fires, so their attempts go on counting where no attempt has got to.

// reach is how far ahead of a clock something may be that clocks within the limit have written,
// in limits: both may be that far from the median, and new definitions begin so much later.
const reach = 3

// ahead returns what free shards, in parts that share a mark, wait for in the generation in
// force that is further ahead than it may be.
func (in *claiming) ahead(parts record.Marks) record.Ahead {
	last := in.plan.Last()
	if in.skew == 0 || last.Until != 0 {
		return record.Ahead{}
	}
	at := last.From
	for _, part := range parts {
		if part.Gen == last.Gen {
			at = max(at, part.Fire)
		}
	}
	if at <= in.now.Add(reach*in.skew) {
		return record.Ahead{}
	}
	return record.Ahead{Gen: last.Gen, At: at}
}

// sayAhead has the leader know what an account's shards wait for.
func (l *ledger) sayAhead(a *account, is record.Ahead) {
	if is == a.ahead {
		return
	}
	if a.ahead = is; is.Gen != 0 {
		l.log.Warn("what has been claimed is ahead of this clock: it is wrong, or another was",
			"job", a.claims.Job, "generation", is.Gen, "until", is.At.Time())
	}
	l.tellAhead(a.claims.Job, is)
}

// tellAhead puts on record what a job's shards wait for here.
func (m *Member) tellAhead(job string, is record.Ahead) {
	m.change(func() {
		if delete(m.ahead, job); is.Gen != 0 {
			m.ahead[job] = is
		}
	})
}

// forerunners returns the members who say that something is ahead of their clocks, if this one
// is known to be right: where two differ, what one takes for the future may be the present.
func (v *view) forerunners() []string {
	if !v.sure {
		return nil
	}
	var out []string
	for inc, m := range v.members {
		if _, off := v.off[inc]; len(m.Ahead) > 0 && !off {
			out = append(out, inc)
		}
	}
	return out
}

// ahead reports whether the generation in force, which has no end yet, has got further ahead
// than it may be, or is to begin only then.
func (p *planning) ahead(plan *record.Plan) bool {
	last := plan.Last()
	for _, inc := range p.fore {
		is := p.members[inc].Ahead[plan.Job]
		if is.Gen == last.Gen && is.At > p.now.Add(reach*p.skew) {
			return true
		}
	}
	return false
}

// cutBack ends all that is in force, or was to be before the generation that begins in the
// future.
func (p *planning) cutBack() {
	p.endAll(p.now.Add(p.skew))
	p.because("end generation %d, which is ahead of all clocks", p.p.Last().Gen)
}

// endAll ends all epochs at an instant that have not ended by then.
func (p *planning) endAll(at record.Instant) {
	for i := range p.p.Epochs {
		if e := &p.p.Epochs[i]; e.Until == 0 || e.Until > at {
			e.Until = at
		}
	}
}
