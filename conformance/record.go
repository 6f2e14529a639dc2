package conformance

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"testing"
)

// recorder is a testing.TB that records the failures of a case. It overrides the methods
// by which the suite and testify report failures; the rest goes to the outer test.
type recorder struct {
	testing.TB
	ctx context.Context

	mu       sync.Mutex
	log      []string
	failed   bool
	cleanups []func()
}

// runRecorded runs f with a recorder and returns the recorded failures. f runs in a
// goroutine of its own, since FailNow ends the goroutine.
func runRecorded(t testing.TB, f func(testing.TB)) []string {
	ctx, cancel := context.WithCancel(context.Background())
	r := &recorder{TB: t, ctx: ctx}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer r.runCleanups()
		defer cancel()
		defer r.recordPanic()
		f(r)
	}()
	<-done
	if r.failed && len(r.log) == 0 {
		return []string{"failed without a message"}
	}
	if !r.failed {
		return nil
	}
	return r.log
}

// runCleanups calls the cleanups, last first, even if one of them ends the goroutine.
func (r *recorder) runCleanups() {
	r.mu.Lock()
	n := len(r.cleanups)
	if n == 0 {
		r.mu.Unlock()
		return
	}
	f := r.cleanups[n-1]
	r.cleanups = r.cleanups[:n-1]
	r.mu.Unlock()
	defer r.runCleanups()
	defer r.recordPanic()
	f()
}

func (r *recorder) recordPanic() {
	if p := recover(); p != nil {
		r.complain(fmt.Sprintf("panic: %v\n%s", p, debug.Stack()))
	}
}

func (r *recorder) complain(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = true
	r.log = append(r.log, text)
}

func (r *recorder) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

func (r *recorder) Fail() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = true
}

func (r *recorder) FailNow() {
	r.Fail()
	runtime.Goexit()
}

// artifactDir returns a temporary directory for the files of an expected failure.
func (r *recorder) artifactDir() string { return r.TempDir() }

func (r *recorder) Context() context.Context          { return r.ctx }
func (r *recorder) Error(args ...any)                 { r.complain(fmt.Sprint(args...)) }
func (r *recorder) Errorf(format string, args ...any) { r.complain(fmt.Sprintf(format, args...)) }
func (r *recorder) Fatal(args ...any)                 { r.Error(args...); runtime.Goexit() }
func (r *recorder) Fatalf(format string, args ...any) { r.Errorf(format, args...); runtime.Goexit() }
func (r *recorder) Helper()                           {}
func (r *recorder) Log(...any)                        {}
func (r *recorder) Logf(string, ...any)               {}
