package view

import (
	"slices"
	"strings"

	"github.com/rota-dev/rota/operator"
)

// Concealed stands for the text of an error or an output that the reader may not see.
const Concealed = "(hidden)"

// Conceal returns a view without errors and outputs of runs. No view has parameters.
func Conceal(v any) any {
	switch v := v.(type) {
	case Jobs:
		v.Jobs = concealJobs(v.Jobs)
		return v
	case Check:
		v.Jobs = concealJobs(v.Jobs)
		return v
	case Job:
		return concealJobs([]Job{v})[0]
	case JobDetail:
		v.Failures = concealFailures(v.Failures)
		return v
	case Definitions:
		v.Definitions = slices.Clone(v.Definitions)
		for i := range v.Definitions {
			v.Definitions[i].Failures = concealFailures(v.Definitions[i].Failures)
		}
		return v
	case Definition:
		v.Definition.Failures = concealFailures(v.Definition.Failures)
		return v
	case Shards:
		v.Shards = slices.Clone(v.Shards)
		for i := range v.Shards {
			if before, _, failed := strings.Cut(v.Shards[i].Note, failedNote); failed { // the last note
				v.Shards[i].Note = before + failedNote + Concealed
			}
		}
		return v
	case HistoryRuns:
		v.Runs = slices.Clone(v.Runs)
		for i := range v.Runs {
			concealText(&v.Runs[i].Error)
			concealText(&v.Runs[i].Output)
		}
		return v
	case Explanation:
		v.Answers = slices.Clone(v.Answers)
		for i := range v.Answers {
			concealAnswer(&v.Answers[i].Answer)
		}
		return v
	}
	return v
}

func concealText(text *string) {
	if *text != "" {
		*text = Concealed
	}
}

func concealFailures(failures []operator.Failure) []operator.Failure {
	failures = slices.Clone(failures)
	for i := range failures {
		concealText(&failures[i].Error)
	}
	return failures
}

func concealJobs(jobs []Job) []Job {
	jobs = slices.Clone(jobs)
	for i := range jobs {
		concealText(&jobs[i].LastFailure.Error)
	}
	return jobs
}

// concealAnswer replaces the errors that the texts of an answer quote, after a colon.
func concealAnswer(a *operator.Answer) {
	conceal := func(text *string) {
		for _, quote := range a.Quotes {
			*text = strings.ReplaceAll(*text, ": "+quote, ": "+Concealed)
			if len(quote) >= leastQuote {
				*text = strings.ReplaceAll(*text, quote, Concealed)
			}
		}
	}
	conceal(&a.Summary)
	conceal(&a.Do)
	a.Gates = slices.Clone(a.Gates)
	for i := range a.Gates {
		conceal(&a.Gates[i].Detail)
	}
}

// leastQuote is the length in bytes from which an error is replaced anywhere: a shorter one is a part of words.
const leastQuote = 4
