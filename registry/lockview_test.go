package registry

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLockView_DropsThePlaceOfAFormerHolder(t *testing.T) {
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
	newView := func() *lockView {
		v := &lockView{dir: dir}
		v.apply(Batch{Kind: Snapshot, Rev: Rev{Seq: 3}, Puts: []Entry{owner("~a", 1), place("~a", 1), place("~b", 2), place("~c", 3)}})
		require.Equal(t, dir.Join("~b"), v.first)
		return v
	}
	t.Run("when the lock is passed on and the deletion of the place is observed later", func(t *testing.T) {
		v := newView()
		v.apply(Batch{Kind: Delta, Rev: Rev{Seq: 4}, Puts: []Entry{owner("~b", 4)}})
		require.Equal(t, dir.Join("~c"), v.oldest("").Key)
		require.False(t, v.open())
	})
	t.Run("when the lock is freed and the place was read just before its deletion", func(t *testing.T) {
		v := newView()
		v.apply(Batch{Kind: Delta, Rev: Rev{Seq: 4}, Puts: []Entry{owner("", 4), place("~a", 1)}})
		require.Equal(t, dir.Join("~b"), v.oldest("").Key)
		require.True(t, v.open())
	})
	t.Run("but not a place that was created again after the change", func(t *testing.T) {
		v := newView()
		v.apply(Batch{Kind: Delta, Rev: Rev{Seq: 5}, Puts: []Entry{owner("", 4), place("~a", 5)}})
		require.Equal(t, dir.Join("~b"), v.oldest("").Key)
		require.Contains(t, v.places, dir.Join("~a"))
	})
	t.Run("but not while the holder stays the same", func(t *testing.T) {
		v := newView()
		v.apply(Batch{Kind: Delta, Rev: Rev{Seq: 4}, Puts: []Entry{owner("~a", 4)}})
		require.False(t, v.open())
		require.Contains(t, v.places, dir.Join("~a"))
	})
}
