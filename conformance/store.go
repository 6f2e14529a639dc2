package conformance

import (
	"testing"
	"time"

	"github.com/rota-dev/rota/registry"
)

// Store is a namespace of a store with its fault controls: the functions below Connect,
// by which a case injects a fault. A nil function is a control that the backend does not
// have.
//
// A machine is a name that a case gives to a client host. A control that takes a machine
// acts on every handle connected under that name, and on handles connected later.
//
// A control takes effect before it returns. The function that it returns ends the fault;
// the suite calls it by the end of the case, and possibly twice.
//
// Controls are called from any goroutine and while other faults are active. A control
// that needs an answer from the store, such as Expire during an election, waits for it.
type Store struct {
	// Connect returns a new handle. In a store with several members, consecutive new
	// machines connect to different members. It must succeed while HalfOpen is active; no
	// other case connects a machine that is cut off. The suite closes the handle.
	Connect func(t testing.TB, machine string) registry.Registry

	// Expire ends a session at once, as if its TTL had run out. The owner learns of it as it
	// would of a real expiry.
	Expire func(registry.SessionID)
	// Partition cuts a machine off until heal. At heal its connections may resume or break.
	Partition func(machine string, c Cut) (heal func())
	// LoseReply makes the store apply the next Txn of a machine and loses the reply. The
	// connection may break. Each call affects one Txn.
	LoseReply func(machine string)
	// LoseRequest loses the next Txn of a machine before it reaches the store. The
	// connection may break. Each call affects one Txn.
	LoseRequest func(machine string)
	// HoldCommit holds the next Txn of a machine on its way. Its caller gets no answer, or
	// ErrUnknownOutcome. release forwards the Txn and returns once the store has applied or
	// refused it; if no Txn came, release cancels the control.
	HoldCommit func(machine string) (release func())
	// Delay delays every reply to a machine by d until restore.
	Delay func(machine string, d time.Duration) (restore func())
	// Stall makes the whole store stop answering, as without a quorum, until resume.
	Stall func() (resume func())
	// Restart stops the store and starts it with all committed state, sessions included. It
	// returns when the store answers again.
	Restart func()
	// Compact makes the store discard the history that it keeps for watchers.
	Compact func()
	// Starve keeps a machine from renewing its sessions until feed, as if the process got no
	// CPU time. Its other calls succeed.
	Starve func(machine string) (feed func())

	// StepClock moves the clock by which the store knows the time of day, until restore. It
	// must not move the clock by which the store measures TTLs, if that is another one.
	StepClock func(d time.Duration) (restore func())

	// Members returns the number of members of the store. Nil means one. The member controls
	// that follow leave a majority at work, so a store with fewer than three members cannot
	// provide them.
	Members func() int
	// Isolate cuts the member that a machine is connected to off from its peers until heal.
	// The machine can still reach that member, and may switch to another.
	Isolate func(machine string) (heal func())
	// Lag makes the member that a machine is connected to fall behind its peers until catchUp: plain
	// reads of the machine return the state that the member had, or the latest one that the machine
	// has observed, by a batch, a fresh read or a commit of its own. All calls succeed.
	Lag func(machine string) (catchUp func())
	// HalfOpen makes the member that a machine tries first accept connections without ever
	// answering, until heal. The other members are healthy.
	HalfOpen func(machine string) (heal func())
	// KillLeader kills the leading member. The others continue without it until restart.
	KillLeader func() (restart func())
	// PauseLeader suspends the leading member until resume: its connections stay open and it
	// answers nothing.
	PauseLeader func() (resume func())
	// RollingRestart restarts each member in turn and returns when all of them serve.
	RollingRestart func()
	// Replace replaces a member by an empty one and returns when the new member has caught
	// up.
	Replace func()

	// Move changes the address behind the name under which a machine knows the store. The
	// old address refuses connections.
	Move func(machine string)
	// FillQuota makes the store refuse to store more data, new sessions included, until
	// free. It still serves reads, deletes and renewals.
	FillQuota func() (free func())
	// Revoke removes the permissions of a machine's credentials until restore.
	Revoke func(machine string) (restore func())
}

// Cut is a kind of partition between a machine and the store.
type Cut int

const (
	// Refuse breaks connections and refuses new ones.
	Refuse Cut = iota + 1
	// Blackhole silently holds up everything in both directions. When the cut ends, what was held
	// up is lost, or arrives late, as TCP retransmits it. So do the other two kinds.
	Blackhole
	// ToStore holds up requests; replies and events still arrive.
	ToStore
	// FromStore holds up replies and events; requests still arrive.
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

// The names of the fault controls for Lacks. Each is a field of Store.
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
	StepClock      = "StepClock"
	Isolate        = "Isolate"
	Lag            = "Lag"
	HalfOpen       = "HalfOpen"
	KillLeader     = "KillLeader"
	PauseLeader    = "PauseLeader"
	RollingRestart = "RollingRestart"
	Replace        = "Replace"
	Move           = "Move"
	FillQuota      = "FillQuota"
	Revoke         = "Revoke"
)

// memberControls are the fault controls that require several members.
var memberControls = []string{Isolate, Lag, HalfOpen, KillLeader, PauseLeader, RollingRestart, Replace}

// quorum is the smallest number of members of which one may fail.
const quorum = 3

// faultControls reports which fault controls a store has.
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
		StepClock:      s.StepClock != nil,
		Isolate:        s.Isolate != nil,
		Lag:            s.Lag != nil,
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

// memberCount returns the number of members of the store.
func (s *Store) memberCount() int {
	if s.Members == nil {
		return 1
	}
	return s.Members()
}
