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
