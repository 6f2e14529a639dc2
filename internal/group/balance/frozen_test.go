package balance

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/rota-dev/rota/internal/shardset"
)

func TestBalance_GivesAwayFrozenShardsFirst(t *testing.T) {
	members := []Member{{ID: "a"}, {ID: "b"}}
	job := Job{Owners: []string{"a", "a", "a", "b"}, Candidates: []int{0, 1}, Frozen: shardset.Of(0)}
	assert.Equal(t, [][]string{{"b", "a", "a", "b"}}, Assign([]Job{job}, members))
	job.Blocked = map[string]shardset.Set{"b": shardset.Of(2)}
	assert.Equal(t, [][]string{{"b", "a", "a", "b"}}, Assign([]Job{job}, members))
	job.Blocked = map[string]shardset.Set{"b": shardset.Of(0)}
	assert.Equal(t, [][]string{{"a", "a", "b", "b"}}, Assign([]Job{job}, members))
}

func TestBalance_MovesNoFrozenShardWithoutNeed(t *testing.T) {
	members := []Member{{ID: "a"}, {ID: "b"}}
	for name, c := range map[string]struct{ owners, want []string }{
		"of a member that has its share":       {[]string{"a", "b", "b", "a"}, []string{"a", "b", "b", "a"}},
		"of a member that has too few":         {[]string{"a", "b", "b", "b"}, []string{"a", "a", "b", "b"}},
		"without an owner":                     {[]string{"", "b", "b", "a"}, []string{"a", "b", "b", "a"}},
		"of a member whose other shards moved": {[]string{"a", "a", "a", "b"}, []string{"b", "a", "a", "b"}},
	} {
		job := Job{Owners: c.owners, Candidates: []int{0, 1}, Frozen: shardset.Of(0, 4, 7)} // the job has no shards 4 and 7
		assert.Equal(t, [][]string{c.want}, Assign([]Job{job}, members), name)
	}
	job := Job{Owners: []string{"b", "a"}, Candidates: []int{0, 1}, Frozen: shardset.Of(0, 1)}
	assert.Equal(t, [][]string{{"b", "a"}}, Assign([]Job{job}, members), "of members that could exchange them")
	job = Job{Owners: []string{"a", "a", "a", "b"}, Candidates: []int{0, 1}, Frozen: shardset.Of(0, 1, 2)}
	assert.Equal(t, [][]string{{"b", "a", "a", "b"}}, Assign([]Job{job}, members), "only as many as are too many")
}
