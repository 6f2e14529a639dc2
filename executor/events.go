package executor

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/group/event"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

// Observe adds an observer, which receives the events from now on. To observe all events, call
// it before Start. See also Options.Observer.
func (e *Executor) Observe(o Observer) { e.observers.add(o) }

// DroppedEvents returns the number of events that no observer has received, since too many were
// waiting for callbacks.
func (e *Executor) DroppedEvents() uint64 { return e.observers.dropped.Load() }

// observe reports an event to the observers that have the callback for it. The goroutine that
// calls the callbacks makes the event.
func observe[E any](q *observers, callback func(*Observer) func(E), event func() E) {
	if !q.observes(func(o *Observer) bool { return callback(o) != nil }) {
		return
	}
	q.push(func(o *Observer) {
		if f := callback(o); f != nil {
			f(event())
		}
	})
}

// observeOutcome reports the end of a run.
func (e *Executor) observeOutcome(r *Run, began time.Time, how Outcome, err error) {
	ended := RunEnded{Run: r.RunInfo, Ended: e.clock().UTC(), Outcome: how, Err: err}
	if n := r.notes; n != nil {
		ended.ItemsFetched, ended.ItemsProcessed, ended.TraceID = n.fetched.Load(), n.processed.Load(), n.traceID()
	}
	if !began.IsZero() {
		ended.Started = ended.Ended.Add(-time.Since(began))
	}
	observe(&e.observers, func(o *Observer) func(RunEnded) { return o.RunEnded }, func() RunEnded { return ended })
}

// publicOutcome returns the outcome, for observers, of a run with context ctx.
func publicOutcome(ctx context.Context, how outcome, err error) Outcome {
	switch cause := context.Cause(ctx); {
	case isPanic(err):
		return Panicked
	case how == runHandedBack:
		return HandedBack
	case errors.Is(cause, ErrSessionLost):
		return LostSession
	case how == runSucceeded:
		return Succeeded
	case how == runCancelled:
		return Cancelled
	case errors.Is(cause, ErrTimeout):
		return TimedOut
	}
	return Failed
}

// memberEvents returns the hooks by which the events of the member reach the observers.
func (e *Executor) memberEvents() event.Hooks {
	return event.Hooks{
		Session: forward(e, func(o *Observer) func(SessionChanged) { return o.SessionChanged },
			func(s event.Session, at time.Time) SessionChanged {
				return SessionChanged{State: s.State, ID: string(s.ID), SafeUntil: s.SafeUntil, Err: s.Err, At: at}
			}),
		Leadership: forward(e, func(o *Observer) func(LeadershipChanged) { return o.LeadershipChanged },
			func(l event.Leadership, at time.Time) LeadershipChanged {
				return LeadershipChanged{l.Leading, l.Term, l.Why, at}
			}),
		Clock: forward(e, func(o *Observer) func(ClockChanged) { return o.ClockChanged },
			func(c event.Clock, at time.Time) ClockChanged { return ClockChanged{c.Skewed, c.Ahead, at} }),
		Shards: forward(e, func(o *Observer) func(ShardsChanged) { return o.ShardsChanged },
			func(s event.Shards, at time.Time) ShardsChanged {
				return ShardsChanged{
					Job: s.Job, Kind: s.Kind, Gained: listShards(s.After.Minus(s.Before)), Lost: listShards(s.Before.Minus(s.After)),
					Moving: listShards(s.FrozenAfter.Minus(s.FrozenBefore)), Owned: s.After.Len(), At: at,
				}
			}),
		Skipped: forward(e, func(o *Observer) func(FiresSkipped) { return o.FiresSkipped },
			func(s event.Skipped, at time.Time) FiresSkipped {
				return FiresSkipped{s.Job, s.Kind, s.Reason, listShards(s.Shards), s.Fires, s.From.Time(), s.Through.Time(), at}
			}),
		Crashed: e.observeCrashed,
		Refused: e.refused.count,
		FireEnded: forward(e, func(o *Observer) func(FireEnded) { return o.FireEnded },
			func(f event.FireEnded, _ time.Time) FireEnded {
				return FireEnded{f.Job, f.Kind, f.At.Time(), f.Trigger, f.Shards, f.Failed, f.Skipped, f.Ended.Time(), f.Repeated}
			}),
	}
}

// forward returns a hook that converts an event of the member and reports it.
func forward[In, E any](e *Executor, callback func(*Observer) func(E), convert func(in In, at time.Time) E) func(In) {
	return func(in In) {
		if !e.observers.isEmpty() {
			queueConverted(e, callback, convert, in)
		}
	}
}

// queueConverted is a function of its own since its closure has in allocated, at the begin of the
// function.
func queueConverted[In, E any](e *Executor, callback func(*Observer) func(E), convert func(in In, at time.Time) E, in In) {
	at := e.clock().UTC()
	observe(&e.observers, callback, func() E { return convert(in, at) })
}

// observeCrashed reports crashed runs, if there are observers.
func (e *Executor) observeCrashed(l event.Crashed) {
	if e.observers.observes(func(o *Observer) bool { return o.RunCrashed != nil }) {
		e.queueCrashed(l)
	}
}

// queueCrashed reports crashed runs, as one event in the queue.
func (e *Executor) queueCrashed(l event.Crashed) {
	at := e.clock().UTC()
	e.observers.push(func(o *Observer) {
		if o.RunCrashed == nil {
			return
		}
		fire := l.Runs.Fire.Time()
		of := record.JobID{Namespace: e.namespace, Group: e.group, Job: l.Job, Created: l.Created}
		names := record.NewRunNames(of, fire, l.RunOf, l.Runs.Attempt)
		for s := range l.Runs.Shards.All() {
			id, key := names.Of(s)
			o.RunCrashed(RunCrashed{Run: RunInfo{
				ID: id, Key: key, Namespace: e.namespace, Group: e.group, Job: l.Job, Kind: l.Kind, Created: l.Created, Instance: l.Instance, Shard: s, FireTime: fire, Attempt: l.Runs.Attempt, Trigger: l.Runs.Trigger,
			}, At: at, Rerun: l.Rerun})
		}
	})
}

// listShards returns the shards of s in ascending order, nil if there are none.
func listShards(s shardset.Set) []int { return slices.Collect(s.All()) }
