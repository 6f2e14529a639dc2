package coordinator

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/registry"
)

func TestMember_SetWaiting(t *testing.T) {
	since := bubbleBegan().Add(time.Second)
	waits := map[string]Waiting{"job": {Shards: []int{1, 3}, Since: since, Behind: "Workers 2, busy with other (2)"}}
	shown := func(g *group, job string) map[string]Waiting {
		g.t.Helper()
		synctest.Wait()
		o, _ := g.operator()
		st, err := o.Status(g.t.Context(), job)
		require.NoError(g.t, err)
		out := map[string]Waiting{}
		for _, m := range st.Members {
			out[m.Instance] = m.Waiting
		}
		return out
	}
	defs := []string{def("job", 0, 4, ""), def("other", 0, 1, "")}

	bubble(t, "is shown by Status for the member and the job, until nothing waits", func(t *testing.T, g *group) {
		a := g.start("a", defs...)
		g.start("b", defs...)
		assert.Equal(t, map[string]Waiting{"a": {}, "b": {}}, shown(g, "job"))
		a.SetWaiting(waitingRecords(waits))
		assert.Equal(t, map[string]Waiting{"a": waits["job"], "b": {}}, shown(g, "job"))
		assert.Equal(t, map[string]Waiting{"a": {}, "b": {}}, shown(g, "other"))
		a.SetWaiting(nil)
		assert.Equal(t, map[string]Waiting{"a": {}, "b": {}}, shown(g, "job"))
	})
	bubble(t, "costs one commit for a change, and none without one", func(t *testing.T, g *group) {
		a := g.start("a", defs...)
		synctest.Wait()
		before := g.server.Counts("a").Commits
		a.SetWaiting(nil)
		a.SetWaiting(waitingRecords(map[string]Waiting{}))
		synctest.Wait()
		assert.Equal(t, before, g.server.Counts("a").Commits)
		for range 3 {
			a.SetWaiting(waitingRecords(map[string]Waiting{"job": waits["job"]}))
			synctest.Wait()
		}
		assert.Equal(t, before+1, g.server.Counts("a").Commits)
	})
	bubble(t, "reads no definitions", func(t *testing.T, g *group) {
		a := g.start("a", defs...)
		synctest.Wait()
		before := g.server.Counts("a")
		a.SetWaiting(waitingRecords(waits))
		synctest.Wait()
		assert.Equal(t, before.Reads, g.server.Counts("a").Reads)
	})
	bubble(t, "is published again by the next incarnation", func(t *testing.T, g *group) {
		a := g.start("a", defs...)
		a.SetWaiting(waitingRecords(waits))
		synctest.Wait()
		g.server.Expire("a")
		time.Sleep(time.Minute)
		assert.Equal(t, map[string]Waiting{"a": waits["job"]}, shown(g, "job"))
	})
	bubble(t, "before the member has joined is published when it joins", func(t *testing.T, g *group) {
		a := g.worker("a", nil, defs...)
		a.SetWaiting(waitingRecords(waits))
		g.joined(a)
		assert.Equal(t, map[string]Waiting{"a": waits["job"]}, shown(g, "job"))
	})
	bubble(t, "publishes a bounded part of much", func(t *testing.T, g *group) {
		a := g.start("a", defs...)
		many := map[string]Waiting{}
		for i := range 200 {
			many[fmt.Sprint("job-", i)] = Waiting{Shards: []int{0}, Since: since.Add(time.Duration(i))}
		}
		shards := make([]int, 1000)
		for i := range shards {
			shards[i] = 2 * i
		}
		many["job"] = Waiting{Shards: shards, Since: since.Add(-1), Behind: strings.Repeat("x", 1000)}
		a.SetWaiting(waitingRecords(many))
		w := shown(g, "job")["a"]
		assert.Equal(t, []int{0, 2, 4, 6, 8, 10, 12, 14}, w.Shards)
		assert.Equal(t, 992, w.More)
		e, _ := g.get(g.keys.Member(a.incarnation()))
		m, err := record.Decode[record.Member](e.Value)
		require.NoError(t, err)
		assert.Len(t, m.Waiting, 100)
	})
}

// waitingRecords returns the form in which runs that wait are published.
func waitingRecords(waiting map[string]Waiting) map[string]record.Waiting {
	out := make(map[string]record.Waiting, len(waiting))
	for job, w := range waiting {
		out[job] = record.Waiting{Shards: shardset.Of(w.Shards...), More: w.More, Since: record.InstantOf(w.Since), Behind: w.Behind}
	}
	return out
}

func TestLeader_TakesWaiting(t *testing.T) {
	entry := func(w *watched, m record.Member) registry.Entry {
		value, err := record.Encode(m)
		require.NoError(t, err)
		return registry.Entry{Key: w.l.m.keys.Member("a.A"), Value: value}
	}
	waiting := map[string]record.Waiting{"job": {Shards: shardset.Of(1), Since: 1}}
	for name, c := range map[string]struct {
		next record.Member
		plan bool
	}{
		"plans nothing for runs that wait":           {record.Member{Name: "a", Jobs: []string{"job"}, Waiting: waiting, Clock: 9}, false},
		"plans for all else that is new with them":   {record.Member{Name: "a", Jobs: []string{"job"}, Waiting: waiting, Draining: true}, true},
		"plans for an answer about clocks":           {record.Member{Name: "a", Jobs: []string{"job"}, Waiting: waiting, Clock: 9, Answers: 8}, true},
		"plans for a record that waits for the same": {record.Member{Name: "a", Jobs: []string{"job"}, Clock: 9}, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWatched(t)
			w.tell(w.instances, registry.Snapshot, registry.Entry{Key: w.l.m.keys.Instance("a"), Owner: "A"})
			w.tell(w.members, registry.Snapshot, entry(w, record.Member{Name: "a", Jobs: []string{"job"}, Clock: 7}))
			require.True(t, w.l.takeNews())
			w.l.content = true
			w.tell(w.members, registry.Delta, entry(w, c.next))
			require.True(t, w.l.takeNews())
			assert.Equal(t, c.plan, !w.l.content)
			assert.Equal(t, memberItem{rev: registry.Rev{Seq: w.seq}, Member: c.next}, w.l.view.members["a.A"], "it is in view")
			assert.Equal(t, w.seq, w.l.seen)
		})
	}
	t.Run("plans for a member that comes or goes with runs that wait", func(t *testing.T) {
		w := newWatched(t)
		w.l.content = true
		w.tell(w.members, registry.Snapshot, entry(w, record.Member{Name: "a", Waiting: waiting}))
		w.l.takeNews()
		assert.False(t, w.l.content)
		w.l.content = true
		w.gone(w.members, w.l.m.keys.Member("a.A"))
		w.l.takeNews()
		assert.False(t, w.l.content)
		assert.Empty(t, w.l.view.members)
	})
}
