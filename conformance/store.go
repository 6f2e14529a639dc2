package conformance

import (
	"testing"
	"time"

	"github.com/rota-dev/rota/registry"
)

// Store is a namespace with the levers that make it suffer. A nil lever is a lack.
//
// Levers that act on a machine act on every handle that was connected under its name, and
// on those that will be. They take effect before they return. What undoes them may be
// called twice, and is called at the end of the case at the latest.
//
// Levers are pulled from any goroutine, and while others are at work: those that need an
// answer of the store, such as Expire during an election, wait for it.
type Store struct {
	// Connect returns a new handle. Where there are several members, machines that the case
	// names one after the other are connected to different ones. The suite closes it.
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

	// Members tells how many members the store has. Nil means one. The levers below that
	// are about members leave a majority of them at work, so that a store of fewer than
	// three has to do without.
	Members func() int
	// Isolate cuts the member that a machine is connected to off from its peers, until
	// heal. The machine stays attached to it, and may leave it for another.
	Isolate func(machine string) (heal func())
	// HalfOpen makes the member that a machine connects to first accept connections and
	// answer nothing, until heal. The other members are sound.
	HalfOpen func(machine string) (heal func())
	// KillLeader kills the leading member. The others are left to go on without it, until
	// restart.
	KillLeader func() (restart func())
	// PauseLeader stops the leading member as it is: its connections stand, and it answers
	// nothing, until resume.
	PauseLeader func() (resume func())
	// RollingRestart restarts each member in turn, and returns when all are there again.
	RollingRestart func()
	// Replace puts an empty member in the place of one, and returns when it has caught up.
	Replace func()

	// Move changes the address behind the name by which a machine knows the store. Nobody
	// answers at the old one.
	Move func(machine string)
	// FillQuota makes the store refuse to store anything more, until free.
	FillQuota func() (free func())
	// Revoke takes the rights of a machine's credentials away, until restore.
	Revoke func(machine string) (restore func())
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
	Expire         = "Expire"
	Partition      = "Partition"
	LoseReply      = "LoseReply"
	LoseRequest    = "LoseRequest"
	HoldCommit     = "HoldCommit"
	Delay          = "Delay"
	Stall          = "Stall"
	Restart        = "Restart"
	Compact        = "Compact"
	Starve         = "Starve"
	Isolate        = "Isolate"
	HalfOpen       = "HalfOpen"
	KillLeader     = "KillLeader"
	PauseLeader    = "PauseLeader"
	RollingRestart = "RollingRestart"
	Replace        = "Replace"
	Move           = "Move"
	FillQuota      = "FillQuota"
	Revoke         = "Revoke"
)

// memberControls are the levers that need a store with several members.
var memberControls = []string{Isolate, HalfOpen, KillLeader, PauseLeader, RollingRestart, Replace}

// quorum is the number of members from which on one can be missing.
const quorum = 3

// faultControls tells which levers a store has.
func (s *Store) faultControls() map[string]bool {
	return map[string]bool{
		Expire:         s.Expire != nil,
		Partition:      s.Partition != nil,
		LoseReply:      s.LoseReply != nil,
		LoseRequest:    s.LoseRequest != nil,
		HoldCommit:     s.HoldCommit != nil,
		Delay:          s.Delay != nil,
		Stall:          s.Stall != nil,
		Restart:        s.Restart != nil,
		Compact:        s.Compact != nil,
		Starve:         s.Starve != nil,
		Isolate:        s.Isolate != nil,
		HalfOpen:       s.HalfOpen != nil,
		KillLeader:     s.KillLeader != nil,
		PauseLeader:    s.PauseLeader != nil,
		RollingRestart: s.RollingRestart != nil,
		Replace:        s.Replace != nil,
		Move:           s.Move != nil,
		FillQuota:      s.FillQuota != nil,
		Revoke:         s.Revoke != nil,
	}
}

// memberCount returns how many members the store has.
func (s *Store) memberCount() int {
	if s.Members == nil {
		return 1
	}
	return s.Members()
}
