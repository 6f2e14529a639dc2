package memory_test

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

func TestWipe(t *testing.T) {
	for name, lose := range map[string]func(*memory.Server) func(){
		"empties the store":         func(s *memory.Server) func() { return s.Wipe },
		"brings a saved state back": func(s *memory.Server) func() { return s.Save() },
	} {
		bubble(t, name+", ends sessions, lowers commit numbers, and watchers begin with a Snapshot", func(t *testing.T, s *memory.Server) {
			c := connect(t, s, "a")
			create := func(key registry.Key) registry.Rev {
				rev, err := c.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Create(key, []byte("v"))}})
				require.NoError(t, err)
				return rev
			}
			kept := create("dir/kept")
			x := openOwner(t, c)
			loss := lose(s)
			late := create("dir/late")
			last, err := c.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Set("dir/kept", kept, []byte("changed"))}})
			require.NoError(t, err)
			w, err := c.Watch(t.Context(), "dir", registry.WatchOptions{})
			require.NoError(t, err)
			defer w.Close()
			_, err = w.Next(t.Context())
			require.NoError(t, err)
			loss()
			synctest.Wait()
			<-x.Lost()
			b, err := w.Next(t.Context())
			require.NoError(t, err)
			assert.Equal(t, registry.Snapshot, b.Kind)
			if name == "empties the store" {
				assert.Empty(t, s.Dump())
				assert.Empty(t, b.Puts)
			} else {
				e, err := c.Get(t.Context(), "dir/kept", registry.ReadOptions{})
				require.NoError(t, err)
				assert.Equal(t, "v", string(e.Value))
				assert.Equal(t, kept, e.Modified)
				assert.Len(t, b.Puts, 1)
			}
			again := create("dir/late")
			assert.Less(t, again.Seq, last.Seq)
			assert.NotEqual(t, late, again)
		})
	}
}
