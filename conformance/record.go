package conformance

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"testing"
)

// recorder is a testing.TB that keeps what a case complains of. Only what the suite and
// testify call to fail is its own; the rest is the outer test's.
type recorder struct {
	testing.TB
	ctx context.Context

	mu       sync.Mutex
	log      []string
	failed   bool
	cleanups []func()
}

// runRecorded runs f with a recorder in a goroutine of its own, because a case that gives up
// ends its goroutine, and returns the complaints.
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
		return []string{"failed without a word"}
	}
	if !r.failed {
		return nil
	}
	return r.log
}

// runCleanups calls the cleanups, last first, also when one of them ends the goroutine.
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

// artifactDir is where files go that explain a failure which somebody provoked.
func (r *recorder) artifactDir() string { return r.TempDir() }

func (r *recorder) Context() context.Context          { return r.ctx }
func (r *recorder) Error(args ...any)                 { r.complain(fmt.Sprint(args...)) }
func (r *recorder) Errorf(format string, args ...any) { r.complain(fmt.Sprintf(format, args...)) }
func (r *recorder) Fatal(args ...any)                 { r.Error(args...); runtime.Goexit() }
func (r *recorder) Fatalf(format string, args ...any) { r.Errorf(format, args...); runtime.Goexit() }
func (r *recorder) Helper()                           {}
func (r *recorder) Log(...any)                        {}
func (r *recorder) Logf(string, ...any)               {}
