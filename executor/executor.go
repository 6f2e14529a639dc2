package executor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/rota-dev/rota/coordinator/strategy"
	"github.com/rota-dev/rota/executor/internal/pool"
	"github.com/rota-dev/rota/internal/contain"
	"github.com/rota-dev/rota/internal/group/member"
	"github.com/rota-dev/rota/internal/mutex"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry"
)

// Options configure New. The zero value is ready to use.
type Options struct {
	// Instance is the name of this process, unique among live processes of the namespace. If
	// another session has the name, Start waits until it could have expired, then fails with
	// ErrNameTaken. Empty means the host's name and a random part.
	Instance string
	// Group is the set of instances that share one leader, which balances the shards of all
	// their jobs. Empty means "default".
	Group string
	// SessionTTL is the time after which the store expires the session of a silent process,
	// so that its shards are reassigned. The store may grant a longer one. Zero means 10 s, the least is 10 ms.
	SessionTTL time.Duration
	// RestartGrace is how long the shards of this instance wait for its return after it has
	// left or expired, so that a rolling restart moves no shards. If an instance of the same
	// name returns in time, it owns all of them, and runs their due fires and re-runs then.
	// Otherwise the shards are reassigned.
	//
	// The leader counts the time from when it observes the absence; a new leader counts
	// from the beginning. A drain that takes longer than RestartGrace releases idle shards.
	// RestartGrace requires Instance, and is at most an hour. Zero means that shards are
	// reassigned at once.
	RestartGrace time.Duration
	// DrainTimeout is the time that Run and Shutdown give runs to finish before their contexts
	// end. A shutdown then takes up to 8 s more: 5 s for handlers to return and 3 s to hand
	// the shards over. Zero means 20 s. A negative value ends the contexts at once.
	// The grace period of a container has to be 20 s longer; see docs/guide/kubernetes.md.
	DrainTimeout time.Duration
	// Workers bounds the concurrent runs of all jobs in this process, for jobs that share a
	// scarce resource such as memory. Zero means no bound; then each job is bounded only by its
	// Job.MaxRunning or Kind.MaxRunning, and jobs do not delay each other.
	//
	// With a bound, a free worker serves the job with the fewest running runs, and among
	// several of these the one with the earliest fire. All defined jobs of a Kind count as one job. Runs are not preempted: while long runs
	// occupy all workers, every job waits. Give jobs with long runs a MaxRunning below Workers.
	// See docs/sizing.md.
	Workers int
	// MaxClockSkew is the allowed difference between the clocks of the fleet. Zero means 5 s.
	// A negative value allows none when definitions change, and disables the comparison of clocks.
	//
	// An instance whose clock is further than that from the median of the fleet claims nothing
	// until the clock is right again. Two instances cannot determine which clock is wrong;
	// they only log the difference. A new definition takes effect MaxClockSkew from now.
	// Shards whose fires a skewed clock has claimed ahead of time wait for that time; the
	// owner logs this, and Status.Problem reports it.
	MaxClockSkew time.Duration
	// Host is the name by which operators disable the host of this process. Several processes
	// may have the same. Empty means the system's host name. In a container that is the
	// container's name, so set Host to the node's name there.
	Host string
	// Clock returns the time of day for this instance. It is for tests of skewed clocks. It must not
	// block. Where it panics, time.Now is used. Nil means time.Now.
	Clock func() time.Time
	// Labels describe this instance to Job.RunOn and to strategies. They cannot change while
	// the process runs. There may be 64. Keys have 1 to 100 bytes and values up to 200, of
	// UTF-8 without control characters.
	Labels map[string]string
	// Weight is the capacity of this instance, from 1 to 1000. The strategy "sticky" assigns
	// shards in proportion to it, to within one shard for each job and in total. The other
	// built-in strategies ignore it. Zero means 1.
	Weight int
	// Strategies are custom strategies, by the name that Job.Strategy refers to. Any process
	// may become the leader, so every process of the fleet needs them. The names of the
	// built-in strategies are reserved: "sticky", "average", "odevity", "rotate" and "single".
	Strategies map[string]strategy.Func
	// Middleware wraps the handlers of all jobs of this process, outside of Job.Middleware; the
	// first entry is the outermost. Nil means none.
	Middleware []Middleware
	// Logger receives the log lines that docs/operating/messages.md lists. Each event is one line, for
	// any number of jobs. Its handler must return soon: rota's loops wait for it. If it panics, the line is
	// dropped. Nil means slog.Default().
	Logger *slog.Logger
	// Observer receives the events of this executor. The zero value observes nothing. See also
	// Executor.Observe.
	Observer Observer
}

// Executor runs the shards of a namespace's jobs that this process owns. Its methods may be
// called from several goroutines at once. The methods for operators, from Trigger to Enable,
// also work before Start and after Shutdown, for jobs that any process has stored.
type Executor struct {
	reg        registry.Registry
	opts       Options
	namespace  string
	group      string
	strategies map[string]strategy.Func // by name, the built-in ones included
	log        *slog.Logger
	runs       runLog
	observers  observers
	refused    refusedClaims
	member     *member.Member
	operator   *operator.Operator // of the member's group, before it has joined and after it has left as well
	clock      func() time.Time   // of day
	pool       *pool.Pool
	claimed    claimedRuns
	keys       record.Keys
	waited     waitReport // of the goroutine that the pool's alarm has begun

	mu             mutex.Mutex
	jobs           map[string]*Job  // by name, withdrawn ones included
	withdrawn      map[string]bool  // by name of the job
	followed       map[string]bool  // jobs that a registered one follows or has followed
	kinds          map[string]*Kind // by name, withdrawn ones included
	withdrawnKinds map[string]bool  // by name
	state          state
	shutdown       *shutdown          // nil: Shutdown has not been called since Start
	joined         bool               // Start has returned nil
	stop           context.CancelFunc // ends the member at once
	stopped        chan struct{}      // closed when Member.Run has returned; failed is set then
	failed         error              // from Member.Run
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

// New returns an executor for the jobs of one namespace of reg. It reports all problems of
// its arguments together, joined. New sends nothing to the registry, and the executor does not
// close reg: close it after Shutdown or Run has returned.
func New(reg registry.Registry, namespace string, o Options) (*Executor, error) {
	o.DrainTimeout = cmp.Or(o.DrainTimeout, defaultDrainTimeout)
	var workers error
	if o.Workers < 0 {
		workers = fmt.Errorf("option Workers is %d, below 0", o.Workers)
	}
	var middleware error
	if err := checkMiddleware(o.Middleware); err != nil {
		middleware = fmt.Errorf("option Middleware: %w", err)
	}
	o.Middleware = slices.Clone(o.Middleware)
	e := &Executor{
		reg: reg, opts: o, namespace: namespace, group: cmp.Or(o.Group, "default"), stopped: make(chan struct{}),
		jobs: map[string]*Job{}, withdrawn: map[string]bool{}, followed: map[string]bool{}, kinds: map[string]*Kind{}, withdrawnKinds: map[string]bool{},
	}
	var err error
	e.member, err = member.New(reg, member.Options{
		Namespace: namespace, Group: o.Group, Instance: o.Instance, SessionTTL: o.SessionTTL,
		MaxClockSkew: o.MaxClockSkew, Clock: o.Clock, RestartGrace: o.RestartGrace, Host: o.Host, Labels: o.Labels, Weight: o.Weight, Strategies: o.Strategies, Logger: o.Logger, Work: work{e}, Events: e.memberEvents(),
	})
	if err := errors.Join(workers, middleware, err); err != nil {
		return nil, fmt.Errorf("new executor: %w", err)
	}
	if e.strategies, err = strategy.Known(o.Strategies); err != nil {
		return nil, fmt.Errorf("new executor: %w", err)
	}
	e.pool = pool.New(pool.Options{Bound: o.Workers, Alarm: e.reportWaiting, LongWait: longWait, NotBegun: errNotBegun})
	e.clock = contain.Clock(o.Clock)
	if e.keys, err = record.NewKeys(namespace, e.group); err != nil {
		return nil, fmt.Errorf("new executor: %w", err)
	}
	operator, err := operator.New(reg, namespace, o.Group)
	if err != nil {
		return nil, fmt.Errorf("new executor: %w", err)
	}
	e.operator = operator.WithCompiler(Compile)
	e.log = contain.Logger(o.Logger).With("namespace", namespace, "group", e.group, "instance", e.member.Instance())
	e.runs.log, e.observers.log = e.log, e.log
	if !o.Observer.isZero() {
		e.Observe(o.Observer)
	}
	return e, nil
}

// Instance returns the name of this process in the fleet.
func (e *Executor) Instance() string { return e.member.Instance() }

// Start joins the fleet. It returns when the session is open and the definitions are stored.
// Ctx bounds only the call; the executor runs until Shutdown. Start fails with ErrNameTaken if
// another process has the name, with ErrNewerFormat if a newer version of rota made the
// namespace, and with the cause of ctx if that ends first. An Executor can be started once.
func (e *Executor) Start(ctx context.Context) error {
	if e.member == nil {
		return errors.New("start: this Executor is a literal; New makes one that can start")
	}
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
		applied := e.applyPosted(run)
		e.failed = e.logUnexpectedEnd(e.member.Run(run))
		e.stop()
		<-applied
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

// applyPosted does the acts that transactions of users post, while this instance leads. It returns a channel that is closed once ctx has ended.
func (e *Executor) applyPosted(ctx context.Context) <-chan struct{} {
	ended := make(chan struct{})
	if !registry.CanPost(e.reg) {
		close(ended)
		return ended
	}
	go func() {
		defer close(ended)
		for waitUntil(ctx, e.member.IsLeading) {
			term, cancel := context.WithCancel(ctx)
			go func() {
				defer cancel()
				waitUntil(ctx, func() bool { return !e.member.IsLeading() })
			}()
			_ = e.operator.ApplyPosted(term, e.log) // ends with term, or with the registry, which ends the member
			<-term.Done()
		}
	}()
	return ended
}

// waitUntil asks twice a second whether something is so. It returns false if ctx ends before.
func waitUntil(ctx context.Context, isSo func() bool) bool {
	for !isSo() {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(500 * time.Millisecond):
		}
	}
	return ctx.Err() == nil
}

// Done returns a channel that is closed when the executor has ended: after Shutdown, or by itself if the registry is
// closed. A program that calls Start waits for it as for a signal to stop, and then reads Err. It is nil, and so never
// closed, for an Executor that New has not made. An executor that never starts does not end.
//
// If Shutdown returns an *AbandonedError, the channel is closed when the last handler has returned.
func (e *Executor) Done() <-chan struct{} { return e.stopped }

// Err returns why the executor has ended by itself, or why Start has failed. It is nil before Done is closed, and
// after a shutdown.
func (e *Executor) Err() error {
	select {
	case <-e.stopped:
		return e.failed
	default:
		return nil
	}
}

// logUnexpectedEnd logs why the member stopped by itself, and returns the error of Run for that. An
// executor that did not join has the error returned by Start, and one that was shut down has
// none.
func (e *Executor) logUnexpectedEnd(err error) error {
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

// Run calls Start, waits until ctx ends, and calls Shutdown. The end of ctx does not end the
// contexts of runs: they have DrainTimeout to finish. Run returns nil after a complete
// shutdown, and the error of Start or Shutdown otherwise. It returns earlier, with an error,
// if the registry is closed.
//
// If ctx comes from signal.NotifyContext, call context.AfterFunc(ctx, stop) with the stop
// function of that context. A second signal then kills the process, and other instances
// repeat its runs as after a crash.
func (e *Executor) Run(ctx context.Context) error {
	if err := e.Start(ctx); err != nil {
		if ctx.Err() != nil {
			return nil // ctx ended before the executor had joined
		}
		return err
	}
	select {
	case <-ctx.Done():
	case <-e.stopped:
		waitFor(context.WithoutCancel(ctx), cancelGrace, e.pool.Idle()) // the contexts of runs have ended
		e.runs.flush()
		e.observers.close()
		return e.failed
	}
	return e.Shutdown(context.WithoutCancel(ctx))
}

// Trigger requests a run of a job now, on the instances that own its shards, and returns the
// number of the trigger, which the runs have as Run.Trigger. Once Trigger returns nil, the run
// is guaranteed to happen, also after a crash; while the job is paused or the shard disabled,
// it waits. Each successful call is another run.
func (e *Executor) Trigger(ctx context.Context, job string, t Trigger) (uint64, error) {
	number, err := e.operator.Trigger(ctx, job, t.Param, t.Shards)
	return number, e.explainUnknownJob(job, err)
}

// Trigger is a request for a run.
type Trigger struct {
	Param  string // Run.Param of the runs, up to 8192 bytes; empty means Job.Param
	Shards []int  // the shards to run; nil means all, and an empty slice is an error
}

// Operator returns an Operator of the executor's group, which pauses, disables, resets, retries and shows jobs. It may record who
// calls and why: e.Operator().As("kim", "quarter end").Pause(ctx, job). It has the compiler of the jobs of this package,
// and can be used before Start and after Shutdown.
func (e *Executor) Operator() *operator.Operator { return e.operator }

// explainUnknownJob adds to an ErrUnknownJob that the job is registered here and that Start stores it, if
// the executor has not been started.
func (e *Executor) explainUnknownJob(job string, err error) error {
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
