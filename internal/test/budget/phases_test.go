package budget_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/rota-dev/rota/internal/test/judge"
)

// leave shuts an instance down gracefully.
func (f *fleet) leave(name string) {
	f.t.Helper()
	i := slices.IndexFunc(f.members, func(m member) bool { return m.name == name })
	m := f.members[i]
	f.members = slices.Delete(f.members, i, i+1)
	assert.NoError(f.t, m.ex.Shutdown(context.Background()))
	assert.NoError(f.t, m.reg.Close(context.Background()))
}

// countPhase returns the requests since the last count.
func (f *fleet) countPhase() counts {
	f.t.Helper()
	c := f.store.count(f.t)
	f.applyCommits(c.commits)
	f.log = nil
	return c
}

// sleepUntilHalf sleeps until an instant between two fires of every.
func sleepUntilHalf(every time.Duration) {
	time.Sleep(time.Until(time.Now().Truncate(every).Add(every + every/2)))
}

// totalBytes returns the size of all keys and values.
func totalBytes(commits []judge.Commit) int {
	n := 0
	for _, c := range commits {
		n += bytesOf(c)
	}
	return n
}

// totalKeys returns how many written keys contain part.
func totalKeys(part string, commits []judge.Commit) int {
	n := 0
	for _, c := range commits {
		n += keysWith(c, part)
	}
	return n
}

// phases formats the requests of the phases of a test, and compares them with bounds.
type phases struct {
	t    testing.TB
	rows strings.Builder
}

// atMost are bounds of the requests of a phase.
type atMost struct {
	txns, bytes, reads, events int
}

func (p *phases) check(what string, c counts, most atMost) {
	p.t.Helper()
	bytes := totalBytes(c.commits)
	fmt.Fprintf(&p.rows, "%s\t%d\t%d\t%d\t%d\t\n", what, c.txns, bytes, c.reads, c.events)
	assert.LessOrEqual(p.t, c.txns, most.txns, "%s: transactions", what)
	assert.LessOrEqual(p.t, bytes, most.bytes, "%s: bytes", what)
	assert.LessOrEqual(p.t, c.reads, most.reads, "%s: reads", what)
	assert.LessOrEqual(p.t, c.events, most.events, "%s: events", what)
}

// log writes the table of all phases to the test's log.
func (p *phases) log() {
	p.t.Helper()
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "\nphase\ttransactions\tbytes\treads\tevents\t\n", p.rows.String())
	w.Flush()
	p.t.Log(out.String())
}
