package view

import (
	"fmt"
	"strings"
	"time"

	"github.com/rota-dev/rota/cmd/rota/internal/shell"
	"github.com/rota-dev/rota/operator"
)

// Explanation is operator.Explanation.
type Explanation struct {
	Version int       `json:"version"`
	At      time.Time `json:"at"`
	Job     string    `json:"job"`
	Known   bool      `json:"known"`
	Answers []Answer  `json:"answers"`
}

// Answer is operator.Answer.
type Answer struct {
	Shards  []int     `json:"shards"`
	Fire    time.Time `json:"fire,omitzero"`
	Stops   bool      `json:"stops"`
	Summary string    `json:"summary"`
	Do      string    `json:"do,omitempty"`
	Command string    `json:"command,omitempty"` // a command that does it, or a part of it
	Gates   []Gate    `json:"gates"`
}

// Gate is operator.Gate.
type Gate struct {
	Name    string `json:"name"`
	Verdict string `json:"verdict"`
	Detail  string `json:"detail"`
}

// UnnamedHistory is the flag of a command that needs a history if none is named.
const UnnamedHistory = " --history URL"

// ExplanationOf returns the view of an explanation. Commands that read the history get the flags that name it.
func ExplanationOf(e operator.Explanation, historyFlags string) Explanation {
	v := Explanation{Version: Version, At: e.At, Job: e.Job, Known: e.Known, Answers: []Answer{}}
	for _, a := range e.Answers {
		answer := Answer{orEmpty(a.Shards), a.Fire, a.Stops, a.Summary, a.Do, commandOf(e.Job, &a, historyFlags), []Gate{}}
		for _, g := range a.Gates {
			answer.Gates = append(answer.Gates, Gate{g.Name, string(g.Verdict), g.Detail})
		}
		v.Answers = append(v.Answers, answer)
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
		return "rota drain " + shell.Quote(a.Instance)
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
			verdict := g.Verdict
			if verdict == string(operator.VerdictStop) {
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

// Moves is operator.Preview.
type Moves struct {
	Version int        `json:"version"`
	At      time.Time  `json:"at"`
	Added   []string   `json:"added"`
	Jobs    []JobMoves `json:"jobs"`
}

// JobMoves is operator.JobMoves.
type JobMoves struct {
	Job     string `json:"job"`
	Moves   []Move `json:"moves"`
	Unowned []int  `json:"unowned"`
	Problem string `json:"problem,omitempty"`
	Unknown string `json:"unknown,omitempty"`
}

// Move is operator.Move.
type Move struct {
	Shards []int  `json:"shards"`
	From   string `json:"from,omitempty"`
	To     string `json:"to,omitempty"`
}

// MovesOf returns the view of a preview.
func MovesOf(p operator.Preview) Moves {
	v := Moves{Version, p.At, orEmpty(p.Added), []JobMoves{}}
	for _, j := range p.Jobs {
		job := JobMoves{j.Job, []Move{}, orEmpty(j.Unowned), j.Problem, j.Unknown}
		for _, m := range j.Moves {
			job.Moves = append(job.Moves, Move{orEmpty(m.Shards), m.From, m.To})
		}
		v.Jobs = append(v.Jobs, job)
	}
	return v
}

// Screen returns a table of the moves, and the problems of jobs.
func (v Moves) Screen(Times) Screen {
	moves := Section{Table: Table{Columns: columns("~JOB", "~SHARDS", "COUNT", "FROM", "TO")}}
	var problems Section
	for _, j := range v.Jobs {
		for _, m := range j.Moves {
			moves.Table.Rows = append(moves.Table.Rows, []string{j.Job, Ranges(m.Shards), fmt.Sprint(len(m.Shards)), orDash(m.From), orDash(m.To)})
		}
		for _, text := range []string{j.Problem, j.Unknown} {
			if text != "" {
				problems.Fields = append(problems.Fields, Field{j.Job, text})
			}
		}
	}
	if len(moves.Table.Rows) == 0 {
		moves = Section{Lines: []string{"no shard would move"}}
	}
	return Screen{moves, problems}
}

// Names returns the jobs.
func (v Moves) Names() (names []string) {
	for _, j := range v.Jobs {
		names = append(names, j.Job)
	}
	return names
}

// Items returns the jobs.
func (v Moves) Items() []any { return itemsOf(v.Jobs) }

// Diagnosis is operator.Diagnosis.
type Diagnosis struct {
	Version  int       `json:"version"`
	At       time.Time `json:"at"`
	Findings []Finding `json:"findings"`
	Note     string    `json:"note,omitempty"` // why there is nothing to diagnose
}

// Finding is operator.Finding.
type Finding struct {
	Severity string `json:"severity"`
	Kind     string `json:"kind"`
	Job      string `json:"job,omitempty"`
	Key      string `json:"key,omitempty"`
	What     string `json:"what"`
	Do       string `json:"do"`
}

// DiagnosisOf returns the view of a diagnosis.
func DiagnosisOf(d operator.Diagnosis) Diagnosis {
	v := Diagnosis{Version: Version, At: d.At, Findings: []Finding{}}
	for _, f := range d.Findings {
		v.Findings = append(v.Findings, Finding{f.Severity.String(), string(f.Kind), f.Job, string(f.Key), f.What, f.Do})
	}
	return v
}

// Screen returns the findings one after the other.
func (v Diagnosis) Screen(Times) Screen {
	var s Screen
	for _, f := range v.Findings {
		of := f.Job
		if of == "" {
			of = f.Key
		}
		s = append(s, Section{Fields: []Field{
			{f.Severity, strings.TrimSpace(f.Kind + "  " + of)}, {"  what", f.What}, {"  do", f.Do},
		}})
	}
	if len(s) == 0 && v.Note == "" {
		s = Screen{{Lines: []string{"nothing found"}}}
	}
	return append(s, noteSection(v.Note))
}

// Names returns the kinds of the findings.
func (v Diagnosis) Names() (names []string) {
	for _, f := range v.Findings {
		names = append(names, f.Kind)
	}
	return names
}

// Items returns the findings.
func (v Diagnosis) Items() []any { return itemsOf(v.Findings) }
