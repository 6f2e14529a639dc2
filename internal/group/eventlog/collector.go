package eventlog

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/rota-dev/rota/internal/count"
	"github.com/rota-dev/rota/internal/mutex"
)

const (
	// quietTime is how long no further change must follow before the collected ones are logged.
	quietTime = 200 * time.Millisecond
	// maxDelay bounds how long the first collected change waits.
	maxDelay = 2 * time.Second
)

// collector collects changes that arrive in bursts, and logs each burst as a whole. One join can
// change the plans of 300 jobs.
type collector struct {
	take func() (log func()) // clears the collected changes, with mu held, and returns what logs them; nil if there is nothing to log

	mu    mutex.Mutex
	began time.Time // when the oldest change that is not logged was collected; zero: there is none
	timer *time.Timer

	logging sync.WaitGroup // the calls of Flush
}

// collect calls store, which stores a change, and postpones the logging.
func (l *collector) collect(store func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	store()
	if l.began.IsZero() {
		l.began = time.Now()
		l.timer = time.AfterFunc(quietTime, l.Flush)
		return
	}
	l.timer.Reset(min(quietTime, time.Until(l.began.Add(maxDelay))))
}

// Flush logs the collected changes now.
func (l *collector) Flush() {
	if log := l.takeLog(); log != nil {
		defer l.logging.Done()
		log()
	}
}

// takeLog clears the collected changes and returns what logs them; nil if there is nothing to log.
func (l *collector) takeLog() (log func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.began.IsZero() {
		return nil
	}
	l.timer.Stop()
	l.began = time.Time{}
	if log = l.take(); log != nil {
		l.logging.Add(1)
	}
	return log
}

// finish logs the collected changes, and returns when all are logged. Nothing is collected any more.
func (l *collector) finish() {
	l.Flush()
	l.logging.Wait()
}

// maxLogText is about how many bytes of a log line a list may fill.
const maxLogText = 400

// joinTexts joins texts up to a length bound, and counts the others as things: "; and 7 jobs more".
func joinTexts(texts []string, thing string) string {
	var b strings.Builder
	for i, text := range texts {
		if i > 0 && b.Len()+len(text) > maxLogText {
			fmt.Fprintf(&b, "; and %s more", count.Of(len(texts)-i, thing))
			break
		}
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(shorten(text))
	}
	return b.String()
}

// shorten cuts a text that is longer than a list may be, such as a list of every other shard of
// 10,000.
func shorten(text string) string {
	if len(text) <= maxLogText {
		return text
	}
	return strings.ToValidUTF8(text[:maxLogText], "") + "..."
}

// JoinJobs joins names of jobs up to the length bound of joinTexts.
func JoinJobs(jobs []string) string { return joinTexts(jobs, "job") }
