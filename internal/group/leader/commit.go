package leader

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"sync"

	"github.com/rota-dev/rota/internal/group/batch"
	"github.com/rota-dev/rota/internal/group/elector"
	"github.com/rota-dev/rota/internal/group/event"
	"github.com/rota-dev/rota/internal/group/planning"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// CommitDecision commits a decision in as few transactions as possible, and reports whether it sent
// plans. Reapings follow in the same round, even if a plan conflicted: they carry conditions of
// their own, and a group whose plans change in every round reaps too.
func (l *Leader) CommitDecision(ctx context.Context, d planning.Decision) (planned bool, err error) {
	term := []registry.Cond{registry.At(l.Self.Keys.Leader(), l.View.Term)}
	if err := l.commitEndedPauses(ctx, d.EndedPauses, term); err != nil {
		return false, err
	}
	if err := l.commitRetirements(ctx, d.Retirements, term); err != nil {
		return false, err
	}
	alone := maps.Clone(l.SentAlone)
	loads := batch.PackLazily(term, l.encodeShares(d.Changes), l.Self.Reg.Limits(), func(c planning.Change) bool { return alone[c.Segment] })
	planned, conflict, err := l.commitLoads(ctx, loads)
	if err == nil {
		err = l.commitRests(ctx, d.Rests, term)
	}
	if err != nil {
		return planned, err
	}
	return planned, errors.Join(conflict, l.reapAll(ctx, d.Reapings, term))
}

// encodeShares yields changes with their parts of a transaction, those first whose shards lost their owner and are due
// first. It leaves out those that cannot be written.
func (l *Leader) encodeShares(changes []planning.Change) iter.Seq2[planning.Change, batch.Items] {
	changes = slices.Clone(changes)
	slices.SortStableFunc(changes, func(a, b planning.Change) int {
		return cmp.Compare(cmp.Or(a.Due, math.MaxInt64), cmp.Or(b.Due, math.MaxInt64))
	})
	decision := record.Decision{At: l.View.Now, Term: l.View.Term.Seq, By: l.Self.Name}
	return func(yield func(planning.Change, batch.Items) bool) {
		for _, c := range changes {
			c.NoteDecision(decision)
			share, err := c.EncodeShare(l.Self.Keys)
			if err != nil {
				l.Log.Error("plan cannot be written; the job keeps its present plan", "job", c.Plan.Job, "error", err)
			} else if !yield(c, share) {
				return
			}
		}
	}
}

// flights bounds the transactions of plans that are under way at once. After a crash thousands of
// jobs move, and a store commits transactions that it receives together faster than one by one.
const flights = 8

// commitLoads sends transactions of plans, each as soon as it is made, and applies each answer to the
// view as it comes. The order does not matter, since no two are of the same job. After an error other
// than a conflict it sends no more and returns that error. sent reports whether there was one to send.
func (l *Leader) commitLoads(ctx context.Context, loads iter.Seq[batch.Load[planning.Change]]) (sent bool, conflict, err error) {
	l.Progress.SetTask("writes", "plans")
	type answer struct {
		load batch.Load[planning.Change]
		rev  registry.Rev
		err  error
	}
	queue, answers := make(chan batch.Load[planning.Change]), make(chan answer)
	failed := make(chan struct{})
	go func() {
		defer close(queue)
		for ld := range loads {
			select {
			case queue <- ld:
			case <-failed:
				return
			}
		}
	}()
	var senders sync.WaitGroup
	for range flights {
		senders.Go(func() {
			for ld := range queue {
				rev, err := registry.Apply(ctx, l.Self.Reg, ld.Txn)
				answers <- answer{ld, rev, err}
			}
		})
	}
	go func() {
		senders.Wait()
		close(answers)
	}()
	for a := range answers { // all of them: a transaction under way is not abandoned
		sent = true
		if a.err == nil {
			l.recordCommit(a.load.Parts, a.rev)
		} else if refusal := l.handleRefusal(ctx, a.load, a.err); refusal == nil {
			conflict = a.err
		} else if err == nil {
			err = refusal
			close(failed)
		}
	}
	return sent, conflict, err
}

// problemBefore returns the problem of a job's plan before the changes of this round.
func (l *Leader) problemBefore(segment string) string {
	if p, ok := l.View.Plans[segment]; ok {
		return p.Problem
	}
	return ""
}

// recordCommit applies committed changes to the view without waiting for their events.
func (l *Leader) recordCommit(changes []planning.Change, rev registry.Rev) {
	l.Progress.RecordAnswer()
	l.LastCommit = max(l.LastCommit, rev.Seq)
	for _, c := range changes {
		l.logs.RecordPlan(&c, rev.Seq, l.problemBefore(c.Segment))
		l.PlanFeed.RecordWrite(c.Segment, rev, c.Plan)
		l.recordPlan(c, rev)
		for _, e := range c.Crashed {
			event.Report(l.Self.Events.Crashed, e)
		}
		for _, e := range c.Skipped {
			event.Report(l.Self.Events.Skipped, e)
		}
		delete(l.SentAlone, c.Segment)
	}
}

// recordPlan applies a committed plan to the view.
func (l *Leader) recordPlan(c planning.Change, rev registry.Rev) {
	l.Edits.recordWrite(c.Segment, rev)
	delete(l.View.EditedPlans, c.Segment)
	l.View.Plans[c.Segment] = planning.PlanRecord{Rev: rev, Plan: c.Plan}
	l.reportEndedFires(c.Segment)
}

// handleRefusal returns ErrTermOver if the term's condition failed. Otherwise it has the change that
// conflicted sent alone the next time, so that it holds up no other.
func (l *Leader) handleRefusal(ctx context.Context, ld batch.Load[planning.Change], err error) error {
	refusal, ok := batch.FindConflict(err)
	if !ok {
		for _, c := range ld.Parts {
			l.Edits.recordUnknown(c.Segment)
		}
		return err
	}
	if refusal.Index == 0 {
		return elector.ErrTermOver
	}
	if part, ok := ld.PartOf(refusal.Index); ok {
		c := ld.Parts[part]
		l.SentAlone[c.Segment] = true
		l.logs.LogConflict(ctx, l.Self.Reg, c.Segment, c.Plan.Job, l.Self.Keys.Plan(c.Segment))
		if refusal.Index < len(ld.Txn.If) && ld.Txn.If[refusal.Index].Kind == registry.CondDead {
			l.suspectOwner(c.Segment, ld.Txn.If[refusal.Index].Session)
		}
		return l.Edits.findForeignValue(ctx, ld.Txn, refusal.Index)
	}
	return nil
}

// reapAll deletes the records of expired incarnations.
func (l *Leader) reapAll(ctx context.Context, reapings []planning.Reaping, term []registry.Cond) error {
	for _, b := range reapings {
		reaped, err := l.reapOne(ctx, b, term)
		if err != nil {
			return err
		}
		if reaped {
			l.Progress.RecordAnswer()
			delete(l.View.Members, b.Incarnation)
			l.logs.RecordReaping(b.Incarnation)
			l.incomplete.removeIncarnation(b.Incarnation)
		}
	}
	return nil
}

// reapOne deletes the records of an incarnation. It reports false if the store refuses, since the
// session lives or the records differ from the view: the incarnation has just joined, and the watch
// has not delivered its instance key yet. That is no error, as a retry would only delay the plans.
func (l *Leader) reapOne(ctx context.Context, b planning.Reaping, term []registry.Cond) (reaped bool, err error) {
	for _, ld := range b.PackLoads(l.Self.Reg.Limits(), term) {
		_, err := registry.Apply(ctx, l.Self.Reg, ld.Txn)
		refusal, refused := batch.FindConflict(err)
		switch {
		case refused && refusal.Index == 0:
			return false, elector.ErrTermOver
		case refused:
			l.Log.Debug("not reaped", "incarnation", b.Incarnation, "error", err)
			return false, nil
		case err != nil:
			return false, fmt.Errorf("reap %s: %w", b.Incarnation, err)
		}
	}
	return true, nil
}
