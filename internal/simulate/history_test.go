package simulate

import (
	"slices"
	"time"

	"github.com/rota-dev/rota/registry/memory"
)

// history is what an observer was told, to be told again to another.
type history struct {
	commits   []memory.Commit
	functions []functionCall
	middle    int // how many commits there were when the fleet was judged
	at        time.Time
	troubles  map[string][]span
}

// functionCall is a function as it was before an observer had its way with it.
type functionCall struct {
	function
	end, told time.Time // zero end: it has not returned
}

// keep is a fleet's tap.
func (h *history) keep(log []memory.Commit, said []functionEvent, judged bool) {
	if judged {
		h.middle, h.at = len(h.commits), time.Now()
	}
	h.commits = append(h.commits, log...)
	for _, e := range said {
		if e.end.IsZero() {
			h.functions = append(h.functions, functionCall{function: *e.function})
			continue
		}
		i := slices.IndexFunc(h.functions, func(c functionCall) bool { return c.Run == e.Run })
		h.functions[i].end, h.functions[i].told = e.end, e.told
	}
}

// clone returns a copy whose commits and calls may be changed, but not what their slices
// hold.
func (h *history) clone() *history {
	c := *h
	c.commits, c.functions = slices.Clone(h.commits), slices.Clone(h.functions)
	for i := range c.functions {
		r := *c.functions[i].Run
		c.functions[i].Run = &r
	}
	return &c
}

// judge tells the history to a new observer, and returns what that reports.
func (h *history) judge(slack time.Duration) *Report {
	r := &Report{}
	o := NewObserver(namespace, "default", 0, r)
	o.troubles = h.troubles
	o.Commits(h.commits[:h.middle])
	o.functions(h.events())
	o.Settled(h.at, slack)
	o.Commits(h.commits[h.middle:])
	o.Counted()
	return r
}

// events returns the calls as they were logged, in order of time.
func (h *history) events() []functionEvent {
	var events []functionEvent
	for i := range h.functions {
		f := h.functions[i].function
		events = append(events, functionEvent{function: &f})
		if c := &h.functions[i]; !c.end.IsZero() {
			events = append(events, functionEvent{&f, c.end, c.told})
		}
	}
	slices.SortStableFunc(events, func(a, b functionEvent) int { return a.at().Compare(b.at()) })
	return events
}

func (e functionEvent) at() time.Time {
	if e.end.IsZero() {
		return e.start
	}
	return e.end
}
