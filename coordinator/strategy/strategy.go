package strategy

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/rota-dev/rota/internal/contain"
)

// A Func is a strategy: it assigns an owner to every shard of a job.
//
// A Func must be pure, since any instance may become leader and must then return the same Assignment
// for the same Input. It must not read clocks, random numbers or the iteration order of a map, and it
// must not keep state between calls.
//
// The leader calls a Func each time it plans the job, usually with an unchanged Input. Shards move
// to the owners that it returns, so a Func that ignores Input.Owners moves shards that could have
// stayed. If a call takes longer than a session's TTL and than 10 s, the leader resigns and another
// instance leads.
//
// A Func fails if it returns an error, panics, calls runtime.Goexit, or leaves a shard without an owner or with one that is
// not a candidate. While it fails, each shard stays with its owner and the status of the job reports
// the error. Only shards without a valid owner are assigned, to the candidates with the fewest:
// new shards, and those whose owner has expired, drains, is disabled or blocked, has withdrawn the
// job, lacks its labels or has a skewed clock.
type Func func(Input) (Assignment, error)

// An Input describes one job and the members that may own its shards.
//
// A Func gets a copy of its own, which it may modify: it may return Owners as its Assignment.
type Input struct {
	// Job is the name of the job.
	Job string

	// Shards is the number of shards of the job, at least 1. Shards are numbered from 0.
	Shards int

	// Param and ShardParams are those of the job, of the newest definition in force: executor.Job.Param, and by shard
	// executor.Job.ShardParams. A shard without one has no entry. Built-in strategies ignore both, so the leader leaves them
	// out for those.
	Param       string
	ShardParams map[int]string

	// Members are the candidates, sorted by ID: the live members that offer the job, are neither
	// draining nor disabled, have a right clock and have the labels that the job wants. There is
	// at least one.
	Members []Candidate

	// Owners holds the ID of the candidate that owns each shard now. It is "" for a new shard and
	// for one whose owner has expired or is no longer a candidate.
	Owners []string

	// Load holds, by ID, how many shards of other jobs of the group each candidate owns.
	Load map[string]int
}

// hasCandidate reports whether in.Members include id.
func hasCandidate(in Input, id string) bool {
	_, ok := slices.BinarySearchFunc(in.Members, id, func(c Candidate, id string) int { return cmp.Compare(c.ID, id) })
	return ok
}

// A Candidate is a member that may own shards of the job.
type Candidate struct {
	// ID identifies one incarnation: a restarted instance has another ID.
	ID string

	// Name is the name of the instance. It stays the same after a restart only if the program
	// sets it, for instance in executor.Options.Instance.
	Name string

	// Labels are the labels that the instance was started with.
	Labels map[string]string

	// Weight is the share of shards that the instance wants, relative to an instance with weight
	// 1. It is from 1 to coordinator.MaxWeight.
	Weight int
}

// An Assignment holds, for each shard, the ID of the candidate that should own it.
type Assignment []string

// builtIn returns the built-in strategies by name.
func builtIn() map[string]Func {
	return map[string]Func{"sticky": Sticky, "average": Average, "odevity": Odevity, "rotate": Rotate, "single": Single}
}

// Known returns the built-in strategies and the custom ones, by name. It returns an error if a
// custom strategy is nil, or its name is empty or that of a built-in one.
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

// A PanicError is the error of a strategy that panicked. Its text omits the stack, which names
// goroutines and addresses: the text is published in the plan, and must be the same for each call.
type PanicError struct {
	text string

	// Stack is the stack of the goroutine that panicked, as debug.Stack returns it.
	Stack []byte
}

// Error returns the value of the panic.
func (p *PanicError) Error() string { return p.text }

// Run calls s as a leader does, and checks the result: every shard has an owner, and each owner is a
// candidate. s gets a copy of in, in a goroutine of its own. If s panics, or a method of its error does, the
// error of Run wraps a [*PanicError]. Run is useful to test a strategy.
func Run(s Func, in Input) (Assignment, error) {
	if err := checkInput(in); err != nil {
		return nil, fmt.Errorf("run strategy of job %q: %w", in.Job, err)
	}
	var a Assignment
	given := in.clone() // the result is compared with what the leader knows, not with what s has made of it
	err := contain.CallApart("strategy", func() (err error) {
		a, err = s(given)
		return err
	})
	var panicked *contain.PanicError
	if errors.As(err, &panicked) {
		err = &PanicError{"panic: " + contain.TextOf(panicked.Value), panicked.Stack}
	}
	if err != nil {
		return nil, fmt.Errorf("run strategy of job %q: %w", in.Job, err)
	}
	if err := checkAssignment(in, a); err != nil {
		return nil, fmt.Errorf("refuse assignment of job %q: %w", in.Job, err)
	}
	return a, nil
}

// clone returns a copy of in that shares nothing with it.
func (in Input) clone() Input {
	in.Members = slices.Clone(in.Members)
	for i := range in.Members {
		in.Members[i].Labels = maps.Clone(in.Members[i].Labels)
	}
	in.Owners, in.Load, in.ShardParams = slices.Clone(in.Owners), maps.Clone(in.Load), maps.Clone(in.ShardParams)
	return in
}

// checkInput checks what Input promises, so that no strategy has to handle a job without shards or
// candidates.
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

// checkAssignment returns an error unless a has one candidate of in for each shard.
func checkAssignment(in Input, a Assignment) error {
	if len(a) != in.Shards {
		return fmt.Errorf("owners for %d shards, the job has %d", len(a), in.Shards)
	}
	for shard, id := range a {
		switch {
		case id == "":
			return fmt.Errorf("shard %d has no owner", shard)
		case !hasCandidate(in, id):
			return fmt.Errorf("shard %d is assigned to %q, which is not a candidate", shard, id)
		}
	}
	return nil
}
