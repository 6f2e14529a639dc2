package coordinator

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// runText asks s and returns the owners as one text, a letter for each shard.
func runText(t *testing.T, s Strategy, members, owners string, load map[string]int) string {
	t.Helper()
	in := Input{Job: "settle", Shards: len(owners), Load: load}
	for _, id := range members {
		in.Members = append(in.Members, Candidate{ID: string(id), Name: "host-" + string(id)})
	}
	for _, id := range owners {
		in.Owners = append(in.Owners, string(id))
		if id == '.' {
			in.Owners[len(in.Owners)-1] = ""
		}
	}
	a, err := runStrategy(s, in)
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
		{"what is even stays", "abc", "cabcabcab", nil, "cabcabcab"},
		{"what is uneven by one stays", "ab", "bab", nil, "bab"},
		{"a join moves the newcomer's share", "abcd", "aaaabbbbcccc", nil, "aaaddbbbcccd"},
		{"a leave moves the orphans", "ab", "aabb..", nil, "aabbba"},
		{"new shards go to those in need", "ab", "aab...", nil, "aabbba"},
		{"neighbours stay together", "abc", "aaa.....b", nil, "aaacccbbb"},
		{"the load decides who gets one more", "abc", "....", map[string]int{"a": 1, "b": 1}, "abcc"},
		{"the load moves one more", "ab", "aab", map[string]int{"a": 2}, "abb"},
		{"the load makes no job uneven", "ab", "aabb", map[string]int{"a": 50}, "aabb"},
		{"load of strangers does not count", "ab", "bba", map[string]int{"c": 9}, "bba"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			assert.Equal(t, tt.want, runText(t, sticky, tt.members, tt.owners, tt.load))
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
		{"of several owners the one with the most", "abc", "bccba.c", nil, "ccccccc"},
		{"of equal owners the one with the least load", "abc", "bcbc", map[string]int{"b": 2, "c": 1}, "cccc"},
		{"without owner the one with the least load", "abc", ".", map[string]int{"a": 2, "b": 1, "c": 1}, "b"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			assert.Equal(t, tt.want, runText(t, single, tt.members, tt.owners, tt.load))
		})
	}
}

// A join moves what the newcomer gets, the rounded-down fair share, and a leave moves what
// the leaver had. Whoever is best off has at most one more than who is worst off.
func TestSticky_MovesTheIdealShare(t *testing.T) {
	for _, tt := range []struct{ shards, members, seeds int }{
		{1000, 10, 10}, {100, 10, 20}, {100, 50, 20}, {12, 10, 20}, {3, 5, 20}, {10_000, 200, 1}, {1, 1, 20}, {7, 1, 20},
	} {
		t.Run(fmt.Sprintf("%d over %d", tt.shards, tt.members), func(t *testing.T) {
			for seed := range uint64(tt.seeds) {
				w := newBalanceWorld(seed, tt.members)
				w.add(tt.shards)
				w.adopt(balance(w.jobs, w.members))
				for range 10 {
					newcomer := w.join()
					plan := balance(w.jobs, w.members)
					share := 0
					for _, id := range plan[0] {
						if id == newcomer {
							share++
						}
					}
					require.Equal(t, tt.shards/len(w.members), share)
					require.Equal(t, share, w.moves(plan))
					require.LessOrEqual(t, spreadOf(w.totals(plan)), 1)
					w.adopt(plan)

					w.leave()
					plan = balance(w.jobs, w.members)
					require.Equal(t, w.orphans(), w.moves(plan))
					require.LessOrEqual(t, spreadOf(w.totals(plan)), 1)
					w.adopt(plan)
				}
			}
		})
	}
}

// Moving the least shards breaks blocks up, and only so much of them: a record of the
// owners stays short.
func TestSticky_KeepsShardsTogether(t *testing.T) {
	pieces := func(owners []string) int {
		return len(slices.Compact(slices.Clone(owners)))
	}
	w := newBalanceWorld(1, 20)
	w.add(10_000)
	w.adopt(balance(w.jobs, w.members))
	assert.Equal(t, 20, pieces(w.jobs[0].owners), "at first")

	w.join()
	w.adopt(balance(w.jobs, w.members))
	assert.LessOrEqual(t, pieces(w.jobs[0].owners), 20+20, "after a join")

	for range 100 {
		w.leave()
		w.adopt(balance(w.jobs, w.members))
		w.join()
		w.adopt(balance(w.jobs, w.members))
	}
	assert.LessOrEqual(t, pieces(w.jobs[0].owners), 400, "after a hundred leaves and joins")
}
