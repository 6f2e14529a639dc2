package rotatest

import (
	"fmt"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// A bubble's clock advances only while each of its goroutines is blocked durably: by something
// inside the bubble. One that waits for a socket stops the clock, for the whole -timeout of
// the test. The watchdog runs outside the bubble, in real time, and compares the stacks of the
// goroutines in it.

// stuckAfter is how long, in real time, the goroutines of a bubble may stay as they are.
var stuckAfter = 20 * time.Second

// samples is how often they are compared in that time. A debugger that stops the process
// takes one of them at most.
const samples = 5

// watchdog panics when a bubble is stuck.
type watchdog struct {
	test string
	stop chan struct{}
	done chan struct{}

	mu     sync.Mutex
	bubble string
}

// guard returns a watchdog for a test, which begins once watch names the bubble. guard must
// not be called in a bubble.
func startWatchdog(t *testing.T) *watchdog {
	w := &watchdog{test: t.Name(), stop: make(chan struct{}), done: make(chan struct{})}
	go w.run()
	return w
}

func (w *watchdog) watch(bubble string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.bubble = bubble
}

func (w *watchdog) watched() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.bubble
}

func (w *watchdog) stopWatching() {
	close(w.stop)
	<-w.done
}

func (w *watchdog) run() {
	defer close(w.done)
	tick := time.NewTicker(stuckAfter / samples)
	defer tick.Stop()
	var last []goroutine
	same := 0
	for {
		select {
		case <-w.stop:
			return
		case <-tick.C:
		}
		bubble := w.watched()
		if bubble == "" {
			continue
		}
		now := goroutines(stacks(bubble))
		if !slices.Equal(now, last) || len(culprits(now)) == 0 {
			last, same = now, 0
			continue
		}
		if same++; same >= samples {
			panic(stuckText(w.test, culprits(now))) // nothing else ends a test from outside of its bubble
		}
	}
}

// goroutine is one in a bubble, as its stack shows it.
type goroutine struct {
	id, state string
	stack     string // without the first line
}

var goroutineHead = regexp.MustCompile(`^goroutine (\d+)[^\[\n]*\[([^,\]\n]+)[^\n]*\n`)

// goroutines reads stacks, in the order of their text.
func goroutines(stacks []byte) []goroutine {
	var all []goroutine
	for s := range strings.SplitSeq(string(stacks), "\n\n") {
		if m := goroutineHead.FindStringSubmatch(s); m != nil {
			all = append(all, goroutine{m[1], m[2], s[len(m[0]):]})
		}
	}
	return all
}

// culprits returns the goroutines that stop the clock of a bubble in which nothing runs. It
// returns none if something runs: a handler may compute for as long as it likes.
func culprits(all []goroutine) []goroutine {
	var out []goroutine
	for _, g := range all {
		switch {
		case strings.HasSuffix(g.state, "(durable)"):
		case g.state == "running" || g.state == "runnable" || g.state == "preempted":
			return nil
		default:
			out = append(out, g)
		}
	}
	return out
}

// stuckText is the report of the watchdog.
func stuckText(test string, culprits []goroutine) string {
	var b strings.Builder
	fmt.Fprintf(&b, "rotatest: %s is stuck: the clock of its bubble stands still for %v of real time, because "+
		"goroutines wait for something outside of the bubble, such as a socket. See the package comment, "+
		"\"Handlers with connections\".\n", test, stuckAfter)
	for _, g := range culprits {
		fmt.Fprintf(&b, "\ngoroutine %s waits (%s) in %s:\n%s\n", g.id, g.state, g.where(), g.stack)
	}
	return b.String()
}

// where names the function that waits: the first that is not of the standard library, or the
// one that the goroutine began with if all of them are.
func (g goroutine) where() string {
	lines := strings.Split(g.stack, "\n")
	began := ""
	for i := 0; i+1 < len(lines) && !strings.HasPrefix(lines[i], "created by "); i += 2 {
		began = lines[i]
		if at := strings.LastIndexByte(began, '('); at > 0 { // of the arguments
			began = began[:at]
		}
		if !ofLibrary(strings.TrimSpace(lines[i+1])) {
			break
		}
	}
	return began
}

// library is the directory of the standard library's files.
var library = func() string {
	file, _ := runtime.FuncForPC(reflect.ValueOf(strings.Cut).Pointer()).FileLine(0)
	dir, ok := strings.CutSuffix(file, "strings/strings.go")
	if !ok {
		return ""
	}
	return dir
}()

// ofLibrary reports whether a file is one of the standard library. Built with -trimpath, those
// have no directory, and the paths of other modules mostly have a dot.
func ofLibrary(file string) bool {
	if library != "" {
		return strings.HasPrefix(file, library)
	}
	first, _, _ := strings.Cut(file, "/")
	return !strings.Contains(first, ".")
}
