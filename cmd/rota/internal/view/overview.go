package view

import (
	"fmt"
	"slices"
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
	Jobs      []Job          `json:"jobs"`
	Instances []Instance     `json:"instances"`

	maxJobs int
}

// OverviewOf returns the overview of a group. Its screen has at most maxJobs jobs; zero means all.
func OverviewOf(st coordinator.GroupStatus, maxJobs int) Overview {
	jobs := JobsOf(st, JobsFilter{})
	v := Overview{
		Version: Version, At: st.At, Group: groupOf(&st), States: map[string]int{}, Jobs: jobs.Jobs, Instances: InstancesOf(st).Instances,
		maxJobs: maxJobs,
	}
	for i := range v.Jobs {
		j := &v.Jobs[i]
		v.States[j.State]++
		v.Running += j.Running
		v.Counts.add(j.Counts)
	}
	gravity := map[string]int{}
	for i, s := range JobStates {
		gravity[s] = i
	}
	slices.SortStableFunc(v.Jobs, func(a, b Job) int { return gravity[a.State] - gravity[b.State] })
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
		{"jobs", fmt.Sprintf("%d%s", len(v.Jobs), states)},
		{"runs", fmt.Sprintf("%d now; %d ok, %d failed, %d skipped, %d lost", v.Running, v.Counts.Succeeded, v.Counts.Failed, v.Counts.Skipped, v.Counts.Lost+v.Counts.Unknown)},
	}
	s := Screen{{Fields: fields}}
	s = append(s, Instances{Instances: v.Instances}.Screen(t)...)
	shown := v.Jobs
	if v.maxJobs > 0 && len(shown) > v.maxJobs {
		shown = shown[:v.maxJobs]
	}
	s = append(s, Jobs{Jobs: shown}.Screen(t)...)
	if hidden := len(v.Jobs) - len(shown); hidden > 0 {
		s = append(s, Section{Lines: []string{fmt.Sprintf("and %s more", countOf(hidden, "job"))}})
	}
	return s
}

// Names returns the names of the jobs.
func (v Overview) Names() []string { return Jobs{Jobs: v.Jobs}.Names() }

// Items returns the overview.
func (v Overview) Items() []any { return []any{v} }
