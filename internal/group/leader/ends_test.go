package leader

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/feed"
	"github.com/rota-dev/rota/internal/group/planning"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

func TestLeader_CopiesOfClaims(t *testing.T) {
	keys, err := record.NewKeys("test", "default")
	require.NoError(t, err)
	copies := feed.New(keys.Ends(), slog.New(slog.DiscardHandler), decodeEnds(keys))
	l := &Leader{endsByName: map[string]ends{}, View: planning.View{Ends: map[string]planning.EndsOfJob{}}}
	l.ends = copies.NewReader(func() {})
	seq := uint64(0)
	put := func(key registry.Key, value []byte) {
		seq++
		copies.ApplyBatch(registry.Batch{Puts: []registry.Entry{{Key: key, Value: value, Modified: registry.Rev{Seq: seq}}}})
		l.ends.Drain(l.observeEnds)
	}
	encode := func(inc, job string) []byte {
		value, err := record.Encode(record.Ends{Incarnation: inc, Claims: record.Claims{Job: job}})
		require.NoError(t, err)
		return value
	}
	of := func(inc string) registry.Key { return keys.EndsOf(inc, record.Segment("my job")) }
	known := func() (out []string) {
		for inc := range l.View.Ends[record.Segment("my job")] {
			out = append(out, inc)
		}
		return out
	}

	put(of("a.A"), encode("a.A", "my job"))
	require.Equal(t, []string{"a.A"}, known())
	for name, value := range map[string][]byte{
		"no JSON": []byte("#"), "no job": encode("b.B", ""), "another incarnation": encode("a.A", "my job"), "another job": encode("b.B", "job"),
	} {
		put(of("b.B"), value)
		require.Equal(t, []string{"a.A"}, known(), "a record with %s is not used, and changes no other", name)
	}
	put(of("b.B"), encode("b.B", "my job"))
	assert.ElementsMatch(t, []string{"a.A", "b.B"}, known())
	put(of("a.A"), []byte("#"))
	assert.Equal(t, []string{"b.B"}, known(), "an unreadable value replaces the one before")
	seq++
	copies.ApplyBatch(registry.Batch{Deletes: []registry.Key{of("b.B")}, Rev: registry.Rev{Seq: seq}})
	l.ends.Drain(l.observeEnds)
	assert.Empty(t, known())
}
