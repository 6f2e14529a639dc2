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

// TestLimits_OfServersWithLowerLimits makes servers refuse transactions that are within the
// registry's limits.
func TestLimits_OfServersWithLowerLimits(t *testing.T) {
	p := newFixtureOn(t, servertest.StartEtcd(t, testserver.EtcdOptions{
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
	mustCommit(t, c, registry.Create("small", nil))
}

// TestLimits_OfAFullServer fills a server up to its quota; the alarm alone would not do.
func TestLimits_OfAFullServer(t *testing.T) {
	p := newFixtureOn(t, servertest.StartEtcd(t, testserver.EtcdOptions{QuotaBytes: 4 << 20}))
	c := p.open()
	s := openSession(t, c)
	own := mustCommit(t, c, registry.CreateOwned("~k", nil, s.ID()))
	rev := mustCommit(t, c, registry.Create("k", nil))
	var err error
	for i := 0; err == nil; i++ {
		require.Less(t, i, 1000, "the server never gets full")
		var next registry.Rev
		if next, err = c.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Set("k", rev, make([]byte, 100<<10))}}); err == nil {
			rev = next
		}
	}
	require.ErrorIs(t, err, registry.ErrQuota)
	require.False(t, registry.Retryable(err))
	_, err = c.OpenSession(t.Context(), registry.SessionOptions{TTL: ttl})
	require.ErrorIs(t, err, registry.ErrQuota)
	mustCommit(t, p.open(), registry.Delete("~k", own)) // Delete frees space; Open needs none
	e, err := c.Get(t.Context(), "k", fresh)
	require.NoError(t, err)
	require.Equal(t, rev, e.Modified)
	require.NoError(t, s.Close(t.Context()))
}

// TestLimits_OfAServerFilledByManyWriters writes concurrently, so that some transactions pass
// the first check of the quota and fail the second.
func TestLimits_OfAServerFilledByManyWriters(t *testing.T) {
	p := newFixtureOn(t, servertest.StartEtcd(t, testserver.EtcdOptions{QuotaBytes: 4 << 20}))
	c := p.open()
	type last struct {
		rev registry.Rev
		err error
	}
	writers := make([]last, 24)
	var wg sync.WaitGroup
	for i := range writers {
		writers[i].rev = mustCommit(t, c, registry.Create(registry.Key(fmt.Sprint("k", i)), nil))
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
		require.NotErrorIs(t, w.err, registry.ErrUnknownOutcome, "there is no other writer, so each outcome can be determined")
		e, err := c.Get(t.Context(), registry.Key(fmt.Sprint("k", i)), fresh)
		require.NoError(t, err)
		require.Equal(t, w.rev, e.Modified, "exactly the acknowledged values are stored")
	}
}
