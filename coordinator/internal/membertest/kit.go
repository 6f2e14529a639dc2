package membertest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/coordinator"
	"github.com/rota-dev/rota/coordinator/internal/coordtest"
	"github.com/rota-dev/rota/coordinator/internal/due"
	"github.com/rota-dev/rota/coordinator/internal/member"
	"github.com/rota-dev/rota/coordinator/strategy"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

// StartFleet starts members a, b, ... one after the other, so that a leads.
func (g *Group) StartFleet(n int) []*Worker {
	var out []*Worker
	for i := range n {
		out = append(out, g.Start(string(rune('a'+i)), coordtest.Def("job", 0, 12, "")))
	}
	return out
}

// StartFive starts five members of a job with 20 shards.
func (g *Group) StartFive() map[string]string {
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		g.Start(name, coordtest.Def("job", 0, 20, ""))
	}
	g.Server.Record()
	return g.ReadOwners("job")
}

// CountMoves returns how often a shard went from an instance of one name to one of another,
// since the last call, given who had them.
func (g *Group) CountMoves(had map[string]string) (moves int) {
	owner := map[int]string{}
	for name, text := range had {
		var set shardset.Set
		require.NoError(g.T, set.UnmarshalText([]byte(text)))
		for s := range set.All() {
			owner[s] = name
		}
	}
	for _, c := range g.TakeCommits() {
		for _, op := range c.Then {
			if op.Key != g.Keys.Plan("job") {
				continue
			}
			p, err := record.DecodePlan(op.Value)
			require.NoError(g.T, err)
			for inc, set := range p.Owners {
				name := inc[:1]
				for s := range set.All() {
					if owner[s] != name {
						owner[s] = name
						moves++
					}
				}
			}
		}
	}
	return moves
}

// RestartEach restarts one member after another, each of which is away for five seconds, and
// checks that every shard runs every fire once.
func (g *Group) RestartEach() {
	all := map[string]map[int]int{} // by fire
	collect := func(w *Worker) {
		for _, r := range w.TakeRuns() {
			assert.Equal(g.T, 1, r.Attempt)
			if all[r.Fire.String()] == nil {
				all[r.Fire.String()] = map[int]int{}
			}
			all[r.Fire.String()][r.Shard]++
		}
	}
	for i, w := range append([]*Worker(nil), g.Members...) {
		time.Sleep(time.Until(coordtest.BubbleBegan().Add(time.Duration(i+1)*time.Minute + 57*time.Second))) // a fire is due while it is away
		w.Shutdown()
		collect(w)
		time.Sleep(5 * time.Second)
		g.StartOn(fmt.Sprint(w.Instance(), " again"), w.Instance(), coordtest.Def("job", 0, 20, ""))
	}
	SleepToMinute(7)
	for _, w := range g.Members {
		collect(w)
	}
	assert.Len(g.T, all, 7)
	for fire, ran := range all {
		assert.Equal(g.T, OncePerShard(20), ran, fire)
	}
}

// RunBubble runs f in virtual time with a new group on a new server, and then stops all of
// its members.
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

// Group is some members on one server, each on a machine of its own name.
type Group struct {
	T        *testing.T
	Server   *memory.Server
	Keys     record.Keys
	Members  []*Worker
	editor   string // the name of the client that edits records by hand
	Grace    time.Duration
	Skew     time.Duration                 // MaxClockSkew
	clocks   map[string]*clockError        // clocks that are not right, by instance
	Strategy atomic.Pointer[strategy.Func] // what the strategies "hangs" and "failing" do
}

// clockError is how far a clock is ahead of the right time.
type clockError struct{ atomic.Int64 }

func (e *clockError) now() time.Time { return time.Now().Add(time.Duration(e.Load())) }

// SetClock sets the clock of an instance, also of one that has not begun.
func (g *Group) SetClock(name string, ahead time.Duration) {
	if g.clocks == nil {
		g.clocks = map[string]*clockError{}
	}
	if g.clocks[name] == nil {
		g.clocks[name] = &clockError{}
	}
	g.clocks[name].Store(int64(ahead))
}

// Worker is a member and the work that it does.
type Worker struct {
	*member.Member
	*coordinator.Operator // on the same handle
	g                     *Group
	Log                   *coordtest.Logbook
	Reg                   *hooked
	Done                  chan struct{} // closed when Run has returned
	Err                   error         // what it returned

	// work does a run; nil ends it at once. It is set before runs begin.
	work func(context.Context, member.Run) error

	mu      sync.Mutex
	runs    []member.Run
	yielded []int // shards

	unsupportedWord string // of later versions: what has it in its definition cannot be compiled; "": all can
}

// Start starts a member that offers definitions, and waits until it has joined and owns
// what it is to own.
func (g *Group) Start(name string, defs ...string) *Worker {
	g.T.Helper()
	return g.JoinWorker(g.NewWorker(name, nil, defs...))
}

// StartWorking is start with work to do.
func (g *Group) StartWorking(name string, work func(context.Context, member.Run) error, defs ...string) *Worker {
	g.T.Helper()
	return g.JoinWorker(g.NewWorker(name, work, defs...))
}

// StartOn is start on a machine whose name is not the member's.
func (g *Group) StartOn(machine, name string, defs ...string) *Worker {
	g.T.Helper()
	return g.JoinWorker(g.NewWorkerOn(machine, name, nil, defs...))
}

func (g *Group) JoinWorker(w *Worker) *Worker {
	g.T.Helper()
	require.NoError(g.T, g.RunWorker(w).AwaitJoined(g.T.Context()))
	time.Sleep(time.Second) // of elections and moves
	synctest.Wait()
	return w
}

func (g *Group) NewWorker(name string, work func(context.Context, member.Run) error, defs ...string) *Worker {
	g.T.Helper()
	return g.NewWorkerOn(name, name, work, defs...)
}

func (g *Group) NewWorkerOn(machine, name string, work func(context.Context, member.Run) error, defs ...string) *Worker {
	g.T.Helper()
	w := &Worker{
		g: g, Log: &coordtest.Logbook{}, Reg: &hooked{Registry: g.Server.Client(machine)}, Done: make(chan struct{}), work: work,
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
	o, err := coordinator.NewOperator(w.Reg, "test", "")
	require.NoError(g.T, err)
	w.Operator = o.WithCompiler(w.Compile)
	w.Offer(DefinitionsByName(defs...))
	return w
}

func (g *Group) callStrategy(in strategy.Input) (strategy.Assignment, error) {
	return (*g.Strategy.Load())(in)
}

// NewOperator returns an Operator on a machine of its own, and its handle.
func (g *Group) NewOperator() (*coordinator.Operator, *hooked) {
	g.T.Helper()
	reg := &hooked{Registry: g.Server.Client("console")}
	o, err := coordinator.NewOperator(reg, "test", "")
	require.NoError(g.T, err)
	return o, reg
}

// SumCounts returns the sums of a job over its life.
func (g *Group) SumCounts(job string) record.Counts {
	g.T.Helper()
	sum := g.ReadPlan(job).Counts
	for _, w := range g.Members {
		sum = sum.Add(g.ReadClaims(w.Incarnation(), job).Counts)
	}
	return sum
}

// RunWorker calls Run.
func (g *Group) RunWorker(w *Worker) *Worker {
	g.Members = append(g.Members, w)
	go func() {
		defer close(w.Done)
		w.Err = w.Run(context.Background())
	}()
	return w
}

// TTL is the TTL of sessions that members ask for.
const TTL = 10 * time.Second

// DefinitionsByName returns definitions by their names.
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

// stopAll ends all members, in whatever state they are.
func (g *Group) stopAll() {
	for _, w := range g.Members {
		w.Abandon()
	}
	for _, w := range g.Members {
		<-w.Done
		assert.NoError(g.T, w.Err, w.Instance())
	}
}

// Abandon makes Run return without waiting for anything.
func (w *Worker) Abandon() {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	w.Leave(ended)
}

// Shutdown drains a member and waits until it has left.
func (w *Worker) Shutdown() {
	w.g.T.Helper()
	require.NoError(w.g.T, w.Drain(w.g.T.Context()))
	require.NoError(w.g.T, w.Leave(w.g.T.Context()))
	<-w.Done
	require.NoError(w.g.T, w.Err)
	w.g.Members = slices.DeleteFunc(w.g.Members, func(o *Worker) bool { return o == w })
	synctest.Wait()
}

// Compile is described in Work.
func (w *Worker) Compile(def json.RawMessage) (due.Program, error) {
	if w.unsupportedWord != "" && bytes.Contains(def, []byte(w.unsupportedWord)) {
		return nil, fmt.Errorf("a word that %s does not know", w.Instance())
	}
	return coordtest.Minutely{}, nil
}

// Start is described in Work.
func (w *Worker) Start(ctx context.Context, r member.Run, done func(error)) {
	w.mu.Lock()
	w.runs = append(w.runs, r)
	w.mu.Unlock()
	go func() {
		var err error
		if w.work != nil {
			err = w.work(ctx, r)
		}
		done(err)
	}()
}

// Yield is described in Work.
func (w *Worker) Yield(_ string, shard int, cause error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if errors.Is(cause, member.ErrMoving) {
		w.yielded = append(w.yielded, shard)
	}
}

// YieldedShards returns the shards that were to be yielded.
func (w *Worker) YieldedShards() []int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.yielded)
}

// TakeRuns returns the runs that were begun since the last call.
func (w *Worker) TakeRuns() []member.Run {
	w.mu.Lock()
	defer w.mu.Unlock()
	runs := w.runs
	w.runs = nil
	return runs
}

// Incarnation returns the id of the present one.
func (w *Worker) Incarnation() string {
	w.g.T.Helper()
	id := w.Member.Incarnation()
	require.NotEmpty(w.g.T, id, "%s is not in the group", w.Instance())
	return id
}

func (w *Worker) Session() registry.SessionID { return record.SessionOf(w.Incarnation()) }

// hooked is a registry that calls before and after each transaction what a test wants to
// happen just then. An error of the former is returned in place of sending it.
type hooked struct {
	registry.Registry
	NoClock bool // its store has no clock

	mu     sync.Mutex
	first  func(registry.Txn) error
	second func(registry.Txn)
}

func (h *hooked) BeforeTxn(f func(registry.Txn)) {
	h.ReplaceTxn(func(t registry.Txn) error {
		f(t)
		return nil
	})
}

func (h *hooked) ReplaceTxn(f func(registry.Txn) error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.first = f
}

func (h *hooked) AfterTxn(f func(registry.Txn)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.second = f
}

func (h *hooked) Txn(ctx context.Context, t registry.Txn) (registry.Rev, error) {
	h.mu.Lock()
	first, second := h.first, h.second
	h.mu.Unlock()
	if first != nil {
		if err := first(t); err != nil {
			return registry.Rev{}, err
		}
	}
	rev, err := h.Registry.Txn(ctx, t)
	if second != nil {
		second(t)
	}
	return rev, err
}

func (h *hooked) WrittenAt(ctx context.Context, key registry.Key) (time.Time, error) {
	if h.NoClock {
		return time.Time{}, registry.ErrNoClock
	}
	return registry.WrittenAt(ctx, h.Registry, key)
}

// OnFirstWrite returns a hook that calls f the first time that a key is written.
func OnFirstWrite(is func(registry.Key) bool, f func()) func(registry.Txn) {
	var once sync.Once
	return func(t registry.Txn) {
		for _, op := range t.Then {
			if is(op.Key) {
				once.Do(f)
			}
		}
	}
}

// ExpireUnnoticed ends the sessions of a machine, which hears of it only a second later.
func (g *Group) ExpireUnnoticed(name string) {
	g.Server.Delay(name, 0, time.Second)
	g.Server.Expire(name)
	g.Server.Delay(name, 0, 0)
}

// NewEditor returns a handle for the test itself.
func (g *Group) NewEditor() *memory.Client { return g.Server.Client(g.editor) }

func (g *Group) GetRecord(key registry.Key) (registry.Entry, bool) {
	g.T.Helper()
	for _, e := range g.Server.Dump() {
		if e.Key == key {
			return e, true
		}
	}
	return registry.Entry{}, false
}

func (g *Group) GetText(key registry.Key) string {
	e, _ := g.GetRecord(key)
	return string(e.Value)
}

// PutRecord writes a record by hand, whatever it was.
func (g *Group) PutRecord(key registry.Key, value string) {
	g.T.Helper()
	g.WriteRecord(key, value)
	synctest.Wait()
}

func (g *Group) WriteRecord(key registry.Key, value string) {
	g.T.Helper()
	op := registry.Create(key, []byte(value))
	if e, ok := g.GetRecord(key); ok {
		op = registry.Set(key, e.Modified, []byte(value))
	}
	_, err := g.NewEditor().Txn(g.T.Context(), registry.Txn{Then: []registry.Op{op}})
	require.NoError(g.T, err)
}

// SpoilRecord makes a record unreadable. Unlike put it can be called by a hook.
func (g *Group) SpoilRecord(key registry.Key) {
	g.T.Helper()
	g.WriteRecord(key, "spoilt")
}

func (g *Group) RemoveRecord(key registry.Key) {
	g.T.Helper()
	e, ok := g.GetRecord(key)
	require.True(g.T, ok, key)
	_, err := g.NewEditor().Txn(g.T.Context(), registry.Txn{Then: []registry.Op{registry.Delete(key, e.Modified)}})
	require.NoError(g.T, err)
	synctest.Wait()
}

func (g *Group) ReadPlan(job string) *record.Plan {
	g.T.Helper()
	e, ok := g.GetRecord(g.Keys.Plan(record.Segment(job)))
	require.True(g.T, ok, "%s has no plan", job)
	p, err := record.DecodePlan(e.Value)
	require.NoError(g.T, err)
	return p
}

// ReadOwners returns who owns what of a job, by name of the instance.
func (g *Group) ReadOwners(job string) map[string]string {
	g.T.Helper()
	out := map[string]string{}
	for inc, shards := range g.ReadPlan(job).Owners {
		name, _, _ := strings.Cut(inc, ".")
		out[name] = shards.String()
	}
	return out
}

func (g *Group) ReadClaims(incarnation, job string) record.Claims {
	g.T.Helper()
	e, ok := g.GetRecord(g.Keys.Claims(incarnation, record.Segment(job)))
	if !ok {
		return record.Claims{}
	}
	c, err := record.Decode[record.Claims](e.Value)
	require.NoError(g.T, err)
	return c
}

func (g *Group) ReadLeader() record.Leader {
	g.T.Helper()
	e, ok := g.GetRecord(g.Keys.Leader())
	require.True(g.T, ok, "there is no leader")
	l, err := record.Decode[record.Leader](e.Value)
	require.NoError(g.T, err)
	return l
}

// TakeCommits returns the transactions that were applied since the last call.
func (g *Group) TakeCommits() []memory.Commit {
	return slices.DeleteFunc(g.Server.Log(), func(c memory.Commit) bool { return c.Err != nil })
}

// WorkFor returns work that takes d, or until its context ends.
func WorkFor(d time.Duration) func(context.Context, member.Run) error {
	return func(ctx context.Context, _ member.Run) error {
		select {
		case <-time.After(d):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		return nil
	}
}

// CountRuns returns how often each shard is among runs.
func CountRuns(runs []member.Run) map[int]int {
	out := map[int]int{}
	for _, r := range runs {
		out[r.Shard]++
	}
	return out
}

func SumRuns(all ...map[int]int) map[int]int {
	out := map[int]int{}
	for _, m := range all {
		for s := range maps.Keys(m) {
			out[s] += m[s]
		}
	}
	return out
}

// OncePerShard is what shards returns of one run of each of n shards.
func OncePerShard(n int) map[int]int {
	out := map[int]int{}
	for s := range n {
		out[s] = 1
	}
	return out
}

// SleepToMinute sleeps to the n-th minute of the bubble, and a second more.
func SleepToMinute(n int) {
	time.Sleep(time.Until(coordtest.BubbleBegan().Add(time.Duration(n)*time.Minute + time.Second)))
	synctest.Wait()
}

// IsBelow tells the keys of a directory.
func IsBelow(dir registry.Key) func(registry.Key) bool {
	return func(k registry.Key) bool { return k.Dir() == dir }
}

// IsKey tells one key.
func IsKey(key registry.Key) func(registry.Key) bool {
	return func(k registry.Key) bool { return k == key }
}

// RemoveRecords deletes records by hand, all by one commit.
func (g *Group) RemoveRecords(keys ...registry.Key) {
	g.T.Helper()
	var ops []registry.Op
	for _, k := range keys {
		e, ok := g.GetRecord(k)
		require.True(g.T, ok, k)
		ops = append(ops, registry.Delete(k, e.Modified))
	}
	_, err := g.NewEditor().Txn(g.T.Context(), registry.Txn{Then: ops})
	require.NoError(g.T, err)
	synctest.Wait()
}

func (g *Group) OwnKeys(w *Worker) (instance, member registry.Key) {
	g.T.Helper()
	return g.Keys.Instance(w.Instance()), g.Keys.Member(w.Incarnation())
}

// RequireHealed requires that both members share the job and that all four shards run.
func (g *Group) RequireHealed(a, b *Worker) {
	g.T.Helper()
	require.Equal(g.T, map[string]int{"a": 2, "b": 2}, g.CountOwned("job"))
	for _, w := range []*Worker{a, b} {
		instance, member := g.OwnKeys(w)
		_, ok := g.GetRecord(instance)
		require.True(g.T, ok, instance)
		_, ok = g.GetRecord(member)
		require.True(g.T, ok, member)
	}
	a.TakeRuns()
	b.TakeRuns()
	time.Sleep(time.Minute)
	synctest.Wait()
	require.Equal(g.T, OncePerShard(4), SumRuns(CountRuns(a.TakeRuns()), CountRuns(b.TakeRuns())))
}

// RequireEachRuns requires that each of four shards runs once a minute.
func (g *Group) RequireEachRuns(a, b *Worker) {
	g.T.Helper()
	a.TakeRuns()
	b.TakeRuns()
	time.Sleep(time.Minute)
	synctest.Wait()
	require.Equal(g.T, OncePerShard(4), SumRuns(CountRuns(a.TakeRuns()), CountRuns(b.TakeRuns())))
}

// StartOldVersion starts a member of an older version, that knows no lunar schedules.
func (g *Group) StartOldVersion(name string, defs ...string) *Worker {
	g.T.Helper()
	w := g.NewWorker(name, nil, defs...)
	w.unsupportedWord = "lunar"
	return g.JoinWorker(w)
}

// ReadStatusCounts returns the sums of a job, whoever has counted.
func (g *Group) ReadStatusCounts(job string) coordinator.Counts {
	g.T.Helper()
	o, _ := g.NewOperator()
	st, err := o.Status(g.T.Context(), job)
	require.NoError(g.T, err)
	return st.Counts
}

// CountOwned returns how many shards of a job each instance owns.
func (g *Group) CountOwned(job string) map[string]int {
	g.T.Helper()
	out := map[string]int{}
	for inc, shards := range g.ReadPlan(job).Owners {
		name, _, _ := strings.Cut(inc, ".")
		out[name] = shards.Len()
	}
	return out
}

// CountClaimCommits returns how many commits since the last call wrote claims.
func (g *Group) CountClaimCommits() int {
	n := 0
	for _, c := range g.TakeCommits() {
		for _, op := range c.Then {
			if strings.Contains(string(op.Key), "/claims/") {
				n++
				break
			}
		}
	}
	return n
}

// HangStrategy makes the strategy "hangs" of the group one which deals as "single" does, but does not return
// from its first n calls until the function is called that hangs returns.
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

// AwaitNextLeader waits for as long as it takes to find that a leader is stuck, and returns who is in
// office then, by name.
func (g *Group) AwaitNextLeader() string {
	g.T.Helper()
	time.Sleep(2 * member.LeastPatience)
	synctest.Wait()
	return g.ReadLeaderName()
}

// ReadLeaderName returns the name of the instance in office, "" if that is vacant.
func (g *Group) ReadLeaderName() string {
	g.T.Helper()
	e, ok := g.GetRecord(g.Keys.Seat())
	if !ok {
		return ""
	}
	for _, w := range g.Members {
		if w.Session() == e.Owner {
			return w.Instance()
		}
	}
	return "a stranger"
}
