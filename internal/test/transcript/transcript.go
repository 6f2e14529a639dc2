// Package transcript tells in words what the instances of a group committed: who came and
// went, who led, what was dealt and moved, what was claimed, ended and owed.
//
// It shows what changed in the records, so that a reviewer can follow a story line by
// line. Whether a story is right is not its business: that is internal/test/judge's.
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

// Transcript is what has been told so far.
type Transcript struct {
	keys  record.Keys
	start time.Time
	lines []line

	processes map[string]string // by incarnation: the client that joined

	// As of the last commit taken in.
	plans    map[registry.Key]*record.Plan
	claims   map[registry.Key]*record.Claims
	members  map[registry.Key]*record.Member
	controls map[registry.Key]*record.Control
	outside  record.Exclusion           // for all jobs
	off      map[string]record.Duration // whose clocks are off, by incarnation
}

type line struct {
	at   time.Time
	who  string
	text string
}

// New returns an empty transcript of a group, whose times count from start.
func New(keys record.Keys, start time.Time) *Transcript {
	return &Transcript{
		keys: keys, start: start, processes: map[string]string{},
		plans: map[registry.Key]*record.Plan{}, claims: map[registry.Key]*record.Claims{},
		members: map[registry.Key]*record.Member{}, controls: map[registry.Key]*record.Control{},
	}
}

// Note says what the teller of the story did.
func (t *Transcript) Note(format string, args ...any) {
	t.lines = append(t.lines, line{time.Now(), "", fmt.Sprintf(format, args...)})
}

// Take takes in what was committed since the last call. What was refused changed nothing,
// and is left out.
func (t *Transcript) Take(commits []memory.Commit) error {
	for i := range commits {
		c := &commits[i]
		switch {
		case c.Err != nil:
		case c.Ended != "":
			t.say(c, "session ends")
		default:
			for j := range c.Then {
				if err := t.op(c, &c.Then[j]); err != nil {
					return fmt.Errorf("%s: %s: %w", c.Client, c.Then[j], err)
				}
			}
		}
	}
	return nil
}

func (t *Transcript) say(c *memory.Commit, format string, args ...any) {
	t.lines = append(t.lines, line{c.At, c.Client, fmt.Sprintf(format, args...)})
}

// String returns one line for each thing that happened. Those of one client at one
// instant are sorted, as which of two goroutines was first means nothing; a client hears
// of what it did itself only later.
func (t *Transcript) String() string {
	lines := slices.Clone(t.lines)
	slices.SortStableFunc(lines, func(a, b line) int {
		return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.who, b.who), cmp.Compare(a.text, b.text))
	})
	var b strings.Builder
	for _, l := range lines {
		if l.who == "" {
			fmt.Fprintf(&b, "%s ---- %s\n", t.elapsed(l.at), l.text)
			continue
		}
		fmt.Fprintf(&b, "%s %-4s %s\n", t.elapsed(l.at), l.who, l.text)
	}
	return b.String()
}

// elapsed tells a time. What takes some messages more or less is the same time.
func (t *Transcript) elapsed(at time.Time) string {
	return fmt.Sprintf("%6.1fs", at.Sub(t.start).Seconds())
}

// instant tells a scheduled instant, which counts from start as the times do.
func (t *Transcript) instant(i record.Instant) string {
	if i == 0 {
		return "ever"
	}
	return i.Time().Sub(t.start).Round(100 * time.Millisecond).String()
}
