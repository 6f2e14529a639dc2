package elector

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/rota-dev/rota/internal/group/election"
	"github.com/rota-dev/rota/internal/group/feed"
	"github.com/rota-dev/rota/internal/group/skew"
	"github.com/rota-dev/rota/internal/mutex"
	"github.com/rota-dev/rota/internal/parallel"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// Elector takes part in the elections of a group for one incarnation: it follows the election
// records, acquires the seat when it is this incarnation's turn, and leads during its terms.
type Elector struct {
	Self  Self
	lead  Lead
	Log   *slog.Logger
	nudge chan struct{} // one slot: the election records have changed
	Feed  *feed.Feed[registry.Entry]

	mu            mutex.Mutex
	State         election.State
	jitter        *rand.Rand
	draw          float64 // spreads the attempts of candidates; a new one for each vacancy of the seat
	conflicts     int     // attempts on this vacancy that conflicted
	leadingReason string  // how this incarnation became leader, for the log line of the term's start
	leading       bool    // a goroutine leads for a term
	handedTo      string  // the instance to which this term's leader resigned

	loggedSkewed bool      // that this clock is skewed; owned by the goroutine that calls ReadFeed
	incomplete   []string  // incarnations to name in the seat record, see missing.go
	deposedSince time.Time // since when the leader record names another incarnation while this one holds the seat; zero: it does not
}

// New returns the elector of an incarnation. lead leads for a term, until ctx ends or the
// term is over.
func New(self Self, lead Lead, log *slog.Logger) *Elector {
	e := &Elector{Self: self, lead: lead, Log: log, nudge: make(chan struct{}, 1), jitter: NewJitter(self.Name, "elections")}
	e.draw = e.jitter.Float64()
	e.Feed = feed.New(self.Keys.Election(), log, func(e registry.Entry) (registry.Entry, error) { return e, nil })
	return e
}

// IsLeading reports whether this incarnation leads.
func (e *Elector) IsLeading() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.leading
}

// LedLast reports whether this incarnation is the last leader that it has observed.
func (e *Elector) LedLast() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.State.Leader.Incarnation == e.Self.ID
}

func (e *Elector) setLeading(leading bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.leading = leading
}

// WakeUp requests a pass of the elector's loop. It does not block.
func (e *Elector) WakeUp() { parallel.Signal(e.nudge) }

// RunElections takes part in elections until ctx ends.
func (e *Elector) RunElections(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r := e.Feed.NewReader(e.WakeUp)
	defer r.Close()
	wg.Go(func() { cancel(e.Feed.Run(ctx, e.Self.Reg)) })

	timer := time.NewTimer(0)
	defer timer.Stop()
	var acting time.Time  // when to acquire the free seat; zero: it is not free
	var inspect time.Time // when to inspect the term; zero: this incarnation does not hold the seat
	var s *termRun        // the term that this incarnation leads
	defer func() { s.stopAndWait() }()
	for {
		synced := e.ReadFeed(r)
		if err := e.checkNamedIncomplete(); err != nil {
			return err
		}
		deposed, err := e.checkDeposed(ctx)
		if err != nil {
			return err
		}
		step, wait := e.nextStep()
		fit := e.mayLead()
		if step != election.Lead {
			s.stopAndWait()
			s, inspect = nil, time.Time{}
		}
		switch {
		case !synced || step == election.Follow || step == election.TakeSeat && !fit:
			acting = time.Time{}
		case step == election.Lead:
			acting = time.Time{}
			if s == nil && fit {
				s = e.startTerm(ctx, &wg)
			}
			if inspect.IsZero() {
				inspect = time.Now().Add(e.patience() / inspectionsPerPatience)
			}
		case acting.IsZero():
			acting = time.Now().Add(wait)
		}
		if !inspect.IsZero() {
			if d := time.Until(inspect); d > 0 {
				timer.Reset(d)
			} else {
				if e.inspectTerm(ctx, s) {
					s = nil
				}
				inspect = time.Time{}
				continue
			}
		}
		if !acting.IsZero() {
			if d := time.Until(acting); d > 0 {
				timer.Reset(d)
			} else {
				if err := e.acquireSeat(ctx, step); err != nil {
					return err
				}
				acting = time.Time{}
				continue
			}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-e.nudge:
		case <-deposed:
		case <-timer.C:
		}
	}
}

// ReadFeed applies the changes of the election records to State.
func (e *Elector) ReadFeed(r *feed.Reader[registry.Entry]) (synced bool) {
	var leader, seat *feed.Update[registry.Entry]
	synced = r.Drain(func(n feed.Update[registry.Entry]) {
		switch n.Name {
		case e.Self.Keys.Leader().Name():
			leader = &n
		case e.Self.Keys.Seat().Name():
			seat = &n
		}
	})
	e.mu.Lock()
	var unreadable error
	if leader != nil {
		unreadable = e.applyLeaderLocked(leader)
	}
	noticed := seat != nil && e.applySeatLocked(seat)
	clocks := e.State.Clocks
	e.mu.Unlock()
	if unreadable != nil && !leader.Deleted {
		feed.LogUnreadable(e.Log, slog.LevelError, e.Self.Keys.Leader(), unreadable)
	}
	if leader != nil && leader.Rev.Seq > e.Self.JoinCommit {
		e.Self.CheckRecords()
	}
	if noticed {
		e.applyClockNotice(clocks, seat.Rev.Seq)
	}
	return synced
}

// applyLeaderLocked applies a change of the leader record. The caller holds e.mu.
func (e *Elector) applyLeaderLocked(n *feed.Update[registry.Entry]) error {
	leader, err := record.Decode[record.Leader](n.Value.Value)
	e.State.Leader, e.State.LeaderRev = leader, n.Rev
	return err
}

// applySeatLocked applies a change of the seat record, and reports whether the record can be read. The caller holds e.mu.
func (e *Elector) applySeatLocked(n *feed.Update[registry.Entry]) bool {
	if !n.Deleted && n.Rev.Seq < e.State.SeatRev.Seq {
		return false // PublishSeat has applied a newer version since the feed was drained
	}
	e.State.Seat, e.State.SeatRev = n.Value.Owner, n.Rev
	e.draw, e.conflicts = e.jitter.Float64(), 0
	seat, err := record.Decode[record.Seat](n.Value.Value)
	if err != nil {
		return false
	}
	e.State.Successors, e.State.Incomplete = seat.Successors, seat.Incomplete
	e.State.Clocks = skew.Notice{At: seat.Clock, Skewed: seat.Skewed, Differing: seat.Differing}
	return true
}

// nextStep returns what this incarnation does about the election, and how long it waits first.
func (e *Elector) nextStep() (election.Step, time.Duration) {
	draining := e.Self.IsDraining()
	e.mu.Lock()
	defer e.mu.Unlock()
	step, wait := e.State.NextStep(e.Self.ID, e.Self.Session.ID(), e.draw)
	if draining && step == election.TakeSeat {
		wait += 20 * election.SuccessionDelay // after all candidates that do not drain
	}
	if _, skewed := e.State.Clocks.Skewed[e.Self.ID]; skewed && step == election.TakeSeat {
		wait += 40 * election.SuccessionDelay // after all candidates whose clock is right
	}
	return step, wait + time.Duration(min(e.conflicts, 20))*4*election.SuccessionDelay
}

// acquireSeat tries to acquire the seat. A conflict means that another candidate was first, or that
// the former leader's session lives. The feed delivers either; until then the next attempt waits
// longer.
func (e *Elector) acquireSeat(ctx context.Context, step election.Step) error {
	e.mu.Lock()
	now := e.State
	e.mu.Unlock()
	var txn registry.Txn
	var err error
	if step == election.AcceptSeat {
		txn, err = now.AcceptanceTxn(e.Self.Keys, e.Self.Session.ID())
	} else {
		txn, err = now.SuccessionTxn(e.Self.Keys, e.Self.ID, e.Self.Session.ID())
	}
	if err != nil {
		return err
	}
	rev, err := registry.Apply(ctx, e.Self.Reg, txn)
	switch {
	case err == nil:
		e.leadingReason = now.ReasonToLead(step)
		e.recordOwnWrites(txn, rev)
		return nil
	case errors.Is(err, registry.ErrConflict): // perhaps the lost reply of a commit: the feed delivers that, too
		e.mu.Lock()
		e.conflicts++
		persistent := e.conflicts == foreignConflicts
		e.mu.Unlock()
		if persistent {
			e.logForeignValues(ctx)
		}
		return nil
	case errors.Is(err, registry.ErrSessionLost), ctx.Err() != nil:
		return fmt.Errorf("acquire seat: %w", err)
	}
	e.Log.Error("election attempt failed; retrying", "error", err)
	e.mu.Lock()
	e.conflicts = 20
	e.mu.Unlock()
	return nil
}

// recordOwnWrites applies a transaction of this incarnation without waiting for its events.
func (e *Elector) recordOwnWrites(txn registry.Txn, rev registry.Rev) {
	for _, op := range txn.Then {
		e.Feed.RecordWrite(op.Key.Name(), rev, registry.Entry{
			Key: op.Key, Value: op.Value, Created: rev, Modified: rev, Owner: op.Session, Txn: txn.ID,
		})
	}
}
