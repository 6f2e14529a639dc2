package explore

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

var exploreStates = flag.Int("explore.states", 150, "how many states of each small world to explore at most")

var exploreGuard = flag.String("explore.guard", "", "the one guard to remove; all if empty")

var exploreScenario = flag.String("explore.scenario", "", "the one small world to search; all if empty")

var exploreWays = flag.Int("explore.ways", 20, "how many long ways to take through each small world, and in search of what the lack of a guard breaks")

func formatDefinition(revision, shards int, more string) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"name":%q,"revision":%d,"shards":%d%s}`, jobName, revision, shards, more))
}

// scenario is a small world to be explored.
type scenario struct {
	name      string
	procs     int
	shards    int
	faults    faultBudget
	cold      bool // nobody has joined yet
	late      int  // how many have not joined yet, when the others have
	brings    int  // revisions of the definition that are not stored yet
	named     bool
	lingers   bool
	handsBack bool     // runs may be handed back at a drain
	tracking  []string // of each revision in turn; nil: all runs are tracked
}

var scenarios = []scenario{
	{name: "crashes", procs: 3, shards: 3, faults: faultBudget{crashes: 2}},
	{name: "a live session expires", procs: 3, shards: 2, faults: faultBudget{expiries: 1, crashes: 1}, lingers: true},
	{name: "a reply is lost", procs: 2, shards: 2, faults: faultBudget{lostReplies: 1, crashes: 1}},
	{name: "another definition", procs: 2, shards: 2, faults: faultBudget{revisions: 1, crashes: 1}},
	{name: "drains", procs: 3, shards: 1, faults: faultBudget{drains: 2, crashes: 1, lostReplies: 1}, named: true},
	{name: "drains that hand runs back", procs: 3, shards: 2, faults: faultBudget{drains: 2, crashes: 1, lostReplies: 1}, named: true, handsBack: true},
	{name: "drains that hand runs of triggers back", procs: 2, late: 1, shards: 2, faults: faultBudget{drains: 1, crashes: 1, triggers: 1, revisions: 1}, handsBack: true},
	{name: "a store that lags", procs: 3, shards: 2, faults: faultBudget{staleReads: 1, crashes: 2}},
	{name: "a cold start on a store that lags", procs: 3, shards: 1, faults: faultBudget{staleReads: 1, crashes: 2}, cold: true},
	{name: "a late member on a store that lags", procs: 2, late: 1, shards: 3, faults: faultBudget{staleReads: 1, crashes: 2}},
	{name: "a member publishes its record", procs: 2, shards: 2, faults: faultBudget{expiries: 1, lostReplies: 1, drains: 1}, lingers: true},
	{name: "a cold start and a drain", procs: 3, shards: 1, faults: faultBudget{drains: 1}, cold: true, named: true},
	{name: "a cold start", procs: 3, shards: 2, faults: faultBudget{crashes: 2, lostReplies: 1}, cold: true},
	{name: "a cold start of two revisions", procs: 3, shards: 1, faults: faultBudget{crashes: 1, lostReplies: 1}, cold: true, brings: 2},
	{name: "another writer", procs: 2, shards: 2, faults: faultBudget{recordEdits: 1, expiries: 1, lostReplies: 1}},
	{name: "triggers", procs: 2, shards: 2, faults: faultBudget{triggers: 2, crashes: 1, revisions: 1}},
	{name: "resets", procs: 2, shards: 2, faults: faultBudget{resets: 2, crashes: 1, revisions: 1, lostReplies: 1}},
	{name: "claims are tracked", procs: 3, shards: 2, faults: faultBudget{crashes: 1, drains: 1, lostReplies: 1, triggers: 1}, tracking: claimsTracked},
	{name: "tracking changes", procs: 2, shards: 2, faults: faultBudget{revisions: 2, crashes: 1, expiries: 1}, tracking: trackingChanges, lingers: true},
	{name: "claims are tracked and a late member joins", procs: 2, late: 1, shards: 3, faults: faultBudget{crashes: 1, drains: 1, lostReplies: 1, triggers: 1}, tracking: claimsTracked},
	{name: "tracking changes and a member drains", procs: 2, shards: 2, faults: faultBudget{revisions: 2, crashes: 1, expiries: 1, drains: 1}, tracking: trackingChanges, lingers: true},
	{name: "all at once", procs: 3, shards: 3, faults: faultBudget{crashes: 2, expiries: 1, lostReplies: 1, revisions: 1}, lingers: true, named: true},
	{name: "more at once", procs: 3, shards: 2, faults: faultBudget{crashes: 1, expiries: 1, lostReplies: 2, revisions: 2, drains: 1, triggers: 2}, lingers: true, named: true},
}

var (
	claimsTracked   = []string{record.TrackClaims}
	trackingChanges = []string{record.TrackRuns, record.TrackClaims}
)

// begin returns the first state of a scenario.
func (x *explorer) firstWorld(sc scenario) *world {
	x.named, x.lingers, x.handsBack, x.shards, x.brings, x.tracking = sc.named, sc.lingers, sc.handsBack, sc.shards, sc.brings, sc.tracking
	s := &world{}
	for i := range sc.procs {
		s.procs = append(s.procs, process{name: string(rune('a' + i))})
	}
	if x.brings == 0 {
		s.highestRevision = 1
		value, err := record.Encode(x.definitionOf(1))
		if err != nil {
			panic(err)
		}
		x.must(s.store.apply(registry.Txn{Then: []registry.Op{registry.Create(x.keys.Job(x.segment()), value)}}, x.removed))
	}
	if !sc.cold {
		var violation error
		if s, _, violation = x.runToRest(s, rand.New(rand.NewPCG(1, 1)), false); violation != nil {
			panic(violation)
		}
	}
	for i := range sc.late {
		s.procs = append(s.procs, process{name: string(rune('a' + sc.procs + i))})
	}
	s.left = sc.faults
	if sc.late > 0 && sc.faults.staleReads > 0 {
		past := s.store
		s.staleStore, s.left.staleReads = &past, sc.faults.staleReads-1
	}
	return s
}

// steps returns what can happen in s: by itself, by the passing of time, and by faults.
func (x *explorer) splitSteps(s *world) (work, time, faults []step) {
	x.emitSteps(s, func(label string, n *world, violation error) {
		t := step{label, n, violation}
		switch {
		case n.left != s.left:
			faults = append(faults, t)
		case n.now != s.now:
			time = append(time, t)
		default:
			work = append(work, t)
		}
	})
	return work, time, faults
}

type step struct {
	label     string
	next      *world
	violation error
}

// calm goes on from s without another fault until nothing is left to be done, and if told
// so until time has passed. It returns the way that it took.
func (x *explorer) runToRest(s *world, rng *rand.Rand, time bool) (*world, []string, error) {
	var way []string
	for range 3000 {
		steps, ticks, _ := x.splitSteps(s)
		if len(steps) == 0 && time {
			steps = ticks
		}
		if len(steps) == 0 {
			return s, way, nil
		}
		t := steps[rng.IntN(len(steps))]
		way = append(way, t.label)
		if t.violation != nil {
			return s, way, t.violation
		}
		s = t.next
	}
	return s, way, errors.New("it does not come to rest")
}

// wander takes some way from s, faults and all, to the end, and judges it. Each way has its
// own taste: some steps it puts off for long, so that views fall far behind.
func (x *explorer) walk(s *world, rng *rand.Rand) (way []string, violation error) {
	tastes := map[string]float64{}
	pick := func(steps []step) step {
		sum := 0.0
		for _, t := range steps {
			if _, ok := tastes[t.label]; !ok {
				tastes[t.label] = []float64{0.01, 0.1, 1, 1, 5}[rng.IntN(5)]
			}
			sum += tastes[t.label]
		}
		r := rng.Float64() * sum
		for _, t := range steps {
			if r -= tastes[t.label]; r < 0 {
				return t
			}
		}
		return steps[len(steps)-1]
	}
	fault, tick := 4+rng.IntN(20), 8+rng.IntN(60)
	for range 40 + rng.IntN(160) {
		steps, ticks, faults := x.splitSteps(s)
		switch {
		case len(faults) > 0 && rng.IntN(fault) == 0:
			steps = faults
		case len(ticks) > 0 && (len(steps) == 0 || rng.IntN(tick) == 0):
			steps = ticks
		}
		if len(steps) == 0 {
			break
		}
		t := pick(steps)
		way = append(way, t.label)
		if t.violation != nil {
			return way, t.violation
		}
		s = t.next
	}
	end, rest, violation := x.runToRest(s, rng, true)
	if violation == nil {
		violation = x.judgeRest(end)
	}
	return append(append(way, "-- and then, without another fault:"), rest...), violation
}

// found is what an exploration came to.
type searchResult struct {
	states, steps, settled int
	depth                  int
	whole                  bool // there are no more states
	violation              error
	way                    []string
}

type origin struct {
	from  digest
	label string
}

// explore goes through the states that can be reached, those that fewer steps lead to
// first, until there are most of them. From one in so many it sees whether all comes to
// rest and nothing is lost.
func (x *explorer) searchBreadthFirst(first *world, most, settleEach int) (out searchResult) {
	rng := rand.New(rand.NewPCG(1, 2))
	origins := map[digest]origin{}
	wayTo := func(d digest) []string {
		var way []string
		for {
			o := origins[d]
			if o.label == "" {
				slices.Reverse(way)
				return way
			}
			way = append(way, o.label)
			d = o.from
		}
	}
	type node struct {
		state *world
		name  digest
	}
	front := []node{{first, x.digest(first)}}
	origins[front[0].name] = origin{}
	for ; len(front) > 0; out.depth++ {
		var next []node
		for _, at := range front {
			out.states++
			if settleEach > 0 && out.states%settleEach == 0 {
				out.settled++
				end, way, err := x.runToRest(at.state, rng, true)
				if err == nil {
					err = x.judgeRest(end)
				}
				if err != nil {
					out.violation, out.way = err, append(append(wayTo(at.name), "-- and then, without another fault:"), way...)
					return out
				}
			}
			x.emitSteps(at.state, func(label string, n *world, violation error) {
				if out.violation != nil {
					return
				}
				out.steps++
				if violation != nil {
					out.violation, out.way = violation, append(wayTo(at.name), label)
					return
				}
				name := x.digest(n)
				if _, known := origins[name]; known {
					return
				}
				origins[name] = origin{at.name, label}
				next = append(next, node{n, name})
			})
			if out.violation != nil {
				return out
			}
			if out.states >= most {
				return out
			}
		}
		front = next
	}
	out.whole = true
	return out
}

// inBubble explores in a bubble, for registry.Apply pauses when it has to ask again.
func inBubble(t *testing.T, f func(t *testing.T)) {
	synctest.Test(t, f)
}

func TestExploration_FindsNothingThatIsBroken(t *testing.T) {
	for _, sc := range scenarios {
		t.Run(sc.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				x := newExplorer()
				r := x.searchBreadthFirst(x.firstWorld(sc), *exploreStates, max(1, *exploreStates/200))
				t.Logf("%d states and %d steps, to a depth of %d, the whole: %v; %d ways to the end", r.states, r.steps, r.depth, r.whole, r.settled)
				require.NoError(t, r.violation, strings.Join(r.way, "\n"))
			})
		})
	}
}

func TestExploration_FindsNothingOnLongWays(t *testing.T) {
	for _, sc := range scenarios {
		t.Run(sc.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				x := newExplorer()
				first := x.firstWorld(sc)
				for seed := range uint64(*exploreWays) {
					way, violation := x.walk(first, rand.New(rand.NewPCG(seed, 0)))
					require.NoError(t, violation, "seed %d\n%s", seed, strings.Join(way, "\n"))
				}
			})
		})
	}
}

// guards returns the names of all conditions that scenarios come upon.
func guardsMet(t *testing.T) []string {
	seen := map[string]bool{}
	inBubble(t, func(*testing.T) {
		for _, sc := range scenarios {
			x := newExplorer()
			x.guardsSeen = seen
			first := x.firstWorld(sc)
			for seed := range uint64(30) {
				x.walk(first, rand.New(rand.NewPCG(seed, 0)))
			}
		}
	})
	return slices.Sorted(maps.Keys(seen))
}

// A world without one of its guards has to break on some way. Where a way is known that
// shows it, it is taken first; when the code has changed so much that it leads elsewhere,
// others are searched.
func TestExploration_CatchesEachGuardThatIsRemoved(t *testing.T) {
	for _, name := range guardsMet(t) {
		if *exploreGuard != "" && name != *exploreGuard {
			continue
		}
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				if w, ok := witnesses[name]; ok && breaksPromise(t, name, scenarioOf(w.scenario), w.seed, w.way) {
					return
				}
				for seed := range uint64(*exploreWays) {
					sc := scenarios[seed%uint64(len(scenarios))]
					if *exploreScenario != "" {
						sc = scenarioOf(*exploreScenario)
					}
					if breaksPromise(t, name, sc, seed, nil) {
						return
					}
				}
				assert.Fail(t, "nothing was found", "perhaps on more ways: -explore.ways=10000 -explore.guard=%q", name)
			})
		})
	}
}

// breaks reports whether a way through a small world without a guard breaks a promise.
func breaksPromise(t *testing.T, guard string, sc scenario, seed uint64, way []string) bool {
	x := newExplorer()
	first := x.firstWorld(sc)
	x.removed = func(txn *registry.Txn, item int) bool {
		g := guardOf(x.keys, txn, item)
		return g == guard || g == twins[guard]
	}
	rng := rand.New(rand.NewPCG(seed, 0))
	var violation error
	if way != nil {
		violation = x.followWitness(first, way, rng)
		require.NotErrorIs(t, violation, errStaleWitness)
	} else {
		way, violation = x.walk(first, rng)
	}
	if violation == nil {
		return false
	}
	t.Logf("{scenario: %q, seed: %d}, // %v", sc.name, seed, violation)
	t.Log("\n" + strings.Join(way, "\n"))
	return true
}

// errStaleWitness is the error of a recorded way of which a step does not exist any more.
var errStaleWitness = errors.New("the witness has to be recorded anew: no step begins with these words")

// follow goes a way from s whose steps begin with these words, and on without another fault
// to the end, and judges it.
func (x *explorer) followWitness(s *world, way []string, rng *rand.Rand) error {
	for _, words := range way {
		var taken *step
		x.emitSteps(s, func(label string, n *world, violation error) {
			if taken == nil && strings.HasPrefix(label, words) {
				taken = &step{label, n, violation}
			}
		})
		if taken == nil {
			return fmt.Errorf("%w: %q", errStaleWitness, words)
		}
		if taken.violation != nil {
			return taken.violation
		}
		s = taken.next
	}
	end, _, violation := x.runToRest(s, rng, true)
	if violation != nil {
		return violation
	}
	return x.judgeRest(end)
}

func scenarioOf(name string) scenario {
	return scenarios[slices.IndexFunc(scenarios, func(sc scenario) bool { return sc.name == name })]
}
