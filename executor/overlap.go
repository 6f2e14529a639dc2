package executor

import (
	"fmt"
	"slices"

	"github.com/rota-dev/rota/internal/record"
)

// OverlapPolicy determines what happens if a fire comes due while a run of its shard lasts. A
// shard never has two runs at a time.
//
// Fires that come due while the shard has no live owner, or waits for a retry, are not
// overlapping: Job.OnMisfire decides about them.
type OverlapPolicy int

const (
	// WaitForRun has the fire wait until the run has ended. Then Job.OnMisfire decides: RunOnce runs
	// the latest of the fires that came due meanwhile, RunAll all of them. It is the zero value.
	WaitForRun OverlapPolicy = iota
	// SkipOverlapping skips the fires that come due while the run lasts, and counts them, when its
	// end is recorded. If the shard moves or its instance crashes before, OnMisfire decides.
	SkipOverlapping
	// CancelRunning ends the context of the run with ErrOverlap. The fire runs when the handler has
	// returned. A run that returns an error then counts as failed, and is not retried. OnMisfire must
	// not be RunAll, whose fires would cancel each other.
	CancelRunning
)

var overlapPolicyTexts = [...]string{WaitForRun: "wait", SkipOverlapping: record.OverlapSkip, CancelRunning: record.OverlapCancel}

// String returns the text form of p: "wait", "skip" or "cancel running".
func (p OverlapPolicy) String() string {
	if p.check() != nil {
		return fmt.Sprintf("unknown overlap policy %d", int(p))
	}
	return overlapPolicyTexts[p]
}

// MarshalText returns the text form of p, which is not checked.
func (p OverlapPolicy) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads the text form of a policy.
func (p *OverlapPolicy) UnmarshalText(text []byte) error {
	known := slices.Index(overlapPolicyTexts[:], string(text))
	if known < 0 {
		return &unknownError{fmt.Sprintf("overlap policy %.100q is none of %q", text, overlapPolicyTexts)}
	}
	*p = OverlapPolicy(known)
	return nil
}

func (p OverlapPolicy) check() error {
	if p < 0 || int(p) >= len(overlapPolicyTexts) {
		return fmt.Errorf("unknown overlap policy %d", int(p))
	}
	return nil
}
