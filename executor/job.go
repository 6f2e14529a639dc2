package executor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/jobname"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/schedule"
)

// Job defines a sharded job. Only Name and Handler are required; the zero value of each other
// field is safe. Register copies the job.
type Job struct {
	// Name identifies the job in its namespace. It has 1 to 100 bytes of UTF-8 without control
	// or format characters, and without a space at either end. A job with another name is another job.
	Name string
	// Description is for people. It has up to 1000 bytes.
	Description string
	// Schedule determines the fires of the job. The zero value is OnTrigger: no fires.
	Schedule schedule.Schedule
	// Handler runs one shard for one fire, or a batch of them: see Together. It is not stored.
	Handler Handler
	// Middleware wraps the Handler; the first entry is the outermost. Options.Middleware is
	// outside of it. It is not stored. Nil means none.
	Middleware []Middleware
	// Shards is the number of runs into which each fire is divided, up to 10,000. Zero means 1.
	// A changed number applies from a fire that no instance has claimed.
	Shards int
	// ShardParams holds Run.ShardParam by shard, with up to 1000 bytes each and 32 KiB
	// together. ParseShardParams parses them from a line of text.
	ShardParams map[int]string
	// Param is Run.Param for all shards. It has up to 8192 bytes.
	Param string
	// Revision is the number of this definition. The highest revision in the fleet is in force,
	// so an old binary cannot revert the definition of a new one. Raise it with each change.
	Revision int
	// Strategy is the name of the strategy that assigns the shards to instances: a built-in
	// one or one of Options.Strategies. Empty means "sticky".
	Strategy string
	// RunOn lists labels (Options.Labels) that an instance must have, all of them, to own
	// shards of the job, up to 16. Nil means any instance.
	//
	// The labels of the highest Revision apply as soon as it is stored, also to due fires of
	// earlier definitions. Instances without the labels hand their shards over, running shards
	// after the run. If no live instance has the labels, the shards have no owner, their fires
	// stay due, and Status.Problem names the missing labels.
	RunOn map[string]string
	// Timeout bounds each attempt: its context ends with ErrTimeout. A handler that ignores
	// the end of its context keeps its shard. Zero means no bound.
	Timeout time.Duration
	// OnCrash determines whether a run is made again after a crash. The zero value is
	// RerunElsewhere.
	OnCrash CrashPolicy
	// OnMisfire determines which fires run that came due while the shard could not run. The
	// zero value is RunOnce.
	OnMisfire MisfirePolicy
	// OnOverlap determines what happens if a fire comes due while a run of its shard lasts. The
	// zero value is WaitForRun.
	OnOverlap OverlapPolicy
	// CatchupWindow bounds how long a fire that could not run stays due. Older fires are skipped and
	// counted, before OnMisfire is applied to the others. Zero means no bound; a shorter window than a
	// second counts as a second, so that no fire expires that is on time.
	CatchupWindow time.Duration
	// Tracking determines how much of each run is recorded. The zero value is TrackRuns.
	Tracking Tracking
	// StartPaused makes a new job wait for operator.Operator.Resume. It has no effect on a job that the
	// namespace has already.
	StartPaused bool
	// MaxAttempts bounds the attempts at a run whose instances crash; then the run counts as
	// lost. So a run that kills its process cannot kill the whole fleet. Attempts that failed, or
	// that a shutdown handed back, do not count. Zero means 3. It does not apply to jobs with Always, which
	// begin again after each crash.
	MaxAttempts int
	// Retry determines whether and when a failed run is made again. The zero value makes no
	// retry: the run counts as failed.
	Retry Retry
	// MaxRunning bounds the concurrent runs of this job in this process, of which a batch of Together counts as one. Further claimed runs
	// wait for a worker, in the order of their fires. Zero means 4 per CPU (GOMAXPROCS), and at
	// least 16. Jobs that wait for other systems can have more, up to the number of shards;
	// jobs that compute need one per CPU. See docs/sizing.md.
	//
	// MaxRunning is not stored with the definition: each process has its own, and a change
	// needs no higher Revision. It applies to runs that begin after Register.
	MaxRunning int
	// Pool is the name of a pool: at most as many runs of its jobs run at once in the whole group as
	// operator.Operator.SetPool has said. A due run without a slot is not claimed and waits, in the order of fires in each
	// instance; OnMisfire and CatchupWindow apply as for any late fire. A run has its slot from its claim to the return of its
	// Handler, also while it waits for a worker; each shard of a batch of Together has one. A pool without a size has no
	// slots, so that its jobs wait. A pool belongs to one group. It has the name of a group: 1 to 64 bytes, no slash. Empty
	// means no pool.
	//
	// The bound is that of sessions that are alive by their own clock: runs of a process that was suspended, or that ignores the end of
	// its context, can exceed it by the slots of that process. See docs/guide/pools.md.
	Pool string
	// Local identifies the part of the job that is not stored, such as a digest of the command that
	// the Handler runs, in up to 16 bytes. It changes nothing: Operator.Group, Operator.Status and
	// Operator.Diagnose name the instances whose Local is not that of most. Empty means that the
	// instance is not compared.
	Local string
}

// Handler runs one shard for one fire. Handle must return soon after ctx ends; context.Cause
// reports why it ended: ErrDraining, ErrSessionLost, ErrTimeout, ErrOverlap, ErrCancelled or, with Always, ErrYield. A run
// whose handler returns an error or panics counts as failed, or is made again as Job.Retry says. An error after
// ErrDraining hands the run back instead, and another instance makes it again (see
// Executor.Shutdown). A handler may be called for several shards at the same time. The Run is
// the handler's to keep and change: it is a copy, on which nothing that rota decides or records depends. A handler
// must not wait for Executor.Shutdown, which waits for it.
type Handler interface {
	Handle(ctx context.Context, r *Run) error
}

// HandlerFunc is an adapter that makes a function a Handler.
type HandlerFunc func(ctx context.Context, r *Run) error

// Handle calls f.
func (f HandlerFunc) Handle(ctx context.Context, r *Run) error { return f(ctx, r) }

// CrashPolicy determines whether a run is made again if its instance expired before the end
// of the run was recorded.
type CrashPolicy int

const (
	// RerunElsewhere repeats the run on the next owner of the shard, up to Job.MaxAttempts.
	// Each fire is run at least once, perhaps more. It is the zero value.
	RerunElsewhere CrashPolicy = iota
	// CountAsFailed counts the run as lost. Each fire is run at most once. When a definition
	// with this policy comes into force, pending re-runs are counted as lost, too.
	CountAsFailed
)

var crashPolicies = policyTexts[CrashPolicy]{"crash policy", []string{RerunElsewhere: record.CrashRerun, CountAsFailed: record.CrashFail}}

// String returns the text form of p: "rerun elsewhere" or "count as failed".
func (p CrashPolicy) String() string { return crashPolicies.text(p) }

// MarshalText returns the text form of p, which is not checked.
func (p CrashPolicy) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads the text form of a policy.
func (p *CrashPolicy) UnmarshalText(text []byte) error { return crashPolicies.parse(p, text) }

func (p CrashPolicy) check() error { return crashPolicies.check(p) }

// Tracking determines how much of each run is recorded in the registry. TrackClaims costs
// fewer commits and promises less after a crash. A definition with a higher Job.Revision can
// change it while the job runs.
type Tracking int

const (
	// TrackRuns records the claim and the end of each run: at most two commits per fire and
	// instance if the runs end together. It is the zero value. OnCrash and MaxAttempts apply
	// to this level only.
	TrackRuns Tracking = iota
	// TrackClaims records claims, and ends only together with the next claim: one commit per
	// fire and instance. Each fire is still claimed at most once. A running shard still does
	// not move while its owner's session is alive; a move waits for one more commit of the
	// owner. Ends are recorded as with TrackRuns while shards are about to move, a new
	// definition comes into force, a trigger is pending, the job is paused or the instance drains.
	//
	// After a crash, the records do not show which runs had ended. No run is repeated, not even
	// one that was claimed and never started, and OnCrash is ignored: all count as unknown.
	TrackClaims
)

var trackings = policyTexts[Tracking]{"tracking", []string{TrackRuns: record.TrackRuns, TrackClaims: record.TrackClaims}}

// String returns the text form of t: "runs" or "claims".
func (t Tracking) String() string { return trackings.text(t) }

// MarshalText returns the text form of t, which is not checked.
func (t Tracking) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText reads the text form of a level.
func (t *Tracking) UnmarshalText(text []byte) error { return trackings.parse(t, text) }

func (t Tracking) check() error { return trackings.check(t) }

const (
	defaultShards      = 1
	defaultStrategy    = "sticky"
	defaultMaxAttempts = record.DefaultMaxAttempts

	// The default of MaxRunning grows with the CPUs, for jobs that compute. Its minimum is for
	// jobs that wait for other systems: their bound does not depend on this host's CPUs.
	maxRunningPerCPU  = 4
	leastOfMaxRunning = 16

	maxShards           = record.MaxShards
	maxNameBytes        = jobname.MaxBytes
	maxDescriptionBytes = 1000
	maxParamBytes       = record.MaxParamBytes
	maxShardParamBytes  = 1000
	maxLocalBytes       = 16 // ten thousand jobs of a process share a member record
)

// defaultMaxRunning returns the default of Job.MaxRunning.
func defaultMaxRunning() int {
	return max(maxRunningPerCPU*runtime.GOMAXPROCS(0), leastOfMaxRunning)
}

// clone returns a copy of j that shares nothing a caller could change.
func (j Job) clone() Job {
	j.ShardParams, j.RunOn = maps.Clone(j.ShardParams), maps.Clone(j.RunOn)
	return j
}

// Middleware returns a handler that adds to next: work before and after a run, measurements,
// tracing, or a change of the error. The error that the returned handler returns is that of the
// run. A panic in it fails the run, as in a handler. It should pass ctx, or a context derived
// from it, to next.
//
// Register calls each Middleware once for each job, so the returned handler serves all runs of
// the job in this process.
type Middleware func(next Handler) Handler

// retry returns the retry policy of j. Daemons that fail are begun again by default.
func (j Job) retry() Retry {
	if j.Retry == (Retry{}) && j.Schedule.IsAlways() {
		return Retry{Max: -1}
	}
	return j.Retry
}

// ParseShardParams reads Job.ShardParams from a line such as "0=Beijing,1=Shanghai".
// It removes spaces around shards and values. A value may contain any character but a comma.
// For an empty line it returns an empty map.
func ParseShardParams(line string) (map[int]string, error) {
	params := make(map[int]string)
	if strings.TrimSpace(line) == "" {
		return params, nil
	}
	for item := range strings.SplitSeq(line, ",") {
		shard, value, err := parseShardParam(item)
		if err != nil {
			return nil, fmt.Errorf("parse shard params: %.100q: %w", item, err)
		}
		if _, ok := params[shard]; ok {
			return nil, fmt.Errorf("parse shard params: %.100q: shard %d is given twice", item, shard)
		}
		params[shard] = value
	}
	return params, nil
}

func parseShardParam(item string) (shard int, value string, err error) {
	number, value, ok := strings.Cut(item, "=")
	if !ok {
		return 0, "", errors.New("is not of the form shard=value")
	}
	shard, err = strconv.Atoi(strings.TrimSpace(number))
	if err != nil || shard < 0 || shard >= maxShards {
		return 0, "", fmt.Errorf("the shard is not a number from 0 to %d", maxShards-1)
	}
	return shard, strings.TrimSpace(value), nil
}
