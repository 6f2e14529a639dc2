package look

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/history"
	"github.com/rota-dev/rota/operator"
)

// needsHistory reports whether the records lack a fact about a fire that the history may have: its outcome, or why it
// was skipped.
func needsHistory(a *operator.Answer) bool {
	if a.Fire.IsZero() || len(a.Gates) == 0 {
		return false
	}
	return a.Verb == "History" || a.Stops && a.Gates[len(a.Gates)-1].Name == "claimed"
}

// pastFire is the history's rows of a fire of a job.
type pastFire struct {
	runs  []history.Run  // the kept ones
	fires []history.Fire // the sums of the fire, and of fires that were skipped at once with it
}

// addOutcomes completes the answers that need the history by the rows of their fires. An answer is divided if
// its shards had different outcomes.
func addOutcomes(e operator.Explanation, of map[time.Time]pastFire) operator.Explanation {
	var answers []operator.Answer
	for i := range e.Answers {
		a := &e.Answers[i]
		if !needsHistory(a) {
			answers = append(answers, *a)
			continue
		}
		answers = append(answers, of[a.Fire].complete(a)...)
	}
	slices.SortStableFunc(answers, func(a, b operator.Answer) int {
		return slices.Compare(a.Shards[:min(1, len(a.Shards))], b.Shards[:min(1, len(b.Shards))])
	})
	e.Answers = answers
	return e
}

// kind is what shards have in common whose outcomes are told together.
type kind struct {
	outcome history.Outcome // of the last run; empty if it is not on record
	trigger uint64          // of the last run, if it is not one of the fire itself
	error   string
}

// complete returns the answers for the shards of a.
func (p pastFire) complete(a *operator.Answer) []operator.Answer {
	last := lastRuns(p.runs)
	rest := p.describeRest(a.Fire, last)
	shards := map[kind][]int{}
	var kinds []kind
	for _, shard := range a.Shards {
		var k kind
		if r := last[shard]; r != nil {
			k = kind{outcome: r.Outcome, error: r.Error}
			if !repeatsFire(r) {
				k.trigger = r.Trigger
			}
		}
		if shards[k] == nil {
			kinds = append(kinds, k)
		}
		shards[k] = append(shards[k], shard)
	}
	var out []operator.Answer
	for _, k := range kinds {
		found := rest
		if k.outcome != "" {
			found = describeRuns(k, shards[k], last)
		}
		out = append(out, found.apply(a, shards[k], k.trigger))
	}
	return out
}

// repeatsFire reports whether a run is one of a scheduled fire, or repeats it for an operator.
func repeatsFire(r *history.Run) bool {
	return r.Trigger == 0 || r.Reason == executor.Retried.String() || r.Reason == executor.Backfill.String()
}

// found is the fact that the history adds to an answer.
type found struct {
	verdict operator.Verdict // empty: nothing
	text    string
	do      string
	verb    string
	quote   string // the error that text quotes
}

// apply returns the answer for some shards of a.
func (f found) apply(a *operator.Answer, shards []int, trigger uint64) operator.Answer {
	out := *a
	out.Shards, out.Gates = shards, slices.Clone(a.Gates)
	if f.quote != "" {
		out.Quotes = append(slices.Clone(a.Quotes), f.quote)
		slices.SortFunc(out.Quotes, func(a, b string) int { return len(b) - len(a) })
	}
	final := &out.Gates[len(out.Gates)-1]
	switch {
	case f.verdict == "" && a.Verb == "History":
		out.Summary = strings.TrimSuffix(out.Summary, ".") + ". The run history has no record of it."
		out.Do = "look into the log of that time"
		return out
	case f.verdict == "":
		return out
	case a.Stops && f.verdict == operator.VerdictStop && a.Verb != "History":
		final.Detail += ". By the run history, it " + f.text
		out.Summary = strings.TrimSuffix(out.Summary, ".") + ": by the run history, it " + f.text + "."
		return out
	case a.Stops:
		return out // the records are newer
	case final.Name != "outcome":
		out.Gates = append(out.Gates, operator.Gate{Name: "outcome"})
		final = &out.Gates[len(out.Gates)-1]
	}
	what := "The fire of " + a.Fire.UTC().Format(time.RFC3339Nano)
	if trigger > 0 {
		what = fmt.Sprintf("The run of trigger %d, of %s,", trigger, a.Fire.UTC().Format(time.RFC3339Nano))
	}
	final.Verdict, final.Detail = f.verdict, "by the run history, it "+f.text
	out.Summary = what + " " + f.text + ", by the run history."
	out.Do, out.Verb, out.Stops = f.do, f.verb, f.verdict == operator.VerdictStop
	return out
}

// describeRuns describes the last runs of shards, which have one kind.
func describeRuns(k kind, shards []int, last map[int]*history.Run) found {
	first := last[shards[0]]
	from, to, attempt := first.Ended, first.Ended, first.Attempt
	var instances []string
	for _, shard := range shards {
		r := last[shard]
		if r.Ended.Before(from) {
			from = r.Ended
		}
		if r.Ended.After(to) {
			to = r.Ended
		}
		if r.Attempt != attempt {
			attempt = 0
		}
		if !slices.Contains(instances, r.Instance) {
			instances = append(instances, r.Instance)
		}
	}
	slices.Sort(instances)
	if more := len(instances) - 5; more > 0 {
		instances = append(instances[:5], fmt.Sprintf("%d more", more))
	}
	which := "the last attempts"
	if attempt > 0 {
		which = fmt.Sprintf("attempt %d", attempt)
	}
	ended := "at " + formatTime(from)
	if !to.Truncate(time.Second).Equal(from.Truncate(time.Second)) {
		ended = fmt.Sprintf("from %s to %s", formatTime(from), formatTime(to))
	}
	f := found{verdict: operator.VerdictOK, text: fmt.Sprintf("%s: %s ended %s on %s", predicateOf(k.outcome), which, ended, strings.Join(instances, ", "))}
	if k.error != "" {
		f.quote = firstLine(k.error)
		f.text += " with: " + f.quote
	}
	switch k.outcome {
	case history.Succeeded:
	case history.HandedBack:
		f.verdict, f.do = operator.VerdictUnknown, "look into the log of that time"
		f.text += ", and no later attempt is on record"
	default:
		f.verdict, f.do, f.verb = operator.VerdictStop, "remove the cause, then retry the fire", "Retry"
	}
	return f
}

// predicateOf returns the predicate of a fire by the outcome of its last run.
func predicateOf(o history.Outcome) string {
	switch o {
	case history.LostSession:
		return "lost its session"
	case history.HandedBack, history.Abandoned, history.Cancelled:
		return "was " + string(o)
	}
	return string(o)
}

// describeRest describes the runs of the fire that have no record of their own: by default, a history keeps few of those
// that succeeded, and it has the reason of skipped ones with the fire.
func (p pastFire) describeRest(fire time.Time, last map[int]*history.Run) found {
	var own history.Fire
	var skipped int64
	var reasons []string
	for i := range p.fires {
		f := &p.fires[i]
		if f.Trigger != 0 {
			continue
		}
		if f.Fire.Equal(fire) {
			own = *f
		}
		skipped += f.Skipped
		for reason := range f.SkippedBy.All() {
			if !slices.Contains(reasons, reason.String()) {
				reasons = append(reasons, reason.String())
			}
		}
	}
	ok, kept := own.OK, 0
	for _, r := range last {
		if r.Trigger == 0 {
			kept++
			if r.Outcome == history.Succeeded {
				ok--
			}
		}
	}
	shards := own.Shards - kept
	switch {
	case own.Shards > 0 && skipped == 0 && ok >= int64(shards):
		return found{verdict: operator.VerdictOK, text: "succeeded: the runs had ended by " + formatTime(own.LastEnd)}
	case skipped > 0 && ok <= 0:
		text := "was skipped"
		if len(reasons) > 0 {
			text += ": " + strings.Join(reasons, ", ")
		}
		return found{verdict: operator.VerdictStop, text: text, do: "see misfire, catchup_window and overlap of the job; trigger the shard to make up for it", verb: "Trigger"}
	case own.Shards > 0:
		return found{
			verdict: operator.VerdictUnknown, do: "look into the log of that time",
			text: fmt.Sprintf("has ended for %d shards, with %d runs that succeeded, %d that failed and %d skipped; the history has no run of this shard", own.Shards, own.OK, own.Failed, skipped),
		}
	}
	return found{}
}

func formatTime(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func firstLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	return s
}
