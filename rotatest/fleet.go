package rotatest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry/memory"
)

// Namespace is that of a fleet's executors.
const Namespace = "rotatest"

// Fleet is the processes of a test, the registry between them, and what they have run. It
// is made by Run.
type Fleet struct {
	// Options are those of the executors that Start makes from now on. Start sets Instance.
	// A Logger of nil writes to the log of the test, until its function has returned. Jobs with
	// a MaxRunning of zero have no bound here, so that a test passes on a machine with few CPUs.
	Options executor.Options

	t         reporter
	bubble    *testing.T
	server    *memory.Server
	books     *books
	recorder  recorder
	clocks    map[string]*atomic.Int64 // how far they are ahead, by instance
	processes []*process
	heals     []func()
	stopping  sync.WaitGroup
	returned  bool        // the test's function, and neither failed nor panicked
	silent    atomic.Bool // what processes log to the test is discarded
}

// process is an executor with what belongs to its process.
type process struct {
	instance string
	machine  string // by which the server knows it: another after each start
	client   *memory.Client
	ex       *executor.Executor
	life     context.Context // ends when the process crashes
	end      context.CancelCauseFunc
	state    processState
	cuts     int // by Partition, not healed
}

type processState int

const (
	up processState = iota
	stopped
	crashed
)

func newFleet(t *testing.T, r reporter) *Fleet {
	f := &Fleet{t: r, bubble: t, server: memory.New(), clocks: map[string]*atomic.Int64{}}
	f.server.Record()
	f.books = newBooks(func(format string, args ...any) { r.Errorf("rotatest: "+format, args...) })
	f.recorder = recorder{t: r, made: map[string]bool{}}
	f.books.returned = f.recorder.returned
	return f
}

// T returns the T of the bubble, whose Context, Cleanup and TempDir are those to use in
// it. Its cleanup functions are called before the fleet is stopped.
func (f *Fleet) T() *testing.T { return f.bubble }

// Server returns the registry, for its levers: f.Server().Delay("a", ...). The name of a
// process there is that of its instance, with "#2" after its second start and so on. What
// a lever does is to be undone before the test ends, and before Settle if it keeps a
// process from the fleet. The log of the server is the fleet's own; its Counts and Dump
// are anyone's.
func (f *Fleet) Server() *memory.Server { return f.server }

// Start starts a process with an executor for jobs, whose runs are recorded. It returns
// when the process has joined and idle shards have been dealt; those that are running
// elsewhere and are to move here do so when they have ended.
//
// Each instance is on a host of its own, which has its name unless Options.Host is set.
//
// After Stop or Crash an instance may be started again: another process, of the same
// name. After Crash that takes until the session of the one before has expired, as it
// does in production.
func (f *Fleet) Start(instance string, jobs ...executor.Job) *executor.Executor {
	f.t.Helper()
	if instance == "" {
		f.t.Fatalf("rotatest: start: an instance needs a name")
	}
	p := &process{instance: instance, machine: instance}
	starts := 1
	for _, q := range f.processes {
		if q.instance != instance {
			continue
		}
		if q.state == up {
			f.t.Fatalf("rotatest: start %s: it has been started, and neither stopped nor crashed", instance)
		}
		starts++
	}
	if starts > 1 {
		p.machine = fmt.Sprintf("%s#%d", instance, starts)
	}
	p.life, p.end = context.WithCancelCause(context.Background())
	p.client = f.server.Client(p.machine)
	if err := f.launch(p, jobs); err != nil {
		f.t.Fatalf("rotatest: start %s: %v", instance, err)
	}
	f.await(dealTime, func() bool { return !f.anyIdle(moving, "") })
	return p.ex
}

// dealTime is how long Start waits for the shards to be dealt, and a helper for runs to be
// claimed that are due. Both take no time unless a lever makes them.
const dealTime = time.Second

func (f *Fleet) launch(p *process, jobs []executor.Job) error {
	o := f.Options
	o.Instance = p.instance
	if o.Host == "" {
		o.Host = p.instance // not that of the machine on which the test runs
	}
	if o.Logger == nil {
		o.Logger = slog.New(gatedLog{slog.NewTextHandler(f.bubble.Output(), nil), func() bool { return !f.silent.Load() }})
	}
	o.Clock = f.clockOf(p.instance, o.Clock)
	o.Logger = slog.New(gatedLog{o.Logger.Handler(), func() bool { return p.life.Err() == nil }}) // ends with the process
	group := o.Group
	if group == "" {
		group = "default"
	}
	keys, err := record.NewKeys(Namespace, group)
	if err != nil {
		return err
	}
	f.books.open(keys)
	if p.ex, err = executor.New(p.client, Namespace, o); err != nil {
		return err
	}
	f.processes = append(f.processes, p)
	if err := p.ex.Register(f.recorded(p, jobs)...); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), callTime)
	defer cancel()
	return p.ex.Start(ctx)
}

// gatedLog is a log that discards its lines while it is not open.
type gatedLog struct {
	slog.Handler
	open func() bool
}

func (l gatedLog) Enabled(ctx context.Context, level slog.Level) bool {
	return l.open() && l.Handler.Enabled(ctx, level)
}

func (l gatedLog) WithAttrs(as []slog.Attr) slog.Handler {
	return gatedLog{l.Handler.WithAttrs(as), l.open}
}

func (l gatedLog) WithGroup(name string) slog.Handler {
	return gatedLog{l.Handler.WithGroup(name), l.open}
}

// recorded returns jobs with handlers that record what they do.
func (f *Fleet) recorded(p *process, jobs []executor.Job) []executor.Job {
	out := make([]executor.Job, len(jobs))
	for i, j := range jobs {
		if fn, ok := j.Handler.(executor.HandlerFunc); j.Handler != nil && (!ok || fn != nil) { // else refused by Register
			j.Handler = &recordedHandler{&f.recorder, p, j.Handler}
		}
		if j.MaxRunning == 0 {
			j.MaxRunning = record.MaxShards
		}
		out[i] = j
	}
	return out
}

// SetClock sets the clock of an instance: by so much ahead of the fleet's time, or behind it
// if by is below zero. It is the clock of its machine: it goes on from there, and stays wrong
// if the process is started again. An instance that has not started yet starts with it.
//
// What is further off than Options.MaxClockSkew is found out within a minute, where there are
// three instances: until the clock is set right again that one claims nothing. Less, or where
// nobody can tell, it claims fires that much early or late, so that they are owed for longer.
// The helpers that wait and the instants of the records go by the fleet's time.
func (f *Fleet) SetClock(instance string, by time.Duration) { f.clockError(instance).Store(int64(by)) }

func (f *Fleet) clockError(instance string) *atomic.Int64 {
	if f.clocks[instance] == nil {
		f.clocks[instance] = &atomic.Int64{}
	}
	return f.clocks[instance]
}

func (f *Fleet) clockOf(instance string, clock func() time.Time) func() time.Time {
	if clock == nil {
		clock = time.Now
	}
	ahead := f.clockError(instance)
	return func() time.Time { return clock().Add(time.Duration(ahead.Load())) }
}

// Register is Executor.Register on a running process, with handlers whose runs are
// recorded; the executor's own method records nothing. It returns when the registry has
// the definitions.
func (f *Fleet) Register(instance string, jobs ...executor.Job) {
	f.t.Helper()
	p := f.process("register jobs with", instance)
	if err := p.ex.Register(f.recorded(p, jobs)...); err != nil {
		f.t.Fatalf("rotatest: register jobs with %s: %v", instance, err)
	}
	f.await(dealTime, func() bool {
		return !slices.ContainsFunc(jobs, func(j executor.Job) bool { return !f.books.stored(j.Name, j.Revision) })
	})
}

// process returns the running process of an instance.
func (f *Fleet) process(verb, instance string) *process {
	f.t.Helper()
	for _, p := range f.processes {
		if p.instance == instance && p.state == up {
			return p
		}
	}
	f.t.Fatalf("rotatest: %s %s: no process of that name is running", verb, instance)
	return nil
}

// Stop stops a process in good order: it hands over, lets its runs end within the
// DrainTimeout, and leaves. The test fails if a handler does not even return when its
// context has ended.
func (f *Fleet) Stop(instance string) {
	f.t.Helper()
	p := f.process("stop", instance)
	p.state = stopped
	if err := p.ex.Shutdown(context.Background()); err != nil {
		f.t.Errorf("rotatest: stop %s: %v", instance, err)
	}
}

// Crash makes a process die. The registry hears no more of it; its session, and hence its
// name and its shards, stay until their time is over, which takes up to a SessionTTL after
// Crash has returned. The contexts of its runs end at once, with ErrSessionLost. Handlers
// that ignore this live on as zombies: they are what is left of a process that was not
// quite dead, and none of their writes to the registry gets through.
//
// Use Partition for a process that does not know that it is cut off.
func (f *Fleet) Crash(instance string) {
	f.t.Helper()
	p := f.process("crash", instance)
	p.state = crashed
	f.server.Partition(p.machine)
	f.books.bury(p.machine)
	p.end(fmt.Errorf("%w: %s crashed", executor.ErrSessionLost, instance))
	f.wait() // the contexts have ended with that cause, before the executor gives them another

	// Its loops would try to reach the registry for ever. What ends them reaches nobody.
	now, cancel := context.WithCancel(context.Background())
	cancel()
	f.stopping.Go(func() {
		if err := p.ex.Shutdown(now); err != nil && !isAbandoned(err) {
			f.t.Errorf("rotatest: the remains of %s: %v", instance, err)
		}
	})
}

func isAbandoned(err error) bool {
	var abandoned *executor.AbandonedError
	return errors.As(err, &abandoned)
}

// Partition cuts a process off from the registry, until heal: its session is suspended,
// then lost, its runs end with ErrSessionLost, and others make them again. When it has
// been healed it joins again. What the test does not heal is healed when it ends.
func (f *Fleet) Partition(instance string) (heal func()) {
	f.t.Helper()
	p := f.process("partition", instance)
	restore := f.server.Partition(p.machine)
	p.cuts++
	heal = sync.OnceFunc(func() {
		p.cuts--
		restore()
	})
	f.heals = append(f.heals, heal)
	return heal
}
