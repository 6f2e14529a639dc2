package judge

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rota-dev/rota/registry"
)

// trail holds the last commits of a job, or of the group, which are printed with a violation.
type trail struct {
	last [48]*Commit
	n    int
}

func (t *trail) add(c *Commit) {
	if t.n > 0 && t.last[(t.n-1)%len(t.last)] == c {
		return
	}
	t.last[t.n%len(t.last)] = c
	t.n++
}

func (t *trail) commits() []*Commit {
	return slices.DeleteFunc(slices.Clone(t.last[:]), func(c *Commit) bool { return c == nil })
}

// note is a fault, its end, or an action of an operator.
type note struct {
	at   time.Time
	text string
}

// text returns the lines of t, with those of all and the notes since the first commit of t.
func (t *trail) text(segment string, all *trail, r *Report) string {
	commits := t.commits()
	slices.SortFunc(commits, func(a, b *Commit) int { return cmp.Compare(a.Rev.Seq, b.Rev.Seq) })
	if len(commits) == 0 {
		return ""
	}
	first := commits[0]
	for _, c := range all.commits() {
		if c.Rev.Seq > first.Rev.Seq {
			commits = append(commits, c)
		}
	}
	slices.SortFunc(commits, func(a, b *Commit) int { return cmp.Compare(a.Rev.Seq, b.Rev.Seq) })
	type line struct {
		at   time.Time
		text string
	}
	var lines []line
	for i, c := range commits {
		if i == 0 || commits[i-1] != c {
			lines = append(lines, line{c.At, describe(c, segment)})
		}
	}
	for _, f := range r.notes {
		if !f.at.Before(first.At) {
			lines = append(lines, line{f.at, "** " + f.text})
		}
	}
	slices.SortStableFunc(lines, func(a, b line) int { return a.at.Compare(b.at) })
	if more := len(lines) - r.most; more > 0 {
		lines = lines[more:]
	}
	var b strings.Builder
	for _, l := range lines {
		fmt.Fprintf(&b, "    %s %s\n", clock(l.at), l.text)
	}
	return b.String()
}

// describe returns the part of a commit that concerns the job of a segment.
func describe(c *Commit, segment string) string {
	switch {
	case c.Opened != "":
		return fmt.Sprintf("%d %s opened %s", c.Rev.Seq, c.Client, c.Opened)
	case c.Ended != "":
		return fmt.Sprintf("%d %s's %s ended", c.Rev.Seq, c.Client, c.Ended)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d %s", c.Rev.Seq, c.Client)
	concerns := func(k registry.Key) bool { return k.Name() == segment || k.Name() == "leader" }
	for i := range c.If {
		if c.If[i].Key == "" || concerns(c.If[i].Key) {
			fmt.Fprintf(&b, " if %s", c.If[i])
		}
	}
	for i := range c.Then {
		if concerns(c.Then[i].Key) {
			fmt.Fprintf(&b, "\n        %s %s", c.Then[i], c.Then[i].Value)
		}
	}
	return b.String()
}
