package view

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/count"
	"github.com/rota-dev/rota/operator"
)

// Overview is a group at a glance: totals, instances, and the jobs in the order of their gravity.
type Overview struct {
	Version int       `json:"version"`
	At      time.Time `json:"at"`
	Group
	States    map[string]int  `json:"states"` // the number of jobs in each state, by the gravest
	Running   int             `json:"running"`
	Counts    operator.Counts `json:"counts"`
	Total     int             `json:"total"` // of jobs
	Jobs      []Job           `json:"jobs"`  // the gravest of them
	Instances []Instance      `json:"instances"`
	Alerts    []Alert         `json:"alerts"`
}

// Tally keeps the totals of a group, and its jobs in the order of their gravity. An overview is shown every
// second or two and there may be ten thousand jobs, so its cost depends on the jobs that have changed, and on
// those shown. The zero value is that of a group without jobs.
type Tally struct {
	jobs    map[string]*tallied
	states  [][]*tallied // by the index of their state in JobStates, each sorted by name
	overdue map[*tallied]bool
	running int
	counts  operator.Counts
}

// tallied is a job in a Tally.
type tallied struct {
	operator.JobSummary
	gravity int
}

// Overview returns the overview of a group, with at most maxJobs jobs. Of its Jobs, st has those that have
// changed since the last call; removed are the names of those that were removed.
func (t *Tally) Overview(st operator.GroupStatus, removed []string, maxJobs int) Overview {
	t.update(&st, removed)
	v := Overview{
		Version: Version, At: st.At, Group: groupOf(&st), States: map[string]int{}, Running: t.running, Counts: t.counts,
		Total: len(t.jobs), Instances: InstancesOf(st).Instances, Alerts: alertsOf(&st, len(t.jobs)),
	}
	for gravity, jobs := range t.states {
		if len(jobs) > 0 {
			v.States[JobStates[gravity]] = len(jobs)
		}
		for _, j := range jobs[:min(len(jobs), maxJobs-len(v.Jobs))] {
			v.Jobs = append(v.Jobs, JobOf(&j.JobSummary, st.At, LateAfter))
		}
	}
	return v
}

// update applies changes of jobs, and the time.
func (t *Tally) update(st *operator.GroupStatus, removed []string) {
	if t.jobs == nil {
		t.jobs, t.overdue, t.states = map[string]*tallied{}, map[*tallied]bool{}, make([][]*tallied, len(JobStates))
	}
	for _, name := range removed {
		t.remove(name)
	}
	for i := range st.Jobs {
		t.put(&st.Jobs[i], st.At)
	}
	for j := range t.overdue { // a job becomes late although nothing else changes
		t.grade(j, st.At)
	}
}

func (t *Tally) put(s *operator.JobSummary, now time.Time) {
	j := t.jobs[s.Job]
	if j == nil {
		j = &tallied{JobSummary: operator.JobSummary{Job: s.Job}, gravity: -1}
		t.jobs[s.Job] = j
	}
	t.running += s.Running - j.Running
	add(&t.counts, j.Counts, -1)
	add(&t.counts, s.Counts, 1)
	j.JobSummary = *s
	if delete(t.overdue, j); !s.Overdue.IsZero() {
		t.overdue[j] = true
	}
	t.grade(j, now)
}

func (t *Tally) remove(name string) {
	j := t.jobs[name]
	if j == nil {
		return
	}
	t.running -= j.Running
	add(&t.counts, j.Counts, -1)
	t.move(j, -1)
	delete(t.overdue, j)
	delete(t.jobs, name)
}

// grade moves a job to the state that is its gravest now.
func (t *Tally) grade(j *tallied, now time.Time) {
	if g := gravityOf(&j.JobSummary, now); g != j.gravity {
		t.move(j, g)
	}
}

// move moves a job from its state to another one, or to none if gravity is negative.
func (t *Tally) move(j *tallied, gravity int) {
	place := func() (jobs *[]*tallied, i int) {
		jobs = &t.states[j.gravity]
		i, _ = slices.BinarySearchFunc(*jobs, j.Job, func(a *tallied, name string) int { return strings.Compare(a.Job, name) })
		return jobs, i
	}
	if j.gravity >= 0 {
		jobs, i := place()
		*jobs = slices.Delete(*jobs, i, i+1)
	}
	if j.gravity = gravity; gravity >= 0 {
		jobs, i := place()
		*jobs = slices.Insert(*jobs, i, j)
	}
}

// add adds o to c so many times: -1 takes it away.
func add(c *operator.Counts, o operator.Counts, times int64) {
	n := uint64(times) // a sum of unsigned numbers wraps
	c.Claimed += n * o.Claimed
	c.Succeeded += n * o.Succeeded
	c.Failed += n * o.Failed
	c.Skipped += n * o.Skipped
	c.Lost += n * o.Lost
	c.Unknown += n * o.Unknown
	c.Retried += n * o.Retried
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
		{"runs", fmt.Sprintf("%d now; %d ok, %d failed, %d skipped, %s", v.Running, v.Counts.Succeeded, v.Counts.Failed, v.Counts.Skipped, describeLost(v.Counts))},
	}
	s := Screen{{Fields: fields}}
	s = append(s, Instances{Instances: v.Instances}.Screen(t)...)
	s = append(s, Jobs{Jobs: v.Jobs, Alerts: v.Alerts}.Screen(t)...)
	if hidden := v.Total - len(v.Jobs); hidden > 0 {
		s = append(s, Section{Lines: []string{fmt.Sprintf("and %s more", count.Of(hidden, "job"))}})
	}
	return s
}

// Names returns the names of the jobs.
func (v Overview) Names() []string { return Jobs{Jobs: v.Jobs}.Names() }

// Items returns the overview.
func (v Overview) Items() []any { return []any{v} }
