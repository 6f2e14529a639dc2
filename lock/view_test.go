package lock

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/registry"
)

func TestView_DropsThePlaceOfAFormerHolder(t *testing.T) {
	const dir = registry.Key("lock")
	place := func(name string, seq uint64) registry.Entry {
		rev := registry.Rev{Seq: seq}
		return registry.Entry{Key: dir.Join(name), Value: placeValue, Created: rev, Modified: rev}
	}
	owner := func(name string, seq uint64) registry.Entry {
		r := ownerRecord{}
		if name != "" {
			r = ownerRecord{Session: "s", Place: name}
		}
		return registry.Entry{Key: dir.Join(ownerName), Value: r.encode(), Modified: registry.Rev{Seq: seq}}
	}
	newView := func() *view {
		v := &view{dir: dir}
		v.apply(registry.Batch{Kind: registry.Snapshot, Rev: registry.Rev{Seq: 3}, Puts: []registry.Entry{owner("~a", 1), place("~a", 1), place("~b", 2), place("~c", 3)}})
		require.Equal(t, dir.Join("~b"), v.first)
		return v
	}
	t.Run("when the lock is passed on and the deletion of the place is observed later", func(t *testing.T) {
		v := newView()
		v.apply(registry.Batch{Kind: registry.Delta, Rev: registry.Rev{Seq: 4}, Puts: []registry.Entry{owner("~b", 4)}})
		require.Equal(t, dir.Join("~c"), v.oldest("").Key)
		require.False(t, v.open())
	})
	t.Run("when the lock is freed and the place was read just before its deletion", func(t *testing.T) {
		v := newView()
		v.apply(registry.Batch{Kind: registry.Delta, Rev: registry.Rev{Seq: 4}, Puts: []registry.Entry{owner("", 4), place("~a", 1)}})
		require.Equal(t, dir.Join("~b"), v.oldest("").Key)
		require.True(t, v.open())
	})
	t.Run("but not a place that was created again after the change", func(t *testing.T) {
		v := newView()
		v.apply(registry.Batch{Kind: registry.Delta, Rev: registry.Rev{Seq: 5}, Puts: []registry.Entry{owner("", 4), place("~a", 5)}})
		require.Equal(t, dir.Join("~b"), v.oldest("").Key)
		require.Contains(t, v.places, dir.Join("~a"))
	})
	t.Run("but not while the holder stays the same", func(t *testing.T) {
		v := newView()
		v.apply(registry.Batch{Kind: registry.Delta, Rev: registry.Rev{Seq: 4}, Puts: []registry.Entry{owner("~a", 4)}})
		require.False(t, v.open())
		require.Contains(t, v.places, dir.Join("~a"))
	})
}
