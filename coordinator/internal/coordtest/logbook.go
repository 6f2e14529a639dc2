package coordtest

import (
	"bytes"
	"strings"
	"sync"
)

// Logbook is what a member logs. After too many lines it blocks whoever writes, so that a
// loop that spins comes to rest and shows.
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
		panic("a member that logs without end; the last line: " + string(p))
	}
	return b.text.Write(p)
}

func (b *Logbook) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// Count returns how many lines have a text.
func (b *Logbook) Count(text string) int { return strings.Count(b.String(), text) }

// Having returns the lines that have all of some texts.
func (b *Logbook) Having(texts ...string) (out []string) {
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

// Above returns the lines at INFO and above.
func (b *Logbook) Above() (out []string) {
	for _, line := range b.Having() {
		if !strings.Contains(line, "level=DEBUG") {
			out = append(out, line)
		}
	}
	return out
}
