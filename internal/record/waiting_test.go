package record

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/shardset"
)

func TestMember_Waiting(t *testing.T) {
	t.Run("survives a round trip", func(t *testing.T) {
		m := Member{Name: "a", Jobs: []string{"job"}, Waiting: map[string]Waiting{
			"job": {Shards: shardset.Of(1, 2, 7), More: 3, Since: 1_700_000_000_000_000_000, Behind: "MaxRunning 8 of this job"},
		}}
		stored, err := Encode(m)
		require.NoError(t, err)
		assert.Contains(t, string(stored), `"waiting":{"job":{"shards":"1-2,7","more":3,"since":"2023-11-14T22:13:20Z","behind":"MaxRunning 8 of this job"}}`)
		read, err := Decode[Member](stored)
		require.NoError(t, err)
		assert.Equal(t, m, read)
	})
	t.Run("is omitted if no run waits", func(t *testing.T) {
		stored, err := Encode(Member{Name: "a", Waiting: BoundWaiting(map[string]Waiting{})})
		require.NoError(t, err)
		assert.NotContains(t, string(stored), "waiting")
	})
}

func TestBoundWaiting(t *testing.T) {
	odd := shardset.Set{}
	for s := 1; s < 100; s += 2 {
		odd.Add(s)
	}
	t.Run("keeps small entries", func(t *testing.T) {
		few := map[string]Waiting{"a": {Shards: shardset.Range(0, 10_000), Since: 7, Behind: "b"}, "b": {Shards: shardset.Of(3), Since: 5}}
		assert.Equal(t, few, BoundWaiting(few))
	})
	t.Run("counts the shards beyond the first ranges", func(t *testing.T) {
		w := BoundWaiting(map[string]Waiting{"a": {Shards: odd, More: 2}})["a"]
		assert.Equal(t, "1,3,5,7,9,11,13,15", w.Shards.String())
		assert.Equal(t, 50-8+2, w.More)
	})
	t.Run("shortens a long text", func(t *testing.T) {
		w := BoundWaiting(map[string]Waiting{"a": {Behind: strings.Repeat("é", 200)}})["a"]
		assert.Less(t, len(w.Behind), 301)
		assert.True(t, strings.HasSuffix(w.Behind, "é..."))
	})
	t.Run("keeps the jobs that have waited longest", func(t *testing.T) {
		many := map[string]Waiting{}
		for i := range 300 {
			many[fmt.Sprintf("job-%03d", i)] = Waiting{Shards: shardset.Of(0), Since: Instant(1 + i%2)}
		}
		kept := BoundWaiting(many)
		assert.Len(t, kept, 100)
		for job, w := range kept {
			assert.Equal(t, Instant(1), w.Since, job)
			assert.Less(t, job, "job-200")
		}
	})
	t.Run("of the largest size fits 64 KiB", func(t *testing.T) {
		many := map[string]Waiting{}
		for i := range 1000 {
			many[fmt.Sprintf("%0100d", i)] = Waiting{Shards: odd, Since: 1_700_000_000_123_456_789, Behind: strings.Repeat("x", 500)}
		}
		stored, err := marshal(BoundWaiting(many))
		require.NoError(t, err)
		assert.Less(t, len(stored), 64<<10)
	})
}
