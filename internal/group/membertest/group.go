package membertest

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/coordinator/strategy"
	"github.com/rota-dev/rota/internal/group/claimer"
	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/group/member"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry/memory"
)

// RunBubble runs f as a subtest in virtual time, with a new group on a new server, and stops the
// group's members after it.
func RunBubble(t *testing.T, name string, f func(t *testing.T, g *Group)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			keys, err := record.NewKeys("test", "default")
			require.NoError(t, err)
			g := &Group{T: t, Server: memory.New(), Keys: keys, editor: "editor"}
			defer g.stopAll()
			f(t, g)
		})
	})
}

// Group is a group of members on one memory server. Each member has a client handle of its own
// name, so that its connection fails on its own.
type Group struct {
	T        *testing.T
	Server   *memory.Server
	Keys     record.Keys
	Members  []*Worker
	editor   string // the name of the client handle that edits records
	Grace    time.Duration
	Skew     time.Duration                 // MaxClockSkew
	clocks   map[string]*clockError        // the errors of the members' clocks, by instance
	Strategy atomic.Pointer[strategy.Func] // called by the strategies "hangs" and "failing"
}

// clockError is the time by which a clock is ahead of the bubble's.
type clockError struct{ atomic.Int64 }

func (e *clockError) now() time.Time { return time.Now().Add(time.Duration(e.Load())) }

// SetClock sets the clock of an instance, which may start later.
func (g *Group) SetClock(name string, ahead time.Duration) {
	if g.clocks == nil {
		g.clocks = map[string]*clockError{}
	}
	if g.clocks[name] == nil {
		g.clocks[name] = &clockError{}
	}
	g.clocks[name].Store(int64(ahead))
}

// StartFleet starts n members a, b, ... one after the other, so that a leads.
func (g *Group) StartFleet(n int) []*Worker {
	var out []*Worker
	for i := range n {
		out = append(out, g.Start(string(rune('a'+i)), coordtest.Def("job", 0, 12, "")))
	}
	return out
}

// StartFive starts five members that offer a job with 20 shards, and returns the owners.
func (g *Group) StartFive() map[string]string {
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		g.Start(name, coordtest.Def("job", 0, 20, ""))
	}
	g.Server.Record()
	return g.ReadOwners("job")
}

// Start starts a member that offers definitions, and waits until it has joined and its shards
// have been assigned.
func (g *Group) Start(name string, defs ...string) *Worker {
	g.T.Helper()
	return g.JoinWorker(g.NewWorker(name, nil, defs...))
}

// StartWorking is Start with a handler of runs.
func (g *Group) StartWorking(name string, work func(context.Context, claimer.Run) error, defs ...string) *Worker {
	g.T.Helper()
	return g.JoinWorker(g.NewWorker(name, work, defs...))
}

// StartOn is Start with a client handle of another name than the member's.
func (g *Group) StartOn(client, name string, defs ...string) *Worker {
	g.T.Helper()
	return g.JoinWorker(g.NewWorkerOn(client, name, nil, defs...))
}

// StartOldVersion starts a member of an older version, which does not support lunar schedules.
func (g *Group) StartOldVersion(name string, defs ...string) *Worker {
	g.T.Helper()
	w := g.NewWorker(name, nil, defs...)
	w.unsupportedWord = "lunar"
	return g.JoinWorker(w)
}

// JoinWorker runs a member and waits until it has joined and its shards have been assigned.
func (g *Group) JoinWorker(w *Worker) *Worker {
	g.T.Helper()
	require.NoError(g.T, g.RunWorker(w).AwaitJoined(g.T.Context()))
	time.Sleep(time.Second) // for elections and moves
	synctest.Wait()
	return w
}

// NewWorker returns a member that offers definitions. It has not started.
func (g *Group) NewWorker(name string, work func(context.Context, claimer.Run) error, defs ...string) *Worker {
	g.T.Helper()
	return g.NewWorkerOn(name, name, work, defs...)
}

// NewWorkerOn is NewWorker with a client handle of another name than the member's.
func (g *Group) NewWorkerOn(client, name string, work func(context.Context, claimer.Run) error, defs ...string) *Worker {
	g.T.Helper()
	w := &Worker{
		g: g, Log: &coordtest.Logbook{}, Reg: &hooked{Registry: g.Server.Client(client)}, Done: make(chan struct{}), work: work,
	}
	var err error
	if g.clocks[name] == nil {
		g.SetClock(name, 0)
	}
	w.Member, err = member.New(w.Reg, member.Options{
		Namespace: "test", Instance: name, SessionTTL: TTL, RestartGrace: g.Grace, Host: "host-of-" + name, Work: w,
		Clock: g.clocks[name].now, MaxClockSkew: g.Skew,
		Strategies: map[string]strategy.Func{"hangs": g.callStrategy, "failing": g.callStrategy},
		Logger:     slog.New(slog.NewTextHandler(w.Log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	require.NoError(g.T, err)
	o, err := operator.New(w.Reg, "test", "")
	require.NoError(g.T, err)
	w.Operator = o.WithCompiler(w.Compile)
	w.Offer(DefinitionsByName(defs...))
	return w
}

// callStrategy calls the strategy that the test has set.
func (g *Group) callStrategy(in strategy.Input) (strategy.Assignment, error) {
	return (*g.Strategy.Load())(in)
}

// HangStrategy makes the strategy "hangs" assign shards as "single" does, except that its first n
// calls do not return until release is called.
func (g *Group) HangStrategy(n int64) (release func()) {
	released := make(chan struct{})
	var calls atomic.Int64
	s := strategy.Func(func(in strategy.Input) (strategy.Assignment, error) {
		if calls.Add(1) <= n {
			<-released
		}
		return strategy.Single(in)
	})
	g.Strategy.Store(&s)
	return func() { close(released) }
}

// RunWorker calls the member's Run in a goroutine.
func (g *Group) RunWorker(w *Worker) *Worker {
	g.Members = append(g.Members, w)
	go func() {
		defer close(w.Done)
		w.Err = w.Run(context.Background())
	}()
	return w
}

// TTL is the session TTL of the members.
const TTL = 10 * time.Second

// DefinitionsByName returns definitions by the names of their jobs.
func DefinitionsByName(defs ...string) map[string]json.RawMessage {
	out := map[string]json.RawMessage{}
	for _, d := range defs {
		j, err := record.ParseJob(json.RawMessage(d))
		if err != nil {
			panic(err)
		}
		out[j.Name] = json.RawMessage(d)
	}
	return out
}

// NewOperator returns an Operator with a client handle of its own, and the handle.
func (g *Group) NewOperator() (*operator.Operator, *hooked) {
	g.T.Helper()
	reg := &hooked{Registry: g.Server.Client("console")}
	o, err := operator.New(reg, "test", "")
	require.NoError(g.T, err)
	return o, reg
}

// stopAll ends all members without draining them.
func (g *Group) stopAll() {
	for _, w := range g.Members {
		w.Abandon()
	}
	for _, w := range g.Members {
		<-w.Done
		assert.NoError(g.T, w.Err, w.Instance())
	}
}

// SleepToMinute sleeps until a second after the n-th minute of the bubble.
func SleepToMinute(n int) {
	time.Sleep(time.Until(coordtest.BubbleStart().Add(time.Duration(n)*time.Minute + time.Second)))
	synctest.Wait()
}

// ExpireUnnoticed expires the sessions of a client handle, which observes it a second later.
func (g *Group) ExpireUnnoticed(name string) {
	g.Server.Delay(name, 0, time.Second)
	g.Server.Expire(name)
	g.Server.Delay(name, 0, 0)
}
