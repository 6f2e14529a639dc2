package rotatest

import (
	"bytes"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/rota-dev/rota/internal/onecpu"
)

// Run calls f in a synctest bubble with a fleet that has no instances yet. After f has returned,
// it heals partitions, waits up to 5 minutes of virtual time for due fires to be claimed, stops
// all instances, and performs the checks that the package comment lists.
//
// In f, t can report failures. For Context, Cleanup and TempDir, use Fleet.T. Do not call t.Run
// or t.Parallel in f. If f does not return, because the test failed or panicked, the fleet is
// stopped without the checks.
//
// If the clock of the bubble stands still for 20 s of real time, because goroutines in it wait
// for something outside, Run panics with their stacks.
func Run(t *testing.T, f func(*Fleet)) {
	t.Helper()
	defer onecpu.Hold()()
	if bubble, deadlock := inBubble(t, f); deadlock != nil {
		t.Fatalf("rotatest: the test cannot end, because goroutines are left: %v\n\n%s", deadlock, stacks(bubble))
	}
}

// inBubble runs f in a bubble. It returns the runtime's panic about deadlocked goroutines as an
// error, since the panic would end all other tests. These goroutines leak. The runtime has no
// type for the panic, so it is recognized by its text.
func inBubble(t *testing.T, f func(*Fleet)) (bubble string, deadlock error) {
	defer func() {
		v := recover()
		err, ok := v.(error)
		if ok && strings.HasPrefix(err.Error(), "deadlock: ") {
			deadlock = err
		} else if v != nil {
			panic(v)
		}
	}()
	dog := startWatchdog(t)
	defer dog.stopWatching()
	synctest.Test(t, func(inner *testing.T) {
		bubble = currentBubble()
		dog.watch(bubble)
		returned := false
		defer func() {
			if v := recover(); v != nil {
				panic(v)
			}
			if !returned && t.Failed() && !inner.Failed() {
				inner.FailNow() // f has called it on t, which is not this goroutine's
			}
		}()
		runFleet(inner, inner, f)
		returned = true
	})
	return bubble, nil
}

// reporter is the part of testing.T that a fleet uses.
type reporter interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// runFleet is Run within the bubble of t.
func runFleet(t *testing.T, r reporter, f func(*Fleet)) {
	fleet := newFleet(t, r)
	t.Cleanup(fleet.close) // the first one, so that it comes after those of f
	f(fleet)
	fleet.returned = true
}

// bubbleName matches the name of a bubble in the first line of a goroutine's stack.
var bubbleName = regexp.MustCompile(`^goroutine [^\n]*(synctest bubble \d+)\]`)

// currentBubble returns the name of the bubble that it is called in, empty if the runtime
// does not name it.
func currentBubble() string {
	buf := make([]byte, 1<<10)
	m := bubbleName.FindSubmatch(buf[:runtime.Stack(buf, false)])
	if m == nil {
		return ""
	}
	return string(m[1])
}

// stacks returns those of the goroutines in a bubble.
func stacks(bubble string) []byte {
	buf := make([]byte, 4<<20)
	var all [][]byte
	for s := range bytes.SplitSeq(buf[:runtime.Stack(buf, true)], []byte("\n\n")) {
		if m := bubbleName.FindSubmatch(s); m != nil && string(m[1]) == bubble {
			all = append(all, s)
		}
	}
	return bytes.Join(all, []byte("\n\n"))
}
