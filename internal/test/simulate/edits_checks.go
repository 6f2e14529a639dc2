package simulate

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/test/judge"
	"github.com/rota-dev/rota/internal/test/recordedit"
)

// editChecks is the state of the checks of a simulation of record edits.
type editChecks struct {
	live     map[string][]*liveCall // by shard: calls that have not returned
	last     map[string]time.Time   // by shard: when a run began last
	reached  map[string]time.Time   // by shard: the latest fire that has begun
	attempts map[string]bool        // that have begun
	fires    map[string]int         // begun attempts, by shard and fire
	lost     map[string]bool        // jobs whose plan or claims were edited
	begun    int
	wrong    []string // violations

	// Of the round:
	edits    []*edit
	since    time.Time
	calmFrom time.Time // zero: the fleet is not whole yet
	before   costs
}

// liveCall is a call of a handler that has not returned.
type liveCall struct {
	*judge.Call
	later []*judge.Call // that began after it
}

func newEditChecks() editChecks {
	return editChecks{live: map[string][]*liveCall{}, last: map[string]time.Time{}, reached: map[string]time.Time{}, attempts: map[string]bool{}, lost: map[string]bool{}, fires: map[string]int{}}
}

func shardName(job string, shard int) string { return fmt.Sprintf("%s/%d", job, shard) }

func fireName(job string, shard int, fire time.Time) string {
	return fmt.Sprintf("%s/%d at %s", job, shard, clockText(fire))
}

func clockText(t time.Time) string { return t.UTC().Format("15:04:05.000") }

// judgeCall judges the beginning or the end of a call.
func (h *editedFleet) judgeCall(e judge.Event) {
	shard := shardName(e.Job, e.Shard)
	if !e.End.IsZero() {
		h.judgeEnd(shard, e)
		return
	}
	h.begun++
	h.last[shard] = e.Start
	if e.Trigger == 0 {
		if e.Fire.After(h.reached[shard]) {
			h.reached[shard] = e.Fire
		}
		h.fires[fireName(e.Job, e.Shard, e.Fire)]++
	}
	attempt := fmt.Sprintf("%s fire %s trigger %d attempt %d", shard, clockText(e.Fire), e.Trigger, e.Attempt)
	if h.attempts[attempt] {
		h.addDoubled(e.Call, "begun twice: "+attempt)
	}
	h.attempts[attempt] = true
	for _, other := range h.live[shard] {
		other.later = append(other.later, e.Call)
	}
	h.live[shard] = append(h.live[shard], &liveCall{Call: e.Call})
}

// judgeEnd judges the calls that began before the end of this one: its context must have ended before them.
func (h *editedFleet) judgeEnd(shard string, e judge.Event) {
	i := slices.IndexFunc(h.live[shard], func(c *liveCall) bool { return c.Call == e.Call })
	call := h.live[shard][i]
	h.live[shard] = slices.Delete(h.live[shard], i, i+1)
	for _, later := range call.later {
		if !later.Start.Before(e.End) || !e.Canceled.IsZero() && !e.Canceled.After(later.Start) {
			continue
		}
		h.addDoubled(later, fmt.Sprintf("two live runs of %s: fire %s of %s began %s, while fire %s of %s ran until %s and its context until %s",
			shard, clockText(later.Fire), later.Client, clockText(later.Start), clockText(e.Fire), e.Client, clockText(e.End), clockText(e.Canceled)))
	}
}

// addDoubled records a doubled run as a violation. It is excused until the fleet has caught up after an
// edit of the job's plan or claims, which keep runs apart. An older intent may hold a trigger whose
// watermark went with an earlier edit: the shard runs that again.
func (h *editedFleet) addDoubled(c *judge.Call, text string) {
	for _, one := range slices.Backward(h.edits) {
		excuses := one.SeparatesRuns() || one.Kind == recordedit.Control && one.Change == recordedit.RollBack && c.Trigger > 0 && h.lost[c.Job]
		if excuses && one.Job == c.Job && (h.calmFrom.IsZero() || c.Start.Before(h.calmFrom)) {
			h.logStep("  %s %s", clockText(c.Start), text)
			h.report.excuse(one, h.crashes > 0, c.Start.Sub(one.at))
			return
		}
	}
	h.wrong = append(h.wrong, text)
}

func (h *editedFleet) violations() error {
	if len(h.wrong) == 0 {
		return nil
	}
	return errors.New(strings.Join(h.wrong, "\n"))
}

// calmFires is how many fires pass after a round without an edit.
const calmFires = 3

// requireCalm lets fires pass after the fleet became whole, and requires that each begins exactly once on
// each shard. Then it judges the fires and the traffic of the whole round.
func (h *editedFleet) requireCalm() error {
	if err := h.restoreUnread(); err != nil {
		return err
	}
	if err := h.awaitCaughtUp(); err != nil {
		return err
	}
	calm, edited := time.Now(), h.countCosts().minus(h.before)
	h.before, h.calmFrom = h.countCosts(), calm
	if err := h.passTime((calmFires + 1) * h.Every); err != nil {
		return err
	}
	end := time.Now().Add(-h.Every)
	for _, spec := range h.specs {
		h.requireFires(spec, calm, end, 1, 1)
		switch {
		case slices.ContainsFunc(h.edits, func(one *edit) bool { return one.Job == spec.name }):
		case h.crashes == 0 && !slices.ContainsFunc(h.edits, (*edit).endsSession):
			h.requireFires(spec, h.since, end, 1, 1)
			h.report.Strict++
		case spec.misfire == executor.RunAll(1000):
			h.requireFires(spec, h.since, end, 1, 1000)
		}
	}
	h.boundCosts(calm.Sub(h.since), edited, time.Since(calm), h.countCosts().minus(h.before))
	return h.violations()
}

// caughtUpWithin bounds the time in which a fleet runs missed fires, and fires that are claimed again after claims
// were deleted: all fires since watermarks were last copied into the plan.
const caughtUpWithin = 10 * time.Minute

// awaitCaughtUp waits until each shard has begun its latest fire.
func (h *editedFleet) awaitCaughtUp() error {
	began := time.Now()
	for {
		if err := h.passTime(time.Second); err != nil {
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

// requirePlansRestored requires that a leader replaced a plan that was edited during its term by the plan that it
// holds in memory.
func (h *editedFleet) requirePlansRestored() error {
	mayEndTerm := []recordedit.Kind{recordedit.Leader, recordedit.Seat, recordedit.Instance, recordedit.Member, recordedit.Claims}
	if h.crashes > 0 || slices.ContainsFunc(h.edits, func(one *edit) bool { return slices.Contains(mayEndTerm, one.Kind) }) {
		return nil
	}
	for _, one := range h.edits {
		if one.Kind != recordedit.Plan {
			continue
		}
		e, _ := h.readFresh(one.Key)
		was, err := record.DecodePlan([]byte(one.previous))
		now, err2 := record.DecodePlan(e.Value)
		if err := errors.Join(err, err2); err != nil {
			return err
		}
		if now.Last().Number != was.Last().Number || now.Counts.Claimed < was.Counts.Claimed || now.Resets != was.Resets || !h.log.names(one.Key, one.at) {
			return fmt.Errorf("%v: the leader did not restore its plan: epoch %d after %d, counts %+v after %+v",
				one, now.Last().Number, was.Last().Number, now.Counts, was.Counts)
		}
		h.report.Restored++
	}
	return nil
}

// requireFires requires that each fire after from, through to, began at least least times and at most
// most times for each shard.
func (h *editedFleet) requireFires(spec *jobSpec, from, to time.Time, least, most int) {
	for fire := from.Truncate(h.Every).Add(h.Every); !fire.After(to); fire = fire.Add(h.Every) {
		for n := range spec.shards {
			name := fireName(spec.name, n, fire)
			if began := h.fires[name]; began < least || began > most {
				h.wrong = append(h.wrong, fmt.Sprintf("%s began %d times", name, began))
			}
		}
	}
}

// costs of a fleet, since its start or in a span of time.
type costs struct {
	commits int // transactions, with those that changed nothing
	reads   int
	lines   int // of the log, from INFO on
	runs    int
}

func (h *editedFleet) countCosts() costs {
	n := h.server.Counts("")
	return costs{commits: n.Commits + n.Conflicts + n.Checks, reads: n.Reads, lines: h.log.lines(), runs: h.begun}
}

func (c costs) minus(o costs) costs {
	return costs{c.commits - o.commits, c.reads - o.reads, c.lines - o.lines, c.runs - o.runs}
}

// Bounds of costs.
const (
	commitsPerEdit = 120 // besides those of the runs
	readsPerEdit   = 200
	linesPerEdit   = 60
	commitsPerCalm = 20 // in the fires after a round, besides those of the runs
	readsPerCalm   = 120
	linesPerCalm   = 40
)

// boundCosts bounds the requests and log lines that edits caused. A run costs two commits, and fires during the
// edits cost as much as those of the calm after them.
func (h *editedFleet) boundCosts(editing time.Duration, edited costs, calming time.Duration, calm costs) {
	n, r := len(h.edits)+h.crashes, h.report
	excess := (edited.commits - min(2*edited.runs, int(float64(calm.commits)*editing.Seconds()/calming.Seconds()))) / n
	rest := calm.commits - 2*calm.runs
	r.Commits, r.Reads, r.Lines = max(r.Commits, excess), max(r.Reads, edited.reads/n), max(r.Lines, edited.lines/n)
	r.CalmCommits, r.CalmReads, r.CalmLines = max(r.CalmCommits, rest), max(r.CalmReads, calm.reads), max(r.CalmLines, calm.lines)
	r.Calls = h.begun
	if excess > commitsPerEdit || edited.reads > readsPerEdit*n || edited.lines > linesPerEdit*n {
		h.wrong = append(h.wrong, fmt.Sprintf("%d edits and crashes cost %+v, and the calm after them %+v", n, edited, calm))
	}
	if rest > commitsPerCalm || calm.reads > readsPerCalm || calm.lines > linesPerCalm {
		h.wrong = append(h.wrong, fmt.Sprintf("the calm after the edits cost %+v", calm))
	}
}
