package executor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"time"
	"unicode/utf8"

	"github.com/rota-dev/rota/internal/record"
)

// Job is a definition: what to run, when, in how many shards, and what to do when it goes
// wrong. Only Name and Handler are required; the zero value of every other field is safe.
// A job is copied when it is registered.
type Job struct {
	// Name is the identity of the job in its namespace: 1 to 100 bytes of UTF-8 without
	// control characters. A job with another name is another job.
	Name string
	// Description is for people: up to 1000 bytes.
	Description string
	// Schedule says when the job fires. The zero value is OnTrigger.
	Schedule Schedule
	// Handler runs one shard for one fire. It is not stored.
	Handler Handler
	// Shards is into how many parts a fire is divided, up to 10,000. Zero means 1. A new
	// total counts from a fire that nobody has claimed.
	Shards int
	// ShardParams are Run.ShardParam for the shards that have one, up to 1000 bytes each.
	// ParseShardParams reads them from a line of text.
	ShardParams map[int]string
	// Param is Run.Param for all shards: up to 8192 bytes.
	Param string
	// Revision is that of this definition. The highest in the fleet wins, so that an old
	// binary cannot undo what a new one brought.
	Revision int
	// Strategy is the name of the strategy that deals the shards to instances. Empty means
	// "sticky".
	Strategy string
	// RunOn is the labels that instances must have to own shards of the job, all of these
	// pairs, whatever the strategy: up to 16, of the sizes of Options.Labels. Those of the
	// highest Revision hold as soon as it is stored, also for fires that are owed under an
	// earlier one. Who does not have them hands its shards over, idle ones at once and running
	// ones when they end. If nobody does who is there, nobody owns the shards, the fires are
	// owed, and the plan says which labels are wanted. Nil means any instance.
	RunOn map[string]string
	// Timeout bounds one attempt: its context ends with ErrTimeout. A handler that ignores
	// that keeps its shard. Zero means no bound.
	Timeout time.Duration
	// OnCrash says what becomes of a run whose instance is gone.
	OnCrash CrashPolicy
	// OnMisfire says what becomes of fires that came due while their shard could not run.
	OnMisfire MisfirePolicy
	// Tracking sets how much of each run is recorded.
	Tracking Tracking
	// StartPaused makes a job that the namespace has not seen before wait for an operator
	// to resume it. It changes nothing for one that exists.
	StartPaused bool
	// MaxAttempts is how many times a fire of a shard is begun when its instances crash,
	// before it counts as failed: a run that kills its process must not kill the whole
	// fleet. Attempts that a shutdown handed back do not count. Zero means 3.
	MaxAttempts int
	// MaxRunning bounds the runs of this job that this process executes at once. Others that
	// it has claimed wait for a worker, in the order of their fires. Zero means 4 per CPU that
	// Go uses (GOMAXPROCS), and at least 16. A job whose runs mostly wait for other systems
	// bears more, up to the number of its shards; one that loads a CPU each needs as many as
	// there are CPUs. docs/sizing.md has the arithmetic.
	//
	// It bounds a process, and processes differ: so it is not stored with the definition,
	// needs no higher Revision, and each process goes by its own. It takes effect with the
	// runs that begin after Register.
	MaxRunning int
}

// Handler runs one shard for one fire. It must return soon after ctx ends, for the reason that
// context.Cause reports: ErrDraining, ErrSessionLost or ErrTimeout. An error or panic counts
// the run as failed, except that an error after ErrDraining hands the run back, to be made
// again by another instance (see Executor.Shutdown). One handler may be called for several
// shards at once.
type Handler interface {
	Handle(ctx context.Context, r *Run) error
}

// HandlerFunc is a function as a Handler.
type HandlerFunc func(ctx context.Context, r *Run) error

// Handle calls f.
func (f HandlerFunc) Handle(ctx context.Context, r *Run) error { return f(ctx, r) }

// CrashPolicy says what becomes of a run whose instance is gone before it reported.
type CrashPolicy int

const (
	// RerunElsewhere begins the run again on another instance, up to Job.MaxAttempts. Work
	// is done at least once, and may be done twice. It is the zero value.
	RerunElsewhere CrashPolicy = iota
	// CountAsFailed leaves it at that. Work is done at most once. A new definition that says so
	// has re-runs that are pending counted as well.
	CountAsFailed
)

// String returns the text form of p: "rerun elsewhere" or "count as failed".
func (p CrashPolicy) String() string {
	switch p {
	case RerunElsewhere:
		return "rerun elsewhere"
	case CountAsFailed:
		return "count as failed"
	}
	return fmt.Sprintf("unknown crash policy %d", int(p))
}

// MarshalText returns the text form of p, which is not checked.
func (p CrashPolicy) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads the text form of a policy.
func (p *CrashPolicy) UnmarshalText(text []byte) error {
	for _, known := range []CrashPolicy{RerunElsewhere, CountAsFailed} {
		if string(text) == known.String() {
			*p = known
			return nil
		}
	}
	return &unknownError{fmt.Sprintf(`crash policy %.100q: neither "rerun elsewhere" nor "count as failed"`, text)}
}

func (p CrashPolicy) check() error {
	if p != RerunElsewhere && p != CountAsFailed {
		return errors.New(p.String())
	}
	return nil
}

// Tracking sets how much of each run is recorded in the registry. TrackClaims costs fewer
// writes and promises less after a crash. The level is part of the definition: a higher
// Job.Revision may change it while the job runs.
type Tracking int

const (
	// TrackRuns records when runs are claimed and when they have ended: at most two commits
	// per fire and instance if the runs end together. It is the zero value, and the only level
	// that uses OnCrash and MaxAttempts.
	TrackRuns Tracking = iota
	// TrackClaims records claims, and the ends of runs only with the next claim: one commit
	// per fire and instance. Each fire is still claimed at most once, and a running shard does
	// not move while its owner's session lives; a move waits for one more commit of the owner.
	// While shards are about to move, a new definition comes into force, a trigger is pending,
	// the job is paused or the instance drains, ends are recorded as with TrackRuns.
	//
	// After a crash, the records do not show which runs had ended. No run is repeated, not even
	// one that was claimed and never started: the job counts them all as unknown, whatever
	// OnCrash says.
	TrackClaims
)

// String returns the text form of t: "runs" or "claims".
func (t Tracking) String() string {
	switch t {
	case TrackRuns:
		return record.TrackRuns
	case TrackClaims:
		return record.TrackClaims
	}
	return fmt.Sprintf("unknown tracking %d", int(t))
}

// MarshalText returns the text form of t, which is not checked.
func (t Tracking) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText reads the text form of a level.
func (t *Tracking) UnmarshalText(text []byte) error {
	for _, known := range []Tracking{TrackRuns, TrackClaims} {
		if string(text) == known.String() {
			*t = known
			return nil
		}
	}
	return &unknownError{fmt.Sprintf(`tracking %.100q: neither "runs" nor "claims"`, text)}
}

func (t Tracking) check() error {
	if t != TrackRuns && t != TrackClaims {
		return errors.New(t.String())
	}
	return nil
}

const (
	defaultShards      = 1
	defaultStrategy    = "sticky"
	defaultMaxAttempts = record.DefaultMaxAttempts

	// A process runs so many runs of a job at once by default. The number of CPUs bounds runs
	// that compute. Runs that wait for other systems are bounded by those, about which a small
	// machine tells nothing.
	maxRunningPerCPU  = 4
	leastOfMaxRunning = 16

	maxShards           = record.MaxShards
	maxNameBytes        = record.MaxJobNameBytes
	maxDescriptionBytes = 1000
	maxParamBytes       = 8192
	maxShardParamBytes  = 1000
)

// defaultMaxRunning is the MaxRunning of jobs that give none.
func defaultMaxRunning() int {
	return max(maxRunningPerCPU*runtime.GOMAXPROCS(0), leastOfMaxRunning)
}

// clone returns a copy of j that shares nothing a caller could change.
func (j Job) clone() Job {
	j.ShardParams, j.RunOn = maps.Clone(j.ShardParams), maps.Clone(j.RunOn)
	return j
}

// checkJobs returns all that is wrong with jobs, joined, or nil. Each error wraps
// ErrInvalidJob and names the job, the field and the rule. knows tells whether there is a
// strategy of a name.
func checkJobs(jobs []Job, knows func(strategy string) bool) error {
	var errs []error
	seen := make(map[string]bool, len(jobs))
	for _, j := range jobs {
		for _, p := range j.problems(knows) {
			errs = append(errs, fmt.Errorf("%w %.100q: %w", ErrInvalidJob, j.Name, p))
		}
		if seen[j.Name] {
			errs = append(errs, fmt.Errorf("%w %.100q: Name: given twice in one call", ErrInvalidJob, j.Name))
		}
		seen[j.Name] = true
	}
	return errors.Join(errs...)
}

func (j Job) problems(knows func(strategy string) bool) []problem {
	d := definitionOf(j)
	all := d.problems()
	if f, ok := j.Handler.(HandlerFunc); j.Handler == nil || ok && f == nil {
		all = append(all, problem{"Handler", errors.New("is nil")})
	}
	if err := checkNotNegative(j.MaxRunning); err != nil {
		all = append(all, problem{"MaxRunning", err})
	}
	if !knows(d.Strategy) {
		all = append(all, problem{"Strategy", fmt.Errorf("%.100q is neither built in nor in Options.Strategies", d.Strategy)})
	}
	return all
}

// problem is a rule of a definition that a field breaks.
type problem struct {
	field string // as in Job
	err   error
}

func (p problem) Error() string { return p.field + ": " + p.err.Error() }

func (p problem) Unwrap() error { return p.err }

func checkText(text string, maxBytes int) error {
	switch {
	case len(text) > maxBytes:
		return fmt.Errorf("has %d bytes, at most %d", len(text), maxBytes)
	case !utf8.ValidString(text):
		return errors.New("is not UTF-8")
	}
	return nil
}
