package coordinator

import (
	"github.com/rota-dev/rota/internal/group/claimer"
	"github.com/rota-dev/rota/internal/group/due"
	"github.com/rota-dev/rota/internal/group/event"
	"github.com/rota-dev/rota/internal/group/member"
	"github.com/rota-dev/rota/internal/group/planning"
	"github.com/rota-dev/rota/registry"
)

// The types of this file are for package executor, which runs scheduled jobs on them. Users
// of Join and Campaign do not need them.
type (
	// Member takes part in a group: it claims runs of the shards that it owns and passes them
	// to its Work. If its session is lost, it joins again as another incarnation.
	Member = member.Member
	// MemberOptions are the options of NewMember. Those of the same name as in
	// executor.Options mean the same.
	MemberOptions = member.Options
	// Work starts the runs that a Member has claimed.
	Work = claimer.Work
	// Run is a claimed run.
	Run = claimer.Run
	// RetryError is the error by which Work reports a failed run as to be made again.
	RetryError = claimer.RetryError
	// Program computes which fires of a shard are due under one definition of a job.
	Program = due.Program
	// EndCounter is a Program whose fires count from the ends of runs.
	EndCounter = due.EndCounter
	// Follower is a Program whose fires are those of other jobs, and Release one of them.
	Follower = due.Follower
	Release  = due.Release
	// Due is what a Program returns.
	Due = due.Due
	// Events holds the hooks that a Member reports its events to.
	Events = event.Hooks
	// SessionEvent is a change of the state of a member's session.
	SessionEvent = event.Session
	// LeadershipEvent is the begin or the end of a term of the member.
	LeadershipEvent = event.Leadership
	// ClockEvent is a change of the finding about the member's clock.
	ClockEvent = event.Clock
	// ShardsEvent is a change of the shards that the member owns.
	ShardsEvent = event.Shards
	// SkippedEvent is fires that are not run.
	SkippedEvent = event.Skipped
	// CrashedEvent is runs that ended with the session of their owner.
	CrashedEvent = event.Crashed
	// FireEndedEvent is a fire of which all runs have ended.
	FireEndedEvent = event.FireEnded
	// RefusedEvent is a transaction with claims that the store has refused.
	RefusedEvent = event.Refused
	// Compiler compiles stored definitions to programs.
	Compiler = due.Compiler
)

// NewMember returns a member of a group. It sends nothing to the registry before Member.Run.
func NewMember(reg registry.Registry, o MemberOptions) (*Member, error) { return member.New(reg, o) }

// Errors of a Member, and causes with which the contexts of runs and of Config.Own end.
var (
	// ErrNameTaken means that another live process has the instance's name.
	ErrNameTaken = member.ErrNameTaken
	// ErrHandedBack is the error by which Work reports a run as handed back: the next owner
	// makes it again, as another attempt.
	ErrHandedBack = claimer.ErrHandedBack
	// ErrMoving means that the shard is being reassigned to another instance.
	ErrMoving = claimer.ErrMoving
	// ErrDisabled means that an operator disabled the shard.
	ErrDisabled = claimer.ErrDisabled
	// ErrPaused means that an operator paused the job.
	ErrPaused = claimer.ErrPaused
	// ErrOverlap means that the shard's next fire is due, which cancels the run.
	ErrOverlap = claimer.ErrOverlap
	// ErrCancelled means that an operator cancelled the run.
	ErrCancelled = claimer.ErrCancelled
	// ErrNewDefinition means that another definition of the job comes into force.
	ErrNewDefinition = claimer.ErrNewDefinition
)

// The values of Run.Cause.
const (
	// CauseRetry is that of a trigger of Operator.Retry.
	CauseRetry = claimer.CauseRetry
	// CauseBackfill is that of a trigger of Operator.Backfill.
	CauseBackfill = claimer.CauseBackfill
)

// The values of RefusedEvent.Cause.
const (
	RefusedByPlan    = event.RefusedByPlan
	RefusedBySession = event.RefusedBySession
	RefusedByRecord  = event.RefusedByRecord
	RefusedByStore   = event.RefusedByStore
)

const (
	// MaxRestartGrace is the longest RestartGrace. Longer ones in a member record are cut.
	MaxRestartGrace = planning.MaxRestartGrace
	// MaxWeight is the greatest Weight. Greater ones in a member record are cut.
	MaxWeight = planning.MaxWeight
	// MaxRetryDelay is the longest delay of a RetryError. Longer ones are cut.
	MaxRetryDelay = due.MaxRetryDelay
	// MaxUnoffered is the time after which a job skips its due fires if no live instance
	// offers it.
	MaxUnoffered = planning.MaxUnoffered
)
