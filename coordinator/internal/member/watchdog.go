package member

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rota-dev/rota/coordinator/internal/batch"
	"github.com/rota-dev/rota/coordinator/internal/planning"
	"github.com/rota-dev/rota/internal/record"
)

// MinPatience is how long a leader's loop may take at least to come to something: with
// short sessions a busy machine must not cost the office.
const MinPatience = 10 * time.Second

// patience is how long a leader's loop may come to nothing before it counts as stuck.
func (o *Elector) patience() time.Duration { return max(o.In.Session.TTL(), MinPatience) }

// inspectionsPerPatience is how often, within its patience, the one in office is looked at.
const inspectionsPerPatience = 4

// Progress is how far a leader's loop has come, for the loop that watches it.
type Progress struct {
	mu      sync.Mutex
	since   time.Time // when it last came to something; zero: there is nothing to do
	task    string
	object  string // of doing
	lastErr error  // why the last round failed
}

// markBusy says that the loop has something to do.
func (p *Progress) markBusy() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.since.IsZero() {
		p.since = time.Now()
	}
}

// setTask says what the loop is busy with.
func (p *Progress) setTask(doing, subject string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.task, p.object = doing, subject
}

// recordAnswer says that the store has answered a write: with a yes, or with what is newer.
func (p *Progress) recordAnswer() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.since = time.Now()
}

// recordFailure says that a round has failed. A conflict is an answer all the same.
func (p *Progress) recordFailure(err error) {
	if _, refused := batch.Conflict(err); refused {
		p.recordAnswer()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lastErr = err
}

// markIdle says that the loop has come round, and waits for something to do.
func (p *Progress) markIdle() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.since, p.task, p.object, p.lastErr = time.Time{}, "", "", nil
}

// checkStuck reports whether the loop has come to nothing for longer than patience at now, and
// what there is to say of it.
func (p *Progress) checkStuck(now time.Time, patience time.Duration) (why string, stuck bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	lasting := now.Sub(p.since)
	if p.since.IsZero() || lasting <= patience {
		return "", false
	}
	why = fmt.Sprintf("for %v it has been busy with %s", lasting.Round(time.Millisecond), cmp.Or(p.task, "nothing"))
	if p.object != "" {
		why += " of " + p.object
	}
	if p.lastErr != nil {
		why += fmt.Sprintf(", and last failed: %v", p.lastErr)
	}
	return why, true
}

// runPlanning runs the planning function beside the loop, as it calls what users have written: a
// strategy that does not return must not keep the term from ending. If it has not returned
// by then, the view is left to it.
func (l *Leader) runPlanning(ctx context.Context) (planning.Decision, error) {
	v := l.View
	out := make(chan planning.Decision, 1)
	l.M.beginPlanning()
	go func() {
		defer l.M.endPlanning()
		defer close(out)
		out <- planning.Decide(&v)
	}()
	select {
	case d, ok := <-out:
		if !ok {
			return planning.Decision{}, fmt.Errorf("planning ended its goroutine instead of returning")
		}
		l.View.StrategyProblems = d.StrategyProblems
		return d, nil
	case <-ctx.Done():
		l.View = planning.View{}
		return planning.Decision{}, context.Cause(ctx)
	}
}

// mayLead reports whether this process may begin to lead: not while the planning of a term that
// is over has not returned.
func (o *Elector) mayLead() bool {
	o.M.mu.Lock()
	defer o.M.mu.Unlock()
	return o.M.planningCalls == 0
}

// inspectTerm hands the office on if the loop that leads is stuck, or there is none because
// this process is not fit to lead, or its clock is off. Where nobody else can take it, it
// stays until they can. It reports whether the term is to begin anew.
func (o *Elector) inspectTerm(ctx context.Context, s *termRun) (anew bool) {
	if s != nil && !o.isSkewed() {
		why, stuck := s.progress.checkStuck(time.Now(), o.patience())
		if !stuck {
			return false
		}
		if !s.reportedStuck {
			o.Log.Error("leading is stuck, resigning", "why", why)
			s.reportedStuck = true
		}
	}
	o.handOverToAny(ctx)
	return s != nil && s.hasEnded()
}

// handOverToAny hands the office to whoever else of the group lives.
func (o *Elector) handOverToAny(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, o.patience()/inspectionsPerPatience)
	defer cancel()
	heirs, err := o.listCandidates(ctx)
	if err != nil {
		o.Log.Debug("office not handed over", "error", err)
		return
	}
	o.handOverToFirst(ctx, heirs)
}

// listCandidates reads who else might lead: who was named as a successor may be long gone. They stand
// in a ring that begins behind this incarnation, so that each gets a turn if all that are
// asked get stuck.
func (o *Elector) listCandidates(ctx context.Context) ([]string, error) {
	listing, err := o.M.Reg.List(ctx, o.M.Keys.Members(), Fresh)
	if err != nil {
		return nil, fmt.Errorf("list members: %w", err)
	}
	off := o.clockNotice().Skewed
	var before, behind []string
	for _, e := range listing.Entries {
		m, err := record.Decode[record.Member](e.Value)
		inc := e.Key.Name()
		_, wild := off[inc]
		switch {
		case err != nil, m.Draining, wild, inc == o.In.ID:
		case inc < o.In.ID:
			before = append(before, inc)
		default:
			behind = append(behind, inc)
		}
	}
	slices.Sort(before)
	slices.Sort(behind)
	return append(behind, before...), nil
}
