package member

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/rota-dev/rota/coordinator/internal/election"
	"github.com/rota-dev/rota/coordinator/internal/feed"
	"github.com/rota-dev/rota/coordinator/internal/skew"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// Elector follows the office, takes it when it is this incarnation's turn, and leads
// while it is in office.
type Elector struct {
	M     *Member
	In    *Incarnation
	plans *feed.Feed[*record.Plan]
	Log   *slog.Logger
	nudge chan struct{} // one slot: the office has changed
	Feed  *feed.Feed[registry.Entry]

	mu            sync.Mutex
	State         election.State
	jitter        *rand.Rand
	draw          float64 // for this vacancy
	conflicts     int     // attempts on this vacancy that conflicted
	loggedSkewed  bool    // that this clock is off
	leadingReason string  // how the office was come by that no term was led in yet
	handedTo      string  // to whom it was handed in this term

	incomplete   []string  // incarnations to name, see missing.go
	deposedSince time.Time // when the leader record first named another while this incarnation fills the office; zero: it does not
}

func NewElector(m *Member, in *Incarnation, plans *feed.Feed[*record.Plan], log *slog.Logger) *Elector {
	o := &Elector{M: m, In: in, plans: plans, Log: log, nudge: make(chan struct{}, 1), jitter: newJitter(m.Name, "elections")}
	o.draw = o.jitter.Float64()
	o.Feed = feed.New(m.Keys.Election(), log, func(e registry.Entry) (registry.Entry, error) { return e, nil })
	return o
}

func (o *Elector) wakeUp() {
	select {
	case o.nudge <- struct{}{}:
	default:
	}
}

// runElections takes part in elections until ctx ends.
func (o *Elector) runElections(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r := o.Feed.NewReader(o.wakeUp)
	defer r.Close()
	wg.Go(func() { cancel(o.Feed.Run(ctx, o.M.Reg)) })

	timer := time.NewTimer(0)
	defer timer.Stop()
	var acting time.Time  // when to act on a vacancy; zero: there is none
	var inspect time.Time // when to look at how leading goes; zero: this incarnation is not in office
	var s *termRun        // of the term that this incarnation serves
	defer func() { s.stopAndWait() }()
	for {
		synced := o.ReadFeed(r)
		if err := o.checkNamedIncomplete(); err != nil {
			return err
		}
		deposed, err := o.checkDeposed(ctx)
		if err != nil {
			return err
		}
		step, wait := o.nextStep()
		fit := o.mayLead()
		if step != election.Serve {
			s.stopAndWait()
			s, inspect = nil, time.Time{}
		}
		switch {
		case !synced || step == election.Follow || step == election.TakeSeat && !fit:
			acting = time.Time{}
		case step == election.Serve:
			acting = time.Time{}
			if s == nil && fit {
				s = o.startTerm(ctx, &wg)
			}
			if inspect.IsZero() {
				inspect = time.Now().Add(o.patience() / inspectionsPerPatience)
			}
		case acting.IsZero():
			acting = time.Now().Add(wait)
		}
		if !inspect.IsZero() {
			if d := time.Until(inspect); d > 0 {
				timer.Reset(d)
			} else {
				if o.inspectTerm(ctx, s) {
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
				if err := o.acquireSeat(ctx, step); err != nil {
					return err
				}
				acting = time.Time{}
				continue
			}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-o.nudge:
		case <-deposed:
		case <-timer.C:
		}
	}
}

// ReadFeed brings the office up to date.
func (o *Elector) ReadFeed(r *feed.Reader[registry.Entry]) (synced bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	heard := uint64(0)
	synced = r.Drain(func(n feed.Update[registry.Entry]) {
		switch n.Name {
		case o.M.Keys.Leader().Name():
			leader, err := record.Decode[record.Leader](n.Value.Value)
			if err != nil && !n.Deleted {
				feed.LogUnreadable(o.Log, slog.LevelError, o.M.Keys.Leader(), err)
			}
			o.State.Leader, o.State.LeaderRev = leader, n.Rev
			if n.Rev.Seq > o.In.joinCommit {
				o.M.requestRecordCheck(o.In)
			}
		case o.M.Keys.Seat().Name():
			o.State.Seat, o.State.SeatRev = n.Value.Owner, n.Rev
			o.draw, o.conflicts = o.jitter.Float64(), 0
			if present, err := record.Decode[record.Seat](n.Value.Value); err == nil {
				o.State.Successors, o.State.Incomplete = present.Successors, present.Incomplete
				o.State.Clocks = skew.Notice{At: present.Clock, Skewed: present.Skewed}
				heard = n.Rev.Seq
			}
		}
	})
	if heard > 0 {
		o.applyClockNotice(heard)
	}
	return synced
}

func (o *Elector) nextStep() (election.Step, time.Duration) {
	o.M.mu.Lock()
	draining := o.M.Draining
	o.M.mu.Unlock()
	o.mu.Lock()
	defer o.mu.Unlock()
	step, wait := o.State.Next(o.In.ID, o.In.Session.ID(), o.draw)
	if draining && step == election.TakeSeat {
		wait += 20 * election.SuccessionStep // last in rank: any other will do
	}
	if _, off := o.State.Clocks.Skewed[o.In.ID]; off && step == election.TakeSeat {
		wait += 40 * election.SuccessionStep // as long as there is one that is right, that one
	}
	return step, wait + time.Duration(min(o.conflicts, 20))*4*election.SuccessionStep
}

// acquireSeat takes the office, or shows that it has been taken. A conflict means that somebody
// else was first, or that the one who left has not ended: the feed will tell, and until
// then the next try waits longer.
func (o *Elector) acquireSeat(ctx context.Context, step election.Step) error {
	o.mu.Lock()
	now := o.State
	o.mu.Unlock()
	var txn registry.Txn
	var err error
	if step == election.Accept {
		txn, err = now.Acceptance(o.M.Keys, o.In.Session.ID())
	} else {
		txn, err = now.Succession(o.M.Keys, o.In.ID, o.In.Session.ID())
	}
	if err != nil {
		return err
	}
	rev, err := registry.Apply(ctx, o.M.Reg, txn)
	switch {
	case err == nil:
		o.leadingReason = now.Reason(step)
		o.recordOwnWrites(txn, rev)
		return nil
	case errors.Is(err, registry.ErrConflict): // for certain or not: the feed will tell
		o.mu.Lock()
		o.conflicts++
		doubtful := o.conflicts == foreignConflicts
		o.mu.Unlock()
		if doubtful {
			o.logForeignValues(ctx)
		}
		return nil
	case errors.Is(err, registry.ErrSessionLost), ctx.Err() != nil:
		return fmt.Errorf("take office: %w", err)
	}
	o.Log.Error("office not taken; trying again", "error", err)
	o.mu.Lock()
	o.conflicts = 20
	o.mu.Unlock()
	return nil
}

// recordOwnWrites records what this incarnation has written ahead of its event.
func (o *Elector) recordOwnWrites(txn registry.Txn, rev registry.Rev) {
	for _, op := range txn.Then {
		o.Feed.RecordWrite(op.Key.Name(), rev, registry.Entry{
			Key: op.Key, Value: op.Value, Created: rev, Modified: rev, Owner: op.Session, Txn: txn.ID,
		})
	}
}

// service is the leading of one term.
type termRun struct {
	end           context.CancelCauseFunc
	done          chan struct{} // closed when it has ended
	progress      Progress
	reportedStuck bool // that it is stuck
}

// startTerm begins to lead.
func (o *Elector) startTerm(ctx context.Context, wg *sync.WaitGroup) *termRun {
	o.mu.Lock()
	term := o.State.LeaderRev
	o.handedTo = ""
	o.mu.Unlock()
	why := cmp.Or(o.leadingReason, "the term goes on")
	o.leadingReason = ""
	s := &termRun{done: make(chan struct{})}
	ctx, s.end = context.WithCancelCause(ctx)
	s.progress.markBusy()
	wg.Go(func() {
		defer close(s.done)
		o.Log.Info("leading", "term", term.Seq, "why", why)
		began := time.Now()
		err := leadTerm(ctx, o, term, &s.progress)
		o.Log.Info("no longer leading", "term", term.Seq, "why", o.explainEnd(ctx, err), "after", time.Since(began).Round(time.Millisecond))
		if err == nil || ctx.Err() != nil {
			return
		}
		s.progress.markBusy() // the term may be over already; if it is not, nobody leads
		s.progress.recordFailure(err)
	})
	return s
}

// stopAndWait ends the leading of a term, if there is one.
func (s *termRun) stopAndWait() {
	if s != nil {
		s.end(errTermOver)
		<-s.done
	}
}

func (s *termRun) hasEnded() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// PublishSeat writes who should act when the office falls vacant, and whose clock is off, if
// that is not what is written already or is to be written anew. It leaves the leader record,
// and hence the term, alone.
func (o *Elector) PublishSeat(ctx context.Context, names []string, clocks skew.Notice, anew bool) error {
	o.mu.Lock()
	now, incomplete := o.State, o.incomplete
	o.mu.Unlock()
	if now.Seat != o.In.Session.ID() ||
		!anew && slices.Equal(now.Successors, names) && now.Clocks.Names(clocks.Skewed) && slices.Equal(now.Incomplete, incomplete) {
		return nil
	}
	value, err := record.Encode(record.Seat{Successors: names, Clock: clocks.At, Skewed: clocks.Skewed, Incomplete: incomplete})
	if err != nil {
		return err
	}
	txn := registry.Txn{Then: []registry.Op{registry.Set(o.M.Keys.Seat(), now.SeatRev, value)}}
	rev, err := registry.Apply(ctx, o.M.Reg, txn)
	if err != nil {
		return fmt.Errorf("name successors: %w", err)
	}
	o.mu.Lock()
	if o.State.SeatRev == now.SeatRev { // run may take a while to read the feed
		o.State.SeatRev, o.State.Successors, o.State.Clocks, o.State.Incomplete = rev, names, clocks, incomplete
	}
	o.mu.Unlock()
	o.Feed.RecordWrite(o.M.Keys.Seat().Name(), rev, registry.Entry{
		Key: o.M.Keys.Seat(), Value: value, Modified: rev, Owner: o.In.Session.ID(),
	})
	return nil
}

// Resign hands the office to a successor, if this incarnation is in office and one lives.
func (o *Elector) Resign(ctx context.Context) bool {
	o.mu.Lock()
	successors := o.State.Successors
	o.mu.Unlock()
	return o.handOverToFirst(ctx, successors)
}

// handOverToFirst resigns in favour of the first of heirs that lives.
func (o *Elector) handOverToFirst(ctx context.Context, heirs []string) bool {
	o.mu.Lock()
	now := o.State
	o.mu.Unlock()
	if now.Seat != o.In.Session.ID() {
		return false
	}
	for _, to := range heirs {
		txn, err := now.Resignation(o.M.Keys, to)
		if err != nil {
			return false
		}
		o.setHandedTo(record.InstanceOf(to)) // before the term is seen to be over
		rev, err := registry.Apply(ctx, o.M.Reg, txn)
		if err != nil {
			o.setHandedTo("")
			o.Log.Debug("office not handed over", "to", to, "error", err)
			continue
		}
		leader := txn.Then[0]
		o.Feed.RecordWrite(leader.Key.Name(), rev, registry.Entry{Key: leader.Key, Value: leader.Value, Modified: rev})
		o.Log.Debug("resigned", "to", to)
		return true
	}
	return false
}

// setHandedTo takes note of whom the office is being handed to.
func (o *Elector) setHandedTo(to string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.handedTo = to
}

// explainEnd returns why this incarnation leads no more, for the log.
func (o *Elector) explainEnd(ctx context.Context, err error) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, errTermOver) {
		err = cause
	}
	switch {
	case o.handedTo != "":
		return "the office was handed to " + o.handedTo
	case err == nil || errors.Is(err, errTermOver):
		return "the office was taken by another"
	}
	return err.Error()
}
