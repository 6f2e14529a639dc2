package demo

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"text/tabwriter"
	"time"
)

// display shows a story until the returned function is called: on a terminal as a table that
// is redrawn, otherwise as a line per event. It calls read for the latest events.
func display(s *story, out io.Writer, live bool, read func()) (stop func()) {
	quit := make(chan struct{})
	var drawing sync.WaitGroup
	drawing.Go(func() {
		table := &table{out: out, live: live}
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			read()
			table.draw(s)
			select {
			case <-quit:
				read()
				table.draw(s)
				return
			case <-tick.C:
			}
		}
	})
	return func() {
		close(quit)
		drawing.Wait()
	}
}

// table shows a story.
type table struct {
	out     io.Writer
	live    bool
	lines   int // drawn, to be drawn over
	printed int // number of events printed
}

// maxRows and maxEvents bound the live table to a common terminal's height.
const (
	maxRows   = 16
	maxEvents = 6
)

func (t *table) draw(s *story) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !t.live {
		for ; t.printed < len(s.events); t.printed++ {
			fmt.Fprintln(t.out, s.events[t.printed])
		}
		return
	}
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "SHARD\tOWNER\tRUN BY\tATTEMPT\tSTATE")
	s.board.mu.Lock()
	for shard := range min(s.shards, maxRows) {
		p := s.board.progress[shard]
		fmt.Fprintf(w, "%d\t%s\t%s\t%d\t%s\n", shard, s.owners[shard], p.instance, p.attempt, s.stateOf(p))
	}
	s.board.mu.Unlock()
	w.Flush()
	if s.shards > maxRows {
		fmt.Fprintf(&b, "... and %d more\n", s.shards-maxRows)
	}
	fmt.Fprintf(&b, "claims %d, moves %d, failovers %d, stored %d of %d\n", s.claims, s.moves, s.failovers, len(s.results), s.shards)
	for _, e := range s.events[max(0, len(s.events)-maxEvents):] {
		fmt.Fprintln(&b, e)
	}
	if t.lines > 0 {
		fmt.Fprintf(t.out, "\x1b[%dA", t.lines) // up, to draw over the last table
	}
	lines := strings.SplitAfter(strings.TrimSuffix(b.String(), "\n"), "\n")
	for _, line := range lines {
		fmt.Fprintf(t.out, "\x1b[2K%s", line)
	}
	fmt.Fprint(t.out, "\n\x1b[J")
	t.lines = len(lines)
}

// stateOf returns the state of a run for the table. The caller holds the lock of the board.
func (s *story) stateOf(p progress) string {
	switch {
	case p.stored:
		return "stored"
	case p.total == 0:
		return "waiting"
	}
	if _, killed := s.board.killed[p.instance]; killed {
		return "killed"
	}
	return fmt.Sprintf("%d%%", 100*p.done/p.total)
}
