package registry

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLockView_PlaceOfAHolderGoesWithItsTenure(t *testing.T) {
	const dir = Key("lock")
	place := func(name string, seq uint64) Entry {
		rev := Rev{Seq: seq}
		return Entry{Key: dir.Join(name), Value: lockPlace, Created: rev, Modified: rev}
	}
	owner := func(name string, seq uint64) Entry {
		r := lockRecord{}
		if name != "" {
			r = lockRecord{Session: "s", Place: name}
		}
		return Entry{Key: dir.Join(lockOwner), Value: r.encode(), Modified: Rev{Seq: seq}}
	}
	begin := func() *lockView {
		v := &lockView{dir: dir}
		v.apply(Batch{Kind: Snapshot, Rev: Rev{Seq: 3}, Puts: []Entry{owner("~a", 1), place("~a", 1), place("~b", 2), place("~c", 3)}})
		require.Equal(t, dir.Join("~b"), v.first)
		return v
	}
	t.Run("when the lock is passed on and its deletion is told later", func(t *testing.T) {
		v := begin()
		v.apply(Batch{Kind: Delta, Rev: Rev{Seq: 4}, Puts: []Entry{owner("~b", 4)}})
		require.Equal(t, dir.Join("~c"), v.oldest("").Key)
		require.False(t, v.open())
	})
	t.Run("when it was read again before it was deleted", func(t *testing.T) {
		v := begin()
		v.apply(Batch{Kind: Delta, Rev: Rev{Seq: 4}, Puts: []Entry{owner("", 4), place("~a", 1)}})
		require.Equal(t, dir.Join("~b"), v.oldest("").Key)
		require.True(t, v.open())
	})
	t.Run("but not one that was created again after it", func(t *testing.T) {
		v := begin()
		v.apply(Batch{Kind: Delta, Rev: Rev{Seq: 5}, Puts: []Entry{owner("", 4), place("~a", 5)}})
		require.Equal(t, dir.Join("~b"), v.oldest("").Key)
		require.Contains(t, v.places, dir.Join("~a"))
	})
	t.Run("and not before", func(t *testing.T) {
		v := begin()
		v.apply(Batch{Kind: Delta, Rev: Rev{Seq: 4}, Puts: []Entry{owner("~a", 4)}})
		require.False(t, v.open())
		require.Contains(t, v.places, dir.Join("~a"))
	})
}
