package elector

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/group/batch"
	"github.com/rota-dev/rota/internal/mutex"
	"github.com/rota-dev/rota/internal/record"
)

// MinPatience is the least time that a leader's loop gets to make progress. With short sessions, the
// TTL alone would depose the leader of a busy machine.
const MinPatience = 10 * time.Second

// patience is how long a leader's loop may make no progress before it counts as stuck.
func (e *Elector) patience() time.Duration { return max(e.Self.Session.TTL(), MinPatience) }

// inspectionsPerPatience is how many times per patience a leading elector inspects its term.
const inspectionsPerPatience = 4

// Progress is the progress of a leader's loop, which the elector inspects.
type Progress struct {
	mu      mutex.Mutex
	since   time.Time // since when the loop has been busy without progress; zero: it is idle
	task    string
	object  string // of the task, such as a job
	lastErr error  // why the last round failed
}

// MarkBusy records that the loop has work to do.
func (p *Progress) MarkBusy() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.since.IsZero() {
		p.since = time.Now()
	}
}

// SetTask records the present task of the loop.
func (p *Progress) SetTask(doing, subject string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.task, p.object = doing, subject
}

// RecordAnswer records progress: the store has answered a write, by a commit or by a conflict.
func (p *Progress) RecordAnswer() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.since = time.Now()
}

// RecordFailure records that a round has failed. A conflict counts as progress.
func (p *Progress) RecordFailure(err error) {
	if _, refused := batch.FindConflict(err); refused {
		p.RecordAnswer()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lastErr = err
}

// MarkIdle records that the loop has finished a round and waits for work.
func (p *Progress) MarkIdle() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.since, p.task, p.object, p.lastErr = time.Time{}, "", "", nil
}

// checkStuck reports whether the loop has made no progress for longer than patience at now, and
// describes its task.
func (p *Progress) checkStuck(now time.Time, patience time.Duration) (why string, stuck bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	stalled := now.Sub(p.since)
	if p.since.IsZero() || stalled <= patience {
		return "", false
	}
	why = fmt.Sprintf("no progress for %v, busy with %s", stalled.Round(time.Millisecond), cmp.Or(p.task, "nothing"))
	if p.object != "" {
		why += " of " + p.object
	}
	if p.lastErr != nil {
		why += fmt.Sprintf("; the last failure: %v", p.lastErr)
	}
	return why, true
}

// mayLead reports whether this process may begin to lead. It may not while the planning function of
// an earlier term has not returned.
func (e *Elector) mayLead() bool {
	return e.Self.Planning.noneRuns()
}

// inspectTerm hands leadership over if the leader's loop is stuck, if there is none because this
// process may not lead, or if this clock is skewed. Without another candidate this incarnation
// stays the leader and tries again at the next inspection. ended reports whether the leader's loop
// has ended, so that the elector has to start it again.
func (e *Elector) inspectTerm(ctx context.Context, s *termRun) (ended bool) {
	if s != nil && !e.isSkewed() {
		why, stuck := s.progress.checkStuck(time.Now(), e.patience())
		if !stuck {
			return false
		}
		if !s.reportedStuck {
			e.Log.Error("leader makes no progress; resigning", "why", why)
			s.reportedStuck = true
		}
	}
	e.handOverToAny(ctx)
	return s != nil && s.hasEnded()
}

// handOverToAny hands leadership over to any other live candidate.
func (e *Elector) handOverToAny(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, e.patience()/inspectionsPerPatience)
	defer cancel()
	candidates, err := e.listCandidates(ctx)
	if err != nil {
		e.Log.Debug("leadership not handed over", "error", err)
		return
	}
	e.handOverToFirst(ctx, candidates)
}

// listCandidates reads the candidates from the store, since named successors may have expired. The
// order is a ring that begins after this incarnation: if every leader gets stuck, each candidate
// gets its turn.
func (e *Elector) listCandidates(ctx context.Context) ([]string, error) {
	listing, err := e.Self.Reg.List(ctx, e.Self.Keys.Members(), Fresh)
	if err != nil {
		return nil, fmt.Errorf("list members: %w", err)
	}
	skewed := e.ClockNotice().Skewed
	var before, after []string
	for _, entry := range listing.Entries {
		m, err := record.Decode[record.Member](entry.Value)
		inc := entry.Key.Name()
		_, isSkewed := skewed[inc]
		switch {
		case err != nil, m.Draining, isSkewed, inc == e.Self.ID:
		case inc < e.Self.ID:
			before = append(before, inc)
		default:
			after = append(after, inc)
		}
	}
	slices.Sort(before)
	slices.Sort(after)
	return append(after, before...), nil
}
