package web

import (
	"context"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/operator"
)

// An operator who asks what happened at an instant gets decisions, acts, leaders, joins and leaves in the order of time.
func TestTimeline(t *testing.T) {
	onFleet(t, func(k *kit) {
		at := func(path string, texts ...string) {
			k.Helper()
			body := k.page(path)
			from := 0
			for _, text := range texts {
				i := strings.Index(body[from:], text)
				require.GreaterOrEqual(k, i, 0, "%s: no %q after byte %d", path, text, from)
				from += i
			}
		}
		at("/timeline", "rebuild", "pause", "quarter", "b joined", "leads", "a joined")
		assert.Contains(t, k.page("/timeline"), "this console has observed since")

		k.fleet.Sleep(10 * time.Minute)
		require.NoError(t, k.op.As("lee", "deploy").Pause(context.Background(), "settle"))
		k.page("/") // somebody looks, so that the console observes
		k.fleet.Crash("b")
		k.fleet.Sleep(50 * time.Second)
		at("/timeline", "b: its session ended", "deploy", "quarter", "b joined")
		at("/timeline?kind=leave", "b: its session ended")
		assert.NotContains(t, k.page("/timeline?kind=leave"), "deploy")
		assert.NotContains(t, k.page("/timeline?kind=join"), "its session ended")

		for query, want := range map[string][2]bool{ // whether it has the pauses at 00:01:30 and at 00:11:35
			"?from=00:01:30&to=00:02":  {true, false},
			"?from=00:05":              {false, true},
			"?to=2000-01-01T00:02:00Z": {true, false},
			"?job=settle":              {false, true},
			"?kind=act&from=2000-01-01+00:01&to=2000-01-01+00:12":      {true, true},
			"?from=" + url.QueryEscape("2000-01-01T08:05:00+08:00"):    {false, true},
			"?kind=decision&job=settle&from=2000-01-01&to=2000-01-01T": {},
		} {
			if strings.HasSuffix(query, "T") {
				assert.Equal(t, 400, k.get("/timeline"+query).Code, query)
				continue
			}
			body := k.page("/timeline" + query)
			assert.Equal(t, want, [2]bool{strings.Contains(body, "quarter"), strings.Contains(body, "deploy")}, query)
		}
		assert.Equal(t, 400, k.get("/timeline?kind=none").Code)
	})
}

func TestChronicle(t *testing.T) {
	at := time.Date(2026, 1, 1, 14, 0, 0, 0, time.UTC)
	st := func(seconds int, leader string, instances ...operator.InstanceStatus) operator.GroupStatus {
		return operator.GroupStatus{At: at.Add(time.Duration(seconds) * time.Second), Leader: operator.LeaderStatus{Instance: leader, Term: uint64(len(leader))}, Instances: instances}
	}
	a := operator.InstanceStatus{Instance: "a", Incarnation: "a.1", Alive: true, Started: at}
	b := operator.InstanceStatus{Instance: "b", Incarnation: "b.1", Alive: true, Started: at.Add(time.Second)}
	drains, dead := b, a
	drains.Draining, dead.Alive = true, false

	var c chronicle
	for _, s := range []operator.GroupStatus{st(1, "a", a, b), st(2, "a", a, b), st(3, "a", a, drains), st(4, "a", a), st(5, "", dead), st(6, "bb", dead)} {
		c.observe(s)
	}
	var got []string
	for _, e := range c.list() {
		got = append(got, e.At.Format("05 ")+e.What)
	}
	assert.Equal(t, []string{"00 a joined", "01 b joined", "04 b left", "05 a: its session ended", "05 the group has no leader", "06 bb leads, in term 2"}, got)

	for range 2 * eventsKept {
		c.observe(st(7, "bb", a))
		c.observe(st(8, "bb"))
	}
	assert.Len(t, c.list(), eventsKept, "what it keeps is bounded")
}

func TestIsSameEvent(t *testing.T) {
	at := time.Date(2026, 1, 1, 14, 0, 0, 0, time.UTC)
	leave := operator.Event{At: at, Kind: operator.EventLeave, Instance: "a"}
	join := operator.Event{At: at, Kind: operator.EventJoin, Instance: "a"}
	after := func(e operator.Event, d time.Duration) operator.Event {
		e.At = e.At.Add(d)
		return e
	}
	assert.True(t, isSameEvent(leave, after(leave, -10*time.Second)), "the failover follows the end of the session")
	assert.False(t, isSameEvent(leave, after(leave, time.Hour)))
	assert.True(t, isSameEvent(join, join))
	assert.False(t, isSameEvent(join, after(join, time.Second)))
	assert.False(t, isSameEvent(join, leave))
}
