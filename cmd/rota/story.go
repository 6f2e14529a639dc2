package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

// story follows what the fleet does, by the server's own log of commits and not by what
// the instances say of themselves.
type story struct {
	server *memory.Server
	census *census
	keys   record.Keys
	shards int

	mu        sync.Mutex
	owners    map[int]string // by shard: instance
	claims    map[string]int // by shard and attempt: how often claimed
	failovers int
	moves     int
	results   map[int]tally
	doubled   int
	running   map[registry.Key]record.Runs // by claims record, as last written
	events    []string
}

func newStory(server *memory.Server, c *census, shards int) *story {
	keys, err := record.NewKeys(namespace, "default")
	if err != nil {
		panic(err) // both are constants
	}
	return &story{
		server: server, census: c, keys: keys, shards: shards, owners: map[int]string{},
		claims: map[string]int{}, results: map[int]tally{}, running: map[registry.Key]record.Runs{},
	}
}

// awaitDealt waits until every instance owns shards, so that all of them take part.
func awaitDealt(ctx context.Context, server *memory.Server, o demoOptions) error {
	keys, err := record.NewKeys(namespace, "default")
	if err != nil {
		return err
	}
	client := server.Client("observer")
	for {
		e, err := client.Get(ctx, keys.Plan("census"), registry.ReadOptions{})
		if err == nil {
			p, err := record.DecodePlan(e.Value)
			if err != nil {
				return err
			}
			if len(p.Owners) == min(o.instances, o.shards) && p.Frozen.IsZero() {
				return nil
			}
		} else if !errors.Is(err, registry.ErrNotFound) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("deal the shards: %w", context.Cause(ctx))
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// tell shows what happens until the returned function is called: a table that is drawn
// again and again on a terminal, or a line for each event.
func (s *story) tell(out io.Writer, live bool) (stop func()) {
	quit := make(chan struct{})
	var telling sync.WaitGroup
	telling.Go(func() {
		table := &table{out: out, live: live}
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			s.read()
			table.draw(s)
			select {
			case <-quit:
				s.read()
				table.draw(s)
				return
			case <-tick.C:
			}
		}
	})
	return func() {
		close(quit)
		telling.Wait()
	}
}

// read takes in what has been committed since.
func (s *story) read() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.server.Log() {
		if c.Err != nil {
			continue
		}
		if c.Ended != "" {
			s.event(c, "the session of %s has ended", c.Client)
		}
		for _, op := range c.Then {
			s.write(c, op)
		}
	}
}

func (s *story) event(c memory.Commit, format string, args ...any) {
	s.events = append(s.events, c.At.Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

// write takes in one written record.
func (s *story) write(c memory.Commit, op registry.Op) {
	switch {
	case op.Key == s.keys.Plan("census") && op.Kind != registry.OpDelete:
		if p, err := record.DecodePlan(op.Value); err == nil {
			s.plan(c, p)
		}
	case strings.HasSuffix(string(op.Key), "/census") && op.Key.Dir().Dir() == s.keys.ClaimsOf("x").Dir():
		s.claim(c, op)
	case op.Key == s.keys.Leader():
		s.event(c, "%s leads", c.Client)
	case op.Key.Dir() == resultKey(0).Dir():
		s.result(c, op)
	}
}

func (s *story) plan(c memory.Commit, p *record.Plan) {
	for inc, shards := range p.Owners {
		name := nameOf(inc)
		var moved []string
		for shard := range shards.All() {
			if old := s.owners[shard]; old != name {
				if old != "" {
					s.moves++
				}
				s.owners[shard] = name
				moved = append(moved, fmt.Sprint(shard))
			}
		}
		if len(moved) > 0 {
			s.event(c, "%s deals %s to %s", c.Client, strings.Join(moved, ","), name)
		}
	}
}

// nameOf returns the instance of an incarnation.
func nameOf(incarnation string) string {
	return incarnation[:strings.LastIndexByte(incarnation, '.')]
}

func (s *story) claim(c memory.Commit, op registry.Op) {
	if op.Kind == registry.OpDelete {
		delete(s.running, op.Key)
		return
	}
	claims, err := record.Decode[record.Claims](op.Value)
	if err != nil {
		return
	}
	before := s.running[op.Key]
	s.running[op.Key] = claims.Running
	for _, g := range claims.Running {
		for shard := range g.Shards.All() {
			if old, ok := before.Of(shard); ok && old == g.Ref {
				continue
			}
			s.claims[fmt.Sprintf("%d/%d", shard, g.Attempt)]++
			if g.Attempt > 1 {
				s.failovers++
				s.event(c, "%s claims %d again: attempt %d", c.Client, shard, g.Attempt)
			}
		}
	}
}

func (s *story) result(c memory.Commit, op registry.Op) {
	var shard int
	var t tally
	if _, err := fmt.Sscanf(op.Key.Name(), "%d", &shard); err != nil {
		return
	}
	if err := json.Unmarshal(op.Value, &t); err != nil {
		return
	}
	if _, again := s.results[shard]; again {
		s.doubled++
	}
	s.results[shard] = t
	s.event(c, "%s stores %d: %d files", c.Client, shard, t.Files)
}

// summary is the demo's result.
type summary struct {
	shards, runs, failovers, lost, doubled int
	sum                                    tally
}

func (s summary) String() string {
	return fmt.Sprintf("shards=%d runs=%d failovers=%d lost=%d doubled=%d files=%d bytes=%d",
		s.shards, s.runs, s.failovers, s.lost, s.doubled, s.sum.Files, s.sum.Bytes)
}

// check compares what the shards stored with one plain pass over the tree.
func (s *story) check(ctx context.Context, o demoOptions) (summary, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := summary{
		shards: s.shards, runs: int(s.census.executions.Load()), failovers: s.failovers,
		lost: s.shards - len(s.results), doubled: s.doubled,
	}
	for _, n := range s.claims {
		out.doubled += n - 1
	}
	var sum, plain counter
	for _, shard := range slices.Sorted(maps.Keys(s.results)) {
		if err := sum.merge(s.results[shard]); err != nil {
			return out, fmt.Errorf("shard %d: %w", shard, err)
		}
	}
	out.sum = sum.tally
	files, err := listFiles(o.dir)
	if err != nil {
		return out, err
	}
	for _, path := range files {
		if ctx.Err() != nil {
			return out, context.Cause(ctx)
		}
		if err := plain.add(path); err != nil {
			return out, err
		}
	}
	switch {
	case out.lost > 0 || out.doubled > 0:
		return out, fmt.Errorf("not every shard was counted once: %s", out)
	case sum.tally != plain.tally:
		return out, fmt.Errorf("the shards' sum differs from a plain pass: %+v, not %+v", sum.tally, plain.tally)
	case o.kill > 0 && out.failovers == 0:
		return out, fmt.Errorf("nothing was failed over: %s", out)
	}
	return out, nil
}

// table shows a story.
type table struct {
	out   io.Writer
	live  bool
	lines int // drawn, to be drawn over
	told  int // events printed
}

// maxRows and maxEvents bound the live table to a common terminal's height.
const (
	maxRows   = 16
	maxEvents = 6
)

func (t *table) draw(s *story) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !t.live {
		for ; t.told < len(s.events); t.told++ {
			fmt.Fprintln(t.out, s.events[t.told])
		}
		return
	}
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "SHARD\tOWNER\tRUN BY\tATTEMPT\tSTATE")
	s.census.mu.Lock()
	for shard := range min(s.shards, maxRows) {
		p := s.census.progress[shard]
		fmt.Fprintf(w, "%d\t%s\t%s\t%d\t%s\n", shard, s.owners[shard], p.instance, p.attempt, s.stateOf(p))
	}
	s.census.mu.Unlock()
	w.Flush()
	if s.shards > maxRows {
		fmt.Fprintf(&b, "... and %d more\n", s.shards-maxRows)
	}
	fmt.Fprintf(&b, "claims %d, moves %d, failovers %d, stored %d of %d\n", len(s.claims), s.moves, s.failovers, len(s.results), s.shards)
	for _, e := range s.events[max(0, len(s.events)-maxEvents):] {
		fmt.Fprintln(&b, e)
	}
	if t.lines > 0 {
		fmt.Fprintf(t.out, "\x1b[%dA", t.lines) // up, to draw over the last table
	}
	lines := strings.SplitAfter(strings.TrimSuffix(b.String(), "\n"), "\n")
	for _, line := range lines {
		fmt.Fprintf(t.out, "\x1b[2K%s", line)
	}
	fmt.Fprint(t.out, "\n\x1b[J")
	t.lines = len(lines)
}

// stateOf tells how a run is doing. The census is locked.
func (s *story) stateOf(p progress) string {
	switch {
	case p.stored:
		return "stored"
	case p.total == 0:
		return "waits"
	case s.census.cut[p.instance]:
		return "cut off"
	}
	return fmt.Sprintf("%d%%", 100*p.done/p.total)
}
