package executor

import (
	"github.com/rota-dev/rota/internal/record"
)

// OverlapPolicy determines what happens if a fire comes due while a run of its shard lasts. A
// shard never has two runs at a time.
//
// Fires that came due before the run was claimed are not overlapping, for instance while the shard
// had no live owner: Job.OnMisfire decides about them.
type OverlapPolicy int

const (
	// WaitForRun has the fire wait until the run has ended. Then Job.OnMisfire decides: RunOnce runs
	// the latest of the fires that came due meanwhile, RunAll all of them. It is the zero value.
	WaitForRun OverlapPolicy = iota
	// SkipOverlapping skips the fires that come due while the run and its retries last, and counts
	// them, when the end of the last attempt is recorded. OnMisfire decides about them if the shard
	// moves, the job is paused or the instance crashes before, or if older fires are still due.
	SkipOverlapping
	// CancelRunning ends the context of the run with ErrOverlap. The fire runs when the handler has
	// returned. A run that returns an error then counts as failed, and is not retried, nor is a run
	// whose handler has not been called by then, as it waited for a worker or its instant of
	// Schedule.Spread: the handler is not called.
	CancelRunning
)

var overlapPolicies = policyTexts[OverlapPolicy]{
	"overlap policy", []string{WaitForRun: "wait", SkipOverlapping: record.OverlapSkip, CancelRunning: record.OverlapCancel},
}

// String returns the text form of p: "wait", "skip" or "cancel running".
func (p OverlapPolicy) String() string { return overlapPolicies.text(p) }

// MarshalText returns the text form of p, which is not checked.
func (p OverlapPolicy) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads the text form of a policy.
func (p *OverlapPolicy) UnmarshalText(text []byte) error { return overlapPolicies.parse(p, text) }

func (p OverlapPolicy) check() error { return overlapPolicies.check(p) }
