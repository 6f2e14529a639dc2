package fleet

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/test/judge"
)

func TestFleet_RunsAndJudgesSmallJobs(t *testing.T) {
	server, err := Etcd(t.Context(), 1)
	require.NoError(t, err)
	defer server.Stop()
	const small = 100
	f, err := Start(t.Context(), server, Config{
		Instances: 2, Jobs: 1, Shards: 2, Every: time.Second, Takes: 100 * time.Millisecond, Small: small,
		TTL: 2 * time.Second, Drain: 10 * time.Second, Dir: t.TempDir(),
	})
	require.NoError(t, err)
	defer f.Close()
	runs := map[string]int{}
	f.began = func(c *judge.Call) {
		if strings.HasPrefix(c.Job, smallJobPrefix) {
			runs[c.Job]++
		}
	}
	twice := func() bool {
		for _, n := range runs {
			if n < 2 {
				return false
			}
		}
		return len(runs) == small && f.Judge.IsWhole(2)
	}
	require.NoError(t, f.Until(t.Context(), "each small job runs twice", recovery, twice))
	for i := range 2 {
		assert.Len(t, f.Judge.OwnedShards(f.Process(i).Instance), f.share())
	}
	require.NoError(t, f.Finish(t.Context()))
	assert.GreaterOrEqual(t, f.Judge.Report().Claims, 2*small)
}
