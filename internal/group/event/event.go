// Package event defines the events that the loops of a member report to the owner of the member.
package event

import (
	"time"

	"github.com/rota-dev/rota/internal/mutex"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/registry"
)

// Hooks receive the events of a member. A nil hook is not called. Several goroutines call the
// hooks, none of them under a mutex. They wait for a hook, so it must not block.
type Hooks struct {
	Session    func(Session)
	Leadership func(Leadership)
	Clock      func(Clock)
	Shards     func(Shards)
	Skipped    func(Skipped)
	Crashed    func(Crashed)
	FireEnded  func(FireEnded)
	Refused    func(Refused)
}

// Report calls a hook unless it is nil.
func Report[E any](hook func(E), e E) {
	if hook != nil {
		mutex.CheckFree("an event hook")
		hook(e)
	}
}

// Session is a change of the state of a member's session.
type Session struct {
	ID        registry.SessionID
	State     SessionState
	SafeUntil time.Time // of a suspended session: when the session is lost unless the store answers
	Err       error     // why the session was lost
}

// SessionState is a state of a session.
type SessionState int

// States of a session.
const (
	SessionJoined    SessionState = iota + 1 // a new session, under which the member is in the group
	SessionSuspended                         // the store does not answer
	SessionResumed                           // the store answers again
	SessionLost                              // the runs and the shards of the session are lost
	SessionLeft                              // the member has left the group
)

var sessionStateTexts = textForms[SessionState]{
	SessionJoined: "joined", SessionSuspended: "suspended", SessionResumed: "resumed", SessionLost: "lost", SessionLeft: "left",
}

// String returns the text form of s, such as "suspended".
func (s SessionState) String() string { return sessionStateTexts.text(s) }

// MarshalText returns the text form of s.
func (s SessionState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads the text form of a state.
func (s *SessionState) UnmarshalText(text []byte) error { return sessionStateTexts.parse(s, text) }

// Leadership is the begin or the end of a term of this member.
type Leadership struct {
	Term    uint64
	Leading bool
	Why     string
}

// Clock is a change of the finding about this member's clock.
type Clock struct {
	Skewed bool
	Ahead  time.Duration // of the fleet's median, when skewed; negative: behind
}

// Shards is a change of the shards of a job that the plan assigns to this member.
type Shards struct {
	Job, Kind                 string // Kind: of a defined job
	Before, After             shardset.Set
	FrozenBefore, FrozenAfter shardset.Set // those of them that are to move
}

// Skipped is fires that are not run. They are as many for each of the shards.
type Skipped struct {
	Job     string
	Kind    string // of a defined job
	Reason  SkipReason
	Shards  shardset.Set
	Fires   int            // of each shard
	From    record.Instant // no skipped fire is before it; zero if the first one is not known
	Through record.Instant // no skipped fire is after it
}

// SkipReason is why fires are skipped.
type SkipReason int

// Reasons to skip fires.
const (
	Misfire   SkipReason = iota + 1 // by the misfire policy
	Disabled                        // of a disabled shard
	Unoffered                       // no live instance offered the job
	Expired                         // owed for longer than the catch-up window
	Overlap                         // they came due while a run of their shard lasted
	Upstream                        // a fire of a job that the job follows did not end as wanted
)

var skipReasonTexts = textForms[SkipReason]{
	Misfire: "misfire", Disabled: "disabled", Unoffered: "unoffered", Expired: "expired", Overlap: "overlap", Upstream: "upstream",
}

// String returns the text form of r, such as "misfire".
func (r SkipReason) String() string { return skipReasonTexts.text(r) }

// MarshalText returns the text form of r.
func (r SkipReason) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads the text form of a reason.
func (r *SkipReason) UnmarshalText(text []byte) error { return skipReasonTexts.parse(r, text) }

// Crashed is runs of one fire or trigger that ended with the session of their owner. They are lost unless Rerun.
type Crashed struct {
	Job      string
	Kind     string // of a defined job
	Created  string // of a defined job: see record.Defined
	Instance string
	Runs     record.RunGroup
	Rerun    bool // the runs are pending as another attempt
	RunOf    record.RunOf
}

// FireEnded is a fire of which all runs have ended.
type FireEnded struct {
	Job  string
	Kind string // of a defined job
	record.EndedFire
	Repeated bool // it ended before this term, and the leader of then may have reported it
}

// Refused is a transaction with claims or ends of runs that the store has refused. The claimer decides on its jobs again.
type Refused struct{ Cause RefusalCause }

// RefusalCause is why the store has refused a transaction of a claimer.
type RefusalCause int

// Causes of refusals.
const (
	RefusedByPlan    RefusalCause = iota + 1 // the plan of a job has changed
	RefusedBySession                         // the session has ended
	RefusedByRecord                          // another writer has changed a claims record
	RefusedByStore                           // a reason of the store's own, such as a full store or a lost permission
)
