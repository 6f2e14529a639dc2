package view

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/shell"
	"github.com/rota-dev/rota/operator"
)

// Explanation is an explanation with the commands of its answers.
type Explanation struct {
	Version int `json:"version"`
	operator.Explanation
	Answers []Answer `json:"answers"` // in place of those of operator.Explanation
}

// Answer is an answer, and a command that follows its advice, or a part of it.
type Answer struct {
	operator.Answer
	Command string `json:"command,omitempty"`
}

// UnnamedHistory is the flag of a command that needs a history if none is named.
const UnnamedHistory = " --history URL"

// ExplanationOf returns the view of an explanation. Commands that read the history get the flags that name it.
func ExplanationOf(e operator.Explanation, historyFlags string) Explanation {
	v := Explanation{Version: Version, Explanation: e}
	for _, a := range e.Answers {
		v.Answers = append(v.Answers, Answer{a, commandOf(e.Job, &a, historyFlags)})
	}
	return v
}

// commandOf returns the command for the verb of an answer, "" if it has none. Capitals are for the reader
// to replace.
func commandOf(job string, a *operator.Answer, historyFlags string) string {
	job = shell.Quote(job)
	switch a.Verb {
	case "Cancel":
		return fmt.Sprintf("rota cancel %s --shard %s", job, Ranges(a.Shards))
	case "Disable":
		return drainCommand(a.Instance)
	case "Enable":
		return fmt.Sprintf("rota enable %s --shards %s", job, Ranges(a.Shards))
	case "History":
		return fmt.Sprintf("rota runs %s --fire %s%s", job, a.Fire.UTC().Format(time.RFC3339Nano), historyFlags)
	case "Reset":
		return "rota reset " + job
	case "Resume":
		return "rota resume " + job
	case "ResumeGroup":
		return "rota resume --all"
	case "Retry":
		command := fmt.Sprintf("rota retry %s --fire %s", job, a.Fire.UTC().Format(time.RFC3339Nano))
		if historyFlags != UnnamedHistory { // which may know failures that the records do not name
			command += historyFlags
		}
		return command
	case "Trigger":
		return fmt.Sprintf("rota trigger %s --shards %s", job, Ranges(a.Shards))
	}
	return ""
}

// Screen returns each answer: the summary, the gates, and what to do.
func (v Explanation) Screen(Times) Screen {
	var s Screen
	for _, a := range v.Answers {
		s = append(s, Section{Fields: []Field{{v.Job, ShardsText(a.Shards)}, {"answer", a.Summary}}})
		var gates Section
		for _, g := range a.Gates {
			verdict := string(g.Verdict)
			if g.Verdict == operator.VerdictStop {
				verdict = strings.ToUpper(verdict)
			}
			gates.Fields = append(gates.Fields, Field{fmt.Sprintf("  %-7s  %s", verdict, g.Name), g.Detail})
		}
		s = append(s, gates)
		if a.Do != "" {
			do := Section{Fields: []Field{{"do", a.Do}}}
			if a.Command != "" {
				do.Fields = append(do.Fields, Field{"by", a.Command})
			}
			s = append(s, do)
		}
	}
	return s
}

// Names returns the names of the gates that stop the fires.
func (v Explanation) Names() (names []string) {
	for _, a := range v.Answers {
		if a.Stops {
			names = append(names, a.Gates[len(a.Gates)-1].Name)
		}
	}
	return names
}

// Items returns the answers.
func (v Explanation) Items() []any { return itemsOf(v.Answers) }

// Moves are the moves of shards that a leader would make.
type Moves struct {
	Version int `json:"version"`
	operator.Preview
}

// Screen returns a table of the moves, and the problems of jobs.
func (v Moves) Screen(Times) Screen {
	moves := Table{Columns: columns("~JOB", "~SHARDS", "COUNT", "FROM", "TO")}
	var problems Section
	for _, j := range v.Jobs {
		for _, m := range j.Moves {
			moves.Rows = append(moves.Rows, []string{j.Job, Ranges(m.Shards), fmt.Sprint(len(m.Shards)), orDash(m.From), orDash(m.To)})
		}
		for _, text := range []string{j.Problem, j.Unknown} {
			if text != "" {
				problems.Fields = append(problems.Fields, Field{j.Job, text})
			}
		}
	}
	return Screen{moves.orLine("no shard would move"), problems}
}

// Names returns the jobs.
func (v Moves) Names() []string {
	return namesOf(v.Jobs, func(j *operator.JobMoves) string { return j.Job })
}

// Items returns the jobs.
func (v Moves) Items() []any { return itemsOf(v.Jobs) }

// Diagnosis is a diagnosis of the records.
type Diagnosis struct {
	Version int `json:"version"`
	operator.Diagnosis
	Note string `json:"note,omitempty"` // why there is nothing to diagnose
}

// Screen returns the findings one after the other.
func (v Diagnosis) Screen(Times) Screen {
	var s Screen
	for _, f := range v.Findings {
		of := cmp.Or(f.Job, string(f.Key))
		s = append(s, Section{Fields: []Field{
			{f.Severity.String(), strings.TrimSpace(string(f.Kind) + "  " + of)}, {"  what", f.What}, {"  do", f.Do},
		}})
	}
	if len(s) == 0 && v.Note == "" {
		s = Screen{{Lines: []string{"nothing found"}}}
	}
	return append(s, noteSection(v.Note))
}

// Names returns the kinds of the findings.
func (v Diagnosis) Names() []string {
	return namesOf(v.Findings, func(f *operator.Finding) string { return string(f.Kind) })
}

// Items returns the findings.
func (v Diagnosis) Items() []any { return itemsOf(v.Findings) }
