package balance

import (
	"fmt"
	"maps"
	"math/big"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/shardset"
)

// balanced returns the result of Assign, after checking the promises that hold for every result.
func (w *World) balanced(t *testing.T) [][]string {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("seed %d", w.seed)
		}
	}()
	plan := Assign(w.Jobs, w.Members)
	w.requireOwners(t, plan)
	free := !w.anyBlocked()
	for j, a := range plan {
		if len(w.Jobs[j].Blocked) == 0 {
			require.True(t, w.Fair(w.Jobs[j], a), "job %d is uneven", j)
		}
	}
	require.Equal(t, plan, Assign(w.Jobs, w.Members), "the same input twice")

	again := *w
	again.Jobs = slices.Clone(w.Jobs)
	again.Adopt(plan)
	require.Zero(t, again.Moves(Assign(again.Jobs, again.Members)), "a balanced shard moves")
	if free {
		require.Equal(t, w.optimum(), [2]int{w.unevenness(w.Totals(plan)), w.Moves(plan)}, "unevenness of totals, moves")
		w.requireTotals(t, plan)
	}
	w.requirePlaced(t, plan)
	return plan
}

// requireTotals checks that with weights, and without loads, each member's total is less than
// one from the sum of its shares.
func (w *World) requireTotals(t *testing.T, plan [][]string) {
	t.Helper()
	if !w.weighed() || slices.ContainsFunc(w.Members, func(m Member) bool { return m.Load > 0 }) {
		return
	}
	share, one := w.shares(), big.NewRat(1, 1)
	for m, n := range w.Totals(plan) {
		off := new(big.Rat).Sub(big.NewRat(int64(n), 1), share[m])
		require.Negative(t, off.Abs(off).Cmp(one), "member %d has %d, its share is %s", m, n, share[m].FloatString(3))
	}
}

// requirePlaced checks AssignUnowned against the result of Assign.
func (w *World) requirePlaced(t *testing.T, plan [][]string) {
	t.Helper()
	keeps := func(j, shard int) bool {
		job := &w.Jobs[j]
		id := job.Owners[shard]
		return slices.ContainsFunc(job.Candidates, func(m int) bool { return w.Members[m].ID == id }) && !job.Blocked[id].Has(shard)
	}
	placed := AssignUnowned(w.Jobs, w.Members)
	for j, a := range placed {
		for shard, id := range w.Jobs[j].Owners {
			if keeps(j, shard) {
				require.Equal(t, id, a[shard], "job %d: shard %d had an owner that may keep it", j, shard)
			} else {
				require.Equal(t, plan[j][shard], a[shard], "job %d: shard %d", j, shard)
			}
		}
	}
	if w.anyBlocked() {
		return
	}
	after := *w
	after.Jobs = slices.Clone(w.Jobs)
	after.Adopt(placed)
	later := Assign(after.Jobs, after.Members)
	require.Equal(t, w.Moves(plan), w.Moves(placed)+after.Moves(later), "two steps take more moves than one")
	for j, a := range later {
		for shard := range w.Jobs[j].Owners {
			if !keeps(j, shard) {
				require.Equal(t, placed[j][shard], a[shard], "job %d: shard %d was assigned and moves again", j, shard)
			}
		}
	}
}

func (w *World) anyBlocked() bool {
	return slices.ContainsFunc(w.Jobs, func(job Job) bool { return len(job.Blocked) > 0 })
}

// happen changes the group at random: a join, a leave, a new job and so on.
func (w *World) happen(maxShards int) {
	job := func(do func(j int)) {
		if len(w.Jobs) > 0 {
			do(w.rng.IntN(len(w.Jobs)))
		}
	}
	shards := func() int { return 1 + w.rng.IntN(maxShards) }
	switch w.rng.IntN(8) {
	case 0, 1:
		w.Join()
	case 2, 3:
		if len(w.Members) > 1 {
			w.Leave()
		}
	case 4:
		w.Add(shards())
	case 5:
		job(func(j int) { w.resize(j, shards()) })
	case 6:
		job(func(j int) { w.withdraw(j, 0.3) })
	case 7:
		w.Members[w.rng.IntN(len(w.Members))].Load = w.rng.IntN(5)
	}
}

// Random histories of groups. Each result is compared with that of a slow search for the optimum.
func TestBalance_IsTheMostEvenAndMovesTheLeast(t *testing.T) {
	for _, size := range []struct{ seeds, members, jobs, shards, heavy int }{
		{80, 8, 12, 9, 0},     // a mixture
		{30, 5, 40, 1, 0},     // many small jobs
		{40, 12, 3, 60, 0},    // few large ones
		{40, 8, 12, 9, 3},     // with weights, some of them equal
		{40, 8, 12, 9, 1000},  // with weights, hardly any of them equal
		{20, 5, 40, 1, 3},     //
		{20, 5, 40, 1, 1000},  //
		{20, 12, 3, 60, 1000}, //
	} {
		t.Run(fmt.Sprintf("%d jobs of up to %d shards, weights up to %d", size.jobs, size.shards, size.heavy), func(t *testing.T) {
			for seed := range uint64(size.seeds) {
				w := NewWeighedWorld(seed, 1+int(seed)%size.members, size.heavy)
				for range w.rng.IntN(size.jobs + 1) {
					w.Add(1 + w.rng.IntN(size.shards))
				}
				for range 12 {
					w.happen(size.shards)
					w.Adopt(w.balanced(t))
				}
			}
		})
	}
}

// Several changes may happen between two plans, and owners may be arbitrary.
func TestBalance_StartsFromAnyOwners(t *testing.T) {
	for seed := range uint64(500) {
		seed += 5000 // 5130 needs a cycle in which a transfer saves a move and a trade is free
		w := NewWeighedWorld(seed, 1+int(seed)%7, []int{0, 0, 0, 3, 1000}[seed%5])
		for range 1 + w.rng.IntN(10) {
			w.Add(1 + w.rng.IntN(7))
			if w.rng.IntN(3) == 0 {
				w.withdraw(len(w.Jobs)-1, 0.4)
			}
		}
		for j := range w.Jobs {
			for shard := range w.Jobs[j].Owners {
				w.Jobs[j].Owners[shard] = w.Members[w.rng.IntN(len(w.Members))].ID
			}
		}
		w.happen(7)
		w.balanced(t)
	}
}

func TestBalance_AgreesWithExhaustiveSearch(t *testing.T) {
	for seed := range uint64(2000) {
		w := NewWeighedWorld(seed, 1+int(seed)%3, []int{0, 0, 3, 10}[seed%4])
		for w.shards() < 4 {
			w.Add(1 + w.rng.IntN(3))
			if w.rng.IntN(3) == 0 {
				w.withdraw(len(w.Jobs)-1, 0.4)
			}
		}
		for j := range w.Jobs {
			for shard := range w.Jobs[j].Owners {
				if i := w.rng.IntN(len(w.Members) + 1); i < len(w.Members) {
					w.Jobs[j].Owners[shard] = w.Members[i].ID
				}
			}
		}
		for m := range w.Members {
			w.Members[m].Load = w.rng.IntN(3)
		}
		plan := Assign(w.Jobs, w.Members)
		best := w.exhaustive()
		require.Equal(t, best, [2]int{w.unevenness(w.Totals(plan)), w.Moves(plan)}, "seed %d", seed)
		require.Equal(t, best, w.optimum(), "seed %d: the faster twin", seed)
	}
}

// In a group of many jobs with one shard each, a join moves the share of the new member, rounded down, and
// a leave moves the shards of the member that left. Totals differ by at most one.
func TestBalance_SpreadsOneShardJobs(t *testing.T) {
	for seed := range uint64(10) {
		w := NewWorld(seed, 9)
		for range 1000 {
			w.Add(1)
		}
		w.Adopt(Assign(w.Jobs, w.Members))
		for range 10 {
			w.Join()
			plan := Assign(w.Jobs, w.Members)
			require.Equal(t, 1000/len(w.Members), w.Moves(plan))
			require.LessOrEqual(t, coordtest.SpreadOf(w.Totals(plan)), 1)
			w.Adopt(plan)
			if w.rng.IntN(2) == 0 {
				w.Leave()
				plan = Assign(w.Jobs, w.Members)
				require.Equal(t, w.Orphans(), w.Moves(plan))
				require.LessOrEqual(t, coordtest.SpreadOf(w.Totals(plan)), 1)
				w.Adopt(plan)
			}
		}
	}
}

func TestBalance_AssignsNewJobsInBlocks(t *testing.T) {
	w := NewWorld(1, 7)
	for range 30 {
		w.Add(1 + w.rng.IntN(100))
	}
	plan := Assign(w.Jobs, w.Members)
	for j, a := range plan {
		owners := slices.Compact(slices.Clone(a))
		assert.Len(t, owners, min(7, len(a)), "job %d", j)
	}
}

// No promise requires this. It makes a new group easy to read.
func TestBalance_AssignsNewOneShardJobsInTurn(t *testing.T) {
	w := NewWorld(1, 4)
	for range 10 {
		w.Add(1)
	}
	for j, a := range Assign(w.Jobs, w.Members) {
		assert.Equal(t, []string{w.Members[j%4].ID}, a, "job %d", j)
	}
}

func TestBalance_HandlesEmptyInputs(t *testing.T) {
	assert.Empty(t, Assign(nil, nil))
	assert.Empty(t, Assign(nil, []Member{{ID: "a"}}))
	assert.Equal(t, [][]string{{"", ""}}, Assign([]Job{{Owners: []string{"a", ""}}}, nil))
	assert.Equal(t, [][]string{{"", ""}, {"a"}}, Assign(
		[]Job{{Owners: []string{"a", "b"}}, {Owners: []string{""}, Candidates: []int{0}}},
		[]Member{{ID: "a"}}))
	assert.Equal(t, [][]string{{}}, Assign(
		[]Job{{Candidates: []int{0}, Blocked: map[string]shardset.Set{"a": shardset.Of(1)}}},
		[]Member{{ID: "a"}}))
}

// The caller may modify the slices that Assign returns, and append to them, without changing another one.
func TestBalance_ReturnsSeparateSlices(t *testing.T) {
	jobs := []Job{
		{Owners: []string{"a", "a"}, Candidates: []int{0}},
		{Owners: []string{"a"}, Candidates: []int{0}},
	}
	plan := Assign(jobs, []Member{{ID: "a"}})
	_ = append(plan[0], "x")
	plan[0][0] = "y"
	assert.Equal(t, []string{"a"}, plan[1])
	assert.Equal(t, []string{"a", "a"}, jobs[0].Owners)
}

// A member that may own no shard of a job is not a candidate, and the promises stay the same.
func TestBalance_FullyBlockedMemberIsNoCandidate(t *testing.T) {
	for seed := range uint64(100) {
		w := NewWeighedWorld(seed, 2+int(seed)%5, []int{0, 7}[seed%2])
		for range 8 {
			w.Add(1 + w.rng.IntN(6))
		}
		w.Adopt(Assign(w.Jobs, w.Members))
		g := *w
		g.Jobs = slices.Clone(w.Jobs)
		for j := range w.Jobs {
			i := w.rng.IntN(len(w.Members))
			w.Jobs[j].Blocked = map[string]shardset.Set{
				w.Members[i].ID: shardset.Range(0, len(w.Jobs[j].Owners)+3), // more than there are
				"stranger":      shardset.Of(0),
			}
			g.Jobs[j].Candidates = slices.DeleteFunc(slices.Clone(g.Jobs[j].Candidates), func(c int) bool { return c == i })
		}
		require.Equal(t, g.balanced(t), Assign(w.Jobs, w.Members), "seed %d", seed)
	}
}

func TestBalance_BlockedJobsAreAsEvenAsPossible(t *testing.T) {
	for seed := range uint64(800) {
		w := NewWeighedWorld(seed, 1+int(seed)%4, []int{0, 0, 4, 100}[seed%4])
		w.Add(1 + w.rng.IntN(6))
		for range 4 {
			w.block(0, w.rng.Float64())
			plan := w.balanced(t)
			if able, blocked := ableMembers(w.Jobs[0], w.Members); blocked != nil {
				require.Equal(t, w.evenest(w.Jobs[0]), w.offness(w.Jobs[0], plan[0]), "seed %d", seed)
			} else if len(able) > 0 {
				require.True(t, w.Fair(Job{Candidates: able}, plan[0]), "seed %d", seed)
			}
			w.Adopt(plan)
		}
	}
}

// The other jobs of the group keep all promises, and balance the totals that the blocked job causes.
func TestBalance_BalancesAroundBlockedJobs(t *testing.T) {
	for seed := range uint64(60) {
		w := NewWorld(seed, 2+int(seed)%5)
		w.Add(40)
		for range 40 {
			w.Add(1 + w.rng.IntN(3))
		}
		w.Adopt(Assign(w.Jobs, w.Members))
		w.block(0, 0.05)
		w.happen(3)
		plan := w.balanced(t)
		if coordtest.SpreadOf(w.counts(w.Jobs[0], plan[0])) > 1 {
			t.Errorf("seed %d: a few blocked shards make a large job uneven: %v", seed, w.counts(w.Jobs[0], plan[0]))
		}
		rest := *w
		rest.Jobs = w.Jobs[1:]
		rest.Members = slices.Clone(w.Members)
		for i, n := range w.Totals(plan[:1]) {
			rest.Members[i].Load = n
		}
		require.Equal(t, rest.optimum(), [2]int{rest.unevenness(rest.Totals(plan[1:])), rest.Moves(plan[1:])}, "seed %d", seed)
	}
}

func TestBalance_BlockedJobsKeepBlocksAndOwners(t *testing.T) {
	w := NewWorld(1, 10)
	w.Add(1000)
	w.Jobs[0].Blocked = map[string]shardset.Set{w.Members[3].ID: shardset.Of(350)}
	w.Adopt(w.balanced(t))
	assert.LessOrEqual(t, len(slices.Compact(slices.Clone(w.Jobs[0].Owners))), 12, "at first")

	w.Jobs[0].Blocked = map[string]shardset.Set{w.Members[5].ID: shardset.Of(350, 700)}
	blocked := 0
	for _, shard := range []int{350, 700} {
		if w.Jobs[0].Owners[shard] == w.Members[5].ID {
			blocked++
		}
	}
	plan := w.balanced(t)
	assert.LessOrEqual(t, w.Moves(plan), 2*blocked, "each moves, and may make one other move")
	w.Adopt(plan)

	w.Join()
	plan = w.balanced(t)
	assert.Equal(t, 1000/11, w.Moves(plan), "a join moves the share of the new member")
	w.Adopt(plan)

	w.Leave()
	plan = w.balanced(t)
	assert.Equal(t, w.Orphans(), w.Moves(plan), "a leave moves the shards without an owner")
}

func TestBalance_BlockedJobsGiveOneMoreToTheLeastLoaded(t *testing.T) {
	job := Job{Owners: make([]string, 3), Candidates: []int{0, 1}, Blocked: map[string]shardset.Set{"b": shardset.Of(0)}}
	for more, want := range map[int][]string{0: {"a", "a", "b"}, 1: {"a", "b", "b"}} {
		plan := Assign([]Job{job}, []Member{{ID: "a", Load: more}, {ID: "b"}})
		assert.Equal(t, [][]string{want}, plan)
	}
}

// Groups with blocked shards come to rest like others, for any blocked pairs.
func TestBalance_ComesToRestWithBlockedShards(t *testing.T) {
	for seed := range uint64(300) {
		w := NewWeighedWorld(seed, 1+int(seed)%6, []int{0, 0, 10}[seed%3])
		for range 6 {
			w.Add(1 + w.rng.IntN(9))
		}
		for range 8 {
			w.happen(9)
			for j := range w.Jobs {
				switch w.rng.IntN(4) {
				case 0:
					w.block(j, w.rng.Float64()*w.rng.Float64())
				case 1:
					w.Jobs[j].Blocked = nil
				}
			}
			w.Adopt(w.balanced(t))
		}
	}
}

func TestBalance_DoesNotDependOnTheOrderOfMaps(t *testing.T) {
	w := NewWorld(1, 12)
	for range 10 {
		w.Add(30)
	}
	for j := range w.Jobs {
		w.block(j, 0.3)
	}
	plan := Assign(w.Jobs, w.Members)
	for range 20 {
		for j := range w.Jobs {
			copied := map[string]shardset.Set{}
			for _, id := range w.rng.Perm(len(w.Members)) {
				if s, ok := w.Jobs[j].Blocked[w.Members[id].ID]; ok {
					copied[w.Members[id].ID] = s
				}
			}
			require.True(t, maps.EqualFunc(copied, w.Jobs[j].Blocked, shardset.Set.Equal))
			w.Jobs[j].Blocked = copied
		}
		require.Equal(t, plan, Assign(w.Jobs, w.Members))
	}
}

func TestAssignUnowned_PrefersTheLeastLoaded(t *testing.T) {
	jobs := []Job{
		{Owners: []string{"a"}, Candidates: []int{0, 1, 2}},
		{Owners: []string{"a"}, Candidates: []int{0, 1, 2}},
		{Owners: []string{"b"}, Candidates: []int{0, 1, 2}},
		{Owners: []string{"expired"}, Candidates: []int{0, 1, 2}},
		{Owners: []string{"expired"}, Candidates: []int{0, 1, 2}},
		{Owners: []string{""}, Candidates: []int{0}},
		{Owners: []string{"expired"}, Candidates: []int{}},
	}
	members := []Member{{ID: "a"}, {ID: "b"}, {ID: "c", Load: 1}}
	assert.Equal(t,
		[][]string{{"a"}, {"a"}, {"b"}, {"b"}, {"c"}, {"a"}, {""}},
		AssignUnowned(jobs, members))
}

// A member with too many shards keeps them. A member that is blocked for a shard, or is no longer a
// candidate, does not.
func TestAssignUnowned_MovesNoOtherShards(t *testing.T) {
	jobs := []Job{
		{Owners: []string{"a", "a", "a", "expired"}, Candidates: []int{0, 1}},
		{Owners: []string{"a", "expired"}, Candidates: []int{1}},
		{Owners: []string{"a", "expired"}, Candidates: []int{0, 1}, Blocked: map[string]shardset.Set{"a": shardset.Of(0)}},
	}
	members := []Member{{ID: "a"}, {ID: "b"}}
	assert.Equal(t,
		[][]string{{"a", "a", "a", "b"}, {"b", "b"}, {"b", "a"}},
		AssignUnowned(jobs, members))
}
