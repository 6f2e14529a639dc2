package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rota-dev/rota/operator"
)

// Definitions is the list of jobs that are defined as data.
type Definitions struct {
	Version     int                   `json:"version"`
	At          time.Time             `json:"at"`
	Definitions []operator.DefinedJob `json:"definitions"`
}

// DefinitionsOf returns the list of jobs, by name.
func DefinitionsOf(jobs []operator.DefinedJob, now time.Time) Definitions {
	slices.SortFunc(jobs, func(a, b operator.DefinedJob) int { return cmp.Compare(a.Name, b.Name) })
	return Definitions{Version: Version, At: now, Definitions: jobs}
}

// Screen returns the table of the jobs, and their problems.
func (v Definitions) Screen(t Times) Screen {
	table := Table{Columns: columns("~NAME", "~KIND", "STATE", "~SCHEDULE", "NEXT", "REVISION", "~BY", "+DEFINED", "+LAST END", "+DELETED", "+OK/FAIL/SKIP")}
	var problems []Field
	for i := range v.Definitions {
		j := &v.Definitions[i]
		state := string(j.State)
		if j.Failing {
			state += ", failing"
		}
		next := t.At(j.NextFire)
		if j.State == operator.DefinedAwake && j.NextFire.Before(t.Now) { // that of its last rest
			next = "-"
		}
		table.Rows = append(table.Rows, []string{
			j.Name, orDash(j.Kind), state, ShortSchedule(j.Schedule), next, fmt.Sprint(j.Revision), orDash(j.By.By), t.At(j.Defined),
			t.At(j.Ended), t.At(j.DeleteAt), fmt.Sprintf("%d/%d/%d", j.Counts.Succeeded, j.Counts.Failed, j.Counts.Skipped),
		})
		if j.Problem != "" {
			problems = append(problems, Field{j.Name, j.Problem})
		}
	}
	return Screen{table.orLine("no jobs are defined"), {Title: "PROBLEMS", Fields: problems}}.withoutEmpty()
}

// withoutEmpty leaves out sections that have a title alone.
func (s Screen) withoutEmpty() Screen {
	return slices.DeleteFunc(s, func(s Section) bool { return len(s.Fields)+len(s.Table.Rows)+len(s.Lines) == 0 })
}

// Names returns the names of the jobs.
func (v Definitions) Names() []string {
	return namesOf(v.Definitions, func(j *operator.DefinedJob) string { return j.Name })
}

// Items returns the jobs.
func (v Definitions) Items() []any { return itemsOf(v.Definitions) }

// Definition is a job that is defined as data.
type Definition struct {
	Version    int                 `json:"version"`
	At         time.Time           `json:"at"`
	Definition operator.DefinedJob `json:"definition"`
}

// Screen returns what defines the job.
func (v Definition) Screen(t Times) Screen {
	d := &v.Definition
	deletion := "never"
	switch after := d.Definition.DeleteAfter; {
	case d.State == operator.DefinedDeleting:
		deletion = "in progress"
	case !d.DeleteAt.IsZero():
		deletion = t.Exact(d.DeleteAt)
	case after >= 0 && d.Schedule != "on trigger":
		deletion = Span(cmp.Or(after, time.Hour)) + " after its last run, once its schedule has no further fire"
	}
	return Screen{{Title: "Defined as data", Fields: []Field{
		{"kind", d.Kind},
		{"creation", fmt.Sprintf("%s %s", d.Creation, t.Exact(d.Defined))},
		{"revision", fmt.Sprintf("%d %s", d.Revision, describeAct(d.By, t))},
		{"deletion", deletion},
	}}}
}

// Kinds is the list of the kinds of jobs that are defined as data.
type Kinds struct {
	Version int                   `json:"version"`
	At      time.Time             `json:"at"`
	Kinds   []operator.KindStatus `json:"kinds"`
}

// Screen returns the table of the kinds, and their problems.
func (v Kinds) Screen(Times) Screen {
	table := Table{Columns: columns("~NAME", "REVISION", "JOBS", "+MAX JOBS", "~INSTANCES", "~DESCRIPTION")}
	var problems []Field
	for i := range v.Kinds {
		k := &v.Kinds[i]
		jobs := fmt.Sprint(k.Jobs)
		if k.Counted.IsZero() {
			jobs = "-" // no leader has counted them
		}
		table.Rows = append(table.Rows, []string{k.Name, fmt.Sprint(k.Revision), jobs, fmt.Sprint(k.MaxJobs), describeOffers(k.Instances), orDash(k.Description)})
		if k.Problem != "" {
			problems = append(problems, Field{k.Name, k.Problem})
		}
	}
	return Screen{table.orLine("no kinds: a process registers one, or rota run, by kinds: of its file"), {Title: "PROBLEMS", Fields: problems}}.withoutEmpty()
}

// describeOffers lists the instances that offer a kind, with their revisions if these differ.
func describeOffers(instances []operator.KindInstance) string {
	differ := slices.ContainsFunc(instances, func(i operator.KindInstance) bool { return i.Revision != instances[0].Revision })
	var parts []string
	for _, i := range instances {
		text := i.Instance
		if differ {
			text += fmt.Sprintf(" (revision %d)", i.Revision)
		}
		parts = append(parts, text)
	}
	return cmp.Or(strings.Join(parts, ", "), "none")
}

// Names returns the names of the kinds.
func (v Kinds) Names() []string {
	return namesOf(v.Kinds, func(k *operator.KindStatus) string { return k.Name })
}

// Items returns the kinds.
func (v Kinds) Items() []any { return itemsOf(v.Kinds) }

// DefineChanges are changes of jobs that are defined as data, made or, with DryRun, to be made.
type DefineChanges struct {
	Version int            `json:"version"`
	DryRun  bool           `json:"dry_run,omitempty"`
	Changes []DefineChange `json:"changes"`
}

// Outcomes beside those of operator.DefineOutcome.
const (
	Deleted = operator.DefineOutcome("deleted")
	// Past is that of a job of a file whose schedule has no fire from now on: it is left as it is.
	Past = operator.DefineOutcome("past")
)

// DefineChange is the change of one job.
type DefineChange struct {
	Job      string                 `json:"job"`
	Outcome  operator.DefineOutcome `json:"outcome"`
	Revision int                    `json:"revision,omitempty"`
	NextFire time.Time              `json:"next,omitzero"`
	Fields   []FieldChange          `json:"fields,omitempty"`
}

// FieldChange is the change of a field of a definition. Parameters may be secret, so their fields have no values.
type FieldChange struct {
	Field  string `json:"field"`
	Before string `json:"before,omitempty"` // empty: it was left out
	After  string `json:"after,omitempty"`  // empty: it is left out, so that the default applies
}

// Screen returns a line for each job that changes, with its fields, and how many do not change if there are several jobs.
func (v DefineChanges) Screen(t Times) Screen {
	var s Section
	var past []string
	unchanged := 0
	for i := range v.Changes {
		c := &v.Changes[i]
		if c.Outcome == Past {
			past = append(past, c.Job)
			continue
		}
		if c.Outcome == operator.DefineUnchanged && len(v.Changes) > 1 {
			unchanged++
			continue
		}
		s.Lines = append(s.Lines, c.describe(v.DryRun, t))
		for _, f := range c.Fields {
			s.Lines = append(s.Lines, "  "+f.describe(c.Outcome))
		}
	}
	if unchanged > 0 {
		s.Lines = append(s.Lines, fmt.Sprintf("unchanged: %d", unchanged))
	}
	if len(past) > 0 {
		s.Lines = append(s.Lines, "left out, as they have no fire from now on: "+strings.Join(past, ", "))
	}
	if len(v.Changes) == 0 {
		s.Lines = []string{"nothing to change"}
	}
	return Screen{s}
}

// wouldDo are the changes of a dry run.
var wouldDo = map[operator.DefineOutcome]string{operator.DefineCreated: "would create", operator.DefineChanged: "would change", Deleted: "would delete"}

// describe returns the change in a line, without its fields.
func (c *DefineChange) describe(dryRun bool, t Times) string {
	if c.Outcome == operator.DefineUnchanged {
		return fmt.Sprintf("%s is unchanged: revision %d", c.Job, c.Revision)
	}
	text := string(c.Outcome) + " " + c.Job
	if dryRun {
		text = wouldDo[c.Outcome] + " " + c.Job
	}
	if c.Outcome == Deleted {
		return text
	}
	text += fmt.Sprintf(": revision %d", c.Revision)
	if !c.NextFire.IsZero() {
		text += ", next fire " + t.Exact(c.NextFire)
	}
	return text
}

// describe returns the change of a field of a job in a line.
func (f *FieldChange) describe(outcome operator.DefineOutcome) string {
	switch {
	case f.Before == "" && f.After == "":
		return f.Field
	case outcome == operator.DefineCreated:
		return f.Field + ": " + f.After
	}
	return fmt.Sprintf("%s: %s -> %s", f.Field, cmp.Or(f.Before, "default"), cmp.Or(f.After, "default"))
}

// Names returns the names of the jobs that change.
func (v DefineChanges) Names() (names []string) {
	for i := range v.Changes {
		if o := v.Changes[i].Outcome; o != operator.DefineUnchanged && o != Past {
			names = append(names, v.Changes[i].Job)
		}
	}
	return names
}

// Items returns the changes.
func (v DefineChanges) Items() []any { return itemsOf(v.Changes) }
