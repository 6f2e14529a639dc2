package view

import (
	"fmt"
	"time"

	"github.com/rota-dev/rota/coordinator"
)

// Overview is a group at a glance: totals, instances, and the jobs in the order of their gravity.
type Overview struct {
	Version int       `json:"version"`
	At      time.Time `json:"at"`
	Group
	States    map[string]int `json:"states"` // the number of jobs in each state, by the gravest
	Running   int            `json:"running"`
	Counts    Counts         `json:"counts"`
	Total     int            `json:"total"` // of jobs
	Jobs      []Job          `json:"jobs"`  // the gravest of them
	Instances []Instance     `json:"instances"`
	Alerts    []Alert        `json:"alerts"`
}

// OverviewOf returns the overview of a group, with at most maxJobs jobs. There may be ten thousand, and the
// overview is computed every second or two, so it describes no others and sorts none.
func OverviewOf(st coordinator.GroupStatus, maxJobs int) Overview {
	v := Overview{
		Version: Version, At: st.At, Group: groupOf(&st), States: map[string]int{}, Total: len(st.Jobs), Jobs: []Job{},
		Instances: InstancesOf(st).Instances, Alerts: alertsOf(&st),
	}
	byGravity := make([][]int, len(JobStates))
	counts := make([]int, len(JobStates))
	for i := range st.Jobs {
		j := &st.Jobs[i]
		v.Running += j.Running
		v.Counts.add(Counts(j.Counts))
		g := gravityOf(j, st.At)
		if counts[g]++; counts[g] <= maxJobs {
			byGravity[g] = append(byGravity[g], i)
		}
	}
	for g, jobs := range byGravity {
		if counts[g] > 0 {
			v.States[JobStates[g]] = counts[g]
		}
		for _, i := range jobs {
			if len(v.Jobs) < maxJobs {
				v.Jobs = append(v.Jobs, jobOf(&st.Jobs[i], st.At, LateAfter))
			}
		}
	}
	return v
}

func (c *Counts) add(o Counts) {
	*c = Counts{
		c.Claimed + o.Claimed, c.Succeeded + o.Succeeded, c.Failed + o.Failed, c.Skipped + o.Skipped,
		c.Lost + o.Lost, c.Unknown + o.Unknown, c.Retried + o.Retried,
	}
}

// Screen returns totals, instances and jobs.
func (v Overview) Screen(t Times) Screen {
	leader := "no leader"
	if v.Leader != "" {
		leader = fmt.Sprintf("leader %s, term %d", v.Leader, v.Term)
	}
	states := ""
	for _, s := range JobStates {
		if n := v.States[s]; n > 0 {
			states += fmt.Sprintf(", %d %s", n, s)
		}
	}
	fields := []Field{
		{"group", fmt.Sprintf("%s/%s, %s", v.Namespace, v.Name, leader)},
		{"jobs", fmt.Sprintf("%d%s", v.Total, states)},
		{"runs", fmt.Sprintf("%d now; %d ok, %d failed, %d skipped, %s", v.Running, v.Counts.Succeeded, v.Counts.Failed, v.Counts.Skipped, v.Counts.describeLost())},
	}
	s := Screen{{Fields: fields}}
	s = append(s, Instances{Instances: v.Instances}.Screen(t)...)
	s = append(s, Jobs{Jobs: v.Jobs, Alerts: v.Alerts}.Screen(t)...)
	if hidden := v.Total - len(v.Jobs); hidden > 0 {
		s = append(s, Section{Lines: []string{fmt.Sprintf("and %s more", countOf(hidden, "job"))}})
	}
	return s
}

// Names returns the names of the jobs.
func (v Overview) Names() []string { return Jobs{Jobs: v.Jobs}.Names() }

// Items returns the overview.
func (v Overview) Items() []any { return []any{v} }
