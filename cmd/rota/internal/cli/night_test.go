package cli

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/cmd/rota/internal/exit"
	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

// night is a fleet whose instances log, have clocks of their own and can crash, for the pages about operating. It keeps
// the command lines that it has run.
type night struct {
	*fleet
	jobs      func(instance string) []executor.Job
	processes map[string]*nightProcess // the present one of each instance
	starts    int
	lines     []string
}

type nightProcess struct {
	client string
	ex     *executor.Executor
	log    *output      // of all processes of the instance
	ahead  atomic.Int64 // of its clock
}

// inNight calls f with a fleet without instances, in a bubble whose time begins at 2000-01-01. It returns the command
// lines that f has run.
func inNight(t *testing.T, jobs func(instance string) []executor.Job, f func(*testing.T, *night)) (lines []string) {
	t.Helper()
	inFleet(t, func(t *testing.T, all *fleet) {
		n := &night{fleet: all, jobs: jobs, processes: map[string]*nightProcess{}}
		n.wrap = func(reg registry.Registry) registry.Registry { return steady{reg} }
		defer func() {
			n.stopAll()
			time.Sleep(2 * time.Hour) // time stands still once the main goroutine has ended, and handlers may still run
			lines = n.lines
		}()
		f(t, n)
	})
	return lines
}

// launch starts instances, also those that have crashed or were stopped, with a clock that is ahead if it was.
func (n *night) launch(names ...string) {
	n.t.Helper()
	for _, name := range names {
		n.starts++
		p := &nightProcess{client: fmt.Sprintf("%s-%d", name, n.starts), log: &output{}}
		if earlier := n.processes[name]; earlier != nil {
			p.log = earlier.log
			p.ahead.Store(earlier.ahead.Load())
		}
		n.processes[name] = p
		p.ex = n.startWith(n.server.Client(p.client), executor.Options{
			Instance: name, Logger: slog.New(slog.NewTextHandler(p.log, &slog.HandlerOptions{ReplaceAttr: dropUnsteady})),
			Clock: func() time.Time { return time.Now().Add(time.Duration(p.ahead.Load())) },
		}, n.jobs(name)...)
	}
}

// redeploy stops instances, and starts them again with the present jobs, one after the other.
func (n *night) redeploy(names ...string) {
	n.t.Helper()
	for _, name := range names {
		_ = n.processes[name].ex.Shutdown(n.t.Context())
		n.launch(name)
	}
}

// dropUnsteady removes the attributes that all lines have, and those that differ from run to run.
func dropUnsteady(_ []string, a slog.Attr) slog.Attr {
	switch a.Key {
	case slog.TimeKey, "namespace", "group", "session", "term":
		return slog.Attr{}
	case "since", "safe_until", "away", "after", "run":
		a.Value = slog.StringValue("...")
	}
	return a
}

// setClock makes the clock of an instance differ by a duration.
func (n *night) setClock(name string, ahead time.Duration) {
	n.processes[name].ahead.Store(int64(ahead))
}

// crash ends an instance without a shutdown.
func (n *night) crash(name string) {
	p := n.processes[name]
	n.server.Partition(p.client)
	now, cancel := context.WithCancel(context.Background())
	cancel()
	_ = p.ex.Shutdown(now)
}

// stopAll shuts all instances down.
func (n *night) stopAll() {
	for _, p := range n.processes {
		_ = p.ex.Shutdown(context.Background())
	}
}

// replaceStore gives the fleet a store with the records of a backup. The keys that belong to sessions are left out: when
// the processes have stopped, they expire.
func (n *night) replaceStore(t *testing.T, backup []registry.Entry) {
	t.Helper()
	n.server = memory.New()
	reg := n.server.Client("restore")
	for _, e := range backup {
		if strings.HasPrefix(e.Key.Name(), "~") {
			continue
		}
		_, err := reg.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Create(e.Key, e.Value)}})
		require.NoError(t, err)
	}
}

// logged compares the last lines of an instance that begin with the messages.
func (n *night) logged(t *testing.T, name, instance string, messages ...string) {
	t.Helper()
	text, got := n.processes[instance].log.String(), ""
	for _, m := range messages {
		last := ""
		for line := range strings.Lines(text) {
			if strings.Contains(strings.ReplaceAll(line, "\"", "")+" ", "msg="+m) {
				last = line
			}
		}
		assert.NotEmpty(t, last, "%s in\n%s", m, text)
		got += last
	}
	compareFile(t, name, stable(got))
}

// screen compares the screen of a command.
func (n *night) screen(t *testing.T, name, line string) {
	t.Helper()
	n.lines = append(n.lines, line)
	// Waits before may have ended some milliseconds earlier or later.
	now := time.Now()
	time.Sleep(time.Until(now.Add(700 * time.Millisecond).Truncate(time.Second).Add(1300 * time.Millisecond)))
	n.compareScreen(t, name, line)
}

// do runs commands that succeed.
func (n *night) do(t *testing.T, lines ...string) {
	t.Helper()
	for _, line := range lines {
		n.lines = append(n.lines, line)
		r := n.run(line)
		assert.Equal(t, exit.OK, r.code, "%s: %s%s", line, r.out, r.err)
	}
}

// startThree starts three instances and sleeps until 00:12:12.
func (n *night) startThree() {
	n.t.Helper()
	n.launch("web-1", "web-2", "web-3")
	time.Sleep(time.Until(time.Date(2000, 1, 1, 0, 12, 12, 0, time.UTC)))
}

// leader returns the instance that leads.
func (n *night) leader(t *testing.T) string {
	t.Helper()
	names := slices.Collect(func(yield func(string) bool) {
		for name, p := range n.processes {
			if p.ex.Stats().Leading && !yield(name) {
				return
			}
		}
	})
	require.Len(t, names, 1)
	return names[0]
}
