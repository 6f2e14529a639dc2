package planning

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/rota-dev/rota/coordinator/internal/balance"
	"github.com/rota-dev/rota/coordinator/strategy"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

// desired is who should own the shards of a job. Shards that nobody may own stand under
// no owner.
type desired struct {
	owners    map[string]shardset.Set // by incarnation
	problem   string                  // why the job's own strategy was not followed, or nobody may own any
	barred    bool                    // live instances offer the job, and none of them may own any
	unoffered bool                    // no live instance offers the job, nor one whose return is awaited
}

// allDisabled is the problem of a job that only those offer who may not run it.
const allDisabled = "every instance that is there and offers the job is disabled"

// NotOffered is the problem of a job that no live instance offers, nor one whose return is awaited.
const UnofferedProblem = "no live instance offers the job"

// assigning is the making of all jobs' assignments.
type assigning struct {
	*View
	members []balance.Member
	offers  []offer
	labels  []map[string]string // by index of members
	load    map[string]int      // shards dealt by strategies of their own
}

// offer is members that offer the same jobs, as nearly all of a fleet do.
type offer struct {
	jobs    []string // sorted
	members []int    // indexes of assigning.members, ascending
	outside bool     // others offer them too, and are disabled for all jobs
}

// able returns the indexes of the members that offer a job, are not disabled and have the
// labels that it wants, ascending, and what is the problem if others offer it only. They
// are shared.
func (a *assigning) able(segment string, job record.Job) (able []int, problem string) {
	outside := false
	for _, o := range a.offers {
		if _, ok := slices.BinarySearch(o.jobs, job.Name); !ok {
			continue
		}
		outside = outside || o.outside
		if able == nil {
			able = o.members
			continue
		}
		able = slices.Concat(able, o.members)
		slices.Sort(able)
	}
	if c, ok := a.Control[segment]; ok && !c.Exclusion.IsZero() {
		offering := len(able)
		able = slices.DeleteFunc(slices.Clone(able), func(i int) bool { return a.excludes(segment, a.members[i].ID) })
		outside = outside || len(able) < offering
	}
	if len(job.RunOn) == 0 {
		if len(able) == 0 && outside {
			problem = allDisabled
		}
		return able, problem
	}
	offered := outside || len(able) > 0
	able = slices.DeleteFunc(slices.Clone(able), func(i int) bool { return !record.HasLabels(a.labels[i], job.RunOn) })
	if len(able) == 0 && offered {
		problem = lackingLabels(job.RunOn, outside)
	}
	return able, problem
}

// lackingLabels is the problem of a job that nobody offers who may run it and has the
// labels.
func lackingLabels(wanted map[string]string, someDisabled bool) string {
	format := "no instance that is there and offers the job has the labels %.1000s"
	if someDisabled {
		format = "every instance that is there and offers the job is disabled or lacks the labels %.1000s"
	}
	return fmt.Sprintf(format, record.LabelsText(wanted))
}

// bars reports whether a member may own no shards of a job that it offers: it is disabled
// for it, or lacks its labels.
func (v *View) bars(segment, inc string) bool {
	return v.excludes(segment, inc) || !record.HasLabels(v.Members[inc].Labels, v.jobNow(segment).RunOn)
}

// excludes reports whether a member is disabled for this job. Who is for all jobs is left
// out before that, of those who are there and of those who are awaited.
func (v *View) excludes(segment, inc string) bool {
	c, ok := v.Control[segment]
	if !ok || c.Exclusion.IsZero() {
		return false
	}
	m := v.Members[inc]
	return c.Excludes(&m.Member)
}

// assignments returns who should own what of each of the segments. Jobs with the sticky
// strategy are dealt together, around those with another.
func (v *View) assignments(segments []string) []desired {
	a := v.newAssigning()
	v.StrategyErrors = map[string]error{}
	before := v.strategyFails
	v.strategyFails = map[string]string{}
	out := make([]desired, len(segments))
	shared := make([]int, 0, len(segments))
	numbers := make([][]int, 0, len(segments))
	jobs := make([]balance.Job, 0, len(segments))
	for i, seg := range segments {
		job := v.jobNow(seg)
		able, problem := a.able(seg, job)
		out[i].barred = problem != ""
		if job.Strategy != "" && job.Strategy != stickyName {
			owners, err := a.byStrategy(seg, job, able)
			if err != nil {
				problem = strategyProblem(job.Strategy, err)
				if was, ok := before[seg]; ok && !v.SlowTick {
					problem = was
				}
				v.StrategyErrors[job.Name], v.strategyFails[seg] = err, problem
				owners = a.inPlace(seg, job, able)
			}
			out[i].owners, out[i].problem = owners, problem
			continue
		}
		b := a.balanceJob(seg, job, able)
		out[i].problem = problem
		shared = append(shared, i)
		numbers = append(numbers, v.setAside(seg, &b))
		jobs = append(jobs, b)
	}
	for i := range a.members {
		a.members[i].Load = a.load[a.members[i].ID]
	}
	for i, dealt := range balance.Assign(jobs, a.members) {
		d := &out[shared[i]]
		d.owners = ownersOf(dealt, numbers[i])
		if numbers[i] != nil {
			v.leaveAside(segments[shared[i]], d.owners)
		}
	}
	return out
}

// stickyName is the strategy of jobs that name none.
const stickyName = "sticky"

func (v *View) newAssigning() *assigning {
	a := &assigning{View: v, load: map[string]int{}}
	for _, inc := range slices.Sorted(maps.Keys(v.Members)) {
		m := v.Members[inc]
		if _, off := v.Skewed[inc]; off || m.Draining || !v.Alive(inc) {
			continue
		}
		same := slices.IndexFunc(a.offers, func(o offer) bool { return slices.Equal(o.jobs, m.Jobs) })
		if same < 0 {
			same = len(a.offers)
			a.offers = append(a.offers, offer{jobs: m.Jobs})
		}
		if v.GroupExclusion.Excludes(&m.Member) {
			a.offers[same].outside = true
			continue
		}
		a.offers[same].members = append(a.offers[same].members, len(a.members))
		a.members = append(a.members, balance.Member{ID: inc, Weight: weightOf(&m.Member)})
		a.labels = append(a.labels, m.Labels)
	}
	return a
}

// MaxWeight bounds MemberOptions.Weight, whatever a record says.
const MaxWeight = 1000

// weightOf returns the weight of a member, which mostly states none.
func weightOf(m *record.Member) int { return min(max(m.Weight, 1), MaxWeight) }

// jobNow returns the newest definition that counts for planning: the plan's, or before
// there is a plan, the stored one. Its labels are the stored one's in any case: they say
// who may run, not what is run, so no fire is run in two ways because of them; and a new
// definition may have to wait until what is owed under earlier ones has been served, which
// perhaps nobody can who has the labels that those want.
func (v *View) jobNow(segment string) record.Job {
	stored, known := v.Jobs[segment]
	p, ok := v.Plans[segment]
	if !ok {
		return stored.Job
	}
	job := p.Last().Job()
	if known && stored.Revision >= job.Revision {
		job.RunOn = stored.RunOn
	}
	return job
}

// owners returns who owns each shard now, "" for nobody. Whoever is back has what it had.
func (v *View) owners(segment string, shards int) []string {
	owners := make([]string, shards)
	p, ok := v.Plans[segment]
	if !ok {
		return owners
	}
	for inc, set := range p.Owners {
		inc = v.heirOf(inc)
		for s := range set.All() {
			if s < shards {
				owners[s] = inc
			}
		}
	}
	return owners
}

// shardsOf returns how many shards of a job need an owner.
func (v *View) shardsOf(segment string, job record.Job) int {
	if p, ok := v.Plans[segment]; ok {
		return p.Shards()
	}
	return job.Shards
}

func (a *assigning) balanceJob(segment string, job record.Job, able []int) balance.Job {
	b := balance.Job{Owners: a.owners(segment, a.shardsOf(segment, job)), Candidates: able}
	if p, ok := a.Plans[segment]; ok {
		b.Frozen = p.Frozen
	}
	for _, i := range b.Candidates {
		if set := a.View.Members[a.members[i].ID].Blocked[job.Name]; !set.IsZero() {
			if b.Blocked == nil {
				b.Blocked = map[string]shardset.Set{}
			}
			b.Blocked[a.members[i].ID] = set
		}
	}
	return b
}

// candidates returns whom a strategy is asked about, sorted: those who may own shards of
// a job, and those whose return is awaited, as if they were there.
func (a *assigning) candidates(segment, job string, able []int) []strategy.Candidate {
	out := make([]strategy.Candidate, 0, len(able)+len(a.awaited))
	add := func(inc string) {
		m := a.View.Members[inc]
		out = append(out, strategy.Candidate{ID: inc, Name: m.Name, Labels: maps.Clone(m.Labels), Weight: weightOf(&m.Member)})
	}
	for _, i := range able {
		add(a.members[i].ID)
	}
	for inc := range a.awaited {
		if m := a.View.Members[inc]; m.Offers(job) && a.waits(segment, inc) {
			add(inc)
		}
	}
	if len(out) > len(able) {
		slices.SortFunc(out, func(a, b strategy.Candidate) int { return cmp.Compare(a.ID, b.ID) })
	}
	return out
}

// byStrategy deals a job among those who may own it by the strategy that it names.
func (a *assigning) byStrategy(segment string, job record.Job, able []int) (map[string]shardset.Set, error) {
	candidates := a.candidates(segment, job.Name, able)
	if len(candidates) == 0 {
		return nil, nil
	}
	s, ok := a.Strategies[job.Strategy]
	if !ok {
		return nil, errors.New("not known on the leader")
	}
	in := strategy.Input{
		Job: job.Name, Shards: a.shardsOf(segment, job), Members: candidates,
		Owners: a.owners(segment, a.shardsOf(segment, job)), Load: maps.Clone(a.load),
	}
	for i, inc := range in.Owners {
		if _, is := slices.BinarySearchFunc(candidates, inc, func(c strategy.Candidate, id string) int { return cmp.Compare(c.ID, id) }); !is {
			in.Owners[i] = ""
		}
	}
	if a.OnStrategyCall != nil {
		a.OnStrategyCall(job.Strategy, job.Name)
	}
	dealt, err := strategy.Run(s, in)
	if err != nil {
		return nil, err
	}
	for _, inc := range dealt {
		a.load[inc]++
	}
	for s, inc := range dealt {
		if has := in.Owners[s]; a.awaited[has] || a.awaited[inc] {
			dealt[s] = has // what it has stays, and what it is to get waits
		}
	}
	return ownersOf(a.unblock(job.Name, dealt), nil), nil
}

// inPlace returns the owners of a job while its strategy fails: each shard stays with its owner.
// Only shards without an owner that may keep them are assigned, as sticky would.
func (a *assigning) inPlace(segment string, job record.Job, able []int) map[string]shardset.Set {
	b := a.balanceJob(segment, job, able)
	numbers := a.setAside(segment, &b)
	members := slices.Clone(a.members)
	for i := range members {
		members[i].Load = a.load[members[i].ID]
	}
	placed := balance.AssignUnowned([]balance.Job{b}, members)[0]
	for _, inc := range placed {
		a.load[inc]++
	}
	owners := ownersOf(placed, numbers)
	if numbers != nil {
		a.leaveAside(segment, owners)
	}
	return owners
}

// strategyProblem returns the problem of a job whose strategy fails. The text in the plan stays
// until the slow tick: a strategy whose error has another text each time must not have the plan
// written each time.
func strategyProblem(strategy string, err error) string {
	return fmt.Sprintf("strategy %q fails, so shards stay where they are: %.500s", strategy, err)
}

// unblock takes from an assignment what its owners may not run now, because a function of
// an earlier incarnation has not returned. Those shards wait, owned by nobody.
func (a *assigning) unblock(job string, dealt []string) []string {
	for s, inc := range dealt {
		if a.View.Members[inc].Blocked[job].Has(s) {
			dealt[s] = ""
		}
	}
	return dealt
}

// ownersOf returns by owner what was dealt: shards by their numbers, or by the places that
// numbers has them in.
func ownersOf(dealt []string, numbers []int) map[string]shardset.Set {
	of := map[string][]int{}
	for s, inc := range dealt {
		if inc == "" {
			continue
		}
		if numbers != nil {
			s = numbers[s]
		}
		of[inc] = append(of[inc], s)
	}
	owners := make(map[string]shardset.Set, len(of))
	for inc, ns := range of {
		owners[inc] = shardset.Of(ns...)
	}
	return owners
}
