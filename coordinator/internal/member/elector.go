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

	mu      sync.Mutex
	Office  election.State
	jitter  *rand.Rand
	draw    float64 // for this vacancy
	refuses int     // attempts on this vacancy that conflicted
	saidOff bool    // that this clock is off
	taken   string  // how the office was come by that no term was led in yet
	handed  string  // to whom it was handed in this term

	incomplete []string  // incarnations to name, see missing.go
	since      time.Time // when the leader record first named another while this incarnation fills the office; zero: it does not
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

// run takes part in elections until ctx ends.
func (o *Elector) run(ctx context.Context) error {
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
	var s *termService    // of the term that this incarnation serves
	defer func() { s.stop() }()
	for {
		synced := o.Take(r)
		if err := o.checkNamed(); err != nil {
			return err
		}
		deposed, err := o.deposed(ctx)
		if err != nil {
			return err
		}
		step, wait := o.step()
		fit := o.fit()
		if step != election.Serve {
			s.stop()
			s, inspect = nil, time.Time{}
		}
		switch {
		case !synced || step == election.Follow || step == election.TakeSeat && !fit:
			acting = time.Time{}
		case step == election.Serve:
			acting = time.Time{}
			if s == nil && fit {
				s = o.serve(ctx, &wg)
			}
			if inspect.IsZero() {
				inspect = time.Now().Add(o.patience() / inspections)
			}
		case acting.IsZero():
			acting = time.Now().Add(wait)
		}
		if !inspect.IsZero() {
			if d := time.Until(inspect); d > 0 {
				timer.Reset(d)
			} else {
				if o.inspect(ctx, s) {
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
				if err := o.act(ctx, step); err != nil {
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

// Take brings the office up to date.
func (o *Elector) Take(r *feed.Reader[registry.Entry]) (synced bool) {
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
			o.Office.Leader, o.Office.LeaderRev = leader, n.Rev
			if n.Rev.Seq > o.In.joinCommit {
				o.M.requestRecordCheck(o.In)
			}
		case o.M.Keys.Seat().Name():
			o.Office.Seat, o.Office.SeatRev = n.Value.Owner, n.Rev
			o.draw, o.refuses = o.jitter.Float64(), 0
			if present, err := record.Decode[record.Seat](n.Value.Value); err == nil {
				o.Office.Successors, o.Office.Incomplete = present.Successors, present.Incomplete
				o.Office.Clocks = skew.Notice{At: present.Clock, Skewed: present.Skewed}
				heard = n.Rev.Seq
			}
		}
	})
	if heard > 0 {
		o.hear(heard)
	}
	return synced
}

func (o *Elector) step() (election.Step, time.Duration) {
	o.M.mu.Lock()
	draining := o.M.Draining
	o.M.mu.Unlock()
	o.mu.Lock()
	defer o.mu.Unlock()
	step, wait := o.Office.Next(o.In.ID, o.In.Session.ID(), o.draw)
	if draining && step == election.TakeSeat {
		wait += 20 * election.SuccessionStep // last in rank: any other will do
	}
	if _, off := o.Office.Clocks.Skewed[o.In.ID]; off && step == election.TakeSeat {
		wait += 40 * election.SuccessionStep // as long as there is one that is right, that one
	}
	return step, wait + time.Duration(min(o.refuses, 20))*4*election.SuccessionStep
}

// act takes the office, or shows that it has been taken. A conflict means that somebody
// else was first, or that the one who left has not ended: the feed will tell, and until
// then the next try waits longer.
func (o *Elector) act(ctx context.Context, step election.Step) error {
	o.mu.Lock()
	now := o.Office
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
		o.taken = now.Reason(step)
		o.entered(txn, rev)
		return nil
	case errors.Is(err, registry.ErrConflict): // for certain or not: the feed will tell
		o.mu.Lock()
		o.refuses++
		doubtful := o.refuses == foreignRefuses
		o.mu.Unlock()
		if doubtful {
			o.sayForeign(ctx)
		}
		return nil
	case errors.Is(err, registry.ErrSessionLost), ctx.Err() != nil:
		return fmt.Errorf("take office: %w", err)
	}
	o.Log.Error("office not taken; trying again", "error", err)
	o.mu.Lock()
	o.refuses = 20
	o.mu.Unlock()
	return nil
}

// entered records what this incarnation has written ahead of its event.
func (o *Elector) entered(txn registry.Txn, rev registry.Rev) {
	for _, op := range txn.Then {
		o.Feed.Put(op.Key.Name(), rev, registry.Entry{
			Key: op.Key, Value: op.Value, Created: rev, Modified: rev, Owner: op.Session, Txn: txn.ID,
		})
	}
}

// service is the leading of one term.
type termService struct {
	end      context.CancelCauseFunc
	done     chan struct{} // closed when it has ended
	progress Progress
	reported bool // that it is stuck
}

// serve begins to lead.
func (o *Elector) serve(ctx context.Context, wg *sync.WaitGroup) *termService {
	o.mu.Lock()
	term := o.Office.LeaderRev
	o.handed = ""
	o.mu.Unlock()
	why := cmp.Or(o.taken, "the term goes on")
	o.taken = ""
	s := &termService{done: make(chan struct{})}
	ctx, s.end = context.WithCancelCause(ctx)
	s.progress.begin()
	wg.Go(func() {
		defer close(s.done)
		o.Log.Info("leading", "term", term.Seq, "why", why)
		began := time.Now()
		err := lead(ctx, o, term, &s.progress)
		o.Log.Info("no longer leading", "term", term.Seq, "why", o.whyOver(ctx, err), "after", time.Since(began).Round(time.Millisecond))
		if err == nil || ctx.Err() != nil {
			return
		}
		s.progress.begin() // the term may be over already; if it is not, nobody leads
		s.progress.fail(err)
	})
	return s
}

// stop ends the leading of a term, if there is one.
func (s *termService) stop() {
	if s != nil {
		s.end(errTermOver)
		<-s.done
	}
}

func (s *termService) over() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// Announce writes who should act when the office falls vacant, and whose clock is off, if
// that is not what is written already or is to be written anew. It leaves the leader record,
// and hence the term, alone.
func (o *Elector) Announce(ctx context.Context, names []string, clocks skew.Notice, anew bool) error {
	o.mu.Lock()
	now, incomplete := o.Office, o.incomplete
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
	if o.Office.SeatRev == now.SeatRev { // run may take a while to read the feed
		o.Office.SeatRev, o.Office.Successors, o.Office.Clocks, o.Office.Incomplete = rev, names, clocks, incomplete
	}
	o.mu.Unlock()
	o.Feed.Put(o.M.Keys.Seat().Name(), rev, registry.Entry{
		Key: o.M.Keys.Seat(), Value: value, Modified: rev, Owner: o.In.Session.ID(),
	})
	return nil
}

// Resign hands the office to a successor, if this incarnation is in office and one lives.
func (o *Elector) Resign(ctx context.Context) bool {
	o.mu.Lock()
	successors := o.Office.Successors
	o.mu.Unlock()
	return o.handOver(ctx, successors)
}

// handOver resigns in favour of the first of heirs that lives.
func (o *Elector) handOver(ctx context.Context, heirs []string) bool {
	o.mu.Lock()
	now := o.Office
	o.mu.Unlock()
	if now.Seat != o.In.Session.ID() {
		return false
	}
	for _, to := range heirs {
		txn, err := now.Resignation(o.M.Keys, to)
		if err != nil {
			return false
		}
		o.hands(record.InstanceOf(to)) // before the term is seen to be over
		rev, err := registry.Apply(ctx, o.M.Reg, txn)
		if err != nil {
			o.hands("")
			o.Log.Debug("office not handed over", "to", to, "error", err)
			continue
		}
		leader := txn.Then[0]
		o.Feed.Put(leader.Key.Name(), rev, registry.Entry{Key: leader.Key, Value: leader.Value, Modified: rev})
		o.Log.Debug("resigned", "to", to)
		return true
	}
	return false
}

// hands takes note of whom the office is being handed to.
func (o *Elector) hands(to string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.handed = to
}

// whyOver returns why this incarnation leads no more, for the log.
func (o *Elector) whyOver(ctx context.Context, err error) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, errTermOver) {
		err = cause
	}
	switch {
	case o.handed != "":
		return "the office was handed to " + o.handed
	case err == nil || errors.Is(err, errTermOver):
		return "the office was taken by another"
	}
	return err.Error()
}
