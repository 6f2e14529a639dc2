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
	"github.com/rota-dev/rota/internal/test/long"
	"github.com/rota-dev/rota/registry"
)

var exploreStates = flag.Int("explore.states", long.Pick(40, 600), "at most how many worlds of each scenario to search")

var exploreGuard = flag.String("explore.guard", "", "the guard to remove; empty: each in turn")

var exploreScenario = flag.String("explore.scenario", "", "the scenario to search without a guard; empty: all")

var exploreWays = flag.Int("explore.ways", long.Pick(10, 60), "how many random paths to take through each scenario, and in search of a violation without a guard")

func formatDefinition(revision, shards int, more string) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"name":%q,"revision":%d,"shards":%d%s}`, jobName, revision, shards, more))
}

// scenario describes the first world of an exploration.
type scenario struct {
	name      string
	procs     int
	shards    int
	faults    faultBudget
	cold      bool // no process has joined yet
	late      int  // how many processes join later than the others
	brings    int  // how many revisions joining processes bring; zero: revision 1 is stored
	named     bool
	lingers   bool
	fromEnds  bool     // fires count from the ends of runs
	tracks    bool     // which fires have ended is tracked, as another job follows the job
	skips     bool     // fires that come due during a run of their shard are skipped
	handsBack bool     // draining processes may hand runs back
	tracking  []string // of each revision in turn; nil: all runs are tracked
	kinds     int      // as in explorer
	isDefined bool     // the job is defined as data already
}

var scenarios = []scenario{
	{name: "crashes", procs: 3, shards: 3, faults: faultBudget{crashes: 2}},
	{name: "a live session expires", procs: 3, shards: 2, faults: faultBudget{expiries: 1, crashes: 1}, lingers: true},
	{name: "a reply is lost", procs: 2, shards: 2, faults: faultBudget{lostReplies: 1, crashes: 1}},
	{name: "another definition", procs: 2, shards: 2, faults: faultBudget{revisions: 1, crashes: 1}},
	{name: "drains", procs: 3, shards: 1, faults: faultBudget{drains: 2, crashes: 1, lostReplies: 1}, named: true},
	{name: "drains that hand runs back", procs: 3, shards: 2, faults: faultBudget{drains: 2, crashes: 1, lostReplies: 1}, named: true, handsBack: true},
	{name: "drains that hand runs of triggers back", procs: 2, late: 1, shards: 2, faults: faultBudget{drains: 1, crashes: 1, triggers: 1, revisions: 1}, handsBack: true},
	{name: "runs fail and are retried", procs: 2, late: 1, shards: 2, faults: faultBudget{failures: 2, crashes: 1, drains: 1, lostReplies: 1}},
	{name: "runs of triggers fail and are retried", procs: 2, shards: 2, faults: faultBudget{failures: 2, triggers: 1, revisions: 1, crashes: 1}},
	{name: "overlapping fires are skipped", procs: 2, late: 1, shards: 2, faults: faultBudget{crashes: 1, failures: 1, lostReplies: 1, revisions: 1}, skips: true},
	{name: "ended fires are tracked", procs: 2, late: 1, shards: 2, faults: faultBudget{crashes: 1, failures: 1, drains: 1, lostReplies: 1}, tracks: true, handsBack: true},
	{name: "ended fires and triggers are tracked", procs: 2, shards: 2, faults: faultBudget{triggers: 1, revisions: 1, crashes: 1, failures: 1}, tracks: true},
	{name: "ended fires are tracked on a store that lags", procs: 3, shards: 2, faults: faultBudget{staleReads: 1, crashes: 2}, tracks: true},
	{name: "fires count from ends", procs: 2, late: 1, shards: 2, faults: faultBudget{crashes: 1, failures: 1, drains: 1, lostReplies: 1, revisions: 1}, fromEnds: true, handsBack: true},
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
	{name: "a defined job is deleted and a leader crashes", procs: 2, shards: 2, faults: faultBudget{deletes: 2, defines: 1, crashes: 1, lostReplies: 1}, kinds: 1, isDefined: true},
	{name: "a job is defined and instances crash", procs: 3, shards: 1, faults: faultBudget{defines: 1, deletes: 1, crashes: 2, lostReplies: 1}, kinds: 1},
	{name: "a job is defined and deleted on a store that lags", procs: 3, shards: 1, faults: faultBudget{defines: 1, deletes: 1, staleReads: 1, crashes: 1}, kinds: 1, isDefined: true},
	{name: "kinds of three revisions", procs: 3, shards: 1, faults: faultBudget{defines: 1, crashes: 1, lostReplies: 1}, kinds: 3, cold: true},
	{name: "kinds are rolled out", procs: 2, late: 2, shards: 2, faults: faultBudget{deletes: 1, defines: 1, crashes: 1, drains: 1}, kinds: 2, isDefined: true},
	{name: "all at once", procs: 3, shards: 3, faults: faultBudget{crashes: 2, expiries: 1, lostReplies: 1, revisions: 1}, lingers: true, named: true},
	{name: "more at once", procs: 3, shards: 2, faults: faultBudget{crashes: 1, expiries: 1, lostReplies: 2, revisions: 2, drains: 1, triggers: 2}, lingers: true, named: true},
}

var (
	claimsTracked   = []string{record.TrackClaims}
	trackingChanges = []string{record.TrackRuns, record.TrackClaims}
)

// firstWorld returns the first world of a scenario.
func (x *explorer) firstWorld(sc scenario) *world {
	x.named, x.lingers, x.handsBack, x.shards, x.brings, x.tracking, x.skips, x.fromEnds = sc.named, sc.lingers, sc.handsBack, sc.shards, sc.brings, sc.tracking, sc.skips, sc.fromEnds
	x.tracks, x.kinds, x.deletes = sc.tracks, sc.kinds, sc.faults.deletes
	x.work.fromEnds = sc.fromEnds
	s := &world{}
	for i := range sc.procs {
		s.procs = append(s.procs, process{name: string(rune('a' + i))})
	}
	switch {
	case x.kinds > 0:
		x.addKind(s, sc)
	case x.brings == 0:
		s.highestRevision = 1
		value, err := record.Encode(x.definitionOf(1))
		if err != nil {
			panic(err)
		}
		x.must(s.store.apply(registry.Txn{Then: []registry.Op{registry.Create(x.keys.Job(x.segment()), value)}}, x.removed))
	}
	if x.tracks {
		follower := json.RawMessage(`{"name":"follower","shards":1,"schedule":"after-end job"}`)
		x.must(s.store.apply(registry.Txn{Then: []registry.Op{registry.Create(x.keys.Job("follower"), follower)}}, x.removed))
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

// splitSteps returns the steps that are possible in s: work, the passing of time, and faults.
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

// runToRest takes random steps without faults from s until none is left. With time, it also lets all
// time pass. It returns the labels of the steps.
func (x *explorer) runToRest(s *world, rng *rand.Rand, time bool) (*world, []string, error) {
	var path []string
	for range 3000 {
		steps, ticks, _ := x.splitSteps(s)
		if len(steps) == 0 && time {
			steps = ticks
		}
		if len(steps) == 0 {
			return s, path, nil
		}
		t := steps[rng.IntN(len(steps))]
		path = append(path, t.label)
		if t.violation != nil {
			return s, path, t.violation
		}
		s = t.next
	}
	return s, path, errors.New("the world does not come to rest")
}

// walk takes a random path from s with faults, runs the world to rest, and judges it. Each path has random
// weights for labels, so that some steps are delayed for long and views become very stale.
func (x *explorer) walk(s *world, rng *rand.Rand) (path []string, violation error) {
	weights := map[string]float64{}
	pick := func(steps []step) step {
		sum := 0.0
		for _, t := range steps {
			if _, ok := weights[t.label]; !ok {
				weights[t.label] = []float64{0.01, 0.1, 1, 1, 5}[rng.IntN(5)]
			}
			sum += weights[t.label]
		}
		r := rng.Float64() * sum
		for _, t := range steps {
			if r -= weights[t.label]; r < 0 {
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
		path = append(path, t.label)
		if t.violation != nil {
			return path, t.violation
		}
		s = t.next
	}
	end, rest, violation := x.runToRest(s, rng, true)
	if violation == nil {
		violation = x.judgeRest(end)
	}
	return append(append(path, "-- from here on without faults:"), rest...), violation
}

// searchResult is the result of a breadth-first search.
type searchResult struct {
	states, steps, settled int
	depth                  int
	whole                  bool // the search has visited all worlds
	violation              error
	path                   []string
}

type origin struct {
	from  digest
	label string
}

// searchBreadthFirst visits the reachable worlds, those with the fewest steps first, and at most that
// many. From every settleEach-th of them it runs the world to rest and judges that.
func (x *explorer) searchBreadthFirst(first *world, most, settleEach int) (out searchResult) {
	rng := rand.New(rand.NewPCG(1, 2))
	origins := map[digest]origin{}
	pathTo := func(d digest) []string {
		var path []string
		for {
			o := origins[d]
			if o.label == "" {
				slices.Reverse(path)
				return path
			}
			path = append(path, o.label)
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
				end, path, err := x.runToRest(at.state, rng, true)
				if err == nil {
					err = x.judgeRest(end)
				}
				if err != nil {
					out.violation, out.path = err, append(append(pathTo(at.name), "-- from here on without faults:"), path...)
					return out
				}
			}
			x.emitSteps(at.state, func(label string, n *world, violation error) {
				if out.violation != nil {
					return
				}
				out.steps++
				if violation != nil {
					out.violation, out.path = violation, append(pathTo(at.name), label)
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

// inBubble runs f in a bubble, because registry.Apply pauses before it repeats a request.
func inBubble(t *testing.T, f func(t *testing.T)) {
	synctest.Test(t, f)
}

func TestExploration_FindsNoViolation(t *testing.T) {
	for _, sc := range scenarios {
		t.Run(sc.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				x := newExplorer()
				r := x.searchBreadthFirst(x.firstWorld(sc), *exploreStates, max(1, *exploreStates/200))
				t.Logf("%d worlds and %d steps, to a depth of %d, all worlds: %v; %d of them run to rest", r.states, r.steps, r.depth, r.whole, r.settled)
				require.NoError(t, r.violation, strings.Join(r.path, "\n"))
			})
		})
	}
}

func TestExploration_FindsNoViolationOnRandomPaths(t *testing.T) {
	for _, sc := range scenarios {
		t.Run(sc.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				x := newExplorer()
				first := x.firstWorld(sc)
				for seed := range uint64(*exploreWays) {
					path, violation := x.walk(first, rand.New(rand.NewPCG(seed, 0)))
					require.NoError(t, violation, "seed %d\n%s", seed, strings.Join(path, "\n"))
				}
			})
		})
	}
}

// met holds the result of guardsMet, which two tests need.
var met []string

// guardsMet returns the guards of all requests on random paths through the scenarios.
func guardsMet(t *testing.T) []string {
	if met != nil {
		return slices.Clone(met)
	}
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
	met = slices.Sorted(maps.Keys(seen))
	return slices.Clone(met)
}

// Without any one of its guards, some path has to break a promise. The witness is tried first. If the
// code has changed and it no longer breaks the promise, random paths are searched.
func TestExploration_CatchesEachGuardThatIsRemoved(t *testing.T) {
	names := []string{*exploreGuard}
	if *exploreGuard == "" {
		names = slices.DeleteFunc(guardsMet(t), func(name string) bool { return testedElsewhere[name] != "" })
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				if w, ok := witnesses[name]; ok && breaksPromise(t, name, scenarioOf(w.scenario), w.seed, w.steps) {
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
				assert.Fail(t, "no violation was found", "search more paths: -explore.ways=10000 -explore.guard=%q", name)
			})
		})
	}
}

// breaksPromise reports whether a path through a scenario breaks a promise without a guard.
func breaksPromise(t *testing.T, guard string, sc scenario, seed uint64, path []string) bool {
	x := newExplorer()
	first := x.firstWorld(sc)
	x.removed = func(txn *registry.Txn, item int) bool {
		g := guardOf(x.keys, txn, item)
		return g == guard || g == twins[guard]
	}
	rng := rand.New(rand.NewPCG(seed, 0))
	var violation error
	if path != nil {
		violation = x.followWitness(first, path, rng)
		require.NotErrorIs(t, violation, errStaleWitness)
	} else {
		path, violation = x.walk(first, rng)
	}
	if violation == nil {
		return false
	}
	t.Logf("{scenario: %q, seed: %d}, // %v", sc.name, seed, violation)
	t.Log("\n" + strings.Join(path, "\n"))
	return true
}

// errStaleWitness is the error of a witness with a step that is not possible.
var errStaleWitness = errors.New("record the witness anew: no possible step begins with")

// followWitness takes the steps from s whose labels begin with these prefixes, runs the world to rest, and
// judges it.
func (x *explorer) followWitness(s *world, path []string, rng *rand.Rand) error {
	for _, prefix := range path {
		var matched *step
		x.emitSteps(s, func(label string, n *world, violation error) {
			if matched == nil && strings.HasPrefix(label, prefix) {
				matched = &step{label, n, violation}
			}
		})
		if matched == nil {
			return fmt.Errorf("%w %q", errStaleWitness, prefix)
		}
		if matched.violation != nil {
			return matched.violation
		}
		s = matched.next
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
