package view

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rota-dev/rota/operator"
)

// Done is the result of a verb.
type Done struct {
	Version int             `json:"version"`
	Verb    string          `json:"verb"`
	Jobs    []string        `json:"jobs"`
	Trigger uint64          `json:"trigger,omitempty"`
	Runs    []operator.Runs `json:"runs,omitempty"`
	Fires   []time.Time     `json:"fires,omitempty"`
	Change  DefineChange    `json:"change,omitzero"` // by define
	DryRun  bool            `json:"dry_run,omitempty"`
	Text    string          `json:"text"`
	Note    string          `json:"note,omitempty"` // why the effect may be another than expected

	Unchanged bool `json:"-"` // there was nothing to end; Text has it
}

// Screen returns the line, the note, and a line for each fire.
func (v Done) Screen(t Times) Screen {
	s := Section{Lines: []string{v.Text}}
	if v.Note != "" {
		s.Lines = append(s.Lines, strings.Split(v.Note, "\n")...)
	}
	for _, at := range v.Fires {
		s.Lines = append(s.Lines, "  "+t.exactly(at))
	}
	return Screen{s}
}

// Names returns the jobs.
func (v Done) Names() []string { return v.Jobs }

// Items returns the result.
func (v Done) Items() []any { return []any{v} }

// Act is an act in a list. Job is empty for an act on all jobs of the group.
type Act struct {
	Job string `json:"job,omitempty"`
	operator.Act
}

// describeAct returns who acted, when, and why.
func describeAct(a operator.Act, t Times) string {
	text := t.At(a.At)
	if a.By != "" {
		text = "by " + a.By + " " + text
	}
	if a.Reason != "" {
		text += ": " + a.Reason
	}
	return text
}

// DescribeHold returns who paused what, such as the job, why and until when.
func DescribeHold(what string, in *operator.Intent) string {
	text := what + " is paused"
	if in.HeldBy.By != "" {
		text += " by " + in.HeldBy.By
	}
	if in.HeldBy.Reason != "" {
		text += " (" + in.HeldBy.Reason + ")"
	}
	if !in.Until.IsZero() {
		text += " until " + in.Until.UTC().Format(time.RFC3339)
	}
	return text
}

// Acts are acts of operators.
type Acts struct {
	Version int       `json:"version"`
	At      time.Time `json:"at"`
	Acts    []Act     `json:"acts"` // the latest first
}

// ActsOf returns the acts on a job and those on all jobs of the group, the latest first.
func ActsOf(job string, ofJob, ofGroup []operator.Act, now time.Time) Acts {
	v := Acts{Version: Version, At: now, Acts: []Act{}}
	for _, a := range ofJob {
		v.Acts = append(v.Acts, Act{job, a})
	}
	for _, a := range ofGroup {
		v.Acts = append(v.Acts, Act{Act: a})
	}
	slices.Reverse(v.Acts) // the later of two acts at an instant comes first
	slices.SortStableFunc(v.Acts, func(a, b Act) int { return b.At.Compare(a.At) })
	return v
}

// allJobs is the target of an act on the group.
const allJobs = "all jobs"

// Screen returns the table of the acts.
func (v Acts) Screen(t Times) Screen {
	table := Table{Columns: columns("WHEN", "~BY", "~ON", "~WHAT", "~WHY")}
	for _, a := range v.Acts {
		table.Rows = append(table.Rows, []string{t.At(a.At), orDash(a.By), cmp.Or(a.Job, allJobs), a.What, orDash(a.Reason)})
	}
	return Screen{table.orLine("no acts")}
}

// Names returns nothing: acts have no names.
func (v Acts) Names() []string { return nil }

// Items returns the acts.
func (v Acts) Items() []any { return itemsOf(v.Acts) }

// DescribeRuns names the shards, fires and attempts of runs.
func DescribeRuns(runs []operator.Runs) string {
	var parts []string
	for _, r := range runs {
		parts = append(parts, describeRuns(r, Times{}))
	}
	return strings.Join(parts, "; ")
}

// DescribeRetry returns the result of a retry.
func DescribeRetry(job string, r operator.RetriedRuns, again bool) Done {
	done := Done{Version: Version, Verb: "retry", Jobs: []string{job}, Trigger: r.Trigger, Runs: []operator.Runs{r.Runs}}
	done.Text = fmt.Sprintf("retries %s of fire %s of %s: trigger #%d", ShardsText(r.Shards), r.Fire.UTC().Format(time.RFC3339Nano), job, r.Trigger)
	if again {
		done.Text += ", as new work"
	}
	if r.More > 0 {
		done.Text += fmt.Sprintf("; the records do not name %d more that failed: retry them by their numbers", r.More)
	}
	for _, refused := range r.Refused {
		done.Text += fmt.Sprintf("; not %s: %s", ShardsText(refused.Shards), refused.Why)
	}
	return done
}

// describeOverride returns the fields of an override, without parameters, which may be secret.
func describeOverride(ov operator.Override) []string {
	out := []string{}
	fields := ov.Fields()
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		switch value := fields[name].(type) {
		case string:
			if name == "param" {
				value = "(set)"
			}
			out = append(out, name+"="+value)
		case map[int]string:
			out = append(out, name+"=(set)")
		default:
			text, _ := json.Marshal(value)
			out = append(out, fmt.Sprintf("%s=%s", name, text))
		}
	}
	return out
}

// OverridePreview lists the changes by an override of Fields.
type OverridePreview struct {
	Version int      `json:"version"`
	Job     string   `json:"job"`
	Fields  []string `json:"fields"`
	operator.OverridePreview
}

// Screen returns shards and next fires before and after.
func (v OverridePreview) Screen(t Times) Screen {
	table := Table{Columns: columns("", "NOW", "WITH THE OVERRIDE")}
	table.Rows = append(table.Rows, []string{"shards", fmt.Sprint(v.ShardsBefore), fmt.Sprint(v.Shards)})
	for i := range max(len(v.FiresBefore), len(v.Fires)) {
		row := []string{"fire", "-", "-"}
		if i < len(v.FiresBefore) {
			row[1] = t.fire(v.FiresBefore[i])
		}
		if i < len(v.Fires) {
			row[2] = t.fire(v.Fires[i])
		}
		table.Rows = append(table.Rows, row)
	}
	return Screen{{Title: "would override " + orDash(strings.Join(v.Fields, ", ")) + " of " + v.Job, Table: table}}
}

// Names returns the job.
func (v OverridePreview) Names() []string { return []string{v.Job} }

// Items returns the preview.
func (v OverridePreview) Items() []any { return []any{v} }
