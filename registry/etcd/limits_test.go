package etcd_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/test/testserver"
	"github.com/rota-dev/rota/internal/test/testserver/servertest"
	"github.com/rota-dev/rota/registry"
)

// TestLimits_OfServersThatAcceptLess has servers refuse what is within the limits.
func TestLimits_OfServersThatAcceptLess(t *testing.T) {
	p := placeIn(t, servertest.StartEtcd(t, testserver.EtcdOptions{
		Flags: []string{"--max-txn-ops", "4", "--max-request-bytes", "10000"},
	}))
	c := p.open()
	for name, ops := range map[string][]registry.Op{
		"bytes":      {registry.Create("big", make([]byte, 20_000))},
		"operations": {registry.Create("1", nil), registry.Create("2", nil), registry.Create("3", nil), registry.Create("4", nil), registry.Create("5", nil)},
	} {
		_, err := c.Txn(t.Context(), registry.Txn{Then: ops})
		require.ErrorIs(t, err, registry.ErrTooLarge, name)
		require.False(t, registry.Retryable(err), name)
		_, err = registry.Apply(t.Context(), c, registry.Txn{Then: ops})
		require.ErrorIs(t, err, registry.ErrTooLarge, name)
		_, err = c.Get(t.Context(), ops[0].Key, fresh)
		require.ErrorIs(t, err, registry.ErrNotFound, name)
	}
	commit(t, c, registry.Create("small", nil))
}

// TestLimits_AFullServer fills one to its quota, which is more than the alarm that it raises.
func TestLimits_AFullServer(t *testing.T) {
	p := placeIn(t, servertest.StartEtcd(t, testserver.EtcdOptions{QuotaBytes: 4 << 20}))
	c := p.open()
	s := session(t, c)
	own := commit(t, c, registry.CreateOwned("~k", nil, s.ID()))
	rev := commit(t, c, registry.Create("k", nil))
	var err error
	for i := 0; err == nil; i++ {
		require.Less(t, i, 1000, "it is never full")
		var next registry.Rev
		if next, err = c.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Set("k", rev, make([]byte, 100<<10))}}); err == nil {
			rev = next
		}
	}
	require.ErrorIs(t, err, registry.ErrQuota)
	require.False(t, registry.Retryable(err))
	_, err = c.OpenSession(t.Context(), registry.SessionOptions{TTL: ttl})
	require.ErrorIs(t, err, registry.ErrQuota)
	commit(t, p.open(), registry.Delete("~k", own)) // which frees room; the check of rights needs none
	e, err := c.Get(t.Context(), "k", fresh)
	require.NoError(t, err)
	require.Equal(t, rev, e.Modified)
	require.NoError(t, s.Close(t.Context()))
}

// TestLimits_AServerThatManyFill has many write at once, so that some are let in while there
// is room and find none left when it is their turn.
func TestLimits_AServerThatManyFill(t *testing.T) {
	p := placeIn(t, servertest.StartEtcd(t, testserver.EtcdOptions{QuotaBytes: 4 << 20}))
	c := p.open()
	type last struct {
		rev registry.Rev
		err error
	}
	writers := make([]last, 24)
	var wg sync.WaitGroup
	for i := range writers {
		writers[i].rev = commit(t, c, registry.Create(registry.Key(fmt.Sprint("k", i)), nil))
	}
	for i := range writers {
		w, key := &writers[i], registry.Key(fmt.Sprint("k", i))
		wg.Go(func() {
			for range 1000 {
				var rev registry.Rev
				if rev, w.err = c.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Set(key, w.rev, make([]byte, 50<<10))}}); w.err != nil {
					return
				}
				w.rev = rev
			}
		})
	}
	wg.Wait()
	for i, w := range writers {
		require.ErrorIs(t, w.err, registry.ErrQuota)
		require.NotErrorIs(t, w.err, registry.ErrUnknownOutcome, "nobody else writes")
		e, err := c.Get(t.Context(), registry.Key(fmt.Sprint("k", i)), fresh)
		require.NoError(t, err)
		require.Equal(t, w.rev, e.Modified, "what was refused is not there, and what is there was not refused")
	}
}
