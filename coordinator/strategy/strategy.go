package strategy

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
)

// Func gives every shard of a job an owner. It must be pure: the same Input gives
// the same Assignment on every instance, for any of them may lead. So it asks no clock,
// no random number and no order of a map, and it keeps nothing between calls.
//
// The leader calls it whenever it looks at a job, mostly with nothing changed since the
// last time. Shards move to where the answer wants them, so a Strategy that pays no heed to
// Input.Owners moves shards that could have stayed. If it does not return within a session's
// TTL, or 10 s if that is longer, another instance leads.
//
// A Strategy fails if it returns an error, panics, or assigns some shard to no owner or to one
// that is no candidate. While it fails, each shard stays with its owner, and the plan names the
// problem. Only shards without an owner that may keep them are assigned, to the candidates with
// the fewest: shards that are new, and those whose owner is dead, draining, disabled or blocked,
// has withdrawn the job, lacks its labels or has its clock off.
type Func func(Input) (Assignment, error)

// Input is what a Strategy decides by. It is the leader's, not to be changed or kept, save
// for Owners: that slice is the Strategy's own, and may become the answer.
type Input struct {
	// Job is the job's name.
	Job string
	// Shards is how many shards the job has, at least 1. They are numbered from 0.
	Shards int
	// Members are those who may own shards, sorted by ID: who offers the job, is not disabled
	// and has the labels that the job wants. There is at least one.
	Members []Candidate
	// Owners has by shard the ID of the candidate that has it now, or "" where there is
	// none: the shard is new, or who has it died or is no candidate any more.
	Owners []string
	// Load is how many shards of other jobs of the group each member has, by ID.
	Load map[string]int
}

// hasCandidate reports whether the candidates include id.
func hasCandidate(in Input, id string) bool {
	_, ok := slices.BinarySearchFunc(in.Members, id, func(c Candidate, id string) int { return cmp.Compare(c.ID, id) })
	return ok
}

// Candidate is an instance that may own shards.
type Candidate struct {
	ID     string            // of one incarnation: a restarted instance has a new one
	Name   string            // the instance's name, the same after a restart if it was given one
	Labels map[string]string // as the instance states them
	Weight int               // how many times the share of an instance with 1 it is to have, from 1 to MaxWeight
}

// Assignment has by shard the ID of the candidate that is to own it.
type Assignment []string

// builtIn returns the strategies that every process knows.
func builtIn() map[string]Func {
	return map[string]Func{"sticky": Sticky, "average": Average, "odevity": Odevity, "rotate": Rotate, "single": Single}
}

// Known returns the built-in strategies and custom ones, by name. The error of a custom
// one whose name is empty or built in, or that is nil, names it.
func Known(custom map[string]Func) (map[string]Func, error) {
	known := builtIn()
	for _, name := range slices.Sorted(maps.Keys(custom)) {
		_, taken := known[name]
		switch {
		case name == "":
			return nil, errors.New("a strategy has an empty name")
		case custom[name] == nil:
			return nil, fmt.Errorf("strategy %q is nil", name)
		case taken:
			return nil, fmt.Errorf("strategy %q is built in, give yours another name", name)
		}
		known[name] = custom[name]
	}
	return known, nil
}

// PanicError is the error of a strategy that panicked. Its text leaves the stack out: that
// names goroutines and addresses, which differ from call to call.
type PanicError struct {
	value any
	Stack []byte
}

func (p *PanicError) Error() string { return fmt.Sprintf("panic: %v", p.value) }

// Run asks s for the owners of in's shards and answers for them: what it returns
// passed checkAssignment. Users write strategies, so a panic of s becomes a strategyPanic.
func Run(s Func, in Input) (a Assignment, err error) {
	defer func() {
		if v := recover(); v != nil {
			a, err = nil, fmt.Errorf("run strategy of job %q: %w", in.Job, &PanicError{v, debug.Stack()})
		}
	}()
	if err := checkInput(in); err != nil {
		return nil, fmt.Errorf("run strategy of job %q: %w", in.Job, err)
	}
	// s may return the slice it was given, or scribble on it; the leader's view is neither
	// its to keep nor its to change.
	in.Owners = slices.Clone(in.Owners)
	a, err = s(in)
	if err != nil {
		return nil, fmt.Errorf("run strategy of job %q: %w", in.Job, err)
	}
	if err := checkAssignment(in, a); err != nil {
		return nil, fmt.Errorf("refuse assignment of job %q: %w", in.Job, err)
	}
	return a, nil
}

// checkInput holds the caller to what Input promises to strategies, so that none of them
// has to think of a job without shards or candidates.
func checkInput(in Input) error {
	switch {
	case in.Shards < 1:
		return fmt.Errorf("%d shards", in.Shards)
	case len(in.Members) == 0:
		return errors.New("no candidates")
	case len(in.Owners) != in.Shards:
		return fmt.Errorf("%d owners for %d shards", len(in.Owners), in.Shards)
	}
	return nil
}

// checkAssignment returns an error that names the shard and the rule if a is no answer
// to in: one candidate for each shard.
func checkAssignment(in Input, a Assignment) error {
	if len(a) != in.Shards {
		return fmt.Errorf("owners for %d shards, the job has %d", len(a), in.Shards)
	}
	for shard, id := range a {
		switch {
		case id == "":
			return fmt.Errorf("shard %d has no owner", shard)
		case !hasCandidate(in, id):
			return fmt.Errorf("shard %d is given to %q, who is no candidate", shard, id)
		}
	}
	return nil
}
