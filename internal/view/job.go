package view

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/count"
	"github.com/rota-dev/rota/operator"
)

// JobDetail is one job. Its fields replace those of operator.Status with the same name.
type JobDetail struct {
	Version int       `json:"version"`
	At      time.Time `json:"at"`
	operator.Status
	Policy          Policy       `json:"policy"`
	Next            []time.Time  `json:"next"`
	Paused          bool         `json:"paused"` // or about to be
	ScheduleStopped bool         `json:"schedule_stopped"`
	PausedBy        operator.Act `json:"paused_by,omitzero"` // of the job itself, or who stopped its schedule
	Until           time.Time    `json:"paused_until,omitzero"`
	GroupPausedBy   operator.Act `json:"group_paused_by,omitzero"`
	GroupUntil      time.Time    `json:"group_paused_until,omitzero"`
	Override        []string     `json:"override,omitempty"` // KEY=VALUE, without parameters
	OverriddenBy    operator.Act `json:"overridden_by,omitzero"`
	RetiredBy       operator.Act `json:"retired_by,omitzero"`
	Deletion        string       `json:"deletion,omitempty"` // of a retired job: what it waits for
	Leader          string       `json:"leader,omitempty"`
	Term            uint64       `json:"term,omitempty"`
	DisabledNames   []string     `json:"disabled_instances"`
	DisabledHosts   []string     `json:"disabled_hosts"`

	// The fields above have the content of the intent, Shards has that of the shards.
	NoIntent   struct{} `json:"intent,omitzero"`
	NoPerShard struct{} `json:"per_shard,omitzero"`
}

// Decision is a decision about a job.
type Decision struct {
	Job string `json:"job,omitempty"`
	operator.Decision
}

// JobDetailOf returns one job. Next are its next fires; see schedule.Schedule.Next. Group is the intent for all jobs.
func JobDetailOf(st operator.Status, group operator.Intent, next []time.Time, now time.Time) JobDetail {
	in := &st.Intent
	v := JobDetail{
		Version: Version, At: now, Status: st, Policy: policyOf(st.Definition), Next: next,
		Paused: st.Paused || in.Paused, ScheduleStopped: st.ScheduleStopped || in.ScheduleStopped, PausedBy: in.HeldBy, Until: in.Until,
		OverriddenBy: in.OverriddenBy, RetiredBy: in.RetiredBy, Leader: st.Leader.Instance, Term: st.Leader.Term,
		DisabledNames: in.Disabled.Instances, DisabledHosts: in.Disabled.Hosts,
	}
	if st.GroupPaused {
		v.GroupPausedBy, v.GroupUntil = group.HeldBy, group.Until
	}
	if !in.OverriddenBy.At.IsZero() {
		v.Override = describeOverride(in.Override)
	}
	if v.isRetiring() {
		v.Deletion = DescribeRetiring(&st)
	}
	return v
}

func (v *JobDetail) isRetiring() bool { return !v.RetiredBy.At.IsZero() }

// Screen returns the fields of the job.
func (v JobDetail) Screen(t Times) Screen {
	var fields []Field
	add := func(label, format string, args ...any) {
		fields = append(fields, Field{label, fmt.Sprintf(format, args...)})
	}
	revision := fmt.Sprintf("%d", v.Revision)
	if v.InForce != v.Revision && v.Shards > 0 {
		revision += fmt.Sprintf(", not in force yet: %d is", v.InForce)
	}
	add("revision", "%s", revision)
	if v.Kind != "" {
		add("kind", "%s, defined as data", v.Kind)
	}
	add("schedule", "%s", ShortSchedule(v.Schedule))
	switch {
	case v.Rests && v.Wakes.IsZero():
		add("rests", "until an act of an operator")
	case v.Rests:
		add("rests", "wakes %s", t.Exact(v.Wakes))
	}
	if len(v.Next) > 0 {
		var fires []string
		for _, at := range v.Next {
			fires = append(fires, t.At(at))
		}
		add("next", "%s", strings.Join(fires, ", "))
	}
	if policy := v.Policy.describe(); policy != "" {
		add("policy", "%s", policy)
	}
	if !v.Overdue.IsZero() {
		text := t.Exact(v.Overdue)
		if v.AwaitedPool != "" {
			text += ", waits for pool " + v.AwaitedPool
		}
		add("due since", "%s", text)
	}
	for _, text := range v.describeHold(t) {
		add("state", "%s", text)
	}
	if !v.OverriddenBy.At.IsZero() {
		add("override", "%s", strings.Join(v.Override, ", "))
		add("override", "%s", describeAct(v.OverriddenBy, t))
	}
	if v.Problem != "" {
		add("problem", "%s", v.Problem)
	}
	if !v.UnofferedSince.IsZero() && !v.isRetiring() {
		add("remedy", "start a process that registers the job; if it was removed or renamed on purpose: rota retire %s", v.Job)
	}
	add("shards", "%s", v.describeShards())
	for i := range v.Members {
		if text := describeOwner(&v.Members[i]); text != "" {
			add("", "%s", text)
		}
	}
	for _, list := range []struct {
		label string
		is    []int
	}{{"no owner", v.Unowned}, {"moving", v.Frozen}, {"disabled", v.Disabled}} {
		if len(list.is) > 0 {
			add(list.label, "%s", ShardsText(list.is))
		}
	}
	if len(v.DisabledNames) > 0 {
		add("disabled", "instances %s", strings.Join(v.DisabledNames, ", "))
	}
	if len(v.DisabledHosts) > 0 {
		add("disabled", "hosts %s", strings.Join(v.DisabledHosts, ", "))
	}
	for _, r := range v.Reruns {
		text := describeRuns(r, t)
		if !r.NotBefore.IsZero() {
			text += ", retry " + t.At(r.NotBefore)
		}
		add("pending", "%s", text)
	}
	for _, n := range v.Triggers {
		add("pending", "trigger #%d", n)
	}
	c := v.Counts
	add("runs", "%d ok, %d failed, %d skipped, %s, %d retried; last end %s", c.Succeeded, c.Failed, c.Skipped, describeLost(c), c.Retried, t.At(v.Ended))
	for _, f := range slices.Backward(v.Failures) {
		more := ""
		if f.More > 0 {
			more = fmt.Sprintf(", and %s", count.Of(f.More, "further shard"))
		}
		add("failed", "%s: %s%s: %s", t.At(f.At), describeRuns(f.Runs, t), more, f.Error)
	}
	for _, d := range slices.Backward(v.Decisions) {
		add("decided", "%s", describeDecision(d, t))
	}
	title := v.Job
	if v.Policy.Description != "" {
		title += ": " + v.Policy.Description
	}
	return Screen{{Title: title, Fields: merge(fields)}, unreadableSection(v.Unreadable)}
}

// describeHold returns what stops the job: the pause of the group, and its own or that of its schedule.
func (v *JobDetail) describeHold(t Times) (out []string) {
	add := func(text string, until time.Time, by operator.Act) {
		text += untilText(until, t)
		if !by.At.IsZero() {
			text += " " + describeAct(by, t)
		}
		out = append(out, text)
	}
	if v.isRetiring() {
		add("retiring", time.Time{}, v.RetiredBy)
		add(v.Deletion, time.Time{}, operator.Act{})
	}
	if v.GroupPaused {
		add("paused with the group", v.GroupUntil, v.GroupPausedBy)
	}
	switch {
	case v.ScheduleStopped:
		add("runs by trigger only", v.Until, v.PausedBy)
	case !v.PausedBy.At.IsZero() || v.Paused && !v.GroupPaused && !v.isRetiring():
		add("paused", v.Until, v.PausedBy)
	}
	return out
}

// merge removes a label that repeats the one above it.
func merge(fields []Field) []Field {
	last := ""
	for i := range fields {
		if fields[i].Label == last {
			fields[i].Label = ""
		} else if fields[i].Label != "" {
			last = fields[i].Label
		}
	}
	return fields
}

func (v *JobDetail) describeShards() string {
	if v.Shards == 0 {
		return "no plan: no leader has seen the job offered"
	}
	return fmt.Sprint(v.Shards)
}

// describeOwner returns the shards and the state of an instance.
func describeOwner(o *operator.MemberStatus) string {
	text := o.Instance
	if o.Host != "" && o.Host != o.Instance {
		text += " on " + o.Host
	}
	if len(o.Shards) > 0 {
		text += ": " + Ranges(o.Shards)
	} else {
		text += ": none"
	}
	running := 0
	for _, r := range o.Running {
		running += len(r.Shards)
	}
	var notes []string
	for _, n := range []struct {
		holds bool
		text  string
	}{
		{running > 0, fmt.Sprintf("%d running", running)},
		{len(o.Waiting.Shards) > 0, fmt.Sprintf("%s wait for a worker behind %s", Ranges(o.Waiting.Shards), o.Waiting.Behind)},
		{!o.Alive, "session expired"},
		{o.Draining, "draining"},
		{len(o.Blocked) > 0, "blocked from " + Ranges(o.Blocked)},
		{o.Unsupported, "does not support the definition"},
		{o.Differs, strings.TrimSuffix(fmt.Sprintf("has another definition: revision %d, %s", o.Revision, o.Own), ", ")},
		{o.LocalDiffers, "has another command or request than most"},
	} {
		if n.holds {
			notes = append(notes, n.text)
		}
	}
	if len(notes) > 0 {
		text += " (" + strings.Join(notes, "; ") + ")"
	}
	return text
}

// Names returns the name of the job.
func (v JobDetail) Names() []string { return []string{v.Job} }

// Items returns the job.
func (v JobDetail) Items() []any { return []any{v} }

func describeDecision(d operator.Decision, t Times) string {
	text := fmt.Sprintf("%s by %s in term %d: %s", t.At(d.At), d.By, d.Term, d.What)
	if d.Again > 0 {
		text += fmt.Sprintf(" (and %s before)", count.Of(d.Again, "time"))
	}
	return text
}

// Decisions are the latest changes of plans.
type Decisions struct {
	Version   int        `json:"version"`
	At        time.Time  `json:"at"`
	Decisions []Decision `json:"decisions"` // the latest first
}

// DecisionsOf returns the decisions about jobs, the latest first.
func DecisionsOf(jobs []operator.Status, now time.Time) Decisions {
	v := Decisions{Version: Version, At: now}
	for _, st := range jobs {
		for _, d := range st.Decisions {
			v.Decisions = append(v.Decisions, Decision{st.Job, d})
		}
	}
	slices.SortStableFunc(v.Decisions, func(a, b Decision) int { return b.At.Compare(a.At) })
	return v
}

// Screen returns the table of the decisions.
func (v Decisions) Screen(t Times) Screen {
	table := Table{Columns: columns("WHEN", "~JOB", "~BY", "TERM", "~DECISION", "+REPEATED")}
	for _, d := range v.Decisions {
		table.Rows = append(table.Rows, []string{t.At(d.At), d.Job, d.By, fmt.Sprint(d.Term), d.What, fmt.Sprint(d.Again)})
	}
	return Screen{table.orLine("no decisions")}
}

// Names returns nothing: decisions have no names.
func (v Decisions) Names() []string { return nil }

// Items returns the decisions.
func (v Decisions) Items() []any { return itemsOf(v.Decisions) }
