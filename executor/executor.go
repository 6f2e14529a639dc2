package executor

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/rota-dev/rota/coordinator"
	"github.com/rota-dev/rota/coordinator/strategy"
	"github.com/rota-dev/rota/registry"
)

// Options are options of New. The zero value works.
type Options struct {
	// Instance is the name of this process, unique among the living. Empty means the host's
	// name and a random part, so that two processes on one host never clash. Given a name,
	// Start waits for a predecessor's session to run out, then fails with ErrNameTaken.
	Instance string
	// Group is the instances that share one leader, which balances over all their jobs.
	// Each says which jobs it offers. Empty means "default".
	Group string
	// SessionTTL is how long the store waits for a sign of life before others take over. It
	// may grant more. Zero means 10 s.
	SessionTTL time.Duration
	// RestartGrace is how long the shards of this instance wait for its return after it has
	// left or died, so that a rolling restart moves nothing. An instance of the same name that
	// comes back within it gets them all, with what they owe: fires that fell due, and runs
	// that a crash ended, are late by the time it was away. Afterwards they move as usual. It
	// counts from when a leader sees that the instance is gone, and anew if another leader
	// takes over; a drain that lasts longer than it gives idle shards away. It needs Instance,
	// and may be an hour at most. Zero means that shards move at once.
	RestartGrace time.Duration
	// DrainTimeout is how long Run and Shutdown let runs finish before their contexts end. A
	// shutdown takes up to 8 s longer: 5 s for handlers to return, 3 s to hand the shards
	// over. Zero means 20 s, so that it fits into the 30 s of Kubernetes. A negative value
	// ends contexts at once.
	DrainTimeout time.Duration
	// Workers bounds the runs of all jobs together that this process executes at once, for
	// processes that share a scarce resource among their jobs, such as memory. Zero means no
	// bound: then each job has only its own, Job.MaxRunning, and no job delays another.
	//
	// With a bound, runs wait for each other, and a worker that becomes free goes to the job
	// with the fewest running runs (of several, to the one with the earliest fire) among those
	// whose MaxRunning permits another. Runs are not preempted: while long runs occupy all
	// workers, every job waits. Give jobs with long runs a MaxRunning below Workers. Waiting
	// shows runs that wait; docs/sizing.md has the arithmetic.
	Workers int
	// MaxClockSkew is how far the clocks of the fleet may be apart. A new definition counts
	// from that much later than now. An instance whose clock is further from the median of the
	// fleet claims nothing until it is right again; as two cannot tell which of them is wrong,
	// they only say that they differ. Shards whose fires a wrong clock has claimed far ahead of
	// their time wait for that time: their owner logs that, and Status.Problem shows it.
	// Zero means 5 s, below zero none, and nobody looks.
	MaxClockSkew time.Duration
	// Host says where this process runs, to operators who disable hosts; several processes
	// may be on one. Empty means the name that the system gives. In a container that is
	// mostly the container's: give it the node's.
	Host string
	// Clock tells this instance the time of day, for tests of clocks that differ. Nil means
	// time.Now.
	Clock func() time.Time
	// Labels say what kind of instance this is, to Job.RunOn and to strategies. There may be
	// 64, with keys of 1 to 100 bytes and values of up to 200, of UTF-8 without control
	// characters. They are those of this process for as long as it lives.
	Labels map[string]string
	// Weight is how many times the shards of an instance with weight 1 this one is to have, up
	// to 1000: the strategy "sticky" gives each its share of every job and of all of them
	// together to within one shard. "single" and Elastic-Job's strategies pay no heed to it.
	// Zero means 1.
	Weight int
	// Strategies are strategies of your own, by the name that Job.Strategy asks for. Every process
	// of the fleet needs them, as any may come to lead. The built-in names are "sticky", "average",
	// "odevity", "rotate" and "single".
	Strategies map[string]strategy.Func
	// Logger is where to log: each event of this process and of its fleet is one line, however
	// many jobs it concerns; docs/operating.md lists them. Nil means slog.Default().
	Logger *slog.Logger
}

// Executor runs the shards that this process owns of a namespace's jobs. What it does for
// operators, as Trigger and Pause, works before Start and after Shutdown as well, for jobs that
// some process has stored.
type Executor struct {
	reg        registry.Registry
	opts       Options
	strategies map[string]strategy.Func // by name, the built-in ones included
	log        *slog.Logger
	runs       runLog
	member     *coordinator.Member
	operator   *coordinator.Operator // of the member's group, before it has joined and after it has left as well
	clock      func() time.Time      // of day
	pool       pool
	waited     waitReport // of the goroutine that the pool's alarm has begun

	mu        sync.Mutex
	jobs      map[string]*Job // by name, also those that are no longer offered
	withdrawn map[string]bool // names of jobs that are no longer offered
	state     state
	joined    bool               // Start has returned without an error
	stop      context.CancelFunc // ends the member at once
	stopped   chan struct{}      // closed when the member's Run has returned
	failed    error              // why it returned
}

type state int

const (
	idle state = iota
	started
	failed // Start returned an error
	shutDown
)

// startable returns why an executor in a state cannot be started, or nil.
func (s state) startable() error {
	switch s {
	case idle:
		return nil
	case started:
		return errors.New("this executor has been started before; New makes another")
	case failed:
		return errors.New("an earlier Start of this executor failed; New makes another")
	}
	return errors.New("this executor has been shut down; New makes another")
}

// New returns an executor for the jobs of one namespace of reg, which it neither opens
// nor closes. Nothing is sent before Start.
func New(reg registry.Registry, namespace string, o Options) (*Executor, error) {
	if o.DrainTimeout == 0 {
		o.DrainTimeout = defaultDrainTimeout
	}
	if o.Workers < 0 {
		return nil, fmt.Errorf("new executor: Workers is %d, below 0", o.Workers)
	}
	if o.SessionTTL < 0 {
		return nil, fmt.Errorf("new executor: SessionTTL is %v, below 0", o.SessionTTL)
	}
	e := &Executor{reg: reg, opts: o, jobs: map[string]*Job{}, withdrawn: map[string]bool{}, stopped: make(chan struct{})}
	e.pool.queue.bound = o.Workers
	e.pool.alarm = e.reportWaiting
	e.clock = o.Clock
	if e.clock == nil {
		e.clock = time.Now
	}
	var err error
	if e.strategies, err = strategy.Known(o.Strategies); err != nil {
		return nil, fmt.Errorf("new executor: %w", err)
	}
	e.member, err = coordinator.NewMember(reg, coordinator.MemberOptions{
		Namespace: namespace, Group: o.Group, Instance: o.Instance, SessionTTL: o.SessionTTL,
		MaxClockSkew: o.MaxClockSkew, Clock: o.Clock, RestartGrace: o.RestartGrace, Host: o.Host, Labels: o.Labels, Weight: o.Weight, Strategies: o.Strategies, Logger: o.Logger, Work: work{e},
	})
	if err != nil {
		return nil, fmt.Errorf("new executor: %w", err)
	}
	operator, err := coordinator.NewOperator(reg, namespace, o.Group)
	if err != nil {
		return nil, fmt.Errorf("new executor: %w", err)
	}
	e.operator = operator.WithCompiler(Compile)
	e.log = o.Logger
	if e.log == nil {
		e.log = slog.Default()
	}
	e.log = e.log.With("namespace", namespace, "group", cmp.Or(o.Group, "default"), "instance", e.member.Instance())
	e.runs.log = e.log
	return e, nil
}

// Instance returns the name of this process in the fleet.
func (e *Executor) Instance() string { return e.member.Instance() }

// Register adds jobs, or replaces them by name, before or after Start. All problems of all
// jobs come back at once, joined, each wrapping ErrInvalidJob; then nothing is registered.
//
// A job that replaces another definition of its name is logged, unless it was withdrawn or, after
// Start, has a higher Revision: two jobs may have been given one name by mistake.
//
// What a job's definition says is stored for the whole fleet, where the highest Revision
// wins. Its Handler and its MaxRunning are this process's own and take effect with the next
// run.
func (e *Executor) Register(jobs ...Job) error {
	if err := checkJobs(jobs, e.knownStrategy); err != nil {
		return err
	}
	defs := make(map[string]json.RawMessage, len(jobs))
	for _, j := range jobs {
		def, err := definitionOf(j).MarshalJSON()
		if err != nil {
			return fmt.Errorf("%w %q: %w", ErrInvalidJob, j.Name, err)
		}
		defs[j.Name] = def
	}
	e.mu.Lock()
	again := e.replacedLocked(jobs)
	for _, j := range jobs {
		own := j.clone()
		e.jobs[j.Name] = &own
		delete(e.withdrawn, j.Name)
		e.pool.setBound(j.Name, orDefault(j.MaxRunning, defaultMaxRunning()))
	}
	e.mu.Unlock()
	for _, r := range again {
		e.log.Warn("job registered again; the newer definition replaces the earlier one", "job", r.job, "differences", r.differences)
	}
	e.member.Offer(defs)
	return nil
}

func (e *Executor) knownStrategy(name string) bool {
	_, ok := e.strategies[name]
	return ok
}

// Start joins the fleet. It returns when the session is open and the definitions are
// stored; ctx bounds that only. An Executor starts once.
func (e *Executor) Start(ctx context.Context) error {
	e.mu.Lock()
	if err := e.state.startable(); err != nil {
		e.mu.Unlock()
		return fmt.Errorf("start: %w", err)
	}
	e.state = started
	var run context.Context
	run, e.stop = context.WithCancel(context.Background())
	e.mu.Unlock()
	go func() {
		defer close(e.stopped)
		e.failed = e.ended(e.member.Run(run))
	}()
	if err := e.member.AwaitJoined(ctx); err != nil {
		e.mu.Lock()
		if e.state == started {
			e.state = failed
		}
		e.mu.Unlock()
		e.stop()
		<-e.stopped
		return fmt.Errorf("start: %w", err)
	}
	e.mu.Lock()
	e.joined = true
	e.mu.Unlock()
	return nil
}

// ended logs why the member stopped by itself, and returns the error of Run for that. An
// executor that did not join has the error returned by Start, and one that was shut down has
// none.
func (e *Executor) ended(err error) error {
	e.mu.Lock()
	log := e.joined
	e.mu.Unlock()
	if err == nil || !log {
		return err
	}
	if errors.Is(err, registry.ErrClosed) {
		err = fmt.Errorf("the registry was closed while instance %s was in the group, which ended its session and its runs: %w", e.Instance(), err)
	}
	e.log.Error("the executor has ended without leaving the group", "error", err)
	return fmt.Errorf("run: %w", err)
}

// Run is Start, a wait for the end of ctx, and Shutdown. The end of ctx starts the drain;
// it is not the end of the runs' contexts. Run returns nil after an orderly shutdown.
//
// A program that gets ctx from signal.NotifyContext should call context.AfterFunc(ctx, stop),
// with the stop function of that context. Then a second signal ends the process at once, and
// its runs are made again elsewhere as after a crash.
func (e *Executor) Run(ctx context.Context) error {
	if err := e.Start(ctx); err != nil {
		if ctx.Err() != nil {
			return nil // told to stop before it had begun
		}
		return err
	}
	select {
	case <-ctx.Done():
	case <-e.stopped:
		wait(context.WithoutCancel(ctx), cancelGrace, e.pool.idle()) // the contexts of runs have ended
		e.runs.flush()
		return e.failed
	}
	return e.Shutdown(context.WithoutCancel(ctx))
}

// Trigger asks for a run of a job by hand, whatever its schedule, on whichever instances
// own its shards. It is durable: once Trigger has returned, nothing but a pause keeps the
// run from happening, or that its shard is disabled, for as long as that lasts. The number
// that it returns shows in Run.Trigger.
func (e *Executor) Trigger(ctx context.Context, job string, t Trigger) (uint64, error) {
	if err := checkText(t.Param, maxParamBytes); err != nil {
		return 0, fmt.Errorf("trigger %q: Param: %w", job, err)
	}
	number, err := e.operator.Trigger(ctx, job, t.Param, t.Shards)
	return number, e.explain(job, err)
}

// Trigger is what to run by hand.
type Trigger struct {
	Param  string // Run.Param of the runs, in place of the job's; empty means the job's
	Shards []int  // nil means all; an empty slice is refused
}

// Pause keeps the fleet from beginning runs of a job until Resume, across restarts: triggers
// wait as well. Runs that have begun go on. StopSchedule lets triggers run.
func (e *Executor) Pause(ctx context.Context, job string) error {
	return e.explain(job, e.operator.Pause(ctx, job))
}

// StopSchedule makes the fleet run a job by Trigger alone until Resume, across restarts. Runs
// that a crash ended are made again. A paused job becomes one whose schedule is stopped, also
// one of Job.StartPaused. Fires that come until the Resume are not made up for.
func (e *Executor) StopSchedule(ctx context.Context, job string) error {
	return e.explain(job, e.operator.StopSchedule(ctx, job))
}

// Resume ends a pause, also that of Job.StartPaused, or a StopSchedule, at an instant that is
// MaxClockSkew away, so that no clock in the fleet has passed it. Fires that come until then are
// not made up for.
func (e *Executor) Resume(ctx context.Context, job string) error {
	return e.explain(job, e.operator.Resume(ctx, job))
}

// Status returns what is on record of a job of the fleet, as coordinator.Operator.Status does,
// with its next fire.
func (e *Executor) Status(ctx context.Context, job string) (coordinator.Status, error) {
	st, err := e.operator.Status(ctx, job)
	return st, e.explain(job, err)
}

// Reset starts a job afresh from now, where its shards wait because a clock was wrong. Fires
// that were claimed before their time may be run again, with the same ID. The promises are those
// of coordinator.Operator.Reset.
func (e *Executor) Reset(ctx context.Context, job string) error {
	return e.explain(job, e.operator.Reset(ctx, job))
}

// Scope names what to disable or enable: shards of a job, or instances or hosts, for one
// job or for all. What it promises is told by coordinator.Scope.
type Scope = coordinator.Scope

// Disable keeps what s names from running, anywhere in the fleet, until Enable, across
// restarts. Runs that have begun go on. Fires of a disabled shard are skipped as they come
// and counted; triggers wait. Shards of disabled instances and hosts move to others.
//
// It is not the way to stop this process, which is Shutdown. More is promised, and not
// promised, by coordinator.Operator, which also tells what stands and needs no Executor.
func (e *Executor) Disable(ctx context.Context, s Scope) error {
	return e.explain(s.Job, e.operator.Disable(ctx, s))
}

// Enable takes back what Disable said of what s names. Fires that were skipped are not made
// up for.
func (e *Executor) Enable(ctx context.Context, s Scope) error {
	return e.explain(s.Job, e.operator.Enable(ctx, s))
}

// Withdraw makes this process stop offering a job, until it is registered here again. Other
// processes still offer it, and nothing of it is deleted. Withdraw returns when the store has
// recorded this; the shards move to other instances afterwards. Runs of the job that have begun
// here go on, and their contexts do not end: a shard moves when its run has ended. If no other
// instance offers the job, it does not run until one does, and after an hour it owes nothing then
// (coordinator.MaxUnoffered).
//
// If ctx ends first, Withdraw returns its cause, and the store records it later. Before Start
// and after Shutdown there is nothing to record, and Withdraw returns at once.
func (e *Executor) Withdraw(ctx context.Context, job string) error {
	e.mu.Lock()
	_, known := e.jobs[job]
	running := e.state == started
	if known {
		e.withdrawn[job] = true
	}
	e.mu.Unlock()
	if !known {
		return fmt.Errorf("withdraw %q: %w", job, ErrUnknownJob)
	}
	e.member.Withdraw(job)
	if !running {
		return nil
	}
	if err := e.member.AwaitJoined(ctx); err != nil {
		return fmt.Errorf("withdraw %q: %w", job, err)
	}
	return nil
}

// explain adds to an error about an unknown job that it is registered here, if Start is yet to
// store it.
func (e *Executor) explain(job string, err error) error {
	if !errors.Is(err, ErrUnknownJob) {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, registered := e.jobs[job]; registered && e.state == idle {
		return fmt.Errorf("%w: it is registered here, and Start has not stored it yet", err)
	}
	return err
}

func (e *Executor) job(name string) (*Job, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	j, ok := e.jobs[name]
	return j, ok
}
