// Package transcript renders the commits of a group as lines of text: who joined and left,
// who led, which shards were assigned, moved and claimed, which runs ended and which are pending.
//
// A line shows what changed in a record, so that a reviewer can follow a scenario line by
// line. The package does not decide whether a scenario is right: internal/test/judge does.
package transcript

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

// Transcript holds the lines of the commits that were added so far.
type Transcript struct {
	keys  record.Keys
	start time.Time
	lines []line

	processes map[string]string // by incarnation: the client that joined

	// The records after the last commit that was added.
	plans    map[registry.Key]*record.Plan
	claims   map[registry.Key]*record.Claims
	members  map[registry.Key]*record.Member
	controls map[registry.Key]*record.Control
	excluded record.Exclusion           // for all jobs
	skewed   map[string]record.Duration // clock differences, by incarnation
}

type line struct {
	at     time.Time
	client string
	first  string // the first line of the same commit
	text   string
}

// New returns an empty transcript of a group, whose times count from start.
func New(keys record.Keys, start time.Time) *Transcript {
	return &Transcript{
		keys: keys, start: start, processes: map[string]string{},
		plans: map[registry.Key]*record.Plan{}, claims: map[registry.Key]*record.Claims{},
		members: map[registry.Key]*record.Member{}, controls: map[registry.Key]*record.Control{},
	}
}

// Note adds a line about a step of the scenario.
func (t *Transcript) Note(format string, args ...any) {
	t.lines = append(t.lines, line{at: time.Now(), text: fmt.Sprintf(format, args...)})
}

// Add adds lines for the commits that follow those of earlier calls. A refused commit changed
// nothing and has no line.
func (t *Transcript) Add(commits []memory.Commit) error {
	for i := range commits {
		c, before := &commits[i], len(t.lines)
		switch {
		case c.Err != nil:
		case c.Ended != "":
			t.addLine(c, "session ends")
		default:
			for j := range c.Then {
				if err := t.addOp(c, &c.Then[j]); err != nil {
					return fmt.Errorf("%s: %s: %w", c.Client, c.Then[j], err)
				}
			}
		}
		for j := before; j < len(t.lines); j++ {
			t.lines[j].first = t.lines[before].text
		}
	}
	return nil
}

func (t *Transcript) addLine(c *memory.Commit, format string, args ...any) {
	t.lines = append(t.lines, line{at: c.At, client: c.Client, text: fmt.Sprintf(format, args...)})
}

// String returns the lines in order of time. Commits of one client at one instant are sorted by
// their first lines, because the order of two goroutines of a client means nothing: neither can have
// acted on the other's commit, which the client observes only after a message.
func (t *Transcript) String() string {
	lines := slices.Clone(t.lines)
	slices.SortStableFunc(lines, func(a, b line) int {
		return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.client, b.client), cmp.Compare(a.first, b.first))
	})
	var b strings.Builder
	for _, l := range lines {
		if l.client == "" {
			fmt.Fprintf(&b, "%s ---- %s\n", t.elapsed(l.at), l.text)
			continue
		}
		fmt.Fprintf(&b, "%s %-4s %s\n", t.elapsed(l.at), l.client, l.text)
	}
	return b.String()
}

// elapsed formats a time in tenths of a second, so that a message more or less does not change it.
func (t *Transcript) elapsed(at time.Time) string {
	return fmt.Sprintf("%6.1fs", at.Sub(t.start).Seconds())
}

// instant formats a scheduled instant, which counts from start as the times do.
func (t *Transcript) instant(i record.Instant) string {
	return i.Time().Sub(t.start).Round(100 * time.Millisecond).String()
}
