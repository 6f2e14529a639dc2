package diagnosis

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rota-dev/rota/internal/record"
)

// checkServing finds out whether any instance may run jobs. If none may, that is one finding, and none for each job.
func (d *diagnosis) checkServing() {
	if !d.hasLiveInstance() {
		if d.stopped = len(d.Members)+len(d.Plans)+len(d.Jobs)+d.Defined.Total > 0; d.stopped {
			d.add(Finding{
				Error, Leaderless, "", d.Keys.Seat(), "the group has 0 live instances, so no job runs and nobody leads",
				"start an instance; if one should be running, the last lines of its log have the reason for its end",
			})
		}
		return
	}
	if d.Group.GroupControl == nil {
		return
	}
	live := d.LiveMembers()
	disabled := slices.DeleteFunc(slices.Clone(live), func(m *record.Member) bool { return !d.Group.Excludes(m) })
	if len(disabled) == 0 || len(disabled) < len(live) {
		return
	}
	d.allDisabled = true
	d.add(Finding{
		Error, Unowned, "", d.Keys.GroupControl(),
		fmt.Sprintf("no job runs: all live instances are disabled or drained for all jobs: %d of %d", len(disabled), len(live)),
		enableCommand("", &d.Group.Exclusion, disabled) + "; rota acts lists who disabled them, and why",
	})
}

// hasLiveInstance reports whether an instance of the group may be alive.
func (d *diagnosis) hasLiveInstance() bool {
	_, group := d.Keys.Names()
	for _, i := range d.Live {
		if i.MayBeIn(group) {
			return true
		}
	}
	return false
}

// isServingProblem reports whether the problem of a plan, or that it has none, is what checkServing has reported for all
// jobs. A plan that names another problem as well, such as a record that cannot be read, is a finding of its own.
func (d *diagnosis) isServingProblem(problem string) bool {
	if !d.stopped && !d.allDisabled || strings.Contains(problem, "; ") {
		return false
	}
	return problem == "" || strings.HasPrefix(problem, "no live instance ") || strings.HasPrefix(problem, "every live instance ")
}

// adviseDisabled returns the command that enables the live instances that offer a job and may not own its shards, ""
// if there are none.
func (d *diagnosis) adviseDisabled(segment, job string) string {
	inForce := d.InForce(segment, job)
	offers := slices.DeleteFunc(d.LiveMembers(), func(m *record.Member) bool { return !m.Offers(inForce) })
	excludedBy := func(x *record.Exclusion) []*record.Member {
		return slices.DeleteFunc(slices.Clone(offers), func(m *record.Member) bool { return !x.Excludes(m) })
	}
	var commands []string
	if d.Group.GroupControl != nil {
		if all := excludedBy(&d.Group.Exclusion); len(all) > 0 {
			commands = append(commands, enableCommand("", &d.Group.Exclusion, all))
		}
	}
	if c, found := d.Control[segment]; found {
		if some := excludedBy(&c.Exclusion); len(some) > 0 {
			commands = append(commands, enableCommand(job, &c.Exclusion, some))
		}
	}
	return strings.Join(commands, "; ")
}

// enableCommand returns the command that takes back what x excludes of members, for a job or, if it is "", for all.
func enableCommand(job string, x *record.Exclusion, members []*record.Member) string {
	flags := map[string]bool{}
	for _, m := range members {
		if _, named := slices.BinarySearch(x.Instances, m.Name); named {
			flags[" --instance "+m.Name] = true
		}
		if _, hosted := slices.BinarySearch(x.Hosts, m.Host); hosted {
			flags[" --host "+m.Host] = true
		}
	}
	const most = 5
	named := slices.Sorted(maps.Keys(flags))
	command := "rota enable"
	if job != "" {
		command += " " + job
	}
	command += strings.Join(named[:min(len(named), most)], "")
	if more := len(named) - most; more > 0 {
		command += fmt.Sprintf(", and so for %d more", more)
	}
	if job == "" && len(x.Instances) > 0 {
		command += " (or rota undrain)"
	}
	return command
}

// hasLeft reports whether a member without a session has shut down in order: it was draining, and no run of it is
// unfinished. Its records stay until a leader reaps them.
func (d *diagnosis) hasLeft(inc string, m *record.Member) bool {
	if !m.Draining {
		return false
	}
	for _, of := range d.Claims {
		if !of[inc].Running.Shards().IsZero() {
			return false
		}
	}
	return true
}
