package member_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/group/membertest"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/operator"
)

func TestMember_SetWaiting(t *testing.T) {
	since := coordtest.BubbleStart().Add(time.Second)
	waits := map[string]operator.Waiting{"job": {Shards: []int{1, 3}, Since: since, Behind: "Workers 2, busy with other (2)"}}
	shown := func(g *membertest.Group, job string) map[string]operator.Waiting {
		g.T.Helper()
		synctest.Wait()
		o, _ := g.NewOperator()
		st, err := o.Status(g.T.Context(), job)
		require.NoError(g.T, err)
		out := map[string]operator.Waiting{}
		for _, m := range st.Members {
			out[m.Instance] = m.Waiting
		}
		return out
	}
	defs := []string{coordtest.Def("job", 0, 4, ""), coordtest.Def("other", 0, 1, "")}

	membertest.RunBubble(t, "is shown by Status for the member and the job, until nothing waits", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", defs...)
		g.Start("b", defs...)
		assert.Equal(t, map[string]operator.Waiting{"a": {}, "b": {}}, shown(g, "job"))
		a.SetWaiting(waitingRecords(waits))
		assert.Equal(t, map[string]operator.Waiting{"a": waits["job"], "b": {}}, shown(g, "job"))
		assert.Equal(t, map[string]operator.Waiting{"a": {}, "b": {}}, shown(g, "other"))
		a.SetWaiting(nil)
		assert.Equal(t, map[string]operator.Waiting{"a": {}, "b": {}}, shown(g, "job"))
	})
	membertest.RunBubble(t, "costs one commit for a change, and none without one", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", defs...)
		synctest.Wait()
		before := g.Server.Counts("a").Commits
		a.SetWaiting(nil)
		a.SetWaiting(waitingRecords(map[string]operator.Waiting{}))
		synctest.Wait()
		assert.Equal(t, before, g.Server.Counts("a").Commits)
		for range 3 {
			a.SetWaiting(waitingRecords(map[string]operator.Waiting{"job": waits["job"]}))
			synctest.Wait()
		}
		assert.Equal(t, before+1, g.Server.Counts("a").Commits)
	})
	membertest.RunBubble(t, "reads no definitions", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", defs...)
		synctest.Wait()
		before := g.Server.Counts("a")
		a.SetWaiting(waitingRecords(waits))
		synctest.Wait()
		assert.Equal(t, before.Reads, g.Server.Counts("a").Reads)
	})
	membertest.RunBubble(t, "is published again by the next incarnation", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", defs...)
		a.SetWaiting(waitingRecords(waits))
		synctest.Wait()
		g.Server.Expire("a")
		time.Sleep(time.Minute)
		assert.Equal(t, map[string]operator.Waiting{"a": waits["job"]}, shown(g, "job"))
	})
	membertest.RunBubble(t, "before the member has joined is published when it joins", func(t *testing.T, g *membertest.Group) {
		a := g.NewWorker("a", nil, defs...)
		a.SetWaiting(waitingRecords(waits))
		g.JoinWorker(a)
		assert.Equal(t, map[string]operator.Waiting{"a": waits["job"]}, shown(g, "job"))
	})
	membertest.RunBubble(t, "publishes a bounded number of jobs", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", defs...)
		many := map[string]operator.Waiting{}
		for i := range 200 {
			many[fmt.Sprint("job-", i)] = operator.Waiting{Shards: []int{0}, Since: since.Add(time.Duration(i))}
		}
		shards := make([]int, 1000)
		for i := range shards {
			shards[i] = 2 * i
		}
		many["job"] = operator.Waiting{Shards: shards, Since: since.Add(-1), Behind: strings.Repeat("x", 1000)}
		a.SetWaiting(waitingRecords(many))
		w := shown(g, "job")["a"]
		assert.Equal(t, []int{0, 2, 4, 6, 8, 10, 12, 14}, w.Shards)
		assert.Equal(t, 992, w.More)
		e, _ := g.GetRecord(g.Keys.Member(a.Incarnation()))
		m, err := record.Decode[record.Member](e.Value)
		require.NoError(t, err)
		assert.Len(t, m.Waiting, 100)
	})
}

// waitingRecords returns waiting runs in the form in which the member record has them.
func waitingRecords(waiting map[string]operator.Waiting) map[string]record.Waiting {
	out := make(map[string]record.Waiting, len(waiting))
	for job, w := range waiting {
		out[job] = record.Waiting{Shards: shardset.Of(w.Shards...), More: w.More, Since: record.InstantOf(w.Since), Behind: w.Behind}
	}
	return out
}
