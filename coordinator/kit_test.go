package coordinator

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

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

// bubble runs f in virtual time with a new group on a new server, and then stops all of
// its members.
func bubble(t *testing.T, name string, f func(t *testing.T, g *group)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			keys, err := record.NewKeys("test", "default")
			require.NoError(t, err)
			g := &group{t: t, server: memory.New(), keys: keys, edits: "editor"}
			defer g.stop()
			f(t, g)
		})
	})
}

// group is some members on one server, each on a machine of its own name.
type group struct {
	t        *testing.T
	server   *memory.Server
	keys     record.Keys
	members  []*worker
	edits    string // the name of the client that edits records by hand
	grace    time.Duration
	skew     time.Duration            // MaxClockSkew
	wrong    map[string]*clockError   // clocks that are not right, by instance
	strategy atomic.Pointer[Strategy] // what the strategies "hangs" and "failing" do
}

// clockError is how far a clock is ahead of the right time.
type clockError struct{ atomic.Int64 }

func (e *clockError) now() time.Time { return time.Now().Add(time.Duration(e.Load())) }

// sets sets the clock of an instance, also of one that has not begun.
func (g *group) sets(name string, ahead time.Duration) {
	if g.wrong == nil {
		g.wrong = map[string]*clockError{}
	}
	if g.wrong[name] == nil {
		g.wrong[name] = &clockError{}
	}
	g.wrong[name].Store(int64(ahead))
}

// worker is a member and the work that it does.
type worker struct {
	*Member
	*Operator // on the same handle
	g         *group
	log       *logbook
	reg       *hooked
	done      chan struct{} // closed when Run has returned
	err       error         // what it returned

	// work does a run; nil ends it at once. It is set before runs begin.
	work func(context.Context, Run) error

	mu      sync.Mutex
	runs    []Run
	yielded []int // shards

	dialect string // of later versions: what has it in its definition cannot be compiled; "": all can
}

// start starts a member that offers definitions, and waits until it has joined and owns
// what it is to own.
func (g *group) start(name string, defs ...string) *worker {
	g.t.Helper()
	return g.joined(g.worker(name, nil, defs...))
}

// startWorking is start with work to do.
func (g *group) startWorking(name string, work func(context.Context, Run) error, defs ...string) *worker {
	g.t.Helper()
	return g.joined(g.worker(name, work, defs...))
}

// startOn is start on a machine whose name is not the member's.
func (g *group) startOn(machine, name string, defs ...string) *worker {
	g.t.Helper()
	return g.joined(g.workerOn(machine, name, nil, defs...))
}

func (g *group) joined(w *worker) *worker {
	g.t.Helper()
	require.NoError(g.t, g.begin(w).AwaitJoined(g.t.Context()))
	time.Sleep(time.Second) // of elections and moves
	synctest.Wait()
	return w
}

func (g *group) worker(name string, work func(context.Context, Run) error, defs ...string) *worker {
	g.t.Helper()
	return g.workerOn(name, name, work, defs...)
}

func (g *group) workerOn(machine, name string, work func(context.Context, Run) error, defs ...string) *worker {
	g.t.Helper()
	w := &worker{
		g: g, log: &logbook{}, reg: &hooked{Registry: g.server.Client(machine)}, done: make(chan struct{}), work: work,
	}
	var err error
	if g.wrong[name] == nil {
		g.sets(name, 0)
	}
	w.Member, err = NewMember(w.reg, MemberOptions{
		Namespace: "test", Instance: name, SessionTTL: ttl, RestartGrace: g.grace, Host: "host-of-" + name, Work: w,
		Clock: g.wrong[name].now, MaxClockSkew: g.skew,
		Strategies: map[string]Strategy{"hangs": g.askStrategy, "failing": g.askStrategy},
		Logger:     slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	require.NoError(g.t, err)
	o, err := NewOperator(w.reg, "test", "")
	require.NoError(g.t, err)
	w.Operator = o.WithCompiler(w.Compile)
	w.Offer(offering(defs...))
	return w
}

func (g *group) askStrategy(in Input) (Assignment, error) { return (*g.strategy.Load())(in) }

// operator returns an Operator on a machine of its own, and its handle.
func (g *group) operator() (*Operator, *hooked) {
	g.t.Helper()
	reg := &hooked{Registry: g.server.Client("console")}
	o, err := NewOperator(reg, "test", "")
	require.NoError(g.t, err)
	return o, reg
}

// counts returns the sums of a job over its life.
func (g *group) counts(job string) record.Counts {
	g.t.Helper()
	sum := g.plan(job).Counts
	for _, w := range g.members {
		sum = sum.Add(g.claims(w.incarnation(), job).Counts)
	}
	return sum
}

// begin calls Run.
func (g *group) begin(w *worker) *worker {
	g.members = append(g.members, w)
	go func() {
		defer close(w.done)
		w.err = w.Run(context.Background())
	}()
	return w
}

// ttl is that of sessions here.
const ttl = 10 * time.Second

// def returns a definition; more is further JSON fields.
func def(job string, revision, shards int, more string) string {
	return fmt.Sprintf(`{"name":%q,"revision":%d,"shards":%d%s}`, job, revision, shards, more)
}

// offering returns definitions by their names.
func offering(defs ...string) map[string]json.RawMessage {
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

// stop ends all members, in whatever state they are.
func (g *group) stop() {
	for _, w := range g.members {
		w.leave()
	}
	for _, w := range g.members {
		<-w.done
		assert.NoError(g.t, w.err, w.Instance())
	}
}

// leave makes Run return without waiting for anything.
func (w *worker) leave() {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	w.Leave(ended)
}

// goes drains a member and waits until it has left.
func (w *worker) goes() {
	w.g.t.Helper()
	require.NoError(w.g.t, w.Drain(w.g.t.Context()))
	require.NoError(w.g.t, w.Leave(w.g.t.Context()))
	<-w.done
	require.NoError(w.g.t, w.err)
	w.g.members = slices.DeleteFunc(w.g.members, func(o *worker) bool { return o == w })
	synctest.Wait()
}

// Compile is described in Work.
func (w *worker) Compile(def json.RawMessage) (Program, error) {
	if w.dialect != "" && bytes.Contains(def, []byte(w.dialect)) {
		return nil, fmt.Errorf("a word that %s does not know", w.Instance())
	}
	return minutely{}, nil
}

// Start is described in Work.
func (w *worker) Start(ctx context.Context, r Run, done func(error)) {
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
func (w *worker) Yield(_ string, shard int, cause error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if errors.Is(cause, ErrMoving) {
		w.yielded = append(w.yielded, shard)
	}
}

// asked returns the shards that were to be yielded.
func (w *worker) asked() []int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.yielded)
}

// began returns the runs that were begun since the last call.
func (w *worker) began() []Run {
	w.mu.Lock()
	defer w.mu.Unlock()
	runs := w.runs
	w.runs = nil
	return runs
}

// incarnation returns the id of the present one.
func (w *worker) incarnation() string {
	w.g.t.Helper()
	id := w.Member.Incarnation()
	require.NotEmpty(w.g.t, id, "%s is not in the group", w.Instance())
	return id
}

func (w *worker) session() registry.SessionID { return sessionOf(w.incarnation()) }

// hooked is a registry that calls before and after each transaction what a test wants to
// happen just then. An error of the former is returned in place of sending it.
type hooked struct {
	registry.Registry
	noClock bool // its store has no clock

	mu     sync.Mutex
	first  func(registry.Txn) error
	second func(registry.Txn)
}

func (h *hooked) before(f func(registry.Txn)) {
	h.instead(func(t registry.Txn) error {
		f(t)
		return nil
	})
}

func (h *hooked) instead(f func(registry.Txn) error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.first = f
}

func (h *hooked) after(f func(registry.Txn)) {
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
	if h.noClock {
		return time.Time{}, registry.ErrNoClock
	}
	return registry.WrittenAt(ctx, h.Registry, key)
}

// writing returns a hook that calls f the first time that a key is written.
func writing(is func(registry.Key) bool, f func()) func(registry.Txn) {
	var once sync.Once
	return func(t registry.Txn) {
		for _, op := range t.Then {
			if is(op.Key) {
				once.Do(f)
			}
		}
	}
}

// expireUntold ends the sessions of a machine, which hears of it only a second later.
func (g *group) expireUntold(name string) {
	g.server.Delay(name, 0, time.Second)
	g.server.Expire(name)
	g.server.Delay(name, 0, 0)
}

// logbook is what a member logs. After too many lines it blocks whoever writes, so that a
// loop that spins comes to rest and shows.
type logbook struct {
	mu    sync.Mutex
	text  bytes.Buffer
	lines int
}

func (b *logbook) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines++
	if b.lines == 10_000 {
		panic("a member that logs without end; the last line: " + string(p))
	}
	return b.text.Write(p)
}

func (b *logbook) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// count returns how many lines have a text.
func (b *logbook) count(text string) int { return strings.Count(b.String(), text) }

// client returns a handle for the test itself.
func (g *group) client() *memory.Client { return g.server.Client(g.edits) }

func (g *group) get(key registry.Key) (registry.Entry, bool) {
	g.t.Helper()
	for _, e := range g.server.Dump() {
		if e.Key == key {
			return e, true
		}
	}
	return registry.Entry{}, false
}

func (g *group) text(key registry.Key) string {
	e, _ := g.get(key)
	return string(e.Value)
}

// put writes a record by hand, whatever it was.
func (g *group) put(key registry.Key, value string) {
	g.t.Helper()
	g.write(key, value)
	synctest.Wait()
}

func (g *group) write(key registry.Key, value string) {
	g.t.Helper()
	op := registry.Create(key, []byte(value))
	if e, ok := g.get(key); ok {
		op = registry.Set(key, e.Modified, []byte(value))
	}
	_, err := g.client().Txn(g.t.Context(), registry.Txn{Then: []registry.Op{op}})
	require.NoError(g.t, err)
}

// spoil makes a record unreadable. Unlike put it can be called by a hook.
func (g *group) spoil(key registry.Key) {
	g.t.Helper()
	g.write(key, "spoilt")
}

func (g *group) remove(key registry.Key) {
	g.t.Helper()
	e, ok := g.get(key)
	require.True(g.t, ok, key)
	_, err := g.client().Txn(g.t.Context(), registry.Txn{Then: []registry.Op{registry.Delete(key, e.Modified)}})
	require.NoError(g.t, err)
	synctest.Wait()
}

func (g *group) plan(job string) *record.Plan {
	g.t.Helper()
	e, ok := g.get(g.keys.Plan(record.Segment(job)))
	require.True(g.t, ok, "%s has no plan", job)
	p, err := record.DecodePlan(e.Value)
	require.NoError(g.t, err)
	return p
}

// owners returns who owns what of a job, by name of the instance.
func (g *group) owners(job string) map[string]string {
	g.t.Helper()
	out := map[string]string{}
	for inc, shards := range g.plan(job).Owners {
		name, _, _ := strings.Cut(inc, ".")
		out[name] = shards.String()
	}
	return out
}

func (g *group) claims(incarnation, job string) record.Claims {
	g.t.Helper()
	e, ok := g.get(g.keys.Claims(incarnation, record.Segment(job)))
	if !ok {
		return record.Claims{}
	}
	c, err := record.Decode[record.Claims](e.Value)
	require.NoError(g.t, err)
	return c
}

func (g *group) leader() record.Leader {
	g.t.Helper()
	e, ok := g.get(g.keys.Leader())
	require.True(g.t, ok, "there is no leader")
	l, err := record.Decode[record.Leader](e.Value)
	require.NoError(g.t, err)
	return l
}

// commits returns the transactions that were applied since the last call.
func (g *group) commits() []memory.Commit {
	return slices.DeleteFunc(g.server.Log(), func(c memory.Commit) bool { return c.Err != nil })
}

// takes returns work that takes d, or until its context ends.
func takes(d time.Duration) func(context.Context, Run) error {
	return func(ctx context.Context, _ Run) error {
		select {
		case <-time.After(d):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		return nil
	}
}

// shards returns how often each shard is among runs.
func shards(runs []Run) map[int]int {
	out := map[int]int{}
	for _, r := range runs {
		out[r.Shard]++
	}
	return out
}

func merged(all ...map[int]int) map[int]int {
	out := map[int]int{}
	for _, m := range all {
		for s := range maps.Keys(m) {
			out[s] += m[s]
		}
	}
	return out
}

// once is what shards returns of one run of each of n shards.
func once(n int) map[int]int {
	out := map[int]int{}
	for s := range n {
		out[s] = 1
	}
	return out
}

// bubbleBegan is when bubbles begin.
func bubbleBegan() time.Time { return time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) }

// until sleeps to the n-th minute of the bubble, and a second more.
func until(n int) {
	time.Sleep(time.Until(bubbleBegan().Add(time.Duration(n)*time.Minute + time.Second)))
	synctest.Wait()
}

// below tells the keys of a directory.
func below(dir registry.Key) func(registry.Key) bool {
	return func(k registry.Key) bool { return k.Dir() == dir }
}

// is tells one key.
func is(key registry.Key) func(registry.Key) bool {
	return func(k registry.Key) bool { return k == key }
}
