package claiming

import (
	"time"

	"github.com/rota-dev/rota/internal/group/due"
	"github.com/rota-dev/rota/internal/record"
)

// MaxCarryDelay bounds how long the end of a short run waits for the next claim of its job, which
// records the end too: half the commits of a job that fires each second. A run whose end is not
// on record is made again after a crash, so a run that took longer does not wait for a claim.
const MaxCarryDelay = time.Second

// Ends is what decides when ended runs of a job are committed.
type Ends struct {
	Moving   bool // a shard of the job is to move
	Awaited  bool // a fire is due for a shard that ran
	Retry    bool // a run is to be made again
	Carried  bool // they wait for a claim already
	Flushing bool // ends have waited long enough, no run is left in the process, or it drains
	Draining bool // the process claims nothing more

	Took    time.Duration // since the fire of the run
	ClaimIn time.Duration // until the next decision on the job
	Agenda  bool          // there is to be one

	Plan     *record.Plan
	Decision *Decision // on the job, with these ends; nil: none was made since the last of them
}

// EndCommit is when ends are committed.
type EndCommit int

// The answers of Ends.Commit.
const (
	CommitNow           EndCommit = iota + 1 // or, before a decision, decide now
	CommitWithOthers                         // with ends of other jobs, or after a short delay
	CommitWithClaim                          // with the next claim of the job, or after MaxCarryDelay
	CommitWithClaimOnly                      // with the next claim of the job, whenever that is
)

// Commit returns when the ends are committed. It is asked when a run has ended, and again after each decision on
// the job.
func (e *Ends) Commit() EndCommit {
	if e.Decision == nil {
		return e.commitBeforeDecision()
	}
	switch {
	case e.Decision.RestsOnPlan, e.Moving, e.Draining, e.isAwaitedByJobs():
		return CommitNow
	case !due.RecordsEnds(e.Plan):
		return CommitWithClaimOnly
	case e.Flushing:
		return CommitNow
	case e.Carried:
		return CommitWithClaim
	}
	return CommitWithOthers
}

func (e *Ends) commitBeforeDecision() EndCommit {
	switch {
	case e.Moving, e.Awaited, e.Retry:
		return CommitNow
	case e.Took <= MaxCarryDelay && e.Agenda && e.ClaimIn <= MaxCarryDelay:
		return CommitWithClaim
	}
	return CommitWithOthers
}

// isAwaitedByJobs reports whether the runs of the job have ended, and other jobs may wait for that.
func (e *Ends) isAwaitedByJobs() bool {
	return e.Plan != nil && e.Plan.Fires != nil && len(e.Decision.Claims.Running) == 0
}
