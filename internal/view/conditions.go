package view

import (
	"fmt"
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/count"
	"github.com/rota-dev/rota/operator"
)

// Condition reports whether a job is in a state, or else why not.
type Condition func(st *operator.Status, now time.Time) (holds bool, why string)

// ConditionNames are the names of Conditions.
var ConditionNames = []string{"idle", "ok", "moved"}

// Conditions are the conditions that a command waits for, by name.
var Conditions = map[string]Condition{"idle": isIdle, "ok": isOK, "moved": isMoved}

func isIdle(st *operator.Status, now time.Time) (bool, string) {
	s := st.Summary()
	switch {
	case s.Running > 0:
		return false, count.Of(s.Running, "shard") + " running"
	case s.Reruns > 0:
		return false, count.Of(s.Reruns, "pending re-run")
	case s.Triggers > 0:
		return false, count.Of(s.Triggers, "pending trigger")
	case !s.Overdue.IsZero():
		return false, fmt.Sprintf("a fire has been due for %s", Span(now.Sub(s.Overdue)))
	}
	return true, ""
}

func isOK(st *operator.Status, now time.Time) (bool, string) {
	s := st.Summary()
	states := statesOf(&s, now, LateAfter)
	if states[0] == OK {
		return true, ""
	}
	return false, describeState(&s, states)
}

func isMoved(st *operator.Status, _ time.Time) (bool, string) {
	switch {
	case st.Shards == 0:
		return false, "the job has no plan"
	case len(st.Unowned) > 0:
		return false, "without an owner: " + ShardsText(st.Unowned)
	case len(st.Frozen) > 0:
		return false, "about to move: " + ShardsText(st.Frozen)
	}
	for _, m := range st.Members {
		switch {
		case len(m.Shards) == 0:
		case !m.Alive:
			return false, fmt.Sprintf("%s, whose session expired, owns %s", m.Instance, ShardsText(m.Shards))
		case m.Draining:
			return false, fmt.Sprintf("%s, which drains, owns %s", m.Instance, ShardsText(m.Shards))
		}
	}
	return true, ""
}

// TriggerEnded returns the condition that all runs of a trigger have ended.
func TriggerEnded(number uint64) Condition {
	return func(st *operator.Status, _ time.Time) (bool, string) {
		if slices.Contains(st.Triggers, number) {
			return false, fmt.Sprintf("trigger #%d has not ended", number)
		}
		return true, ""
	}
}
