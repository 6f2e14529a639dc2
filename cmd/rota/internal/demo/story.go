package demo

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// story is the history of the fleet, as observed in the registry.
type story struct {
	board  *board
	shards int

	mu        sync.Mutex
	owners    map[int]string // by shard: instance
	claims    int
	claimed   map[string]int         // by shard and attempt: how often
	runBy     map[int]string         // by shard: the instance of the last attempt
	ended     map[string][]time.Time // by instance: the ends of its sessions
	failovers int
	moves     int
	reruns    []rerun
	results   map[int]tally
	doubled   int // results
	events    []string
}

// rerun is the claim of a run that an instance had begun before.
type rerun struct {
	begunBy string
	at      time.Time
}

func newStory(b *board) *story {
	return &story{
		board: b, shards: b.shards, owners: map[int]string{}, claimed: map[string]int{}, runBy: map[int]string{},
		ended: map[string][]time.Time{}, results: map[int]tally{},
	}
}

func (s *story) addEvent(at time.Time, format string, args ...any) {
	s.events = append(s.events, at.Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

// recordLeader records that an instance has become the leader.
func (s *story) recordLeader(at time.Time, instance string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addEvent(at, "%s leads", instance)
}

// recordSessionEnd records that the session of an instance has ended.
func (s *story) recordSessionEnd(at time.Time, instance string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended[instance] = append(s.ended[instance], at)
	s.addEvent(at, "session of %s ended", instance)
}

// recordPlan records a plan.
func (s *story) recordPlan(at time.Time, p *record.Plan) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, inc := range slices.Sorted(maps.Keys(p.Owners)) {
		name := nameOf(inc)
		var moved []string
		for shard := range p.Owners[inc].All() {
			if old := s.owners[shard]; old != name {
				if old != "" {
					s.moves++
				}
				s.owners[shard] = name
				moved = append(moved, fmt.Sprint(shard))
			}
		}
		if len(moved) > 0 {
			s.addEvent(at, "shards %s assigned to %s", strings.Join(moved, ","), name)
		}
	}
}

// nameOf returns the instance of an incarnation.
func nameOf(incarnation string) string {
	return incarnation[:strings.LastIndexByte(incarnation, '.')]
}

// recordClaim records the claim of a run.
func (s *story) recordClaim(at time.Time, instance string, shard, attempt int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.claims++
	s.claimed[fmt.Sprintf("%d/%d", shard, attempt)]++
	if attempt > 1 {
		s.failovers++
		s.reruns = append(s.reruns, rerun{s.runBy[shard], at})
		s.addEvent(at, "%s claimed shard %d again: attempt %d", instance, shard, attempt)
	}
	s.runBy[shard] = instance
}

// recordResult records a stored tally.
func (s *story) recordResult(at time.Time, shard int, t tally) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old, again := s.results[shard]; again {
		if old != t {
			s.doubled++
		}
		return
	}
	s.results[shard] = t
	s.addEvent(at, "shard %d stored: %d files", shard, t.Files)
}

// awaitResults waits until the story has the results of all shards.
func (s *story) awaitResults(ctx context.Context) error {
	for {
		s.mu.Lock()
		heard := len(s.results)
		s.mu.Unlock()
		if heard >= s.shards {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %d of %d tallies found in the registry", context.Cause(ctx), heard, s.shards)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// describeTimes describes the two parts of a fail-over: from the kill to the end of the session, which
// the store determines, and from there to the next claim of the runs, which the fleet does.
func (s *story) describeTimes() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.board.mu.Lock()
	defer s.board.mu.Unlock()
	var gone, again []time.Duration
	for instance, at := range s.board.killed {
		if ends := s.ended[instance]; len(ends) > 0 {
			gone = append(gone, untilEnd(at, ends))
		}
	}
	for _, r := range s.reruns {
		if ends := s.ended[r.begunBy]; len(ends) > 0 {
			again = append(again, sinceEnd(r.at, ends))
		}
	}
	return fmt.Sprintf("kill to session ended: %s; session ended to runs claimed again: %s", span(gone), span(again))
}

// untilEnd returns the time from a crash to the next of ends. It is zero if the session of the
// instance had ended already, as that of one without processor time does.
func untilEnd(crash time.Time, ends []time.Time) time.Duration {
	for _, end := range ends {
		if !end.Before(crash) {
			return end.Sub(crash)
		}
	}
	return 0
}

// sinceEnd returns the time from the last of ends to a claim. It is zero if the claim was
// observed first, as claims and ends are observed by different watches.
func sinceEnd(claim time.Time, ends []time.Time) time.Duration {
	for _, end := range slices.Backward(ends) {
		if !end.After(claim) {
			return claim.Sub(end)
		}
	}
	return 0
}

// span returns the least and the greatest of d.
func span(d []time.Duration) string {
	if len(d) == 0 {
		return "-"
	}
	least, most := slices.Min(d).Round(time.Millisecond), slices.Max(d).Round(time.Millisecond)
	if least == most {
		return least.String()
	}
	return fmt.Sprintf("%v to %v", least, most)
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

// check compares the sums that the shards stored with one plain pass over the tree.
func (s *story) check(ctx context.Context, o demoOptions) (summary, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := summary{shards: s.shards, failovers: s.failovers, lost: s.shards - len(s.results), doubled: s.doubled}
	for _, n := range s.claimed {
		out.doubled += n - 1
	}
	s.board.mu.Lock()
	out.runs = s.board.executions
	for _, n := range s.board.begun {
		out.doubled += n - 1
	}
	s.board.mu.Unlock()
	var sum counter
	for _, shard := range slices.Sorted(maps.Keys(s.results)) {
		if err := sum.merge(s.results[shard]); err != nil {
			return out, fmt.Errorf("shard %d: %w", shard, err)
		}
	}
	out.sum = sum.tally
	plain, err := plainPass(ctx, o.dir)
	switch {
	case err != nil:
		return out, err
	case out.lost > 0 || out.doubled > 0:
		return out, fmt.Errorf("shards were lost or counted twice: %s", out)
	case sum.tally != plain:
		return out, fmt.Errorf("the totals of the shards differ from a single pass: %+v, not %+v", sum.tally, plain)
	case o.kill > 0 && out.failovers == 0:
		return out, fmt.Errorf("no run was repeated after the kill: %s", out)
	}
	return out, nil
}

// plainPass counts a tree in one go.
func plainPass(ctx context.Context, dir string) (tally, error) {
	var plain counter
	files, err := listFiles(dir)
	if err != nil {
		return tally{}, err
	}
	for _, path := range files {
		if ctx.Err() != nil {
			return tally{}, context.Cause(ctx)
		}
		if err := plain.add(path); err != nil {
			return tally{}, err
		}
	}
	return plain.tally, nil
}

// awaitAssigned waits until every instance owns shards, or every shard has an owner of its own.
func awaitAssigned(ctx context.Context, reg registry.Registry, keys record.Keys, o demoOptions) error {
	for {
		e, err := reg.Get(ctx, keys.Plan(jobName), registry.ReadOptions{})
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
			return fmt.Errorf("wait for the shards to be assigned: %w", context.Cause(ctx))
		case <-time.After(10 * time.Millisecond):
		}
	}
}
