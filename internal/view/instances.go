package view

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry"
)

// Instances is the list of instances.
type Instances struct {
	Version int       `json:"version"`
	At      time.Time `json:"at"`
	Group
	Instances     []Instance     `json:"instances"`
	DisabledNames []string       `json:"disabled_instances"` // for all jobs
	DisabledHosts []string       `json:"disabled_hosts"`
	Unreadable    []registry.Key `json:"unreadable"`
	Note          string         `json:"note,omitempty"`
}

// Instance is an instance in a list.
type Instance struct {
	operator.InstanceStatus
	State string `json:"state"` // ok, or what holds of it, separated by commas
}

// InstancesOf returns the list of the instances of a group.
func InstancesOf(st operator.GroupStatus) Instances {
	v := Instances{
		Version: Version, At: st.At, Group: groupOf(&st), DisabledNames: st.Disabled.Instances, DisabledHosts: st.Disabled.Hosts, Unreadable: st.Unreadable,
	}
	for i := range st.Instances {
		v.Instances = append(v.Instances, Instance{st.Instances[i], stateOf(&st.Instances[i], slices.Contains(st.Disabled.Instances, st.Instances[i].Instance))})
	}
	return v
}

// stateOf returns what is remarkable about an instance, or ok. Drained is whether it is disabled by its name: operators have drained it.
func stateOf(i *operator.InstanceStatus, drained bool) string {
	hasLeft := !i.Alive && i.Draining && i.Running == 0 // in order, and no leader has reaped its records
	var states []string
	for _, s := range []struct {
		holds bool
		name  string
	}{
		{i.Leader, "leader"},
		{hasLeft, "left"},
		{!i.Alive && !hasLeft, "expired"},
		{i.Draining && !hasLeft, "draining"},
		{drained && i.Shards > 0, "being drained"},
		{drained && i.Shards == 0, "drained"},
		{i.Disabled && !drained, "disabled"},
		{i.Skew != 0, "skewed"},
		{i.ClockDiffers != 0, "clock differs"},
		{i.Blocked > 0, "blocked"},
		{len(i.Unsupported) > 0, "unsupported jobs"},
		{len(i.Differs) > 0, "definitions differ"},
	} {
		if s.holds {
			states = append(states, s.name)
		}
	}
	if len(states) == 0 {
		return "ok"
	}
	return strings.Join(states, ", ")
}

// clockText returns how far a clock is ahead, as +7.3s or -1h2m.
func clockText(ahead time.Duration) string {
	if ahead.Abs() < time.Minute {
		return fmt.Sprintf("%+.1fs", ahead.Seconds())
	}
	sign := "+"
	if ahead < 0 {
		sign = "-"
	}
	return sign + Span(ahead.Abs())
}

// Screen returns the table of the instances.
func (v Instances) Screen(t Times) Screen {
	table := Table{Columns: columns("~NAME", "~HOST", "~STATE", "SHARDS", "RUNNING", "WAITING", "JOBS", "CLOCK", "UP", "+PID", "+SESSION", "+WEIGHT", "~LABELS")}
	for _, i := range v.Instances {
		clock, up := "ok", "-"
		switch {
		case i.Skew != 0:
			clock = clockText(i.Skew)
		case i.ClockDiffers != 0:
			clock = clockText(i.ClockDiffers) + "?"
		}
		if !i.Started.IsZero() && !i.Started.After(t.Now) { // by its own clock, which may be ahead
			up = Span(t.Now.Sub(i.Started))
		}
		table.Rows = append(table.Rows, []string{
			i.Instance, orDash(i.Host), i.State, fmt.Sprint(i.Shards), fmt.Sprint(i.Running), fmt.Sprint(i.Waiting), fmt.Sprint(i.Jobs), clock, up,
			fmt.Sprint(i.PID), strings.TrimPrefix(i.Incarnation, i.Instance+"."), fmt.Sprint(i.Weight), orDash(describeLabels(i.Labels)),
		})
	}
	s := Screen{table.orLine("no instances"), noteSection(v.Note)}
	if len(v.DisabledNames)+len(v.DisabledHosts) > 0 {
		var lines []string
		if len(v.DisabledNames) > 0 {
			lines = append(lines, "instances "+strings.Join(v.DisabledNames, ", "))
		}
		if len(v.DisabledHosts) > 0 {
			lines = append(lines, "hosts "+strings.Join(v.DisabledHosts, ", "))
		}
		s = append(s, Section{Title: "DRAINED, OR DISABLED FOR ALL JOBS", Lines: lines})
	}
	return append(s, unreadableSection(v.Unreadable))
}

func orDash(text string) string { return cmp.Or(text, "-") }

// describeLabels lists labels by key, with those that rota itself sets last: they are long.
func describeLabels(labels map[string]string) string {
	var parts, own []string
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		if text := k + "=" + labels[k]; strings.HasPrefix(k, "rota.") {
			own = append(own, text)
		} else {
			parts = append(parts, text)
		}
	}
	return strings.Join(append(parts, own...), ",")
}

// Names returns the names of the instances.
func (v Instances) Names() []string {
	return namesOf(v.Instances, func(i *Instance) string { return i.Instance })
}

// Items returns the instances.
func (v Instances) Items() []any { return itemsOf(v.Instances) }
