package coordinator

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/shardset"
)

// balanced runs balance, checks what holds for every answer, and returns the answer.
func (f *fleet) balanced(t *testing.T) []Assignment {
	t.Helper()
	plan := balance(f.jobs, f.members)
	f.requireOwners(t, plan)
	free := !f.anyBlocked()
	for j, a := range plan {
		if len(f.jobs[j].blocked) == 0 {
			require.LessOrEqual(t, spread(f.counts(f.jobs[j], a)), 1, "job %d is uneven", j)
		}
	}
	require.Equal(t, plan, balance(f.jobs, f.members), "the same question twice")

	again := *f
	again.jobs = slices.Clone(f.jobs)
	again.adopt(plan)
	require.Zero(t, again.moves(balance(again.jobs, again.members)), "what is balanced moves")
	if free {
		require.Equal(t, f.optimum(), [2]int{squares(f.totals(plan)), f.moves(plan)}, "unevenness of totals, moves")
	}
	f.requirePlaced(t, plan)
	return plan
}

// requirePlaced checks placeOrphans against what balance plans.
func (f *fleet) requirePlaced(t *testing.T, plan []Assignment) {
	t.Helper()
	lives := map[string]bool{}
	for _, m := range f.members {
		lives[m.id] = true
	}
	placed := placeOrphans(f.jobs, f.members)
	for j, a := range placed {
		for shard, id := range f.jobs[j].owners {
			if lives[id] {
				require.Equal(t, id, a[shard], "job %d: shard %d had a living owner", j, shard)
			} else {
				require.Equal(t, plan[j][shard], a[shard], "job %d: shard %d", j, shard)
			}
		}
	}
	if f.anyBlocked() {
		return
	}
	after := *f
	after.jobs = slices.Clone(f.jobs)
	after.adopt(placed)
	later := balance(after.jobs, after.members)
	require.Equal(t, f.moves(plan), f.moves(placed)+after.moves(later), "in two parts it takes more moves")
	for j, a := range later {
		for shard, id := range f.jobs[j].owners {
			if !lives[id] {
				require.Equal(t, placed[j][shard], a[shard], "job %d: shard %d was placed and moves again", j, shard)
			}
		}
	}
}

func (f *fleet) anyBlocked() bool {
	return slices.ContainsFunc(f.jobs, func(job balanceJob) bool { return len(job.blocked) > 0 })
}

// happen does to the group one of the things that happen to groups.
func (f *fleet) happen(maxShards int) {
	job := func(do func(j int)) {
		if len(f.jobs) > 0 {
			do(f.rng.IntN(len(f.jobs)))
		}
	}
	shards := func() int { return 1 + f.rng.IntN(maxShards) }
	switch f.rng.IntN(8) {
	case 0, 1:
		f.join()
	case 2, 3:
		if len(f.members) > 1 {
			f.leave()
		}
	case 4:
		f.add(shards())
	case 5:
		job(func(j int) { f.resize(j, shards()) })
	case 6:
		job(func(j int) { f.withdraw(j, 0.3) })
	case 7:
		f.members[f.rng.IntN(len(f.members))].load = f.rng.IntN(5)
	}
}

// Histories of groups, at every step compared with a slow search for what is best.
func TestBalance_IsTheMostEvenAndMovesTheLeast(t *testing.T) {
	for _, size := range []struct{ seeds, members, jobs, shards int }{
		{300, 8, 12, 9},  // some of everything
		{100, 5, 40, 1},  // many small jobs
		{100, 12, 3, 60}, // few large ones
	} {
		t.Run(fmt.Sprintf("%d jobs of up to %d shards", size.jobs, size.shards), func(t *testing.T) {
			for seed := range uint64(size.seeds) {
				f := newFleet(seed, 1+int(seed)%size.members)
				for range f.rng.IntN(size.jobs + 1) {
					f.add(1 + f.rng.IntN(size.shards))
				}
				for range 12 {
					f.happen(size.shards)
					f.adopt(f.balanced(t))
					if t.Failed() {
						t.Fatalf("seed %d", seed)
					}
				}
			}
		})
	}
}

// Between two plans several things may happen, and owners may be anyone.
func TestBalance_StartsFromAnything(t *testing.T) {
	for seed := range uint64(500) {
		f := newFleet(seed, 1+int(seed)%7)
		for range 1 + f.rng.IntN(10) {
			f.add(1 + f.rng.IntN(7))
			if f.rng.IntN(3) == 0 {
				f.withdraw(len(f.jobs)-1, 0.4)
			}
		}
		for j := range f.jobs {
			for shard := range f.jobs[j].owners {
				f.jobs[j].owners[shard] = f.members[f.rng.IntN(len(f.members))].id
			}
		}
		f.happen(7)
		f.balanced(t)
	}
}

func TestBalance_AgreesWithTryingEverything(t *testing.T) {
	for seed := range uint64(1000) {
		f := newFleet(seed, 1+int(seed)%3)
		for f.shards() < 4 {
			f.add(1 + f.rng.IntN(3))
			if f.rng.IntN(3) == 0 {
				f.withdraw(len(f.jobs)-1, 0.4)
			}
		}
		for j := range f.jobs {
			for shard := range f.jobs[j].owners {
				if i := f.rng.IntN(len(f.members) + 1); i < len(f.members) {
					f.jobs[j].owners[shard] = f.members[i].id
				}
			}
		}
		for m := range f.members {
			f.members[m].load = f.rng.IntN(3)
		}
		plan := balance(f.jobs, f.members)
		best := f.exhaustive()
		require.Equal(t, best, [2]int{squares(f.totals(plan)), f.moves(plan)}, "seed %d", seed)
		require.Equal(t, best, f.optimum(), "seed %d: the faster twin", seed)
	}
}

// A group of many jobs with one shard each: a join moves the newcomer's fair share rounded
// down, a leave what the leaver had, and all have the same but for one.
func TestBalance_SpreadsOneShardJobs(t *testing.T) {
	for seed := range uint64(10) {
		f := newFleet(seed, 9)
		for range 1000 {
			f.add(1)
		}
		f.adopt(balance(f.jobs, f.members))
		for range 10 {
			f.join()
			plan := balance(f.jobs, f.members)
			require.Equal(t, 1000/len(f.members), f.moves(plan))
			require.LessOrEqual(t, spread(f.totals(plan)), 1)
			f.adopt(plan)
			if f.rng.IntN(2) == 0 {
				f.leave()
				plan = balance(f.jobs, f.members)
				require.Equal(t, f.orphans(), f.moves(plan))
				require.LessOrEqual(t, spread(f.totals(plan)), 1)
				f.adopt(plan)
			}
		}
	}
}

func TestBalance_GivesNewJobsBlocks(t *testing.T) {
	f := newFleet(1, 7)
	for range 30 {
		f.add(1 + f.rng.IntN(100))
	}
	plan := balance(f.jobs, f.members)
	for j, a := range plan {
		owners := slices.Compact(slices.Clone(a))
		assert.Len(t, owners, min(7, len(a)), "job %d", j)
	}
}

func TestBalance_HandlesNothing(t *testing.T) {
	assert.Empty(t, balance(nil, nil))
	assert.Empty(t, balance(nil, []balanceMember{{id: "a"}}))
	assert.Equal(t, []Assignment{{"", ""}}, balance([]balanceJob{{owners: []string{"a", ""}}}, nil))
	assert.Equal(t, []Assignment{{"", ""}, {"a"}}, balance(
		[]balanceJob{{owners: []string{"a", "b"}}, {owners: []string{""}, candidates: []int{0}}},
		[]balanceMember{{id: "a"}}))
	assert.Equal(t, []Assignment{{}}, balance(
		[]balanceJob{{candidates: []int{0}, blocked: map[string]shardset.Set{"a": shardset.Of(1)}}},
		[]balanceMember{{id: "a"}}))
}

// What balance returns is the caller's: not the owners it was given, nor parts of one slice
// that an append could run into.
func TestBalance_ReturnsSlicesOfTheirOwn(t *testing.T) {
	jobs := []balanceJob{
		{owners: []string{"a", "a"}, candidates: []int{0}},
		{owners: []string{"a"}, candidates: []int{0}},
	}
	plan := balance(jobs, []balanceMember{{id: "a"}})
	_ = append(plan[0], "x")
	plan[0][0] = "y"
	assert.Equal(t, Assignment{"a"}, plan[1])
	assert.Equal(t, []string{"a", "a"}, jobs[0].owners)
}

// A member that may own no shard of a job is no candidate: the promises stay the same.
func TestBalance_WhoIsBlockedAltogetherIsNoCandidate(t *testing.T) {
	for seed := range uint64(100) {
		f := newFleet(seed, 2+int(seed)%5)
		for range 8 {
			f.add(1 + f.rng.IntN(6))
		}
		f.adopt(balance(f.jobs, f.members))
		g := *f
		g.jobs = slices.Clone(f.jobs)
		for j := range f.jobs {
			i := f.rng.IntN(len(f.members))
			f.jobs[j].blocked = map[string]shardset.Set{
				f.members[i].id: shardset.Range(0, len(f.jobs[j].owners)+3), // more than there are
				"stranger":      shardset.Of(0),
			}
			g.jobs[j].candidates = slices.DeleteFunc(slices.Clone(g.jobs[j].candidates), func(c int) bool { return c == i })
		}
		require.Equal(t, g.balanced(t), balance(f.jobs, f.members), "seed %d", seed)
	}
}

func TestBalance_BlockedJobsAreAsEvenAsCanBe(t *testing.T) {
	for seed := range uint64(1500) {
		f := newFleet(seed, 1+int(seed)%4)
		f.add(1 + f.rng.IntN(6))
		for range 4 {
			f.block(0, f.rng.Float64())
			plan := f.balanced(t)
			require.Equal(t, f.evenest(f.jobs[0]), squares(f.counts(f.jobs[0], plan[0])), "seed %d", seed)
			f.adopt(plan)
		}
	}
}

// The other jobs of the group keep to all promises, and even out what the blocked one
// brings with it.
func TestBalance_EvensOutAroundBlockedJobs(t *testing.T) {
	for seed := range uint64(200) {
		f := newFleet(seed, 2+int(seed)%5)
		f.add(40)
		for range 100 {
			f.add(1 + f.rng.IntN(3))
		}
		f.adopt(balance(f.jobs, f.members))
		f.block(0, 0.05)
		f.happen(3)
		plan := f.balanced(t)
		if spread(f.counts(f.jobs[0], plan[0])) > 1 {
			t.Errorf("seed %d: a few blocked shards make a large job uneven: %v", seed, f.counts(f.jobs[0], plan[0]))
		}
		rest := *f
		rest.jobs = f.jobs[1:]
		rest.members = slices.Clone(f.members)
		for i, n := range f.totals(plan[:1]) {
			rest.members[i].load = n
		}
		require.Equal(t, rest.optimum(), [2]int{squares(rest.totals(plan[1:])), rest.moves(plan[1:])}, "seed %d", seed)
	}
}

func TestBalance_BlockedJobsKeepBlocksAndOwners(t *testing.T) {
	f := newFleet(1, 10)
	f.add(1000)
	f.jobs[0].blocked = map[string]shardset.Set{f.members[3].id: shardset.Of(350)}
	f.adopt(f.balanced(t))
	assert.LessOrEqual(t, len(slices.Compact(slices.Clone(f.jobs[0].owners))), 12, "at first")

	f.jobs[0].blocked = map[string]shardset.Set{f.members[5].id: shardset.Of(350, 700)}
	blocked := 0
	for _, shard := range []int{350, 700} {
		if f.jobs[0].owners[shard] == f.members[5].id {
			blocked++
		}
	}
	plan := f.balanced(t)
	assert.LessOrEqual(t, f.moves(plan), 2*blocked, "each moves, and one may move for it")
	f.adopt(plan)

	f.join()
	plan = f.balanced(t)
	assert.Equal(t, 1000/11, f.moves(plan), "a join moves the newcomer's share")
	f.adopt(plan)

	f.leave()
	plan = f.balanced(t)
	assert.Equal(t, f.orphans(), f.moves(plan), "a leave moves the orphans")
}

// Groups in which pairs are blocked come to rest like others, whatever is blocked.
func TestBalance_SettlesWhateverIsBlocked(t *testing.T) {
	for seed := range uint64(300) {
		f := newFleet(seed, 1+int(seed)%6)
		for range 6 {
			f.add(1 + f.rng.IntN(9))
		}
		for range 8 {
			f.happen(9)
			for j := range f.jobs {
				switch f.rng.IntN(4) {
				case 0:
					f.block(j, f.rng.Float64()*f.rng.Float64())
				case 1:
					f.jobs[j].blocked = nil
				}
			}
			f.adopt(f.balanced(t))
		}
	}
}

func TestBalance_DoesNotDependOnTheOrderOfMaps(t *testing.T) {
	f := newFleet(1, 12)
	for range 10 {
		f.add(30)
	}
	for j := range f.jobs {
		f.block(j, 0.3)
	}
	plan := balance(f.jobs, f.members)
	for range 20 {
		for j := range f.jobs {
			copied := map[string]shardset.Set{}
			for _, id := range f.rng.Perm(len(f.members)) {
				if s, ok := f.jobs[j].blocked[f.members[id].id]; ok {
					copied[f.members[id].id] = s
				}
			}
			require.True(t, maps.EqualFunc(copied, f.jobs[j].blocked, shardset.Set.Equal))
			f.jobs[j].blocked = copied
		}
		require.Equal(t, plan, balance(f.jobs, f.members))
	}
}

func TestPlaceOrphans_GivesThemToTheLeastLoaded(t *testing.T) {
	jobs := []balanceJob{
		{owners: []string{"a"}, candidates: []int{0, 1, 2}},
		{owners: []string{"a"}, candidates: []int{0, 1, 2}},
		{owners: []string{"b"}, candidates: []int{0, 1, 2}},
		{owners: []string{"dead"}, candidates: []int{0, 1, 2}},
		{owners: []string{"dead"}, candidates: []int{0, 1, 2}},
		{owners: []string{""}, candidates: []int{0}},
		{owners: []string{"dead"}, candidates: []int{}},
	}
	members := []balanceMember{{id: "a"}, {id: "b"}, {id: "c", load: 1}}
	assert.Equal(t,
		[]Assignment{{"a"}, {"a"}, {"b"}, {"b"}, {"c"}, {"a"}, {""}},
		placeOrphans(jobs, members))
}

// Members that ought to give shards away, for they have too many, may not have them, or
// are no candidates any more, do so by a balance, which asks them first.
func TestPlaceOrphans_TouchesNothingElse(t *testing.T) {
	jobs := []balanceJob{
		{owners: []string{"a", "a", "a", "dead"}, candidates: []int{0, 1}},
		{owners: []string{"a", "dead"}, candidates: []int{1}},
		{owners: []string{"a", "dead"}, candidates: []int{0, 1}, blocked: map[string]shardset.Set{"a": shardset.Of(0)}},
	}
	members := []balanceMember{{id: "a"}, {id: "b"}}
	assert.Equal(t,
		[]Assignment{{"a", "a", "a", "b"}, {"a", "b"}, {"a", "a"}},
		placeOrphans(jobs, members))
}
