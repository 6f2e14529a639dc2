package coordinator

import (
	"context"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

func TestPlan_LookAtADrainingMember(t *testing.T) {
	setUp := func(t *testing.T) (w *world, a, b string, stale look) {
		w = newWorld(t)
		a, b = w.member("a", "job"), w.member("b", "job")
		w.define("job", 4, 0, "")
		w.settle()
		w.look(a)
		stale = w.v.looks[a]
		w.change(a, func(m *record.Member) { m.Draining = true })
		require.Equal(t, stale.seen+1, w.v.members[a].rev.Seq)
		return w, a, b, stale
	}
	t.Run("of one commit before its record says so moves nothing: the member may have claimed since", func(t *testing.T) {
		w, a, _, stale := setUp(t)
		w.v.looks[a] = stale
		d := decide(w.v)
		assert.Equal(t, []string{a}, d.looks)
		for _, c := range d.changes {
			assert.Equal(t, "0-1", c.plan.Owners[a].String())
		}
	})
	t.Run("of the commit that made its record say so moves its idle shards", func(t *testing.T) {
		w, a, b, stale := setUp(t)
		stale.seen++
		w.v.looks[a] = stale
		d := decide(w.v)
		assert.Empty(t, d.looks)
		require.Len(t, d.changes, 1)
		assert.Equal(t, "0-3", d.changes[0].plan.Owners[b].String())
	})
}

func TestLeader_LookCountsCommits(t *testing.T) {
	t.Run("that were known before the reading began, and none that became known during it", func(t *testing.T) {
		keys, err := record.NewKeys("test", "default")
		require.NoError(t, err)
		l := &leader{restoring: newRestoring(), log: slog.New(slog.DiscardHandler), seen: 7}
		l.m = &Member{keys: keys, reg: &listing{memory.New().Client("a"), func() { l.seen = 9 }}}
		look, err := l.readClaims(t.Context(), "x.x")
		require.NoError(t, err)
		assert.EqualValues(t, 7, look.seen)
	})
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
