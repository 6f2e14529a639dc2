package coordinator

import (
	"github.com/rota-dev/rota/coordinator/internal/due"
	"github.com/rota-dev/rota/coordinator/internal/member"
	"github.com/rota-dev/rota/coordinator/internal/planning"
	"github.com/rota-dev/rota/registry"
)

// Package executor runs scheduled jobs on the types in this file. Join and Campaign do
// without them.
type (
	// Member takes part in a group: it claims runs of the shards that it owns and gives them to
	// its Work. It joins again under another incarnation when its session is lost.
	Member = member.Member
	// MemberOptions are options of NewMember.
	MemberOptions = member.Options
	// Work is what a Member does with the shards it owns.
	Work = member.Work
	// Run is a claimed run.
	Run = member.Run
	// Program computes which fires of a shard are due, by one definition of a job.
	Program = due.Program
	// Due is what a Program returns.
	Due = due.Due
	// Compiler makes programs of definitions as stored.
	Compiler = due.Compiler
)

// NewMember returns a member of a group. Nothing is sent before Run.
func NewMember(reg registry.Registry, o MemberOptions) (*Member, error) { return member.New(reg, o) }

// Errors of a Member, and causes with which the contexts of its runs end.
var (
	// ErrNameTaken means that a live process has the instance's name.
	ErrNameTaken = member.ErrNameTaken
	// ErrHandedBack is the error of a run that is to be made again as another attempt.
	ErrHandedBack = member.ErrHandedBack
	// ErrMoving means that another instance is to own the shard.
	ErrMoving = member.ErrMoving
	// ErrDisabled means that an operator disabled the shard.
	ErrDisabled = member.ErrDisabled
)

// Bounds of options, and of what a job may wait for.
const (
	// MaxRestartGrace bounds MemberOptions.RestartGrace, whatever a record holds.
	MaxRestartGrace = planning.MaxRestartGrace
	// MaxWeight bounds MemberOptions.Weight and Config.Weight, whatever a record holds.
	MaxWeight = planning.MaxWeight
	// MaxUnoffered is for how long a job that no live instance offers keeps what is due.
	MaxUnoffered = planning.MaxUnoffered
)
