package planning

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/rota-dev/rota/coordinator/strategy"
	"github.com/rota-dev/rota/internal/group/balance"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

// target is the assignment of a job that its plan is to reach. Shards that no member may own have
// no owner.
type target struct {
	owners       map[string]shardset.Set // by incarnation
	problem      string                  // why the job's strategy was not followed, or why no member may own shards
	noneEligible bool                    // live members offer the job, and none of them may own shards
	unoffered    bool                    // neither a live nor an awaited member offers the job
}

// stickyName is the strategy of jobs that name none.
const stickyName = "sticky"

// builtInStrategies need no parameters, which may be 32 KiB to decode for each call.
var builtInStrategies, _ = strategy.Known(nil)

// assignJobs returns the target of each job. Jobs with another strategy than sticky come first;
// sticky balances all others together around those.
func (a *assigner) assignJobs(segments []string) []target {
	out := make([]target, len(segments))
	var sticky []int // indexes of segments
	var numbers [][]int
	var jobs []balance.Job
	for i, seg := range segments {
		job := a.InForce(seg)
		eligible, problem := a.findEligible(seg, job)
		out[i].problem, out[i].noneEligible = problem, problem != ""
		if job.Strategy != "" && job.Strategy != stickyName {
			a.assignByStrategy(seg, job, eligible, &out[i])
			continue
		}
		b, n := a.withoutAwaited(seg, a.balanceJob(seg, job, eligible))
		sticky, numbers, jobs = append(sticky, i), append(numbers, n), append(jobs, b)
	}
	for i, owners := range balance.Assign(jobs, a.membersWithLoad()) {
		t := &out[sticky[i]]
		t.owners = ownersByShard(owners, numbers[i])
		a.keepAwaited(segments[sticky[i]], t.owners)
	}
	return out
}

// membersWithLoad returns the members with the load of the jobs assigned so far.
func (a *assigner) membersWithLoad() []balance.Member {
	members := slices.Clone(a.members)
	for i := range members {
		members[i].Load = a.load[members[i].ID]
	}
	return members
}

func (a *assigner) balanceJob(segment string, job record.Job, eligible []int) balance.Job {
	b := balance.Job{Owners: a.currentOwners(segment, a.shardCount(segment, job)), Candidates: eligible}
	if p, ok := a.Plans[segment]; ok {
		b.Frozen = p.Frozen
	}
	for _, i := range b.Candidates {
		if set := a.Members[a.members[i].ID].Blocked[job.Name]; !set.IsZero() {
			if b.Blocked == nil {
				b.Blocked = map[string]shardset.Set{}
			}
			b.Blocked[a.members[i].ID] = set
		}
	}
	return b
}

// assignByStrategy assigns a job by the strategy that it names. If the strategy fails, shards
// stay with their owners.
func (a *assigner) assignByStrategy(segment string, job record.Job, eligible []int, t *target) {
	owners, err := a.callStrategy(segment, job, eligible)
	if err != nil {
		t.problem = strategyProblem(job.Strategy, err)
		if before, ok := a.StrategyProblems[segment]; ok && !a.SlowTick {
			t.problem = before
		}
		a.strategyErrors[job.Name], a.strategyProblems[segment] = err, t.problem
		owners = a.assignInPlace(segment, job, eligible)
	}
	t.owners = owners
}

// strategyProblem returns the problem of a job whose strategy fails. The text in the plan stays
// until the slow tick: otherwise a strategy whose error has another text each time would have the
// plan written each time.
func strategyProblem(strategy string, err error) string {
	return fmt.Sprintf("strategy %q fails, so shards stay where they are: %.500s", strategy, err)
}

// candidates returns the candidates of a strategy, sorted: the eligible members, and the awaited
// ones as if they were present.
func (a *assigner) candidates(segment string, job record.Job, eligible []int) []strategy.Candidate {
	var out []strategy.Candidate
	add := func(inc string) {
		m := a.Members[inc]
		out = append(out, strategy.Candidate{ID: inc, Name: m.Name, Labels: maps.Clone(m.Labels), Weight: weightOf(&m.Member)})
	}
	for _, i := range eligible {
		add(a.members[i].ID)
	}
	for inc := range a.awaited {
		if m := a.Members[inc]; m.Offers(job) && a.isAwaited(segment, inc) {
			add(inc)
		}
	}
	slices.SortFunc(out, func(a, b strategy.Candidate) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// callStrategy calls the strategy of a job and returns the owners that it assigns.
func (a *assigner) callStrategy(segment string, job record.Job, eligible []int) (map[string]shardset.Set, error) {
	candidates := a.candidates(segment, job, eligible)
	if len(candidates) == 0 {
		return nil, nil
	}
	s, ok := a.Strategies[job.Strategy]
	if !ok {
		return nil, errors.New("not known on the leader")
	}
	shards := a.shardCount(segment, job)
	in := strategy.Input{
		Job: job.Name, Shards: shards, Members: candidates,
		Owners: a.currentOwners(segment, shards), Load: maps.Clone(a.load),
	}
	if _, builtIn := builtInStrategies[job.Strategy]; !builtIn {
		in.Param, in.ShardParams = record.ParamsOf(a.definitionInForce(segment))
	}
	for i, inc := range in.Owners {
		if _, is := slices.BinarySearchFunc(candidates, inc, func(c strategy.Candidate, id string) int { return cmp.Compare(c.ID, id) }); !is {
			in.Owners[i] = ""
		}
	}
	if a.OnStrategyCall != nil {
		a.OnStrategyCall(job.Strategy, job.Name)
	}
	owners, err := strategy.Run(s, in)
	if err != nil {
		return nil, err
	}
	for _, inc := range owners {
		a.load[inc]++
	}
	for s, inc := range owners {
		if before := in.Owners[s]; a.awaited[before] || a.awaited[inc] {
			inc = before // an awaited member keeps its shards, and is assigned no others
		}
		if a.Members[inc].Blocked[job.Name].Has(s) {
			inc = "" // the shard waits until the function of an earlier incarnation returns
		}
		owners[s] = inc
	}
	return ownersByShard(owners, nil), nil
}

// assignInPlace returns the owners of a job while its strategy fails: each shard stays with its
// owner, and shards without an owner that may keep them are assigned as by sticky.
func (a *assigner) assignInPlace(segment string, job record.Job, eligible []int) map[string]shardset.Set {
	b, numbers := a.withoutAwaited(segment, a.balanceJob(segment, job, eligible))
	placed := balance.AssignUnowned([]balance.Job{b}, a.membersWithLoad())[0]
	for _, inc := range placed {
		a.load[inc]++
	}
	owners := ownersByShard(placed, numbers)
	a.keepAwaited(segment, owners)
	return owners
}

// ownersByShard returns the shards of each owner, from the owner of each shard. If numbers is
// not nil, it holds the numbers of the shards.
func ownersByShard(byShard []string, numbers []int) map[string]shardset.Set {
	of := map[string][]int{}
	for s, inc := range byShard {
		if inc == "" {
			continue
		}
		if numbers != nil {
			s = numbers[s]
		}
		of[inc] = append(of[inc], s)
	}
	owners := make(map[string]shardset.Set, len(of))
	for inc, shards := range of {
		owners[inc] = shardset.Of(shards...)
	}
	return owners
}
