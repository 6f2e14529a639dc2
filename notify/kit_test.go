package notify

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
	"github.com/rota-dev/rota/schedule"
)

// fleet is a fleet with notifiers in a bubble.
type fleet struct {
	t      *testing.T
	server *memory.Server
	log    *journal

	mu      sync.Mutex
	failing map[string]bool

	processes map[string]*process
}

// process is a process with an executor, a notifier or both.
type process struct {
	reg      registry.Registry
	ex       *executor.Executor
	notifier *Notifier
}

// run runs a test of a fleet in a bubble.
func run(t *testing.T, f func(t *testing.T, f *fleet)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		fl := &fleet{t: t, server: memory.New(), log: &journal{}, failing: map[string]bool{}, processes: map[string]*process{}}
		defer fl.close()
		f(t, fl)
	})
}

func (f *fleet) process(name string) *process {
	if f.processes[name] == nil {
		f.processes[name] = &process{reg: f.server.Client(name)}
	}
	return f.processes[name]
}

// job returns a job that fires each minute, and fails while the fleet has it fail.
func (f *fleet) job(name string) executor.Job {
	return executor.Job{Name: name, Schedule: schedule.Every(time.Minute), Handler: executor.HandlerFunc(func(context.Context, *executor.Run) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.failing[name] {
			return errors.New("no such table")
		}
		return nil
	})}
}

func (f *fleet) fail(fails bool, jobs ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, job := range jobs {
		f.failing[job] = fails
	}
}

// start starts an executor in a process.
func (f *fleet) start(name string, jobs ...executor.Job) *executor.Executor {
	f.t.Helper()
	p := f.process(name)
	var err error
	p.ex, err = executor.New(p.reg, "test", executor.Options{Instance: name, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(f.t, err)
	require.NoError(f.t, p.ex.Register(jobs...))
	require.NoError(f.t, p.ex.Start(f.t.Context()))
	return p.ex
}

// notify starts a notifier in a process. Its rounds are at odd seconds, so that each fire is before or after a round.
func (f *fleet) notify(name string, o Options) *Notifier {
	f.t.Helper()
	time.Sleep(time.Until(time.Now().Truncate(roundEvery).Add(roundEvery + time.Second)))
	p := f.process(name)
	o.Logger = slog.New(f.log.handler())
	var err error
	p.notifier, err = Start(context.WithoutCancel(f.t.Context()), p.reg, "test", "", o)
	require.NoError(f.t, err)
	synctest.Wait()
	return p.notifier
}

// kill cuts a process off, for ever. What its goroutines do does not reach the store.
func (f *fleet) kill(name string) {
	p := f.processes[name]
	delete(f.processes, name)
	f.server.Partition(name)
	f.t.Cleanup(func() { p.end(f.t, true) })
}

func (p *process) end(t *testing.T, killed bool) {
	ctx := context.Background()
	if killed {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		cancel()
	}
	if p.notifier != nil {
		if err := p.notifier.Shutdown(context.Background()); !killed {
			assert.NoError(t, err)
		}
	}
	if p.ex != nil {
		if err := p.ex.Shutdown(ctx); !killed {
			assert.NoError(t, err)
		}
	}
	if err := p.reg.Close(ctx); !killed {
		assert.NoError(t, err)
	}
}

func (f *fleet) close() {
	for _, p := range f.processes {
		p.end(f.t, false)
	}
}

// cursor returns the record of a receiver.
func (f *fleet) cursor(name string) *record.Receiver {
	f.t.Helper()
	keys, err := record.NewKeys("test", "default")
	require.NoError(f.t, err)
	c := f.server.Client("look")
	defer func() { assert.NoError(f.t, c.Close(context.Background())) }()
	e, err := c.Get(context.Background(), keys.Receiver(name), registry.ReadOptions{Fresh: true})
	require.NoError(f.t, err)
	r, err := record.DecodeReceiver(e.Value)
	require.NoError(f.t, err)
	return r
}

// sink is a receiver that keeps messages. Before it accepts one it calls accept, which may fail.
type sink struct {
	mu     sync.Mutex
	got    []Message
	tries  int
	accept func(m Message) error
}

func (s *sink) Deliver(_ context.Context, m Message) error {
	s.mu.Lock()
	s.tries++
	accept := s.accept
	s.mu.Unlock()
	if accept != nil {
		if err := accept(m); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.got = append(s.got, m)
	return nil
}

func (s *sink) set(accept func(m Message) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.accept = accept
}

func (s *sink) messages() []Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.got)
}

func (s *sink) attempts() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tries
}

// transitions returns the messages as "job transition".
func (s *sink) transitions() string {
	var all []string
	for _, m := range s.messages() {
		all = append(all, strings.TrimSpace(m.Job+" "+string(m.Transition)))
	}
	return strings.Join(all, ", ")
}

func ids(all []Message) (list []string) {
	for _, m := range all {
		list = append(list, m.ID)
	}
	return list
}

// journal keeps log lines.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) handler() slog.Handler { return slog.NewTextHandler(j, nil) }

// Write implements io.Writer.
func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, string(p))
	return len(p), nil
}

func (j *journal) count(message string) (n int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, line := range j.lines {
		if strings.Contains(line, message) {
			n++
		}
	}
	return n
}

func names(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("job-%04d", i))
	}
	return all
}

// editReceiver deletes or damages the record of a receiver.
func editReceiver(t *testing.T, f *fleet, name string, deletes bool) {
	t.Helper()
	keys, err := record.NewKeys("test", "default")
	require.NoError(t, err)
	c := f.server.Client("edit")
	defer func() { assert.NoError(t, c.Close(context.Background())) }()
	e, err := c.Get(t.Context(), keys.Receiver(name), registry.ReadOptions{})
	require.NoError(t, err)
	op := registry.Set(e.Key, e.Modified, []byte("{"))
	if deletes {
		op = registry.Delete(e.Key, e.Modified)
	}
	_, err = registry.Apply(t.Context(), c, registry.Txn{Then: []registry.Op{op}})
	require.NoError(t, err)
}
