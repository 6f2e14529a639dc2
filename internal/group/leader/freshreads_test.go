package leader

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/elector"
	"github.com/rota-dev/rota/internal/group/eventlog"
	"github.com/rota-dev/rota/internal/group/planning"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

func TestLeader_FreshRead(t *testing.T) {
	t.Run("reflects the commits known before it began, not those observed during it", func(t *testing.T) {
		keys, err := record.NewKeys("test", "default")
		require.NoError(t, err)
		l := &Leader{Log: slog.New(slog.DiscardHandler), LastCommit: 7}
		l.Self = elector.Self{Keys: keys, Reg: &listing{memory.New().Client("a"), func() { l.LastCommit = 9 }}}
		l.Edits = NewEdits(l.Self.Reg, keys, l.Log)
		read, err := l.readClaims(t.Context(), "x.x")
		require.NoError(t, err)
		assert.EqualValues(t, 7, read.Seen)
	})
	t.Run("has every claim committed before it, although plain reads are old", func(t *testing.T) {
		keys, err := record.NewKeys("test", "default")
		require.NoError(t, err)
		server := memory.New()
		l := &Leader{Log: slog.New(slog.DiscardHandler), Self: elector.Self{Keys: keys, Reg: server.Client("a")}}
		l.Edits = NewEdits(l.Self.Reg, keys, l.Log)
		defer server.Lag("a")()
		key := keys.Claims("x.x", "job")
		_, err = server.Client("x").Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Create(key, []byte(`{"job":"job"}`))}})
		require.NoError(t, err)
		plain, err := l.Self.Reg.List(t.Context(), key.Dir(), registry.ReadOptions{})
		require.NoError(t, err)
		require.Empty(t, plain.Entries)
		read, err := l.readClaims(t.Context(), "x.x")
		require.NoError(t, err)
		assert.Contains(t, read.Claims, "job")
	})
}

func TestLeader_PartRead(t *testing.T) {
	keys, err := record.NewKeys("test", "default")
	require.NoError(t, err)
	server := memory.New()
	l := &Leader{
		Log: slog.New(slog.DiscardHandler), Self: elector.Self{Keys: keys, Reg: server.Client("a")}, LastCommit: 7,
		View: planning.View{PartReads: map[string]planning.FreshRead{}},
	}
	l.logs = eventlog.NewPlanLog(l.Log)
	defer server.Lag("a")()
	var parts []string
	for i := range 50 {
		job := fmt.Sprintf("job-%02d", i)
		value := fmt.Sprintf(`{"job":%q}`, job)
		if i == 7 {
			value = "garbage"
		}
		_, err = server.Client("x").Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Create(keys.Claims("x.x", job), []byte(value))}})
		require.NoError(t, err)
		if i%2 == 1 {
			parts = append(parts, job)
		}
	}
	before := server.Counts("a").Reads
	require.NoError(t, l.readParts(t.Context(), map[string][]string{"x.x": append(parts, "none")}))
	read := l.View.PartReads["x.x"]
	assert.EqualValues(t, 7, read.Seen, "the commits that were known before it began")
	assert.Len(t, read.Claims, 24, "every claim committed before it, although plain reads are old")
	assert.Equal(t, map[string]bool{"job-07": true}, read.Unreadable)
	assert.True(t, read.Only["none"] && read.Only["job-01"] && !read.Only["job-02"])
	assert.Equal(t, 1+25+1, server.Counts("a").Reads-before, "a fresh read, and one for each job")
}

// listing is a registry that calls meanwhile during each List.
type listing struct {
	registry.Registry
	meanwhile func()
}

func (r *listing) List(ctx context.Context, dir registry.Key, o registry.ReadOptions) (registry.Listing, error) {
	out, err := r.Registry.List(ctx, dir, o)
	r.meanwhile()
	return out, err
}
