package balance

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/rota-dev/rota/internal/shardset"
)

// members returns members named a, b and so on with these weights.
func members(weights ...int) (all []Member) {
	for i, w := range weights {
		all = append(all, Member{ID: string(rune('a' + i)), Weight: w})
	}
	return all
}

// ids returns an owner for each letter of text, with "" for a dot.
func ids(text string) (all []string) {
	for _, r := range text {
		id := string(r)
		if r == '.' {
			id = ""
		}
		all = append(all, id)
	}
	return all
}

// Assign is deterministic, so equal choices have an order.
func TestAssign_OfEqualMembers(t *testing.T) {
	t.Run("the first passes on a job", func(t *testing.T) {
		var jobs []Job
		for _, owner := range []string{"a", "a", "b", "b"} {
			jobs = append(jobs, Job{Owners: []string{owner}, Candidates: []int{0, 1, 2}})
		}
		assert.Equal(t, [][]string{{"c"}, {"a"}, {"b"}, {"b"}}, Assign(jobs, members(1, 1, 1)))
	})
	t.Run("the first passes on a shard of a job with blocked shards", func(t *testing.T) {
		job := Job{Owners: ids("aabb"), Candidates: []int{0, 1, 2}, Blocked: map[string]shardset.Set{"c": shardset.Of(0)}}
		assert.Equal(t, [][]string{ids("acbb")}, Assign([]Job{job}, members(1, 1, 1)))
	})
	t.Run("the nearest receives a shard of a job with blocked shards", func(t *testing.T) {
		// Member b may own no shard of a. A path over c leads to it, which is a move more.
		job := Job{Owners: ids("aaabc"), Candidates: []int{0, 1, 2}, Blocked: map[string]shardset.Set{"b": shardset.Of(0, 1, 2)}}
		assert.Equal(t, [][]string{ids("aacbc")}, Assign([]Job{job}, members(1, 1, 1)))
	})
	t.Run("the least loaded for its weight receives a shard of a job with blocked shards", func(t *testing.T) {
		// The shares are 2, 3 and 5, and c may own four shards only, so a or b gets one more.
		for _, tt := range []struct {
			loadOfA, loadOfB int
			want             string
		}{
			{1, 1, "aabbbbcccc"}, // before it, a has 3 for a weight of 2, and b 4 for 3
			{0, 1, "aabbbacccc"}, // before it, a has 2 for a weight of 2
		} {
			job := Job{Owners: ids(".........."), Candidates: []int{0, 1, 2}, Blocked: map[string]shardset.Set{"c": shardset.Range(0, 6)}}
			m := members(2, 3, 5)
			m[0].Load, m[1].Load = tt.loadOfA, tt.loadOfB
			assert.Equal(t, [][]string{ids(tt.want)}, Assign([]Job{job}, m), "loads %d and %d", tt.loadOfA, tt.loadOfB)
		}
	})
}

func TestAssign_CutsAPiece(t *testing.T) {
	for _, tt := range []struct {
		name         string
		members      int
		owners, want string
	}{
		{"at the end that joins the shards of a receiver", 2, "baaa", "bbaa"},
		{"at the end that joins shards without an owner", 2, ".aaab", "baaab"},
		{"at the upper end if both join", 3, "baaaaac", "baaabcc"},
		{"at the upper end if neither joins", 2, "aaaa", "aabb"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			job := Job{Owners: ids(tt.owners), Candidates: []int{0, 1, 2}[:tt.members]}
			assert.Equal(t, [][]string{ids(tt.want)}, Assign([]Job{job}, members(1, 1, 1)[:tt.members]))
		})
	}
}
