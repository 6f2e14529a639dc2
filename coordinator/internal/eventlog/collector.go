package eventlog

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

const (
	// lullTime is how long changes must have paused before they are logged together.
	quietTime = 200 * time.Millisecond
	// lullLimit is how long the first of them waits at most.
	maxDelay = 2 * time.Second
)

// lull collects changes that come in bursts, such as those that one join makes to the plans
// of 300 jobs, and logs them together.
type collector struct {
	log func() // writes the collected changes, and forgets them. It is called with mu held

	mu    sync.Mutex
	began time.Time // when the first change was made that is not logged; zero: there is none
	timer *time.Timer
}

// add makes a change, which f collects, and puts the logging off.
func (l *collector) collect(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
	if l.began.IsZero() {
		l.began = time.Now()
		l.timer = time.AfterFunc(quietTime, l.Flush)
		return
	}
	l.timer.Reset(min(quietTime, time.Until(l.began.Add(maxDelay))))
}

// flush logs the collected changes.
func (l *collector) Flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.began.IsZero() {
		return
	}
	l.timer.Stop()
	l.began = time.Time{}
	l.log()
}

// maxLogText is about how many bytes a line has for a list.
const maxLogText = 400

// List joins texts as far as there is room, and counts the others. The plural noun many
// names the things that the texts are about.
func JoinTexts(texts []string, many string) string {
	var b strings.Builder
	for i, text := range texts {
		if i > 0 && b.Len()+len(text) > maxLogText {
			fmt.Fprintf(&b, "; and %d %s more", len(texts)-i, many)
			break
		}
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(Shorten(text))
	}
	return b.String()
}

// Shorten cuts a text that is longer than a list may be, such as that of every other shard
// of 10,000.
func Shorten(text string) string {
	if len(text) <= maxLogText {
		return text
	}
	return strings.ToValidUTF8(text[:maxLogText], "") + "..."
}

// JobsText returns the first of some jobs' names.
func JoinJobs(jobs []string) string { return JoinTexts(jobs, "jobs") }
