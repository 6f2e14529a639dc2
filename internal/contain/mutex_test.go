//go:build rotacheck

package contain_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/rota-dev/rota/internal/contain"
	"github.com/rota-dev/rota/internal/group/event"
	"github.com/rota-dev/rota/internal/mutex"
)

// The saboteurs: each calls code of users, or a callback, under a mutex.
func TestMutex_ACallUnderAMutexIsReported(t *testing.T) {
	log := contain.Logger(slog.New(slog.DiscardHandler))
	clock := contain.Clock(time.Now)
	nothing := func() error { return nil }
	for what, call := range map[string]func(){
		"f":             func() { _ = contain.Call("f", nothing) },
		"g":             func() { _ = contain.CallApart("g", nothing) },
		"Clock":         func() { clock() },
		"slog.Handler":  func() { log.Info("x") },
		"an event hook": func() { event.Report(func(int) {}, 1) },
	} {
		t.Run(what, func(t *testing.T) {
			assert.Empty(t, reports(call))
			var mu mutex.Mutex
			got := reports(func() {
				mu.Lock()
				defer mu.Unlock()
				call()
			})
			if assert.NotEmpty(t, got) {
				assert.Contains(t, got[0], what+" is called under a mutex that ")
				assert.Contains(t, got[0], "/internal/contain_test.TestMutex")
			}
			assert.Empty(t, reports(call))
		})
	}
}

// reports returns the reports to mutex.Fail while do runs.
func reports(do func()) (all []string) {
	defer func(fail func(string)) { mutex.Fail = fail }(mutex.Fail)
	mutex.Fail = func(report string) { all = append(all, report) }
	do()
	return all
}
