package acts

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/rota-dev/rota/internal/view"
	"github.com/rota-dev/rota/operator"
)

// A note is why the effect of an act may be another than expected, a reason a line. The act is stored when it is made, so a failed read
// leaves a reason out and is no error.

// noteWait returns why runs of shards of a job, nil for all, do not begin now; "" if they may.
func noteWait(ctx context.Context, op *operator.Operator, job string, shards []int) string {
	var reasons []string
	if in, err := op.Intent(ctx, job); err == nil {
		disabled := slices.DeleteFunc(slices.Clone(in.Disabled.Shards), func(shard int) bool { return shards != nil && !slices.Contains(shards, shard) })
		if in.Paused {
			reasons = append(reasons, view.DescribeHold("the job", &in)+"; the run waits for the resume")
		}
		switch len(disabled) {
		case 0:
		case 1:
			reasons = append(reasons, view.ShardsText(disabled)+" is disabled; its run waits for rota enable")
		default:
			reasons = append(reasons, view.ShardsText(disabled)+" are disabled; their runs wait for rota enable")
		}
	}
	if in, err := op.Intent(ctx, ""); err == nil && in.Paused && len(reasons) == 0 {
		reasons = append(reasons, view.DescribeHold("the group", &in)+"; the run waits for the resume")
	}
	if alive, err := op.HasLiveInstance(ctx); err == nil && !alive {
		reasons = append(reasons, "no instance is alive; the run waits for the start of one")
	}
	return strings.Join(reasons, "\n")
}

// NoteDrain returns a note if a drained instance is not alive.
func NoteDrain(ctx context.Context, op *operator.Operator, instance string) string {
	return noteMissing(ctx, op, []string{instance}, "the drain holds for its start")
}

// noteAbsent names what s has and does not exist, as after a typing error.
func noteAbsent(ctx context.Context, op *operator.Operator, s *operator.Scope) string {
	var notes []string
	if len(s.Shards) > 0 {
		if st, err := op.Status(ctx, s.Job); err == nil && slices.Max(s.Shards) >= st.Shards {
			notes = append(notes, fmt.Sprintf("%s has the shards 0 to %d", s.Job, st.Shards-1))
		}
	}
	for _, note := range []string{
		noteMissing(ctx, op, s.Instances, "this holds for its start"), noteMissingHosts(ctx, op, s.Hosts),
	} {
		if note != "" {
			notes = append(notes, note)
		}
	}
	return strings.Join(notes, "\n")
}

// noteMissing names the instances that are not alive, what that means, and the instances that are.
func noteMissing(ctx context.Context, op *operator.Operator, names []string, meaning string) string {
	return noteOthers(ctx, op, names, func(i *operator.InstanceStatus) string { return i.Instance },
		"no instance %s is alive; "+meaning+". Alive: %s")
}

// noteMissingHosts names the hosts on which no instance is alive.
func noteMissingHosts(ctx context.Context, op *operator.Operator, hosts []string) string {
	return noteOthers(ctx, op, hosts, func(i *operator.InstanceStatus) string { return i.Host },
		"no instance is alive on host %s; this holds for its next instance. Alive: %s")
}

// noteOthers returns a line for each name that no live instance has, with the names that they have.
func noteOthers(ctx context.Context, op *operator.Operator, names []string, nameOf func(*operator.InstanceStatus) string, format string) string {
	if len(names) == 0 {
		return ""
	}
	all, err := op.Instances(ctx)
	if err != nil {
		return ""
	}
	var alive, lines []string
	for i := range all {
		if name := nameOf(&all[i]); all[i].Alive && name != "" {
			alive = append(alive, name)
		}
	}
	slices.Sort(alive)
	alive = slices.Compact(alive)
	for _, name := range names {
		if !slices.Contains(alive, name) {
			lines = append(lines, fmt.Sprintf(format, name, listBounded(alive)))
		}
	}
	return strings.Join(lines, "\n")
}

// listBounded returns up to 20 names, "none" for none.
func listBounded(names []string) string {
	const most = 20
	if len(names) > most {
		names = append(slices.Clone(names[:most-1]), "...")
	}
	return cmp.Or(strings.Join(names, ", "), "none")
}
