package coordinator

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/record"
)

// A wrong clock leaves watermarks ahead of all clocks, of an instance that was alone or one of
// two, or an epoch that begins only then. When the clock is right again, the shards concerned
// wait for that time. Nothing repairs that by itself: it is unknown which of the fires until
// then were run. The owner detects it when it looks for due work, logs it and publishes it in its
// member record, and the leader copies it into Plan.Problem.

// reach is how far ahead of a clock something may be that clocks within the limit have written,
// in limits: both may be that far from the median, and new definitions begin so much later.
const reach = 3

// ahead returns what owned shards wait for in the epoch in force that is further ahead of this
// clock than clocks within the limit can have put it.
func (in *claiming) ahead() record.Ahead {
	mine, last := in.plan.Owners[in.me], in.plan.Last()
	switch {
	case in.skew == 0 || last.Until != 0 || mine.IsZero():
		return record.Ahead{}
	case !in.open && in.reported.Gen == last.Gen:
		return in.reported // this clock may be in doubt: there is no new look
	case !in.open:
		return record.Ahead{}
	}
	limit := in.now.Add(reach * in.skew)
	at := max(limit, last.From)
	for _, marks := range []record.Marks{in.plan.Marks, in.claims.Marks} {
		for _, g := range marks {
			if g.Gen == last.Gen && g.Fire > at && !g.Shards.Intersect(mine).IsZero() {
				at = g.Fire
			}
		}
	}
	if at == limit {
		return record.Ahead{}
	}
	return record.Ahead{Gen: last.Gen, At: at}
}

// reportAhead logs and publishes a change of the instant that an account's shards wait for.
func (l *ledger) reportAhead(a *account, is record.Ahead) {
	if is == a.ahead {
		return
	}
	job := a.claims.Job
	switch a.ahead = is; {
	case is.Gen != 0:
		l.log.Warn("shards wait until this clock has reached what was claimed: this clock is wrong, or an earlier owner's was; Operator.Reset starts the job afresh",
			"job", job, "generation", is.Gen, "until", is.At.Time())
	default:
		l.log.Info("shards no longer wait for this clock", "job", job)
	}
	l.publishAhead(job, is)
}

// publishAhead writes the instant that a job's shards wait for here into the member record.
func (m *Member) publishAhead(job string, is record.Ahead) {
	m.change(func() {
		if delete(m.ahead, job); is.Gen != 0 {
			m.ahead[job] = is
		}
	})
}

// silentMembers returns the live members that publish something ahead of their clocks, sorted.
// The report of a clock that is known to be off counts for nothing.
func (v *view) silentMembers() []string {
	var out []string
	for inc, m := range v.members {
		if _, off := v.off[inc]; len(m.Ahead) > 0 && !off && v.alive(inc) {
			out = append(out, inc)
		}
	}
	slices.Sort(out)
	return out
}

// aheadProblem returns the problem of a plan whose epoch in force has shards that wait for a
// time ahead of their owner's clock, "" if none is reported. Of several reports it names the
// one that lasts longest, so the text changes only with the reports.
func (v *view) aheadProblem(plan *record.Plan) string {
	last := plan.Last()
	if last.Until != 0 {
		return "" // it is paused, or about to be followed by another epoch
	}
	var longest record.Ahead
	name := ""
	for _, inc := range v.silent {
		if is := v.members[inc].Ahead[plan.Job]; is.Gen == last.Gen && is.At > longest.At {
			longest, name = is, v.members[inc].Name
		}
	}
	if name == "" {
		return ""
	}
	return fmt.Sprintf("shards of instance %q wait until %s, which generation %d has reached by a clock that was wrong; Operator.Reset starts the job afresh",
		name, longest.At.Time().Format(time.RFC3339), longest.Gen)
}

// joinProblems returns the text of two problems, either of which may be "".
func joinProblems(a, b string) string {
	if a == "" || b == "" {
		return cmp.Or(a, b)
	}
	if strings.Contains(a, b) {
		return a
	}
	return a + "; " + b
}

// endAll ends all epochs at an instant that have not ended by then.
func (p *planning) endAll(at record.Instant) {
	for i := range p.p.Epochs {
		if e := &p.p.Epochs[i]; e.Until == 0 || e.Until > at {
			e.Until = at
		}
	}
}
