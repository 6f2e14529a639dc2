package simulate

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/test/judge"
)

// handsChecks are the books of a simulation of hands.
type handsChecks struct {
	live     map[string][]*handsCall // by shard: calls that have not returned
	last     map[string]time.Time    // by shard: when a run began last
	reached  map[string]time.Time    // by shard: the latest fire that has begun
	attempts map[string]bool         // that have begun
	fires    map[string]int          // begun attempts, by shard and fire
	lost     map[string]bool         // jobs whose plan or claims were changed
	calls    int
	wrong    []string // violations

	// Of the round:
	struck   []*hand
	since    time.Time
	calmFrom time.Time // zero: the fleet heals
	before   costs
}

// handsCall is a call of a handler that has begun.
type handsCall struct {
	*judge.Call
	later []*judge.Call // that began since
}

func newHandsChecks() handsChecks {
	return handsChecks{live: map[string][]*handsCall{}, last: map[string]time.Time{}, reached: map[string]time.Time{}, attempts: map[string]bool{}, lost: map[string]bool{}, fires: map[string]int{}}
}

func shardName(job string, shard int) string { return fmt.Sprintf("%s/%d", job, shard) }

func fireName(job string, shard int, fire time.Time) string {
	return fmt.Sprintf("%s/%d at %s", job, shard, clockText(fire))
}

func clockText(t time.Time) string { return t.UTC().Format("15:04:05.000") }

// judgeCall judges the beginning or the end of a call.
func (h *hands) judgeCall(e judge.Event) {
	shard := shardName(e.Job, e.Shard)
	if !e.End.IsZero() {
		h.ended(shard, e)
		return
	}
	h.calls++
	h.last[shard] = e.Start
	if e.Trigger == 0 {
		if e.Fire.After(h.reached[shard]) {
			h.reached[shard] = e.Fire
		}
		h.fires[fireName(e.Job, e.Shard, e.Fire)]++
	}
	attempt := fmt.Sprintf("%s fire %s trigger %d attempt %d", shard, clockText(e.Fire), e.Trigger, e.Attempt)
	if h.attempts[attempt] {
		h.doubled(e.Call, "begun twice: "+attempt)
	}
	h.attempts[attempt] = true
	for _, other := range h.live[shard] {
		other.later = append(other.later, e.Call)
	}
	h.live[shard] = append(h.live[shard], &handsCall{Call: e.Call})
}

// ended judges the calls that began while one lasted that has returned: its context has to have ended.
func (h *hands) ended(shard string, e judge.Event) {
	i := slices.IndexFunc(h.live[shard], func(c *handsCall) bool { return c.Call == e.Call })
	call := h.live[shard][i]
	h.live[shard] = slices.Delete(h.live[shard], i, i+1)
	for _, later := range call.later {
		if !later.Start.Before(e.End) || !e.Told.IsZero() && !e.Told.After(later.Start) {
			continue
		}
		h.doubled(later, fmt.Sprintf("two live runs of %s: fire %s of %s began %s, while fire %s of %s ran until %s and its context until %s",
			shard, clockText(later.Fire), later.Client, clockText(later.Start), clockText(e.Fire), e.Client, clockText(e.End), clockText(e.Told)))
	}
}

// doubled records a doubled run. It is excused while a fleet heals from a change of the job's plan or claims
// and runs missed fires: the record that keeps runs apart was taken away. An older intent asks for its
// triggers again, and a shard runs one whose watermark went with an earlier change.
func (h *hands) doubled(c *judge.Call, text string) {
	for _, one := range slices.Backward(h.struck) {
		lossy := one.kind == "plan" || one.kind == "claims" || one.kind == "control" && one.act == "roll back" && c.Trigger > 0 && h.lost[c.Job]
		if lossy && one.job == c.Job && (h.calmFrom.IsZero() || c.Start.Before(h.calmFrom)) {
			h.tell("  %s %s", clockText(c.Start), text)
			h.report.excuse(one, h.crashes > 0, c.Start.Sub(one.at))
			return
		}
	}
	h.wrong = append(h.wrong, text)
}

func (h *hands) broken() error {
	if len(h.wrong) == 0 {
		return nil
	}
	return errors.New(strings.Join(h.wrong, "\n"))
}

// calmFires is how many fires have to pass undisturbed after a round.
const calmFires = 3

// calmDown lets fires pass after a fleet has healed and requires that each of each shard begins exactly
// once. Then it judges the fires and the traffic of the whole round.
func (h *hands) calmDown() error {
	if err := h.restoreUnread(); err != nil {
		return err
	}
	if err := h.catchUp(); err != nil {
		return err
	}
	calm, acted := time.Now(), h.costs().minus(h.before)
	h.before, h.calmFrom = h.costs(), calm
	if err := h.pass((calmFires + 1) * h.Every); err != nil {
		return err
	}
	end := time.Now().Add(-h.Every)
	for _, spec := range h.specs {
		h.requireFires(spec, calm, end, 1, 1)
		switch {
		case slices.ContainsFunc(h.struck, func(one *hand) bool { return one.job == spec.name }):
		case h.crashes == 0 && !slices.ContainsFunc(h.struck, (*hand).costsSession):
			h.requireFires(spec, h.since, end, 1, 1)
			h.report.Strict++
		case spec.misfire == executor.RunAll(1000):
			h.requireFires(spec, h.since, end, 1, 1000)
		}
	}
	h.requireLittleTraffic(calm.Sub(h.since), acted, time.Since(calm), h.costs().minus(h.before))
	return h.broken()
}

// caughtUpWithin bounds the time that a fleet takes to run missed fires, or fires that are claimed again after claims were
// deleted: all fires since watermarks were last folded into the plan.
const caughtUpWithin = 10 * time.Minute

// catchUp waits until each shard runs the latest fire.
func (h *hands) catchUp() error {
	began := time.Now()
	for {
		if err := h.pass(time.Second); err != nil {
			return err
		}
		behind := ""
		for _, spec := range h.specs {
			for n := range spec.shards {
				if shard := shardName(spec.name, n); h.reached[shard].Before(time.Now().Truncate(h.Every)) {
					behind = shard
				}
			}
		}
		took := time.Since(began)
		if h.report.CaughtUp = max(h.report.CaughtUp, took); behind == "" {
			return nil
		}
		if took > caughtUpWithin {
			return fmt.Errorf("%s has not caught up after %v", behind, took)
		}
	}
}

// requirePlansKept requires that a leader has written a plan again that was changed while it led: the plan
// goes on from where it was.
func (h *hands) requirePlansKept() error {
	office := []string{"leader", "present", "instance", "member", "claims"}
	if h.crashes > 0 || slices.ContainsFunc(h.struck, func(one *hand) bool { return slices.Contains(office, one.kind) }) {
		return nil // the leader may have gone
	}
	for _, one := range h.struck {
		if one.kind != "plan" {
			continue
		}
		e, _ := h.get(one.key)
		was, err := record.DecodePlan([]byte(one.was))
		now, err2 := record.DecodePlan(e.Value)
		if err := errors.Join(err, err2); err != nil {
			return err
		}
		if now.Last().Number != was.Last().Number || now.Counts.Claimed < was.Counts.Claimed || now.Resets != was.Resets || !h.log.names(one.key, one.at) {
			return fmt.Errorf("%v: the leader has not written again the plan that it knew: epoch %d after %d, %+v after %+v",
				one, now.Last().Number, was.Last().Number, now.Counts, was.Counts)
		}
		h.report.Kept++
	}
	return nil
}

// requireFires requires that each fire after from, through to, began at least least times and at most
// most times for each shard.
func (h *hands) requireFires(spec *jobSpec, from, to time.Time, least, most int) {
	for fire := from.Truncate(h.Every).Add(h.Every); !fire.After(to); fire = fire.Add(h.Every) {
		for n := range spec.shards {
			name := fireName(spec.name, n, fire)
			if began := h.fires[name]; began < least || began > most {
				h.wrong = append(h.wrong, fmt.Sprintf("%s began %d times", name, began))
			}
		}
	}
}

// costs are those of the fleet so far, or during a time.
type costs struct {
	commits int // transactions, with those that changed nothing
	reads   int
	lines   int // of the log, from INFO on
	runs    int
}

func (h *hands) costs() costs {
	n := h.server.Counts("")
	return costs{commits: n.Commits + n.Conflicts + n.Checks, reads: n.Reads, lines: h.log.lines(), runs: h.calls}
}

func (c costs) minus(o costs) costs {
	return costs{c.commits - o.commits, c.reads - o.reads, c.lines - o.lines, c.runs - o.runs}
}

// Bounds of the costs of a round.
const (
	commitsPerAct  = 120 // besides those of the runs
	readsPerAct    = 200
	linesPerAct    = 60
	commitsPerCalm = 20 // in the calm after a round, besides those of the runs
	readsPerCalm   = 120
	linesPerCalm   = 40
)

// requireLittleTraffic bounds the costs of the acts for the store and the log: a run costs two commits, and
// the fires of the time of the acts as much as those of the calm after them.
func (h *hands) requireLittleTraffic(acting time.Duration, acted costs, calming time.Duration, calm costs) {
	acts, r := len(h.struck)+h.crashes, h.report
	excess := (acted.commits - min(2*acted.runs, int(float64(calm.commits)*acting.Seconds()/calming.Seconds()))) / acts
	rest := calm.commits - 2*calm.runs
	r.Commits, r.Reads, r.Lines = max(r.Commits, excess), max(r.Reads, acted.reads/acts), max(r.Lines, acted.lines/acts)
	r.CalmCommits, r.CalmReads, r.CalmLines = max(r.CalmCommits, rest), max(r.CalmReads, calm.reads), max(r.CalmLines, calm.lines)
	r.Calls = h.calls
	if excess > commitsPerAct || acted.reads > readsPerAct*acts || acted.lines > linesPerAct*acts {
		h.wrong = append(h.wrong, fmt.Sprintf("%d acts and crashes cost %+v, and the calm after them %+v", acts, acted, calm))
	}
	if rest > commitsPerCalm || calm.reads > readsPerCalm || calm.lines > linesPerCalm {
		h.wrong = append(h.wrong, fmt.Sprintf("the calm after the acts cost %+v", calm))
	}
}

// HandsReport is the outcome of a simulation of hands, or of many.
type HandsReport struct {
	Seed     uint64
	Seeds    int
	Rows     map[string]*HandsRow // by kind and act
	Excused  map[string]*Excused  // doubled runs of a job whose plan or claims had been changed
	CaughtUp time.Duration        // the longest time that a fleet took to run missed fires
	Kept     int                  // plans that had to be written again as they were
	Strict   int                  // jobs that had to run every fire of a round once
	Calls    int
	Commits  int // the most for an act, besides those of runs
	Reads    int // the most for an act
	Lines    int // the most for an act

	CalmCommits, CalmReads, CalmLines int // the most in the calm after a round

	Story []string
}

// Excused are the doubled runs that one kind of act explains.
type Excused struct {
	Runs  int
	Until time.Duration // when the last of them began, after the act
}

func (r *HandsReport) excuse(one *hand, crash bool, after time.Duration) {
	id := one.kind + ", " + one.act
	if crash {
		id += ", and a crash"
	}
	r.excused(id, Excused{1, after})
}

func (r *HandsReport) excused(id string, more Excused) {
	if r.Excused == nil {
		r.Excused = map[string]*Excused{}
	}
	is := r.Excused[id]
	if is == nil {
		is = &Excused{}
		r.Excused[id] = is
	}
	is.Runs, is.Until = is.Runs+more.Runs, max(is.Until, more.Until)
}

// HandsRow counts the outcomes of one act on one kind of record.
type HandsRow struct {
	Acts, Healed, Named int
	Unread              int             // no process read the value while it stood
	Within              []time.Duration // to heal
}

func (r *HandsReport) row(one *hand) *HandsRow {
	id := one.kind + ", " + one.act
	if r.Rows[id] == nil {
		r.Rows[id] = &HandsRow{}
	}
	return r.Rows[id]
}

func (r *HandsRow) healed(took time.Duration) {
	r.Healed++
	r.Within = append(r.Within, took)
}

// Add adds the report of another seed.
func (r *HandsReport) Add(o *HandsReport) {
	if r.Rows == nil {
		r.Rows = map[string]*HandsRow{}
	}
	r.Seeds++
	r.Strict, r.Kept, r.Calls, r.CaughtUp = r.Strict+o.Strict, r.Kept+o.Kept, r.Calls+o.Calls, max(r.CaughtUp, o.CaughtUp)
	for id, more := range o.Excused {
		r.excused(id, *more)
	}
	r.Commits, r.Reads, r.Lines = max(r.Commits, o.Commits), max(r.Reads, o.Reads), max(r.Lines, o.Lines)
	r.CalmCommits, r.CalmReads, r.CalmLines = max(r.CalmCommits, o.CalmCommits), max(r.CalmReads, o.CalmReads), max(r.CalmLines, o.CalmLines)
	for id, row := range o.Rows {
		if r.Rows[id] == nil {
			r.Rows[id] = &HandsRow{}
		}
		is := r.Rows[id]
		is.Acts, is.Healed, is.Named, is.Unread = is.Acts+row.Acts, is.Healed+row.Healed, is.Named+row.Named, is.Unread+row.Unread
		is.Within = append(is.Within, row.Within...)
	}
}

// String is a table.
func (r *HandsReport) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d seeds, %d runs; caught up within %v; %d times a job had to run every fire of a round once, %d plans had to be written again as they were; "+
		"at most for an act: %d commits, %d reads, %d lines; in the calm after a round: %d, %d, %d",
		r.Seeds, r.Calls, r.CaughtUp, r.Strict, r.Kept, r.Commits, r.Reads, r.Lines, r.CalmCommits, r.CalmReads, r.CalmLines)
	for _, id := range slices.Sorted(maps.Keys(r.Rows)) {
		row := r.Rows[id]
		slices.Sort(row.Within)
		fmt.Fprintf(&b, "\n%5d  %-28s healed %4d", row.Acts, id, row.Healed)
		if n := len(row.Within); n > 0 {
			fmt.Fprintf(&b, " in %v, at most %v", row.Within[n/2].Round(time.Second), row.Within[n-1].Round(time.Second))
		}
		fmt.Fprintf(&b, ", named %d, unread %d", row.Named, row.Unread)
	}
	for _, id := range slices.Sorted(maps.Keys(r.Excused)) {
		fmt.Fprintf(&b, "\n%5d  doubled runs excused by %s, at most %v after", r.Excused[id].Runs, id, r.Excused[id].Until.Round(time.Millisecond))
	}
	return b.String()
}
