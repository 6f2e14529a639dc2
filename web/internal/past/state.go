// Package past has what the history and the records of a fleet know of the fires of jobs, as models to draw.
//
// The models claim nothing that is not on record. By default a history has no record of a run that succeeded at its first attempt,
// only its count in the record of the fire. If the counts leave one explanation for the shards without a record, the models give
// it; otherwise these shards are Unknown.
package past

import (
	"github.com/rota-dev/rota/history"
)

// State is how a shard or a whole fire ended, or how far it is. The worse of two states is the greater one.
type State int

const (
	// Absent: the fire did not have the shard.
	Absent State = iota
	// OK: the run succeeded at its first attempt, and its record is kept.
	OK
	// Unkept: a run succeeded; the history has only counted it.
	Unkept
	// Repeated: a later attempt succeeded.
	Repeated
	// Running: claimed, and not recorded as ended.
	Running
	// Due: not claimed yet.
	Due
	// Skipped: no run was made; the fire's record says why.
	Skipped
	// Unknown: no record says how it ended.
	Unknown
	// Pending: an attempt has failed or crashed, and another one is to follow.
	Pending
	// Unfinished: the last recorded attempt was handed back, was abandoned, or lost its session.
	Unfinished
	// Crashed: the session of the instance ended during the last recorded attempt.
	Crashed
	// Failed: the last recorded attempt failed.
	Failed

	// States is the number of states.
	States = int(Failed) + 1
)

var words = [States]string{"not run", "ok", "ok (run not kept)", "ok after more attempts", "running", "due", "skipped", "not on record", "to run again", "unfinished", "crashed", "failed"}

var names = [States]string{"absent", "ok", "unkept", "repeated", "running", "due", "skipped", "unknown", "pending", "unfinished", "crashed", "failed"}

// String returns the state in words.
func (s State) String() string { return words[s] }

// Name returns the state as one word, for classes.
func (s State) Name() string { return names[s] }

// IsNotable reports whether the state is worth a look: it is neither a success at the first attempt nor absent.
func (s State) IsNotable() bool { return s > Unkept }

// stateOf returns the state of a shard whose last recorded run ended in a way.
func stateOf(outcome history.Outcome, attempt int) State {
	switch outcome {
	case history.Succeeded:
		if attempt > 1 {
			return Repeated
		}
		return OK
	case history.Crashed:
		return Crashed
	case history.HandedBack, history.Abandoned, history.LostSession:
		return Unfinished
	}
	return Failed
}

// Counts has the number of shards in each state.
type Counts [States]int

// Worst returns the worst state that has a shard.
func (c *Counts) Worst() State {
	for s := States - 1; s > 0; s-- {
		if c[s] > 0 {
			return State(s)
		}
	}
	return Absent
}

func (c *Counts) sum() (n int) {
	for _, of := range c {
		n += of
	}
	return n
}
