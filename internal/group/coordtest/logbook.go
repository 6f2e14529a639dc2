package coordtest

import (
	"bytes"
	"strings"
	"sync"
)

// Logbook collects the log of a member. After too many lines it panics, so that a loop that spins
// fails its test.
type Logbook struct {
	mu    sync.Mutex
	text  bytes.Buffer
	lines int
}

func (b *Logbook) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines++
	if b.lines == 10_000 {
		panic("a member logs endlessly; the last line: " + string(p))
	}
	return b.text.Write(p)
}

func (b *Logbook) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// Count returns how often a text occurs.
func (b *Logbook) Count(text string) int { return strings.Count(b.String(), text) }

// LinesWith returns the lines that contain all texts.
func (b *Logbook) LinesWith(texts ...string) (out []string) {
	for line := range strings.Lines(b.String()) {
		all := true
		for _, text := range texts {
			all = all && strings.Contains(line, text)
		}
		if all {
			out = append(out, strings.TrimSpace(line))
		}
	}
	return out
}

// InfoLines returns the lines at INFO and above.
func (b *Logbook) InfoLines() (out []string) {
	for _, line := range b.LinesWith() {
		if !strings.Contains(line, "level=DEBUG") {
			out = append(out, line)
		}
	}
	return out
}
