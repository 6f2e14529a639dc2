package view

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/count"
	"github.com/rota-dev/rota/operator"
)

// JobDetail is one job.
type JobDetail struct {
	Version         int         `json:"version"`
	At              time.Time   `json:"at"`
	Name            string      `json:"name"`
	Revision        int         `json:"revision"`
	InForce         int         `json:"in_force"`
	Schedule        string      `json:"schedule"`
	Policy          Policy      `json:"policy"`
	Next            []time.Time `json:"next"`
	Overdue         time.Time   `json:"overdue,omitzero"`
	LastEnd         time.Time   `json:"last_end,omitzero"`
	Paused          bool        `json:"paused"`
	ScheduleStopped bool        `json:"schedule_stopped"`
	GroupPaused     bool        `json:"group_paused,omitempty"`
	PausedBy        *Act        `json:"paused_by,omitempty"` // of the job itself, or who stopped its schedule
	Until           time.Time   `json:"paused_until,omitzero"`
	GroupPausedBy   *Act        `json:"group_paused_by,omitempty"`
	GroupUntil      time.Time   `json:"group_paused_until,omitzero"`
	Override        []string    `json:"override,omitempty"` // KEY=VALUE, without parameters
	OverriddenBy    *Act        `json:"overridden_by,omitempty"`
	RetiredBy       *Act        `json:"retired_by,omitempty"`
	Deletion        string      `json:"deletion,omitempty"` // of a retired job: what it waits for
	Unoffered       time.Time   `json:"unoffered_since,omitzero"`
	Problem         string      `json:"problem,omitempty"`
	Leader          string      `json:"leader,omitempty"`
	Term            uint64      `json:"term,omitempty"`
	Shards          int         `json:"shards"`
	Unowned         []int       `json:"unowned"`
	Frozen          []int       `json:"frozen"`
	Disabled        []int       `json:"disabled"`
	DisabledNames   []string    `json:"disabled_instances"`
	DisabledHosts   []string    `json:"disabled_hosts"`
	Owners          []Owner     `json:"owners"`
	Reruns          []Runs      `json:"reruns"`
	Triggers        []uint64    `json:"triggers"`
	Counts          Counts      `json:"counts"`
	Failures        []Failure   `json:"failures"`
	Failing         []int       `json:"failing"` // shards whose last ended run failed
	Decisions       []Decision  `json:"decisions"`
	Unreadable      []string    `json:"unreadable"`
}

// Owner is an instance with regard to one job.
type Owner struct {
	Instance     string `json:"instance"`
	Host         string `json:"host"`
	Alive        bool   `json:"alive"`
	Draining     bool   `json:"draining"`
	Offers       bool   `json:"offers"`
	Unsupported  bool   `json:"unsupported"`
	Differs      bool   `json:"differs"`
	LocalDiffers bool   `json:"local_differs"` // its command or request is not that of most
	Revision     int    `json:"revision"`
	Own          string `json:"own,omitempty"` // fields in which its definition differs
	Shards       []int  `json:"shards"`
	Running      []Runs `json:"running"`
	Blocked      []int  `json:"blocked"`
	Waiting      []int  `json:"waiting"`
	Behind       string `json:"waits_behind,omitempty"`
}

// Decision is operator.Decision.
type Decision struct {
	Job   string    `json:"job,omitempty"`
	At    time.Time `json:"at"`
	By    string    `json:"by"`
	Term  uint64    `json:"term"`
	What  string    `json:"what"`
	Again int       `json:"again"`
}

// JobDetailOf returns one job. Next are its next fires; see schedule.Schedule.Next. Group is the intent for all jobs.
func JobDetailOf(st operator.Status, group operator.Intent, next []time.Time, now time.Time) JobDetail {
	v := JobDetail{
		Version: Version, At: now, Name: st.Job, Revision: st.Revision, InForce: st.InForce, Schedule: st.Schedule, Policy: policyOf(st.Definition), Next: orEmpty(next),
		Overdue: st.Overdue, LastEnd: st.Ended, Paused: st.Paused || st.Intent.Paused, ScheduleStopped: st.ScheduleStopped || st.Intent.ScheduleStopped,
		Problem: st.Problem, Leader: st.Leader.Instance, Term: st.Leader.Term, Shards: st.Shards,
		Unowned: orEmpty(st.Unowned), Frozen: orEmpty(st.Frozen), Disabled: orEmpty(st.Disabled),
		DisabledNames: orEmpty(st.Intent.Disabled.Instances), DisabledHosts: orEmpty(st.Intent.Disabled.Hosts),
		Owners: []Owner{}, Reruns: runsOf(st.Reruns), Triggers: orEmpty(st.Triggers), Counts: Counts(st.Counts),
		Failures: []Failure{}, Failing: orEmpty(st.Failing), Decisions: decisionsOf(st), Unreadable: []string{},
	}
	v.GroupPaused, v.PausedBy, v.Until = st.GroupPaused, actOf(st.Intent.HeldBy), st.Intent.Until
	if st.GroupPaused {
		v.GroupPausedBy, v.GroupUntil = actOf(group.HeldBy), group.Until
	}
	if v.OverriddenBy = actOf(st.Intent.OverriddenBy); v.OverriddenBy != nil {
		v.Override = describeOverride(st.Intent.Override)
	}
	v.Unoffered = st.UnofferedSince
	if v.RetiredBy = actOf(st.Intent.RetiredBy); v.RetiredBy != nil {
		v.Deletion = DescribeRetiring(&st)
	}
	for _, m := range st.Members {
		v.Owners = append(v.Owners, Owner{
			m.Instance, m.Host, m.Alive, m.Draining, m.Offers, m.Unsupported, m.Differs, m.LocalDiffers, m.Revision, m.Own, orEmpty(m.Shards), runsOf(m.Running),
			orEmpty(m.Blocked), orEmpty(m.Waiting.Shards), m.Waiting.Behind,
		})
	}
	for _, f := range st.Failures {
		v.Failures = append(v.Failures, *failureOf(f))
	}
	for _, key := range st.Unreadable {
		v.Unreadable = append(v.Unreadable, string(key))
	}
	return v
}

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
	add("schedule", "%s", ShortSchedule(v.Schedule))
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
		add("due since", "%s", t.Exact(v.Overdue))
	}
	for _, text := range v.describeHold(t) {
		add("state", "%s", text)
	}
	if v.OverriddenBy != nil {
		add("override", "%s", strings.Join(v.Override, ", "))
		add("override", "%s", v.OverriddenBy.describe(t))
	}
	if v.Problem != "" {
		add("problem", "%s", v.Problem)
	}
	if !v.Unoffered.IsZero() && v.RetiredBy == nil {
		add("remedy", "start a process that registers the job; if it was removed or renamed on purpose: rota retire %s", v.Name)
	}
	add("shards", "%s", v.describeShards())
	for _, o := range v.Owners {
		if text := o.describe(); text != "" {
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
		text := r.describe(t)
		if !r.NotBefore.IsZero() {
			text += ", retry " + t.At(r.NotBefore)
		}
		add("pending", "%s", text)
	}
	for _, n := range v.Triggers {
		add("pending", "trigger #%d", n)
	}
	c := v.Counts
	add("runs", "%d ok, %d failed, %d skipped, %s, %d retried; last end %s", c.Succeeded, c.Failed, c.Skipped, c.describeLost(), c.Retried, t.At(v.LastEnd))
	for _, f := range slices.Backward(v.Failures) {
		more := ""
		if f.More > 0 {
			more = fmt.Sprintf(", and %s", count.Of(f.More, "further shard"))
		}
		add("failed", "%s: %s%s: %s", t.At(f.At), f.describe(t), more, f.Error)
	}
	for _, d := range slices.Backward(v.Decisions) {
		add("decided", "%s", d.describe(t))
	}
	title := v.Name
	if v.Policy.Description != "" {
		title += ": " + v.Policy.Description
	}
	return Screen{{Title: title, Fields: merge(fields)}, unreadableSection(v.Unreadable)}
}

// describeHold returns what stops the job: the pause of the group, and its own or that of its schedule.
func (v *JobDetail) describeHold(t Times) (out []string) {
	add := func(text string, until time.Time, by *Act) {
		text += untilText(until, t)
		if by != nil {
			text += " " + by.describe(t)
		}
		out = append(out, text)
	}
	if v.RetiredBy != nil {
		add("retiring", time.Time{}, v.RetiredBy)
		add(v.Deletion, time.Time{}, nil)
	}
	if v.GroupPaused {
		add("paused with the group", v.GroupUntil, v.GroupPausedBy)
	}
	switch {
	case v.ScheduleStopped:
		add("runs by trigger only", v.Until, v.PausedBy)
	case v.PausedBy != nil || v.Paused && !v.GroupPaused && v.RetiredBy == nil:
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

// describe returns the shards and the state of an instance.
func (o *Owner) describe() string {
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
		{len(o.Waiting) > 0, fmt.Sprintf("%s wait for a worker behind %s", Ranges(o.Waiting), o.Behind)},
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
func (v JobDetail) Names() []string { return []string{v.Name} }

// Items returns the job.
func (v JobDetail) Items() []any { return []any{v} }

func decisionsOf(st operator.Status) []Decision {
	out := []Decision{}
	for _, d := range st.Decisions {
		out = append(out, Decision{At: d.At, By: d.By, Term: d.Term, What: d.What, Again: d.Again})
	}
	return out
}

func (d *Decision) describe(t Times) string {
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
	v := Decisions{Version: Version, At: now, Decisions: []Decision{}}
	for _, st := range jobs {
		for _, d := range decisionsOf(st) {
			d.Job = st.Job
			v.Decisions = append(v.Decisions, d)
		}
	}
	slices.SortStableFunc(v.Decisions, func(a, b Decision) int { return b.At.Compare(a.At) })
	return v
}

// Screen returns the table of the decisions.
func (v Decisions) Screen(t Times) Screen {
	if len(v.Decisions) == 0 {
		return Screen{{Lines: []string{"no decisions"}}}
	}
	table := Table{Columns: columns("WHEN", "~JOB", "~BY", "TERM", "~DECISION", "+REPEATED")}
	for _, d := range v.Decisions {
		table.Rows = append(table.Rows, []string{t.At(d.At), d.Job, d.By, fmt.Sprint(d.Term), d.What, fmt.Sprint(d.Again)})
	}
	return Screen{{Table: table}}
}

// Names returns nothing: decisions have no names.
func (v Decisions) Names() []string { return nil }

// Items returns the decisions.
func (v Decisions) Items() []any { return itemsOf(v.Decisions) }
