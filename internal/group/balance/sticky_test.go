package balance_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/coordinator/strategy"
	"github.com/rota-dev/rota/internal/group/balance"
	"github.com/rota-dev/rota/internal/group/coordtest"
)

func BenchmarkSticky(b *testing.B) {
	in := strategy.Input{Job: "settle", Shards: 10_000, Owners: make([]string, 10_000)}
	for i := range 200 {
		in.Members = append(in.Members, strategy.Candidate{ID: fmt.Sprintf("host-%03d~5f3a9c", i), Name: fmt.Sprintf("host-%03d", i)})
	}
	b.ReportAllocs()
	for b.Loop() {
		a, err := strategy.Run(strategy.Sticky, in)
		if err != nil {
			b.Fatal(err)
		}
		in.Owners = a
	}
}

// runText runs s and returns the owners as text, one letter for each shard.
func runText(t *testing.T, s strategy.Func, members, owners string, load map[string]int) string {
	t.Helper()
	in := strategy.Input{Job: "settle", Shards: len(owners), Load: load}
	for _, id := range members {
		in.Members = append(in.Members, strategy.Candidate{ID: string(id), Name: "host-" + string(id)})
	}
	for _, id := range owners {
		in.Owners = append(in.Owners, string(id))
		if id == '.' {
			in.Owners[len(in.Owners)-1] = ""
		}
	}
	a, err := strategy.Run(s, in)
	require.NoError(t, err)
	text := ""
	for _, id := range a {
		text += id
	}
	return text
}

func TestSticky(t *testing.T) {
	for _, tt := range []struct {
		name, members, owners string
		load                  map[string]int
		want                  string
	}{
		{"begins with blocks", "abc", "..........", nil, "aaaabbbccc"},
		{"fewer shards than members", "abcd", "..", nil, "ab"},
		{"an even assignment stays", "abc", "cabcabcab", nil, "cabcabcab"},
		{"a difference of one stays", "ab", "bab", nil, "bab"},
		{"a join moves the share of the new member", "abcd", "aaaabbbbcccc", nil, "aaaddbbbcccd"},
		{"a leave moves the shards without an owner", "ab", "aabb..", nil, "aabbba"},
		{"new shards go to the members with the fewest", "ab", "aab...", nil, "aabbba"},
		{"neighbours stay together", "abc", "aaa.....b", nil, "aaacccbbb"},
		{"the load decides which member gets one more", "abc", "....", map[string]int{"a": 1, "b": 1}, "abcc"},
		{"the load moves one more", "ab", "aab", map[string]int{"a": 2}, "abb"},
		{"the load makes no job uneven", "ab", "aabb", map[string]int{"a": 50}, "aabb"},
		{"the load of other members does not count", "ab", "bba", map[string]int{"c": 9}, "bba"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			assert.Equal(t, tt.want, runText(t, strategy.Sticky, tt.members, tt.owners, tt.load))
		})
	}
}

func TestSingle(t *testing.T) {
	for _, tt := range []struct {
		name, members, owners string
		load                  map[string]int
		want                  string
	}{
		{"all shards have one owner", "abc", "....", nil, "aaaa"},
		{"the owner stays", "abc", "cc", map[string]int{"c": 9}, "cc"},
		{"the owner gets new shards", "abc", "c...", map[string]int{"c": 9}, "cccc"},
		{"of several owners, the one with the most", "abc", "bccba.c", nil, "ccccccc"},
		{"of equal owners, the one with the least load", "abc", "bcbc", map[string]int{"b": 2, "c": 1}, "cccc"},
		{"without an owner, the one with the least load", "abc", ".", map[string]int{"a": 2, "b": 1, "c": 1}, "b"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			assert.Equal(t, tt.want, runText(t, strategy.Single, tt.members, tt.owners, tt.load))
		})
	}
}

func TestSticky_Weights(t *testing.T) {
	for _, tt := range []struct {
		name, owners string
		weights      []int // of a, b and so on; "" of owners is a dot
		load         map[string]int
		want         string
	}{
		{"give each its share", "........", []int{1, 2, 1}, nil, "aabbbbcc"},
		{"if equal, have no effect", "..........", []int{7, 7, 7}, nil, "aaaabbbccc"},
		{"are 1 by default", "......", []int{0, 2}, nil, "aabbbb"},
		{"keep counts within one of the share", "aabbb", []int{1, 2}, nil, "aabbb"},
		{"change all other counts", "aaabb", []int{1, 3}, nil, "aabbb"},
		{"may leave a light member without shards", "....", []int{1, 1000}, nil, "bbbb"},
		{"give a new member its share, and move nothing else", "aaaabbbb", []int{1, 1, 2}, nil, "aaccccbb"},
		{"give one more to the member that gets closer to its share", "..........", []int{1, 2, 4}, nil, "abbbcccccc"},
		{"apply to loads as well", "......", []int{1, 1, 2}, map[string]int{"a": 3}, "abbccc"},
		{"make no job uneven because of loads", "......", []int{1, 2, 3}, map[string]int{"c": 60}, "abbccc"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := strategy.Input{Job: "settle", Shards: len(tt.owners), Load: tt.load}
			for i, weight := range tt.weights {
				in.Members = append(in.Members, strategy.Candidate{ID: string(rune('a' + i)), Weight: weight})
			}
			for _, id := range tt.owners {
				in.Owners = append(in.Owners, strings.Trim(string(id), "."))
			}
			a, err := strategy.Run(strategy.Sticky, in)
			require.NoError(t, err)
			assert.Equal(t, tt.want, strings.Join(a, ""))
		})
	}
}

// Shares by weight fall with a join and rise with a leave. So a join gives shards to the new member only,
// and one job has no other moves.
func TestSticky_MovesTheShareByWeight(t *testing.T) {
	for _, tt := range []struct{ shards, members, heavy int }{{1000, 10, 4}, {100, 10, 1000}, {12, 5, 3}, {10_000, 50, 16}} {
		t.Run(fmt.Sprintf("%d over %d, weights up to %d", tt.shards, tt.members, tt.heavy), func(t *testing.T) {
			for seed := range uint64(10) {
				w := balance.NewWeighedWorld(seed, tt.members, tt.heavy)
				w.Add(tt.shards)
				w.Adopt(balance.Assign(w.Jobs, w.Members))
				for range 10 {
					newcomer := w.Join()
					plan := balance.Assign(w.Jobs, w.Members)
					gets := 0
					for _, id := range plan[0] {
						if id == newcomer {
							gets++
						}
					}
					require.Equal(t, gets, w.Moves(plan), "seed %d: join", seed)
					require.True(t, w.Fair(w.Jobs[0], plan[0]), "seed %d: join", seed)
					w.Adopt(plan)

					w.Leave()
					plan = balance.Assign(w.Jobs, w.Members)
					require.Equal(t, w.Orphans(), w.Moves(plan), "seed %d: leave", seed)
					require.True(t, w.Fair(w.Jobs[0], plan[0]), "seed %d: leave", seed)
					w.Adopt(plan)
				}
			}
		})
	}
}

// A join moves the share of the new member, rounded down, and a leave moves the shards of the member that
// left. Counts differ by at most one.
func TestSticky_MovesTheIdealShare(t *testing.T) {
	for _, tt := range []struct{ shards, members, seeds int }{
		{1000, 10, 10}, {100, 10, 20}, {100, 50, 20}, {12, 10, 20}, {3, 5, 20}, {10_000, 200, 1}, {1, 1, 20}, {7, 1, 20},
	} {
		t.Run(fmt.Sprintf("%d over %d", tt.shards, tt.members), func(t *testing.T) {
			for seed := range uint64(tt.seeds) {
				w := balance.NewWorld(seed, tt.members)
				w.Add(tt.shards)
				w.Adopt(balance.Assign(w.Jobs, w.Members))
				for range 10 {
					newcomer := w.Join()
					plan := balance.Assign(w.Jobs, w.Members)
					share := 0
					for _, id := range plan[0] {
						if id == newcomer {
							share++
						}
					}
					require.Equal(t, tt.shards/len(w.Members), share)
					require.Equal(t, share, w.Moves(plan))
					require.LessOrEqual(t, coordtest.SpreadOf(w.Totals(plan)), 1)
					w.Adopt(plan)

					w.Leave()
					plan = balance.Assign(w.Jobs, w.Members)
					require.Equal(t, w.Orphans(), w.Moves(plan))
					require.LessOrEqual(t, coordtest.SpreadOf(w.Totals(plan)), 1)
					w.Adopt(plan)
				}
			}
		})
	}
}

// Moving the fewest shards splits pieces, but only so many that the record of the owners stays short.
func TestSticky_KeepsShardsTogether(t *testing.T) {
	pieces := func(owners []string) int {
		return len(slices.Compact(slices.Clone(owners)))
	}
	w := balance.NewWorld(1, 20)
	w.Add(10_000)
	w.Adopt(balance.Assign(w.Jobs, w.Members))
	assert.Equal(t, 20, pieces(w.Jobs[0].Owners), "at first")

	w.Join()
	w.Adopt(balance.Assign(w.Jobs, w.Members))
	assert.LessOrEqual(t, pieces(w.Jobs[0].Owners), 20+20, "after a join")

	for range 100 {
		w.Leave()
		w.Adopt(balance.Assign(w.Jobs, w.Members))
		w.Join()
		w.Adopt(balance.Assign(w.Jobs, w.Members))
	}
	assert.LessOrEqual(t, pieces(w.Jobs[0].Owners), 400, "after a hundred leaves and joins")
}
