package simulate

import (
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/test/judge"
)

// history is the input of a judge, recorded for another judge.
type history struct {
	commits  []judge.Commit
	calls    []recordedCall
	deletes  []returnedDelete
	middle   int // the number of commits when the fleet was judged
	at       time.Time
	original *judge.Judge // holds the disturbances
	forced   string       // the client whose session expired by force
}

// recordedCall is a call with its end.
type recordedCall struct {
	*judge.Call
	end, canceled time.Time // zero end: it has not returned
	failed        bool
}

// add is the tap of a fleet.
func (h *history) add(log []judge.Commit, said []judge.Event, judged bool) {
	if judged {
		h.middle, h.at = len(h.commits), time.Now()
	}
	h.commits = append(h.commits, log...)
	for _, e := range said {
		if e.End.IsZero() {
			h.calls = append(h.calls, recordedCall{Call: e.Call})
			continue
		}
		i := slices.IndexFunc(h.calls, func(c recordedCall) bool { return c.Call == e.Call })
		h.calls[i].end, h.calls[i].canceled, h.calls[i].failed = e.End, e.Canceled, e.Failed
	}
}

// clone returns a copy whose commits and calls may be changed, but not the elements of their slices.
func (h *history) clone() *history {
	c := *h
	c.commits, c.calls, c.deletes = slices.Clone(h.commits), slices.Clone(h.calls), slices.Clone(h.deletes)
	for i := range c.calls {
		call := *c.calls[i].Call
		c.calls[i].Call = &call
	}
	return &c
}

// judgeAgain passes the history to a new judge and returns its report.
func (h *history) judgeAgain(slack time.Duration) *judge.Report {
	j := judge.New(namespace, "default", judge.Options{Promptly: 250 * time.Millisecond})
	j.CopyDisturbances(h.original)
	for _, d := range h.deletes {
		j.JudgeDelete(d.job, d.called, d.returned)
	}
	rest := h.commits[:h.middle]
	if h.forced != "" {
		end := slices.IndexFunc(rest, func(c judge.Commit) bool { return c.Client == h.forced && c.Ended != "" })
		j.JudgeCommits(rest[:end])
		j.ExpectForcedExpiry(h.forced)
		rest = rest[end:]
	}
	j.JudgeCommits(rest)
	j.JudgeCalls(h.events())
	j.JudgeSettled(h.at, slack)
	j.JudgePools()
	j.JudgeCommits(h.commits[h.middle:])
	j.JudgeCounts()
	return j.Report()
}

// events returns the calls as they were logged, in order of time.
func (h *history) events() []judge.Event {
	var events []judge.Event
	for _, c := range h.calls {
		if c.Start.After(h.at) {
			continue // its claim is after the middle
		}
		call := &judge.Call{
			Job: c.Job, Shard: c.Shard, Shards: c.Shards, Fire: c.Fire, Trigger: c.Trigger, Attempt: c.Attempt,
			Fence: c.Fence, Key: c.Key, Instance: c.Instance, Client: c.Client, Start: c.Start,
		}
		events = append(events, judge.Event{Call: call})
		if !c.end.IsZero() {
			events = append(events, judge.Event{Call: call, End: c.end, Canceled: c.canceled, Failed: c.failed})
		}
	}
	slices.SortStableFunc(events, func(a, b judge.Event) int { return a.At().Compare(b.At()) })
	return events
}
