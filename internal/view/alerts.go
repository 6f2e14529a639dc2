package view

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/count"
	"github.com/rota-dev/rota/internal/shell"
	"github.com/rota-dev/rota/operator"
)

// Alert is a fault of the group or of an instance, which may affect all jobs.
type Alert struct {
	Instance string `json:"instance,omitempty"` // empty: of the group
	Text     string `json:"text"`               // the fault, and what to do
	// Command is the command of Text that helps, and Act the act on the instance that it is, if it is one.
	Command string `json:"command,omitempty"`
	Act     string `json:"act,omitempty"`
}

// shownAlerts bounds the alerts on a screen: a host may take fifty instances with it.
const shownAlerts = 5

// alertsOf returns the faults of a group with so many jobs that no state of a job shows.
func alertsOf(st *operator.GroupStatus, jobs int) []Alert {
	alerts := []Alert{}
	if st.Leader.Instance == "" && jobs > 0 {
		alerts = append(alerts, Alert{Text: "There is no leader, so no shard gets an owner and no act of an operator takes effect: see rota doctor.", Command: "rota doctor"})
	}
	for i := range st.Instances {
		if text := describeFault(&st.Instances[i], st.Leader.Instance != ""); text != "" {
			alert := Alert{Instance: st.Instances[i].Instance, Text: text}
			if command := drainCommand(alert.Instance); strings.Contains(text, command) {
				alert.Command, alert.Act = command, "drain"
			}
			alerts = append(alerts, alert)
		}
	}
	return alerts
}

// describeFault returns the fault of an instance and what to do, "" if it has none.
func describeFault(i *operator.InstanceStatus, led bool) string {
	switch {
	case i.Skew != 0:
		return fmt.Sprintf("Its clock is %s the fleet's median, so it owns no shards: correct the clock.", describeSkew(i.Skew))
	case i.Alive || i.Shards == 0:
		return ""
	case i.RestartGrace > 0:
		return fmt.Sprintf("Its session has expired. For up to %s, it is awaited with %s: start it, or move them with %s.",
			Span(i.RestartGrace), count.Of(i.Shards, "shard"), drainCommand(i.Instance))
	}
	if !led {
		return fmt.Sprintf("Its session has expired, and without a leader its %s stay: start an instance.", count.Of(i.Shards, "shard"))
	}
	return fmt.Sprintf("Its session has expired, and the leader is about to move its %s.", count.Of(i.Shards, "shard"))
}

// drainCommand returns the command that moves the shards of an instance.
func drainCommand(instance string) string { return "rota drain " + shell.Quote(instance) }

// describeDiffering describes a clock that differs in a fleet too small to judge it.
func describeDiffering(i *operator.InstanceStatus) string {
	of := "leader's"
	if i.Leader {
		of = "store's"
	}
	return fmt.Sprintf("the clock of %s was %s the %s, and either may be wrong: check both", i.Instance, describeSkew(i.ClockDiffers), of)
}

// describeSkew returns "7s ahead of" or "7s behind".
func describeSkew(d time.Duration) string {
	if d < 0 {
		return Span(-d) + " behind"
	}
	return Span(d) + " ahead of"
}

// alertSection shows the first alerts and counts the others.
func alertSection(alerts []Alert) Section {
	if len(alerts) == 0 {
		return Section{}
	}
	s := Section{Title: "ALERTS"}
	for _, a := range alerts[:min(len(alerts), shownAlerts)] {
		s.Fields = append(s.Fields, Field{cmp.Or(a.Instance, "group"), a.Text})
	}
	if more := len(alerts) - shownAlerts; more > 0 {
		s.Fields = append(s.Fields, Field{"more", count.Of(more, "instance") + ": see rota instances"})
	}
	return s
}
