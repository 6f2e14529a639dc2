package coordinator

import (
	"github.com/rota-dev/rota/internal/group/claimer"
	"github.com/rota-dev/rota/internal/group/member"
	"github.com/rota-dev/rota/internal/group/ownership"
	"github.com/rota-dev/rota/internal/group/planning"
)

// The errors of Join and of Owned, and causes with which the contexts of Config.Own end.
var (
	// ErrNameTaken means that another live process has the instance's name.
	ErrNameTaken = member.ErrNameTaken
	// ErrMoving means that the shard is being reassigned to another instance.
	ErrMoving = claimer.ErrMoving
	// ErrDisabled means that an operator disabled the shard.
	ErrDisabled = claimer.ErrDisabled
	// ErrNotOwner means that this process no longer owns the shard: the call of Config.Own or of
	// the run's function has returned, or the session has ended. Nothing was written.
	ErrNotOwner = ownership.ErrNotOwner
)

const (
	// MaxWeight is the greatest Weight. Greater ones in a member record are cut.
	MaxWeight = planning.MaxWeight
	// MaxUnoffered is the time after which a job skips its due fires if no live instance
	// offers it.
	MaxUnoffered = planning.MaxUnoffered
)
