package coordinator

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/record"
)

func TestLedger_Close(t *testing.T) {
	bubble(t, "waits for a claim on its way before the record of the member says that it drains", func(t *testing.T, g *group) {
		a := g.startWorking("a", takes(time.Hour), def("job", 0, 2, ""))
		g.start("b", def("job", 0, 2, ""))
		draining := func() bool {
			e, ok := g.get(g.keys.Member(a.incarnation()))
			require.True(t, ok)
			m, err := record.Decode[record.Member](e.Value)
			require.NoError(t, err)
			return m.Draining
		}
		arrive := make(chan struct{})
		a.reg.before(writing(below(g.keys.ClaimsOf(a.incarnation())), func() { <-arrive }))
		until(1)
		require.Empty(t, a.began(), "its claim has not arrived")
		drained := make(chan error, 1)
		go func() { drained <- a.Drain(t.Context()) }()
		time.Sleep(time.Second)
		synctest.Wait()
		assert.False(t, draining(), "a leader would move the shard that is being claimed")
		require.Empty(t, drained)

		close(arrive)
		require.NoError(t, <-drained)
		assert.True(t, draining())
		assert.Equal(t, map[int]int{0: 1}, shards(a.began()))
		synctest.Wait()
		assert.Equal(t, map[string]string{"a": "0", "b": "1"}, g.owners("job"), "the running shard stays")
	})
}
