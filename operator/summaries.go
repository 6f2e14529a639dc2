package operator

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/heap"

	"github.com/rota-dev/rota/internal/group/due"
	"github.com/rota-dev/rota/internal/group/snapshot"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// summaries are the answers about a group that are computed from a snapshot, kept while it is updated. The cost of a
// refresh depends on the changes since the last one: of ten thousand jobs, a few change between two screens.
type summaries struct {
	records         *snapshot.Snapshot
	namespace, name string // of the group
	compile         due.Compiler

	jobs      map[string]*jobEntry // by segment
	stale     []*jobEntry          // jobs that wait for refresh
	dueInPool map[*jobEntry]bool   // jobs with a pool and a due fire
	expiries  expiries
	computed  int // the number of summaries computed so far

	order   []*jobEntry    // known jobs by name; nil if it is to be computed
	owned   map[string]int // shards by incarnation, of all jobs
	running map[string]int // runs by incarnation, of all jobs
	changed []*jobEntry    // jobs whose summaries have changed since the last call of changes

	lost      map[string]JobSummary // by segment, those of the last call of changes
	lostStale bool                  // lost may have changed

	expired      map[string]bool         // incarnations that own shards and whose sessions do not exist
	compared     map[string]registry.Rev // the records of live members that localDiffers and live are of
	live         []*record.Member        // live members that do not drain, by incarnation
	localDiffers map[string][]string     // instances by job
}

// jobEntry is the summary of a job, with the parts of it that are kept for the next one.
type jobEntry struct {
	segment  string
	planOf   registry.Rev // of the plan that programs belong to; zero if there is none
	programs map[int]due.Program

	stale   bool // a record has changed since
	summary JobSummary
	known   bool           // summary describes a job
	expires time.Time      // when summary changes although no record does; zero for never
	place   int            // in summaries.expiries
	running map[string]int // by incarnation
	owned   map[string]int // by incarnation

	changed   bool   // since the last call of changes
	published string // the job's name as of that call, empty if it was not known
}

// newSummaries returns the summaries of a snapshot, which changes by put and remove only from now on.
func (o *Operator) newSummaries(s *snapshot.Snapshot) *summaries {
	g := &summaries{
		records: s, namespace: o.namespace, name: o.group, compile: o.compile, jobs: map[string]*jobEntry{}, dueInPool: map[*jobEntry]bool{},
		owned: map[string]int{}, running: map[string]int{}, lostStale: true,
	}
	for segment := range s.Segments() {
		g.markStale(segment)
	}
	return g
}

// put adds an entry, or replaces the one at its key.
func (g *summaries) put(e registry.Entry) {
	g.records.Put(e)
	g.noteChange(e.Key)
}

// remove removes the entry at a key.
func (g *summaries) remove(key registry.Key) {
	g.records.Remove(key)
	g.noteChange(key)
}

// noteChange has the next refresh compute what depends on the record at a key.
func (g *summaries) noteChange(key registry.Key) {
	if segment, ofJob := g.records.JobOf(key); ofJob {
		g.markStale(segment)
		return
	}
	if slices.Contains(g.records.PoolDirectories(), key.Dir()) {
		for j := range g.dueInPool {
			g.markStale(j.segment)
		}
		return
	}
	g.lostStale = true
}

// markStale has the next refresh compute the summary of a job.
func (g *summaries) markStale(segment string) {
	j := g.jobs[segment]
	if j == nil {
		j = &jobEntry{segment: segment}
		g.jobs[segment] = j
	}
	if !j.stale {
		j.stale = true
		g.stale = append(g.stale, j)
	}
}

// refresh computes the summaries that may have changed by now.
func (g *summaries) refresh(now time.Time) {
	for g.expiries.jobs.Len() > 0 && !now.Before(g.expiries.jobs.First().expires) {
		j := g.expiries.jobs.First()
		g.expiries.schedule(j, time.Time{})
		g.markStale(j.segment)
	}
	computed := g.stale
	g.stale = nil
	for _, j := range computed {
		g.recompute(j, now)
	}
	if g.compareMembers() {
		for _, j := range g.jobs {
			g.addMembers(j)
		}
		return
	}
	for _, j := range computed {
		g.addMembers(j)
	}
}

// recompute computes the summary of a job, except for the parts that addMembers adds.
func (g *summaries) recompute(j *jobEntry, now time.Time) {
	known, name := j.known, j.summary.Job
	addTo(g.owned, j.owned, -1)
	addTo(g.running, j.running, -1)
	g.expiries.schedule(j, g.compute(j, now))
	g.computed++
	addTo(g.owned, j.owned, 1)
	addTo(g.running, j.running, 1)
	if j.known != known || j.summary.Job != name {
		g.order = nil
	}
	if !j.known || !known {
		g.lostStale = true
	}
}

// addMembers adds to the summary of a job what depends on members, and notes that it has changed.
func (g *summaries) addMembers(j *jobEntry) {
	s := &j.summary
	s.Expired, s.ExpiredOwners, s.LocalDiffers, s.Differs = 0, nil, g.localDiffers[s.Job], nil
	for _, other := range record.FindOthers(g.live, s.Job, s.Revision) {
		s.Differs = append(s.Differs, other.Instance)
	}
	if len(g.expired) > 0 {
		for inc, shards := range j.owned {
			if g.expired[inc] {
				s.addExpired(record.InstanceOf(inc), shards)
			}
		}
	}
	if !j.changed {
		j.changed = true
		g.changed = append(g.changed, j)
	}
}

// addTo adds numbers to sums by name, or subtracts them.
func addTo(sums, numbers map[string]int, sign int) {
	for name, n := range numbers {
		if sums[name] += sign * n; sums[name] == 0 {
			delete(sums, name)
		}
	}
}

// compute computes the summary of the job. It returns when the summary changes although no record does,
// zero for never.
func (g *summaries) compute(j *jobEntry, now time.Time) (expires time.Time) {
	j.stale, j.summary = false, JobSummary{}
	delete(g.dueInPool, j)
	j.owned, j.running = map[string]int{}, map[string]int{}
	plan := g.records.Plans[j.segment]
	if j.planOf != plan.Rev {
		j.planOf, j.programs = plan.Rev, snapshot.Compile(plan.Plan, g.compile)
	}
	if j.known = g.records.Definition(j.segment).Name != ""; !j.known {
		return time.Time{}
	}
	st := statusOf(g.records, j.segment, j.programs, now)
	j.summary = st.Summary()
	if !st.Overdue.IsZero() && plan.Plan.HasPool() {
		g.dueInPool[j] = true
	}
	if plan.Plan == nil {
		if key := g.records.Keys.Plan(j.segment); g.records.Unreadable[key] != nil {
			j.summary.Problem = unreadableProblem(key)
		}
	}
	for inc, shards := range g.records.Owners(j.segment) {
		j.owned[inc] = shards.Len()
	}
	for inc, c := range g.records.Claims[j.segment] {
		j.running[inc] = c.Running.Shards().Len()
	}
	expires = st.NextFire
	for _, rerun := range st.Reruns { // a retry is overdue from its own time on
		if at := rerun.NotBefore; at.After(now) && (expires.IsZero() || at.Before(expires)) {
			expires = at
		}
	}
	return expires
}

// unreadableProblem is the problem of a job whose plan cannot be decoded. The leader, which cannot
// write such a plan, has the same text in its log.
func unreadableProblem(key registry.Key) string { return fmt.Sprintf("%s cannot be read", key) }

// status returns the state of the group at now.
func (g *summaries) status(now time.Time) GroupStatus {
	g.refresh(now)
	if g.order == nil {
		for _, j := range g.jobs {
			if j.known {
				g.order = append(g.order, j)
			}
		}
		slices.SortFunc(g.order, func(a, b *jobEntry) int { return strings.Compare(a.summary.Job, b.summary.Job) })
	}
	st := g.statusWithoutJobs(now)
	st.Jobs = make([]JobSummary, 0, len(g.order))
	for _, j := range g.order {
		st.Jobs = append(st.Jobs, j.summary)
	}
	if lost := g.listLost(); len(lost) > 0 {
		st.Jobs = slices.AppendSeq(st.Jobs, maps.Values(lost))
		slices.SortFunc(st.Jobs, func(a, b JobSummary) int { return strings.Compare(a.Job, b.Job) })
	}
	return st
}

// listLost returns, by segment, the jobs of which neither the definition nor the plan can be read. A live instance offers
// them, or a record of theirs is there; a job of which only the key is known is listed by the last segment of it.
func (g *summaries) listLost() map[string]JobSummary {
	names := map[string]string{} // by segment
	var compared []string
	for _, m := range g.records.Members {
		if !g.records.IsLive(m.Session) || slices.Equal(m.Jobs, compared) {
			continue
		}
		compared = m.Jobs
		for _, job := range m.Jobs {
			segment := record.Segment(job)
			if j := g.jobs[segment]; j == nil || !j.known {
				names[segment] = job
			}
		}
	}
	for segment, j := range g.jobs {
		if !j.known && (g.records.Has(g.records.Keys.Job(segment)) || g.records.Has(g.records.Keys.Plan(segment))) {
			names[segment] = cmp.Or(names[segment], segment)
		}
	}
	lost := map[string]JobSummary{}
	for segment, name := range names {
		lost[segment] = JobSummary{Job: name, Problem: g.lostProblem(segment)}
	}
	return lost
}

// lostProblem returns the problem of a job of listLost. Lists leave out values that another program wrote.
func (g *summaries) lostProblem(segment string) string {
	var states []string
	for _, key := range []registry.Key{g.records.Keys.Job(segment), g.records.Keys.Plan(segment)} {
		problem := missingProblem(key)
		if g.records.Has(key) {
			problem = unreadableProblem(key)
		}
		states = append(states, problem)
	}
	return strings.Join(states, "; ")
}

func missingProblem(key registry.Key) string {
	return fmt.Sprintf("%s is missing, or another program wrote its value", key)
}

// changes returns the state of the group at now with the jobs that have changed since the last call, and
// the names of those removed since.
func (g *summaries) changes(now time.Time) (st GroupStatus, removed []string) {
	g.refresh(now)
	st = g.statusWithoutJobs(now)
	for _, j := range g.changed {
		name := j.summary.Job // empty if j is not known
		if j.published != "" && j.published != name {
			removed = append(removed, j.published)
		}
		if j.known {
			st.Jobs = append(st.Jobs, j.summary)
		}
		j.changed, j.published = false, name
	}
	g.changed = nil
	lost, missed := g.changesOfLost()
	st.Jobs = append(st.Jobs, lost...)
	removed = slices.DeleteFunc(append(removed, missed...), func(name string) bool {
		return slices.ContainsFunc(st.Jobs, func(j JobSummary) bool { return j.Job == name })
	})
	slices.SortFunc(st.Jobs, func(a, b JobSummary) int { return strings.Compare(a.Job, b.Job) })
	slices.Sort(removed)
	return st, removed
}

// changesOfLost returns the jobs of listLost that have changed since the last call, and the names of those that are no
// longer lost. They are computed only if a record has changed that may make a difference.
func (g *summaries) changesOfLost() (changed []JobSummary, found []string) {
	if !g.lostStale {
		return nil, nil
	}
	g.lostStale = false
	lost := g.listLost()
	for segment, j := range lost {
		if before, was := g.lost[segment]; !was || before.Job != j.Job || before.Problem != j.Problem {
			changed = append(changed, j)
		}
	}
	for segment, before := range g.lost {
		if j, still := lost[segment]; !still || j.Job != before.Job {
			found = append(found, before.Job)
		}
	}
	g.lost = lost
	return changed, found
}

// statusWithoutJobs returns the state of the group but its jobs.
func (g *summaries) statusWithoutJobs(now time.Time) GroupStatus {
	st := GroupStatus{At: now, Namespace: g.namespace, Group: g.name}
	election := g.records.Keys.Election() // members log damage of its records
	for key := range g.records.Unreadable {
		if key.Dir() != election {
			st.Unreadable = append(st.Unreadable, key)
		}
	}
	slices.Sort(st.Unreadable)
	control := cmp.Or(g.records.Group.GroupControl, &record.GroupControl{})
	in := intentOfGroup(control)
	st.Disabled, st.Paused, st.Until, st.HeldBy = in.Disabled, in.Paused, in.Until, in.HeldBy
	seat := cmp.Or(g.records.Seat, &record.Seat{})
	st.Leader = leaderOf(g.records)
	leading, _ := g.records.ReadLeader()
	for inc, m := range g.records.Members {
		i := g.instanceStatus(&m.Member)
		i.Incarnation, i.Leader, i.Skew = inc, inc == leading, time.Duration(seat.Skewed[inc])
		i.ClockDiffers = time.Duration(seat.Differing[inc])
		i.Disabled = control.Excludes(&m.Member)
		i.Shards, i.Running = g.owned[inc], g.running[inc]
		st.Instances = append(st.Instances, i)
	}
	slices.SortFunc(st.Instances, func(a, b InstanceStatus) int { return strings.Compare(a.Incarnation, b.Incarnation) })
	return st
}

// compareMembers compares live and expired members. It returns false if that has not changed.
func (g *summaries) compareMembers() (changed bool) {
	expired := map[string]bool{}
	for inc := range g.owned {
		if !g.records.IsLive(record.SessionOf(inc)) {
			expired[inc] = true
		}
	}
	if !maps.Equal(expired, g.expired) {
		g.expired, changed = expired, true
	}
	of := map[string]registry.Rev{}
	for inc, m := range g.records.Members {
		if g.records.IsLive(m.Session) && !m.Draining {
			of[inc] = m.Rev
		}
	}
	if !maps.Equal(of, g.compared) {
		live := g.records.LiveMembers()
		differing := record.CompareLocals(live)
		changed = changed || !maps.EqualFunc(differing, g.localDiffers, slices.Equal) || !slices.EqualFunc(live, g.live, haveSameDefinitions)
		g.compared, g.localDiffers, g.live = of, differing, live
	}
	return changed
}

// haveSameDefinitions reports whether two records show the same definitions of one instance.
func haveSameDefinitions(a, b *record.Member) bool {
	return a.Name == b.Name && slices.Equal(a.Jobs, b.Jobs) && slices.Equal(a.Unsupported, b.Unsupported) &&
		slices.Equal(a.Revisions, b.Revisions) && slices.Equal(a.Differs, b.Differs)
}

// instanceStatus returns the state of a member by its own records.
func (g *summaries) instanceStatus(m *record.Member) InstanceStatus {
	s := InstanceStatus{
		Instance: m.Name, Host: m.Host, Session: m.Session, Draining: m.Draining, Labels: m.Labels, Weight: max(1, m.Weight),
		RestartGrace: time.Duration(m.RestartGrace), Jobs: len(m.Jobs), Unsupported: m.Unsupported, Differs: m.Differs,
	}
	if i, alive := g.records.Live[m.Session]; alive {
		s.Alive, s.PID, s.Started = true, i.PID, i.Started.Time()
	}
	for _, w := range m.Waiting {
		s.Waiting += w.Shards.Len() + w.More
	}
	for _, b := range m.Blocked {
		s.Blocked += b.Len()
	}
	return s
}

// expiries is jobs by the instants at which their summaries change although no record does.
type expiries struct {
	jobs heap.Heap[*jobEntry, byExpiry]
}

// schedule sets the instant of a job; zero removes the job.
func (x *expiries) schedule(j *jobEntry, at time.Time) {
	j.expires = at
	x.jobs.Keep(j, !at.IsZero())
}

type byExpiry struct{}

func (byExpiry) Before(a, b *jobEntry) bool { return a.expires.Before(b.expires) }
func (byExpiry) Place(j *jobEntry) *int     { return &j.place }
