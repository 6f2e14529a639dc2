package conformance

import (
	"testing"
	"time"

	"github.com/rota-dev/rota/registry"
)

// Backend describes an implementation of the contract to the suite.
type Backend struct {
	// Open returns a fresh and empty namespace. It is called once for each case, inside
	// the case's bubble if there is one, and undoes what it did by t.Cleanup.
	Open func(t testing.TB) *Store
	// TTL is what cases ask for that wait for a session to end: the shortest that the
	// backend grants makes the suite quick. Zero means DefaultSessionTTL.
	TTL time.Duration
	// Bubble runs each case in a testing/synctest bubble, with virtual time. It needs a
	// backend without sockets, and processes, of its own.
	Bubble bool
	// Packages are the import paths whose goroutines are the backend's: its own, and those
	// of the client library below it. None may run before Open and after Close.
	Packages []string
	// Below tells that the handles are those of registry.Prefix below that directory, so
	// that there is less room for keys and in transactions.
	Below registry.Key
	// Lacks names the levers that Open does not give and the cases that are not to be
	// run, with the reason for each.
	Lacks Lacks
}

// Lacks maps levers and codes of cases to the reason why a backend does without.
type Lacks map[string]string

// Store is a namespace with the levers that make it suffer. A nil lever is a lack.
//
// Levers that act on a machine act on every handle that was connected under its name.
// They take effect before they return.
type Store struct {
	// Connect returns a new handle. Handles of different machines are, where that is
	// possible, connected to different members. The suite closes it.
	Connect func(t testing.TB, machine string) registry.Registry

	// Expire makes the store end a session at once, as if its TTL had run out. Its
	// owner hears of it in the way the backend has for that.
	Expire func(registry.SessionID)
	// Partition cuts a machine off, until heal. Calling heal twice is legal.
	Partition func(machine string, c Cut) (heal func())
	// LoseReply makes the store apply the next Txn of a machine, and lose the reply.
	LoseReply func(machine string)
	// LoseRequest makes the next Txn of a machine get lost on its way to the store.
	LoseRequest func(machine string)
	// HoldCommit holds the next Txn of a machine on its way. Its caller hears nothing of
	// it, or that its outcome is unknown; release lets it go on to the store and returns
	// when it was applied or refused there.
	HoldCommit func(machine string) (release func())
	// Delay makes every reply to a machine late by d, until restore.
	Delay func(machine string, d time.Duration) (restore func())
	// Stall makes the whole store answer nobody, as without a quorum, until resume.
	Stall func() (resume func())
	// Restart stops the store and starts it with what it had committed, sessions
	// included. It returns when the store answers again.
	Restart func()
	// Compact makes the store forget all history it keeps for watchers.
	Compact func()
	// Starve keeps a machine from renewing its sessions, as a process does that gets no
	// processor, while its calls go through, until feed.
	Starve func(machine string) (feed func())
}

// Cut is how a machine is cut off from the store.
type Cut int

const (
	// Refuse breaks connections and refuses new ones.
	Refuse Cut = iota + 1
	// Blackhole loses everything in both directions, and nobody is told.
	Blackhole
	// ToStore loses requests; replies and events still come through.
	ToStore
	// FromStore loses replies and events; requests still go through.
	FromStore
)

func (c Cut) String() string {
	switch c {
	case Refuse:
		return "refused"
	case Blackhole:
		return "black hole"
	case ToStore:
		return "requests lost"
	case FromStore:
		return "replies lost"
	}
	return "unknown cut"
}

// The levers, as named in Lacks. They are the fields of Store.
const (
	Expire      = "Expire"
	Partition   = "Partition"
	LoseReply   = "LoseReply"
	LoseRequest = "LoseRequest"
	HoldCommit  = "HoldCommit"
	Delay       = "Delay"
	Stall       = "Stall"
	Restart     = "Restart"
	Compact     = "Compact"
	Starve      = "Starve"
)

// levers tells which levers a store has.
func (s *Store) levers() map[string]bool {
	return map[string]bool{
		Expire:      s.Expire != nil,
		Partition:   s.Partition != nil,
		LoseReply:   s.LoseReply != nil,
		LoseRequest: s.LoseRequest != nil,
		HoldCommit:  s.HoldCommit != nil,
		Delay:       s.Delay != nil,
		Stall:       s.Stall != nil,
		Restart:     s.Restart != nil,
		Compact:     s.Compact != nil,
		Starve:      s.Starve != nil,
	}
}

func (b Backend) ttl() time.Duration {
	if b.TTL == 0 {
		return registry.DefaultSessionTTL
	}
	return b.TTL
}
