package main

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/coordinator"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

// topic is a log that grows. A line is at its number.
type topic struct {
	mu    sync.Mutex
	lines [partitions]int64
}

func (l *topic) grow(partition int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines[partition]++
}

func (l *topic) end(partition int) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines[partition]
}

func (l *topic) next(ctx context.Context, partition int, offset int64) (string, int64, error) {
	for l.end(partition) <= offset {
		select {
		case <-ctx.Done():
			return "", 0, context.Cause(ctx)
		case <-time.After(20 * time.Millisecond):
		}
	}
	return lineAt(partition, offset), offset + 1, nil
}

func lineAt(partition int, offset int64) string {
	return fmt.Sprintf("line %d of %d", offset, partition)
}

// madeOf is the key of what is made of a line.
func madeOf(partition int, offset int64) registry.Key {
	return registry.Key(fmt.Sprintf("made/%d/%d", partition, offset))
}

// world is consumers that come, go and crash.
type world struct {
	t      *testing.T
	random *rand.Rand // of what happens to the consumers
	server *memory.Server
	log    topic

	processes map[string]*process // that are running, by name
	named     int
	remains   sync.WaitGroup
	crashes   int

	mu      sync.Mutex
	takes   *rand.Rand              // of handlers, whose order no seed decides
	handled map[registry.Key]int    // how often
	late    map[registry.Key]func() // lets what a dead process has saved arrive, by the state's key
}

// process is a consumer's registry, which is cut off when the consumer crashes: with what
// it saves just then on its way.
type process struct {
	registry.Registry
	w    *world
	name string
	stop func()

	mu     sync.Mutex
	doomed bool // crashes when it saves next
}

func (p *process) doom() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.doomed = true
}

// dies reports, once, whether the process crashes now.
func (p *process) dies() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	dies := p.doomed
	p.doomed = false
	return dies
}

// Txn crashes in the middle of what saves a state, if it is time to.
func (p *process) Txn(ctx context.Context, t registry.Txn) (registry.Rev, error) {
	i := slices.IndexFunc(t.Then, func(op registry.Op) bool { return op.Key.Dir() == states })
	if i < 0 || !p.dies() {
		return p.Registry.Txn(ctx, t)
	}
	arrive := p.w.server.HoldCommit(p.name)
	rev, err := p.Registry.Txn(ctx, t)
	p.w.server.Partition(p.name)
	p.w.mu.Lock()
	p.w.late[t.Then[i].Key] = arrive
	p.w.mu.Unlock()
	return rev, err
}

// Get lets what the dead have saved arrive when the next owner has just read.
func (p *process) Get(ctx context.Context, key registry.Key, o registry.ReadOptions) (registry.Entry, error) {
	e, err := p.Registry.Get(ctx, key, o)
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	if arrive, ok := p.w.late[key]; ok {
		arrive()
		delete(p.w.late, key)
	}
	return e, err
}

func (w *world) start() {
	w.named++
	name := fmt.Sprint("c", w.named)
	ctx, stop := context.WithCancel(context.Background())
	c := consumer{next: w.log.next, handle: w.handle}
	p := &process{Registry: w.server.Client(name), w: w, name: name}
	w.remains.Go(func() {
		assert.NoError(w.t, coordinator.Join(ctx, p, coordinator.Config{
			Namespace: "orders", Instance: name, Shards: partitions, Own: c.own, Logger: slog.New(slog.DiscardHandler),
		}))
	})
	p.stop = func() {
		delete(w.processes, name)
		stop()
	}
	w.processes[name] = p
}

// handle takes a moment, so that crashes come between it and the saving.
func (w *world) handle(s coordinator.Owned, offset int64, line string) ([]registry.Op, error) {
	made := madeOf(s.Shard, offset)
	w.mu.Lock()
	w.handled[made]++
	slow := time.Duration(w.takes.Int64N(int64(200 * time.Millisecond)))
	w.mu.Unlock()
	time.Sleep(slow)
	return []registry.Op{registry.Create(made, []byte(line))}, nil
}

// any returns one of the processes that are running.
func (w *world) any() string {
	n := w.random.IntN(len(w.processes))
	for i := 1; ; i++ {
		name := fmt.Sprint("c", i)
		if _, ok := w.processes[name]; !ok {
			continue
		}
		if n == 0 {
			return name
		}
		n--
	}
}

// step lets something happen to the consumers. It returns what undoes it later.
func (w *world) step() (undo func()) {
	undo = func() {}
	if len(w.processes) < 2 || len(w.processes) < 5 && w.random.IntN(4) == 0 {
		w.start()
		return undo
	}
	name := w.any()
	switch w.random.IntN(7) {
	case 0:
		w.processes[name].stop()
	case 1:
		p := w.processes[name]
		p.doom()
		w.pass(2 * time.Second)
		if p.dies() { // it has nothing to save
			w.server.Partition(name)
		}
		p.stop()
		w.crashes++
	case 2, 3: // cut off for less or more than a session lasts
		return w.server.Partition(name)
	case 4:
		w.server.LoseReply(name, 1+w.random.IntN(3))
	case 5:
		w.server.LoseRequest(name, 1+w.random.IntN(3))
	case 6:
		w.server.Delay(name, 100*time.Millisecond, 100*time.Millisecond)
		return func() { w.server.Delay(name, 0, 0) }
	}
	return undo
}

// pass lets time pass, in which the log grows.
func (w *world) pass(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		w.log.grow(w.random.IntN(partitions))
	}
}

func TestConsumer_GoesOnWhereTheLastOwnerStopped(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint("seed ", seed+1), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &world{
					t: t, random: rand.New(rand.NewPCG(seed+1, 0)), takes: rand.New(rand.NewPCG(seed+1, 1)), server: memory.New(),
					processes: map[string]*process{}, handled: map[registry.Key]int{}, late: map[registry.Key]func(){},
				}
				w.server.Record()
				for range 60 {
					undo := w.step()
					w.pass(time.Duration(w.random.IntN(15)) * time.Second)
					undo()
				}
				w.start()
				behind := w.behind()
				for _, p := range w.processes {
					p.stop()
				}
				w.remains.Wait()
				require.Empty(t, behind, "it is not all consumed")
				w.judge()
			})
		})
	}
}

// behind waits until all has been consumed, for two minutes. It returns the offsets of what
// has not been.
func (w *world) behind() (behind []string) {
	for range 120 {
		saved := map[registry.Key]string{}
		for _, e := range w.server.Dump() {
			saved[e.Key] = string(e.Value)
		}
		behind = nil
		for p := range partitions {
			if end := fmt.Sprint(w.log.end(p)); saved[stateOf(p)] != end {
				behind = append(behind, fmt.Sprintf("%d: %q of %s", p, saved[stateOf(p)], end))
			}
		}
		if behind == nil {
			return nil
		}
		time.Sleep(time.Second)
	}
	return behind
}

// states is the directory of the partitions' offsets.
const states registry.Key = "orders/groups/default/data/shards"

func stateOf(partition int) registry.Key { return states.Join(fmt.Sprint(partition)) }

// judge goes through all commits: each partition's offset counts up by one, each line is
// made once, in the same commit, by the process that has the partition on record and whose
// session lives.
func (w *world) judge() {
	var offsets [partitions]int64
	var last [partitions]string
	moves := 0
	owned := map[string]record.Runs{}         // by client
	opened := map[registry.SessionID]string{} // the clients of sessions that live
	for _, c := range w.server.Log() {
		if c.Opened != "" {
			opened[c.Opened] = c.Client
		}
		if c.Ended != "" {
			delete(owned, opened[c.Ended])
			delete(opened, c.Ended)
		}
		if c.Err != nil {
			continue
		}
		saved, made := -1, 0
		for _, op := range c.Then {
			switch name := op.Key.Name(); {
			case strings.HasPrefix(string(op.Key), "orders/groups/default/claims/") && op.Kind != registry.OpDelete:
				claims, err := record.DecodeClaims(op.Value)
				require.NoError(w.t, err)
				owned[c.Client] = claims.Running
			case op.Key.Dir() == states:
				p, err := strconv.Atoi(name)
				require.NoError(w.t, err)
				saved = p
				offsets[p]++
				require.Equal(w.t, fmt.Sprint(offsets[p]), string(op.Value), "partition %d", p)
			case strings.HasPrefix(string(op.Key), "made/"):
				made++
			}
		}
		if saved < 0 {
			require.Zero(w.t, made)
			continue
		}
		require.Equal(w.t, 1, made)
		require.True(w.t, owned[c.Client].Shards().Has(saved), "%s saves what it does not own", c.Client)
		if last[saved] != c.Client {
			last[saved] = c.Client
			moves++
		}
	}
	lines, twice := 0, 0
	for p := range partitions {
		require.Equal(w.t, w.log.end(p), offsets[p])
		for offset := range offsets[p] {
			lines++
			n := w.handled[madeOf(p, offset)]
			require.Positive(w.t, n)
			if n > 1 {
				twice++
			}
		}
	}
	for _, e := range w.server.Dump() {
		if e.Key.Dir().Dir() == "made" {
			p, offset, _ := strings.Cut(strings.TrimPrefix(string(e.Key), "made/"), "/")
			assert.Equal(w.t, fmt.Sprintf("line %s of %s", offset, p), string(e.Value))
			lines--
		}
	}
	require.Zero(w.t, lines, "lines made and consumed")
	w.t.Logf("%d processes, %d crashes, %d changes of hands; %d lines were handled again and made once", w.named, w.crashes, moves, twice)
	require.Positive(w.t, w.crashes)
	require.Greater(w.t, moves, 2*partitions)
}
