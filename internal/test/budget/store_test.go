package budget_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/rota-dev/rota/internal/onecpu"
	"github.com/rota-dev/rota/internal/test/judge"
	"github.com/rota-dev/rota/registry"
)

// store is a server that counts what it is asked for. Nobody else uses it meanwhile.
type store interface {
	// open returns a handle for a process of that name, which does not compare what it
	// watches with the store: that is counted on its own.
	open(t testing.TB, name string) registry.Registry
	// silence cuts a process off from the server, until heal.
	silence(name string) (heal func())
	// follow returns what has been committed since the last call of follow or count, as far
	// as has been heard.
	follow() []judge.Commit
	// count returns what there has been since the last call of count: nothing is under way
	// when it is taken. Its commits are those that follow has not returned.
	count(t testing.TB) counts
	// pace is the least time between fires that leaves some of it unused when the machine is
	// busy.
	pace() time.Duration
	// patience is for what takes no time but the machine's.
	patience() time.Duration
}

// counts is what a server was asked for, without the beginnings and ends of sessions.
type counts struct {
	commits []judge.Commit // that changed keys, in order
	txns    int            // transactions, also those that were refused or only checked
	reads   int
	events  int // delivered to those who watch
	beats   int // signs of life, which are neither
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
	// on runs a test on a store that is empty.
	on func(t *testing.T, test func(t *testing.T, s store))
	// virtual: time passes only while nothing is to be done. So what ought to happen at the
	// same time does.
	virtual bool
	// watchesRead: an event tells that something has changed, and not what.
	watchesRead bool
	// beats is how many signs of life a handle with a session gives in a second.
	beats float64
}

// ttl is how many seconds the sessions last that are asked for.
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

// onEach runs a test for each kind of store. Servers do not wait for each other.
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
