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

// history records the calls of many goroutines with their start and end. Its clock is a
// counter, which orders events even within one instant of virtual time.
type history struct {
	mu   sync.Mutex
	now  int64
	ops  []porcupine.Operation
	open int // calls with an unknown outcome
}

// neverReturned is the end of a call with an unknown outcome: it may take effect at any
// later time in the history, or never.
const neverReturned = math.MaxInt64

// beginCall returns the start time of a call.
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

// leaveOpen records a call with an unknown outcome.
func (h *history) leaveOpen(client int, call int64, input, output any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open++
	h.ops = append(h.ops, porcupine.Operation{ClientId: client, Call: call, Return: neverReturned, Input: input, Output: output})
}

// verdict is the result of checking a history.
type verdict int

const (
	linearizable verdict = iota
	illegal
	undecided // the step budget was exhausted
)

// stepBudget bounds the search for an order of a history, which normally takes some
// thousands of steps. It counts steps instead of seconds, since virtual time stands still
// during a computation.
const stepBudget = 1_000_000

// search searches for an order of the calls that the model accepts. If there is none, it
// returns the path of a visualization.
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
	bounded, _ = withBudget(m, budget) // partial orders show where the search ended
	_, found := porcupine.CheckOperationsVerbose(bounded, h.ops, 0)
	t.Logf("the longest legal orders:\n%s", h.describeDeadEnd(m, found))
	picture = filepath.Join(t.artifacts(), "history.html")
	if err := porcupine.VisualizePath(m, found, picture); err != nil {
		picture = fmt.Sprintf("none: %v", err)
	}
	return illegal, picture
}

// describeDeadEnd describes where the longest legal orders end: their last calls, the
// resulting state, and the first calls that cannot follow.
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
		describe := func(op porcupine.Operation) {
			returned := "?"
			if op.Return != neverReturned {
				returned = fmt.Sprint(op.Return)
			}
			fmt.Fprintf(&b, "  client %d, %d-%s: %s\n", op.ClientId, op.Call, returned, m.DescribeOperation(op.Input, op.Output))
		}
		state, placed := m.Init(), map[int64]bool{} // by start time, which is unique
		for n, op := range order {
			placed[op.Call] = true
			_, state = m.Step(state, op.Input, op.Output)
			if n >= len(order)-shown {
				describe(op)
			}
		}
		fmt.Fprintf(&b, "%d of %d calls are placed, with the state\n  %s\nin which none of these calls is legal:\n", len(order), len(parts[i]), m.DescribeState(state))
		left := slices.DeleteFunc(slices.Clone(parts[i]), func(op porcupine.Operation) bool { return placed[op.Call] })
		for _, op := range left[:min(shown, len(left))] {
			describe(op)
		}
	}
	return b.String()
}

// withBudget limits m to budget steps. After that no step is legal, which ends the
// search.
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

// artifacts returns a directory for files that explain a failure. The files are kept,
// except in tests of the suite itself.
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
		t.Fatalf("create a directory for the visualization: %v", err)
	}
	return dir
}
