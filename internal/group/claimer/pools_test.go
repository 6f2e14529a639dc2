package claimer

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

func TestDemand_Guards(t *testing.T) {
	keys, err := record.NewKeys("test", "default")
	require.NoError(t, err)
	for name, f := range map[string]func(t *testing.T, s *memory.Server, c *Claimer){
		"a session that has ended writes none": func(t *testing.T, _ *memory.Server, c *Claimer) {
			require.NoError(t, c.Session.Close(t.Context()))
			_, err := c.writeDemand(t.Context(), registry.Rev{}, []byte("{}"))
			require.ErrorIs(t, err, registry.ErrSessionLost)
		},
		"a demand that another writer changes is written anew": func(t *testing.T, s *memory.Server, c *Claimer) {
			key := keys.Demand(c.Me)
			_, err := c.Reg.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.CreateOwned(key, []byte("[]"), c.Session.ID())}})
			require.NoError(t, err)
			rev, err := c.writeDemand(t.Context(), registry.Rev{}, []byte("1"))
			require.NoError(t, err)
			_, err = s.Client("hand").Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Delete(key, rev)}})
			require.NoError(t, err)
			_, err = c.writeDemand(t.Context(), rev, []byte("2"))
			require.NoError(t, err)
			e, err := c.Reg.Get(t.Context(), key, registry.ReadOptions{})
			require.NoError(t, err)
			assert.Equal(t, "2", string(e.Value))
		},
		"a late duplicate does not bring back an earlier demand": func(t *testing.T, s *memory.Server, c *Claimer) {
			release := s.HoldCommit("a") // it arrives after the reply to the repeated attempt
			done := make(chan registry.Rev)
			go func() {
				rev, err := c.writeDemand(t.Context(), registry.Rev{}, []byte("1"))
				assert.NoError(t, err)
				done <- rev
			}()
			release()
			rev := <-done
			rev, err := c.writeDemand(t.Context(), rev, []byte("2"))
			require.NoError(t, err)
			_, err = c.Reg.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.CreateOwned(keys.Demand(c.Me), []byte("1"), c.Session.ID())}})
			require.ErrorIs(t, err, registry.ErrConflict)
			e, err := c.Reg.Get(t.Context(), keys.Demand(c.Me), registry.ReadOptions{})
			require.NoError(t, err)
			assert.Equal(t, rev, e.Modified)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := memory.New()
			reg := s.Client("a")
			session, err := reg.OpenSession(t.Context(), registry.SessionOptions{TTL: time.Minute})
			require.NoError(t, err)
			f(t, s, &Claimer{Config: Config{Me: record.Incarnation("a", session.ID()), Session: session, Reg: reg, Keys: keys}})
		})
	}
}
