package look

import (
	"cmp"
	"slices"

	"github.com/rota-dev/rota/internal/view"
	"github.com/rota-dev/rota/operator"
)

// Advice is what helps a job that needs somebody, in the words of rota explain or of rota doctor.
type Advice struct {
	What, Do string
	// Answer is the answer of the explanation that Do is of, nil if it is of a finding.
	Answer *view.Answer
}

// AdviceOf returns what helps a job: the remedy in its explanation that is for most of the shards that a gate stops, or else that of the
// gravest of the findings about it. It is false if neither has a remedy.
func AdviceOf(e *view.Explanation, findings []operator.Finding) (Advice, bool) {
	if best, ok := bestAnswer(e.Answers); ok {
		answer := view.ExplanationOf(operator.Explanation{Job: e.Job, Answers: []operator.Answer{best}}, view.UnnamedHistory).Answers[0]
		return Advice{What: answer.Summary, Do: answer.Do, Answer: &answer}, true
	}
	of := slices.DeleteFunc(slices.Clone(findings), func(f operator.Finding) bool { return f.Job != e.Job || f.Do == "" })
	if len(of) == 0 {
		return Advice{}, false
	}
	f := slices.MaxFunc(of, func(a, b operator.Finding) int { return cmp.Compare(a.Severity, b.Severity) })
	return Advice{What: f.What, Do: f.Do}, true
}

// bestAnswer returns the answer with a remedy that is for most shards, those that a gate stops first. Answers with one remedy count as one:
// those of two owners of shards have different gates.
func bestAnswer(answers []view.Answer) (best operator.Answer, ok bool) {
	var all []operator.Answer
	for i := range answers {
		a := answers[i].Answer
		if a.Do == "" || !a.Stops && a.Verb == "History" { // which is no trouble
			continue
		}
		same := slices.IndexFunc(all, func(b operator.Answer) bool {
			return a.Do == b.Do && a.Verb == b.Verb && a.Instance == b.Instance && a.Fire.Equal(b.Fire) && a.Stops == b.Stops
		})
		if same < 0 {
			a.Shards = slices.Clone(a.Shards)
			all = append(all, a)
			continue
		}
		all[same].Shards = append(all[same].Shards, a.Shards...)
		slices.Sort(all[same].Shards)
	}
	for i := range all {
		if a := all[i]; !ok || a.Stops && !best.Stops || a.Stops == best.Stops && len(a.Shards) > len(best.Shards) {
			best, ok = a, true
		}
	}
	return best, ok
}
