package conformance

import (
	"cmp"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/anishathalye/porcupine"
)

// history records calls of many goroutines, in the order in which they began and ended. Its
// clock counts: what happens at one instant of virtual time has an order all the same.
type history struct {
	mu   sync.Mutex
	now  int64
	ops  []porcupine.Operation
	open int // calls that have no end
}

// neverReturned is when a call returns whose outcome is unknown: it may take effect at any time
// until the end of the history, after which nobody can tell whether it ever did.
const neverReturned = math.MaxInt64

// beginCall returns the moment at which a call begins.
func (h *history) beginCall() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now++
	return h.now
}

// endCall records a call that has returned.
func (h *history) endCall(client int, call int64, input, output any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now++
	h.ops = append(h.ops, porcupine.Operation{ClientId: client, Call: call, Return: h.now, Input: input, Output: output})
}

// leaveOpen records a call whose outcome is unknown.
func (h *history) leaveOpen(client int, call int64, input, output any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open++
	h.ops = append(h.ops, porcupine.Operation{ClientId: client, Call: call, Return: neverReturned, Input: input, Output: output})
}

// verdict is what came of checking a history.
type verdict int

const (
	linearizable verdict = iota
	illegal
	undecided // within the budget
)

// stepBudget bounds the search for an order of a history, which takes some thousands of
// steps as a rule. They are counted instead of seconds, because in a bubble no time passes
// while somebody computes.
const stepBudget = 1_000_000

// search searches an order of the calls in which each does what the model says. It returns
// where a picture of a history that has none is to be found.
func (h *history) search(t *test, m porcupine.Model, budget int64) (v verdict, picture string) {
	t.Helper()
	slices.SortStableFunc(h.ops, func(x, y porcupine.Operation) int { return cmp.Compare(x.Call, y.Call) })
	bounded, exhausted := withBudget(m, budget)
	if porcupine.CheckOperations(bounded, h.ops) {
		return linearizable, ""
	}
	if exhausted() {
		return undecided, ""
	}
	bounded, _ = withBudget(m, budget) // what is found of an order shows where it ends
	_, found := porcupine.CheckOperationsVerbose(bounded, h.ops, 0)
	t.Logf("the order of calls ends with\n%s", h.describeDeadEnd(m, found))
	picture = filepath.Join(t.artifacts(), "history.html")
	if err := porcupine.VisualizePath(m, found, picture); err != nil {
		picture = fmt.Sprintf("none: %v", err)
	}
	return illegal, picture
}

// describeDeadEnd tells where the longest orders that were found come to their end: the last
// calls in them, the state that these leave, and the first calls without a place after them.
func (h *history) describeDeadEnd(m porcupine.Model, found porcupine.LinearizationInfo) string {
	const shown = 6
	parts := [][]porcupine.Operation{h.ops}
	if m.Partition != nil {
		parts = m.Partition(h.ops)
	}
	var b strings.Builder
	for i, orders := range found.PartialLinearizationsOperations() {
		var order []porcupine.Operation // the longest
		for _, o := range orders {
			if len(o) > len(order) {
				order = o
			}
		}
		if len(order) == len(parts[i]) {
			continue
		}
		tell := func(op porcupine.Operation) {
			returned := "?"
			if op.Return != neverReturned {
				returned = fmt.Sprint(op.Return)
			}
			fmt.Fprintf(&b, "  client %d, %d-%s: %s\n", op.ClientId, op.Call, returned, m.DescribeOperation(op.Input, op.Output))
		}
		state, placed := m.Init(), map[int64]bool{} // by their calls, of which no two are at once
		for n, op := range order {
			placed[op.Call] = true
			_, state = m.Step(state, op.Input, op.Output)
			if n >= len(order)-shown {
				tell(op)
			}
		}
		fmt.Fprintf(&b, "%d of %d calls have a place; they leave\n  %s\nwhere none of these can be next:\n", len(order), len(parts[i]), m.DescribeState(state))
		left := slices.DeleteFunc(slices.Clone(parts[i]), func(op porcupine.Operation) bool { return placed[op.Call] })
		for _, op := range left[:min(shown, len(left))] {
			tell(op)
		}
	}
	return b.String()
}

// withBudget is m for budget steps. After that nothing is legal, which ends the search.
func withBudget(m porcupine.Model, budget int64) (bounded porcupine.Model, exhausted func() bool) {
	var steps atomic.Int64
	step := m.Step
	m.Step = func(state, input, output any) (bool, any) {
		if steps.Add(1) > budget {
			return false, state
		}
		return step(state, input, output)
	}
	return m, func() bool { return steps.Load() > budget }
}

// artifacts returns a directory for files that explain a failure. They are kept, but when
// the suite itself is tested.
func (t *test) artifacts() string {
	t.Helper()
	if k, ok := t.TB.(interface{ artifactDir() string }); ok {
		return k.artifactDir()
	}
	if f := flag.Lookup("test.artifacts"); f != nil && f.Value.String() == "true" {
		return t.ArtifactDir()
	}
	dir, err := os.MkdirTemp("", "conformance-")
	if err != nil {
		t.Fatalf("keep what explains the failure: %v", err)
	}
	return dir
}
