package notify

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rota-dev/rota/internal/count"
	"github.com/rota-dev/rota/internal/view"
)

// Transition is the kind of a message.
type Transition string

// The transitions.
const (
	Late      Transition = view.Late    // a fire has been due for longer than Options.LateAfter
	Unowned   Transition = view.Unowned // shards have no owner
	Problem   Transition = view.Problem // the leader reports a problem
	Failing   Transition = view.Failing // the last ended run of a shard failed
	Recovered Transition = "recovered"  // none of these any more
	// Removed reports that a job which was in one of the states above is retiring, or does not exist any more.
	Removed Transition = "removed"
	Summary Transition = "summary" // many jobs have changed at a time
	Test    Transition = "test"    // a message of the function SendTest
)

// gravity are the transitions in the order of a summary.
var gravity = []Transition{Late, Unowned, Problem, Failing, Recovered, Removed}

// Change is a change of the state of a job.
type Change struct {
	Job        string     `json:"job"`
	Transition Transition `json:"transition"`
	// Before is the state as of the last message about the job: late, unowned, problem, failing, or empty if it was ok.
	Before Transition `json:"before,omitempty"`
	// Since is since when the job has been in its state: the oldest due fire of a late job, the failure of a failing one,
	// the end of a run that succeeded, or when the change was observed.
	Since time.Time `json:"since,omitzero"`
	// Changes is how many times the state has changed since the last message about the job, at least 1.
	Changes int `json:"changes,omitempty"`
	// State is the state in a few words, such as "failing: shards 0-3".
	State string `json:"state,omitempty"`
	// Error is that of the latest failed run, cut at 200 bytes, for a failing job.
	Error string `json:"error,omitempty"`
	// Fire is the fire of that run, or of a late job the oldest one that is due.
	Fire time.Time `json:"fire,omitzero"`
}

// Message is a message to a receiver.
type Message struct {
	// ID is the same for each repetition of the message, and for all receivers of one process. It is a hash of the namespace, the
	// group, the job, the transition and Since.
	ID        string `json:"id"`
	Namespace string `json:"namespace"`
	Group     string `json:"group"`
	// Text is the message in one line, and a line for each of Jobs.
	Text string    `json:"text"`
	At   time.Time `json:"at"` // when the message was made
	// Change is that of a message about one job. In a summary and a test, only its Transition is set.
	Change
	// Jobs are changes of a summary, the gravest first. More counts the changes that are not among them, and Counts all
	// changes by transition.
	Jobs   []Change           `json:"jobs,omitempty"`
	More   int                `json:"more,omitempty"`
	Counts map[Transition]int `json:"counts,omitempty"`
	// Rest counts the jobs that are not ok, and about which no message is sent, as too many are not ok.
	Rest int `json:"rest,omitempty"`
	// Link is the page of the job, or of the group, in the console of Options.Console.
	Link string `json:"link,omitempty"`
}

// Subject returns the first line of Text.
func (m Message) Subject() string {
	line, _, _ := strings.Cut(m.Text, "\n")
	return line
}

const (
	// maxSingle is how many changes in each singleWithin are messages of their own. After that the next message, a summary, waits
	// for the end of that time: jobs whose database is away fail one after another, as their fires come.
	maxSingle, singleWithin = 10, time.Minute
	// maxListed is how many changes a summary lists.
	maxListed = 20
	// maxTextBytes bounds the texts of a change, maxListedErrorBytes the error of one that a summary lists.
	maxTextBytes, maxListedErrorBytes = 200, 80
)

// composer makes messages of changes.
type composer struct {
	namespace, group string
	console          string
	hideErrors       bool
}

// compose returns the messages for changes that are reported at a time: one for each of at most single changes, or a summary. rest
// is as in Message.
func (c composer) compose(changes []Change, rest, single int, now time.Time) []Message {
	for i := range changes {
		changes[i].State, changes[i].Error = cutText(changes[i].State), cutText(changes[i].Error)
		if c.hideErrors {
			changes[i].Error = ""
		}
	}
	if len(changes) > single || rest > 0 {
		return []Message{c.summarize(changes, rest, now)}
	}
	var all []Message
	for _, change := range changes {
		m := c.message(now)
		m.ID, m.Change, m.Text = c.identify(change), change, c.where()+describeChange(change, now)
		m.Link = c.link("jobs/" + url.PathEscape(change.Job))
		all = append(all, m)
	}
	return all
}

func (c composer) message(now time.Time) Message {
	return Message{Namespace: c.namespace, Group: c.group, At: now.UTC()}
}

// identify returns the ID of a message about a change. It does not depend on the receiver or the process.
func (c composer) identify(change Change) string {
	return hashOf(c.namespace, c.group, change.Job, string(change.Transition), change.Since.UTC().Format(time.RFC3339Nano))
}

// hashOf returns an ID that stands for texts.
func hashOf(texts ...string) string {
	h := sha256.New()
	for _, text := range texts {
		fmt.Fprintf(h, "%d:%s,", len(text), text)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

func (c composer) summarize(changes []Change, rest int, now time.Time) Message {
	m := c.message(now)
	m.Transition, m.Counts, m.Rest, m.Link = Summary, map[Transition]int{}, rest, c.link("")
	ids := []string{c.namespace, c.group, string(Summary)}
	for _, change := range changes {
		m.Counts[change.Transition]++
		ids = append(ids, c.identify(change))
	}
	slices.Sort(ids[3:])
	if len(changes) == 0 { // only the rest has changed
		ids = append(ids, fmt.Sprint(rest), now.UTC().Format(time.RFC3339Nano))
	}
	m.ID = hashOf(ids...)
	slices.SortStableFunc(changes, func(a, b Change) int {
		return slices.Index(gravity, a.Transition) - slices.Index(gravity, b.Transition)
	})
	m.Jobs = changes[:min(len(changes), maxListed)]
	for i := range m.Jobs {
		m.Jobs[i].Error = cutTo(m.Jobs[i].Error, maxListedErrorBytes)
	}
	m.More = len(changes) - len(m.Jobs)
	var parts []string
	for _, t := range gravity {
		if n := m.Counts[t]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, t))
		}
	}
	if rest > 0 {
		parts = append(parts, count.Of(rest, "more job")+" not ok, without messages of their own")
	}
	lines := []string{c.where() + count.Of(len(changes), "job") + " changed: " + strings.Join(parts, ", ")}
	for _, change := range m.Jobs {
		lines = append(lines, describeChange(change, now))
	}
	if m.More > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", m.More))
	}
	m.Text = strings.Join(lines, "\n")
	return m
}

func (c composer) where() string { return c.namespace + "/" + c.group + ": " }

// link returns the address of a page of the console, "" if none is configured.
func (c composer) link(page string) string {
	if c.console == "" {
		return ""
	}
	return strings.TrimSuffix(c.console, "/") + "/" + page
}

// describeChange returns a change in one line.
func describeChange(c Change, now time.Time) string {
	text := c.Job + " "
	switch c.Transition {
	case Late:
		text += fmt.Sprintf("is late: its fire of %s has been due for %s", stamp(c.Fire), view.Span(now.Sub(c.Fire)))
		if _, reason, ok := strings.Cut(c.State, ": "); ok {
			text += ", " + reason
		}
	case Unowned:
		text += "is unowned: " + c.State
	case Problem:
		text += "has a problem: " + c.State
	case Failing:
		text += "is " + c.State
		if !c.Fire.IsZero() {
			text += ", fire " + stamp(c.Fire)
		}
		if c.Error != "" {
			text += ": " + c.Error
		}
	case Recovered:
		text += "has recovered"
		if c.Before != "" {
			text += ": it was " + string(c.Before)
		}
	case Removed:
		text += fmt.Sprintf("is removed: it was %s", c.Before)
	}
	if c.Changes > 1 {
		text += fmt.Sprintf(" (%d changes since the last message)", c.Changes)
	}
	return inLine(text)
}

func stamp(at time.Time) string { return at.UTC().Format(time.RFC3339) }

// inLine returns a text without control characters and line breaks.
func inLine(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
}

// cutText returns the begin of a text, in one line.
func cutText(text string) string { return cutTo(text, maxTextBytes) }

func cutTo(text string, most int) string {
	text = inLine(text)
	if len(text) <= most {
		return text
	}
	end := most - len("...")
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "..."
}
