package budget_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/rota-dev/rota/internal/onecpu"
	"github.com/rota-dev/rota/internal/test/judge"
	"github.com/rota-dev/rota/registry"
)

// store is a server that counts its requests. Each test uses a store of its own.
type store interface {
	// open returns a handle for an instance. The handle does not audit its watches; audits
	// have a budget of their own.
	open(t testing.TB, name string) registry.Registry
	// silence cuts an instance off from the server until heal.
	silence(name string) (heal func())
	// follow returns the commits received since the last call of follow or count.
	follow() []judge.Commit
	// count returns the requests since the last call of count, at a moment without pending
	// requests. Its commits are those that follow has not returned.
	count(t testing.TB) counts
	// pace is the shortest interval between fires that leaves a busy machine some slack.
	pace() time.Duration
	// patience bounds waits that depend only on the speed of the machine.
	patience() time.Duration
}

// counts are the requests to a server, except for the start and end of sessions.
type counts struct {
	commits []judge.Commit // with changed keys, in order
	txns    int            // all transactions, including refused ones and pure checks
	reads   int
	events  int // delivered to watchers
	beats   int // heartbeats, which are neither reads nor transactions
}

func (c *counts) add(o counts) {
	c.commits = append(c.commits, o.commits...)
	c.txns += o.txns
	c.reads += o.reads
	c.events += o.events
	c.beats += o.beats
}

// kind is a kind of store.
type kind struct {
	name string
	// on runs a test on an empty store.
	on func(t *testing.T, test func(t *testing.T, s store))
	// virtual reports that time passes only while all goroutines wait, so that simultaneous
	// events happen at one instant.
	virtual bool
	// watchesRead reports that an event carries no value, so that a watcher reads after it.
	watchesRead bool
	// beats is the number of heartbeats per second of a handle with a session.
	beats float64
}

// ttl is the TTL of the sessions in seconds.
var ttl = registry.DefaultSessionTTL.Seconds()

var kinds = []kind{
	{name: "memory", virtual: true, on: func(t *testing.T, test func(t *testing.T, s store)) {
		defer onecpu.Hold()()
		synctest.Test(t, func(t *testing.T) { test(t, newMemory()) })
	}},
	// A renewal every quarter of the TTL.
	{name: "etcd", beats: 4 / ttl, on: func(t *testing.T, test func(t *testing.T, s store)) { test(t, newEtcd(t)) }},
	// A sync every twelfth of the TTL, and on each of three connections a ping every third
	// of its timeout, which is 6 s where it is not the session's.
	{name: "ZooKeeper", beats: 12/ttl + 3/ttl + 2*3/6., watchesRead: true, on: func(t *testing.T, test func(t *testing.T, s store)) {
		test(t, newZooKeeper(t))
	}},
}

// onEach runs a test for each kind of store, those with servers in parallel.
func onEach(t *testing.T, test func(t *testing.T, k kind)) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			if !k.virtual {
				t.Parallel()
			}
			test(t, k)
		})
	}
}
