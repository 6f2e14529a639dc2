package elector

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/rota-dev/rota/internal/group/event"
	"github.com/rota-dev/rota/registry"
)

// Lead leads for one term. It records its progress, which the elector inspects.
type Lead func(ctx context.Context, e *Elector, term registry.Rev, p *Progress) error

// termRun is the goroutine that leads for one term.
type termRun struct {
	end           context.CancelCauseFunc
	done          chan struct{} // closed when the goroutine has ended
	progress      Progress
	reportedStuck bool
}

// startTerm begins to lead for the term of the leader record.
func (e *Elector) startTerm(ctx context.Context, wg *sync.WaitGroup) *termRun {
	e.mu.Lock()
	term := e.State.LeaderRev
	e.handedTo = ""
	e.mu.Unlock()
	why := cmp.Or(e.leadingReason, "the term continues")
	e.leadingReason = ""
	s := &termRun{done: make(chan struct{})}
	ctx, s.end = context.WithCancelCause(ctx)
	s.progress.MarkBusy()
	wg.Go(func() {
		defer close(s.done)
		e.Log.Info("leading", "term", term.Seq, "why", why)
		e.setLeading(true)
		event.Report(e.Self.Events.Leadership, event.Leadership{Term: term.Seq, Leading: true, Why: why})
		began := time.Now()
		err := e.lead(ctx, e, term, &s.progress)
		why := e.explainEnd(ctx, err)
		e.Log.Info("no longer leading", "term", term.Seq, "why", why, "after", time.Since(began).Round(time.Millisecond))
		e.setLeading(false)
		event.Report(e.Self.Events.Leadership, event.Leadership{Term: term.Seq, Why: why})
		if err == nil || ctx.Err() != nil {
			return
		}
		s.progress.MarkBusy() // if the term is not over, the group has no working leader: inspectTerm resigns
		s.progress.RecordFailure(err)
	})
	return s
}

// stopAndWait stops leading, and returns when the goroutine has ended. A nil termRun is none.
func (s *termRun) stopAndWait() {
	if s != nil {
		s.end(ErrTermOver)
		<-s.done
	}
}

// hasEnded reports whether the goroutine has ended.
func (s *termRun) hasEnded() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// explainEnd returns why this incarnation no longer leads, for the log.
func (e *Elector) explainEnd(ctx context.Context, err error) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, ErrTermOver) {
		err = cause
	}
	switch {
	case e.handedTo != "":
		return "handed over to " + e.handedTo
	case err == nil || errors.Is(err, ErrTermOver):
		return "another leader replaced this one"
	}
	return err.Error()
}

// ErrTermOver ends a term: the leader record has been written since, or this process stops leading.
var ErrTermOver = errors.New("term over")
