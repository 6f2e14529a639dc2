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
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

// Namespace is the namespace of a fleet's executors.
const Namespace = "rotatest"

// Fleet is a set of instances with their registry and the record of their runs. Run makes it.
type Fleet struct {
	// Options configure the executors of later calls of Start, which sets Instance. A nil
	// Logger means the log of the test. Jobs with a MaxRunning of zero have no bound, so that a
	// test does not depend on the number of CPUs.
	Options executor.Options
	// Wrap, if not nil, wraps the registry of each process that is started later, for example with
	// faults: Injector.Wrap of package registry/faults has this signature. process is the name by which
	// Server knows the process.
	Wrap func(process string, reg registry.Registry) registry.Registry

	t         reporter
	bubble    *testing.T
	server    *memory.Server
	model     *model
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
	reg      registry.Registry
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
	f.model = newModel(func(format string, args ...any) { r.Errorf("rotatest: "+format, args...) })
	f.recorder = recorder{t: r, made: map[string]bool{}}
	f.model.returned = f.recorder.returned
	return f
}

// T returns the T of the bubble. In the bubble, use its Context, Cleanup and TempDir. Its
// cleanup functions are called before the fleet is stopped.
func (f *Fleet) T() *testing.T { return f.bubble }

// Server returns the registry, for its fault controls, such as f.Server().Delay("a", ...). A
// process has the name of its instance there, with "#2" appended after its second start and so
// on. Revert faults before the test ends, and before Settle if they isolate a process. Do not
// read the Log of the server, which the fleet consumes.
func (f *Fleet) Server() *memory.Server { return f.server }

// Start starts an instance with an executor for jobs and records their runs. It returns when
// the instance has joined and idle shards have been assigned. Shards that are running on other
// instances move when their runs have ended.
//
// Each instance has a host of its own, with the name of the instance unless Options.Host is set.
//
// After Stop or Crash, an instance can be started again, as a new process with the same name.
// After Crash, Start waits until the earlier session has expired, as in production.
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
	p.reg = f.server.Client(p.machine)
	if f.Wrap != nil {
		p.reg = f.Wrap(p.machine, p.reg)
	}
	if err := f.launch(p, jobs); err != nil {
		f.t.Fatalf("rotatest: start %s: %v", instance, err)
	}
	f.await(assignTime, func() bool { return !f.hasIdle(moving, "") })
	return p.ex
}

// assignTime bounds the wait of Start for shards to be assigned, and of other methods for due
// runs to be claimed. Both take no time without a fault.
const assignTime = time.Second

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
	recorded := func(h executor.Handler) executor.Handler { return &recordedHandler{&f.recorder, p, h} }
	o.Middleware = append([]executor.Middleware{recorded}, o.Middleware...)
	o.Logger = slog.New(gatedLog{o.Logger.Handler(), func() bool { return p.life.Err() == nil }}) // ends with the process
	group := o.Group
	if group == "" {
		group = "default"
	}
	keys, err := record.NewKeys(Namespace, group)
	if err != nil {
		return err
	}
	f.model.addGroup(keys)
	if p.ex, err = executor.New(p.reg, Namespace, o); err != nil {
		return err
	}
	f.processes = append(f.processes, p)
	if err := p.ex.Register(unbounded(jobs)...); err != nil {
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

// unbounded returns jobs whose runs do not wait for each other, unless the jobs bound them.
func unbounded(jobs []executor.Job) []executor.Job {
	out := slices.Clone(jobs)
	for i := range out {
		if out[i].MaxRunning == 0 {
			out[i].MaxRunning = record.MaxShards
		}
	}
	return out
}

// SetClock makes the clock of an instance differ from the fleet's time: ahead by the given
// duration, or behind if it is negative. The difference remains if the instance is started
// again, and may be set before the first start.
//
// With three or more instances, the fleet detects a clock that is skewed by more than
// Options.MaxClockSkew within a minute; the instance then claims nothing until SetClock corrects
// it. With a smaller difference, or fewer instances, it claims fires early or late. The methods
// of Fleet and the instants of a Record use the fleet's time.
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

// Register calls Executor.Register on a running instance, and returns when the registry has the definitions. The runs
// of jobs that the program registers on the Executor itself are recorded and checked as well.
func (f *Fleet) Register(instance string, jobs ...executor.Job) {
	f.t.Helper()
	p := f.process("register jobs with", instance)
	if err := p.ex.Register(unbounded(jobs)...); err != nil {
		f.t.Fatalf("rotatest: register jobs with %s: %v", instance, err)
	}
	f.await(assignTime, func() bool {
		return !slices.ContainsFunc(jobs, func(j executor.Job) bool { return !f.model.stored(j.Name, j.Revision) })
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

// Stop shuts an instance down, as Executor.Shutdown does. The test fails if a handler does not
// return after the end of its context.
func (f *Fleet) Stop(instance string) {
	f.t.Helper()
	p := f.process("stop", instance)
	p.state = stopped
	if err := p.ex.Shutdown(context.Background()); err != nil {
		f.t.Errorf("rotatest: stop %s: %v", instance, err)
	}
}

// Crash ends an instance without a shutdown. Its requests no longer reach the registry. Its
// session, with its name and shards, expires up to a SessionTTL later. The contexts of its runs
// end at once, with ErrSessionLost. Handlers that ignore this continue as zombies. Their writes
// do not reach the registry either.
//
// For an instance that continues to run without a connection, use Partition.
func (f *Fleet) Crash(instance string) {
	f.t.Helper()
	p := f.process("crash", instance)
	p.state = crashed
	f.server.Partition(p.machine)
	f.model.markCrashed(p.machine)
	p.end(fmt.Errorf("%w: %s crashed", executor.ErrSessionLost, instance))
	f.wait() // the contexts have ended with that cause, before the executor gives them another

	// Its loops would retry for ever. This shutdown ends them; it cannot reach the registry.
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

// Partition disconnects an instance from the registry until heal is called. Its session is
// suspended and then lost, its runs end with ErrSessionLost, and other instances make them
// again. After heal, it joins again. Partitions that remain are healed when the test ends.
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
