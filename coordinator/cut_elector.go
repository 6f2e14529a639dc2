package coordinator

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

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// officeLoop follows the office, takes it when it is this incarnation's turn, and leads
// while it is in office.
type officeLoop struct {
	m     *Member
	in    *incarnation
	plans *feed[*record.Plan]
	log   *slog.Logger
	nudge chan struct{} // one slot: the office has changed
	feed  *feed[registry.Entry]

	mu      sync.Mutex
	office  office
	jitter  *rand.Rand
	draw    float64 // for this vacancy
	refuses int     // attempts on this vacancy that conflicted
	saidOff bool    // that this clock is off
	taken   string  // how the office was come by that no term was led in yet
	handed  string  // to whom it was handed in this term

	incomplete []string  // incarnations to name, see missing.go
	since      time.Time // when the leader record first named another while this incarnation fills the office; zero: it does not
}

func newOfficeLoop(m *Member, in *incarnation, plans *feed[*record.Plan], log *slog.Logger) *officeLoop {
	o := &officeLoop{m: m, in: in, plans: plans, log: log, nudge: make(chan struct{}, 1), jitter: newJitter(m.name, "elections")}
	o.draw = o.jitter.Float64()
	o.feed = newFeed(m.keys.Office(), log, func(e registry.Entry) (registry.Entry, error) { return e, nil })
	return o
}

func (o *officeLoop) wakeUp() {
	select {
	case o.nudge <- struct{}{}:
	default:
	}
}

// run takes part in elections until ctx ends.
func (o *officeLoop) run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r := o.feed.reader(o.wakeUp)
	defer r.close()
	wg.Go(func() { cancel(o.feed.run(ctx, o.m.reg)) })

	timer := time.NewTimer(0)
	defer timer.Stop()
	var acting time.Time  // when to act on a vacancy; zero: there is none
	var inspect time.Time // when to look at how leading goes; zero: this incarnation is not in office
	var s *service        // of the term that this incarnation serves
	defer func() { s.stop() }()
	for {
		synced := o.take(r)
		if err := o.checkNamed(); err != nil {
			return err
		}
		deposed, err := o.deposed(ctx)
		if err != nil {
			return err
		}
		step, wait := o.step()
		fit := o.fit()
		if step != serve {
			s.stop()
			s, inspect = nil, time.Time{}
		}
		switch {
		case !synced || step == follow || step == succeed && !fit:
			acting = time.Time{}
		case step == serve:
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

// take brings the office up to date.
func (o *officeLoop) take(r *reader[registry.Entry]) (synced bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	heard := uint64(0)
	synced = r.take(func(n news[registry.Entry]) {
		switch n.name {
		case o.m.keys.Leader().Name():
			leader, err := record.Decode[record.Leader](n.value.Value)
			if err != nil && !n.gone {
				logUnreadable(o.log, slog.LevelError, o.m.keys.Leader(), err)
			}
			o.office.leader, o.office.leaderRev = leader, n.rev
			if n.rev.Seq > o.in.joined {
				o.m.inspectSoon(o.in)
			}
		case o.m.keys.Present().Name():
			o.office.present, o.office.presentRev = n.value.Owner, n.rev
			o.draw, o.refuses = o.jitter.Float64(), 0
			if present, err := record.Decode[record.Present](n.value.Value); err == nil {
				o.office.successors, o.office.incomplete = present.Successors, present.Incomplete
				o.office.clocks = clockNotice{at: present.Clock, off: present.Off}
				heard = n.rev.Seq
			}
		}
	})
	if heard > 0 {
		o.hear(heard)
	}
	return synced
}

func (o *officeLoop) step() (officeStep, time.Duration) {
	o.m.mu.Lock()
	draining := o.m.draining
	o.m.mu.Unlock()
	o.mu.Lock()
	defer o.mu.Unlock()
	step, wait := o.office.step(o.in.id, o.in.session.ID(), o.draw)
	if draining && step == succeed {
		wait += 20 * successionStep // last in rank: any other will do
	}
	if _, off := o.office.clocks.off[o.in.id]; off && step == succeed {
		wait += 40 * successionStep // as long as there is one that is right, that one
	}
	return step, wait + time.Duration(min(o.refuses, 20))*4*successionStep
}

// act takes the office, or shows that it has been taken. A conflict means that somebody
// else was first, or that the one who left has not ended: the feed will tell, and until
// then the next try waits longer.
func (o *officeLoop) act(ctx context.Context, step officeStep) error {
	o.mu.Lock()
	now := o.office
	o.mu.Unlock()
	var txn registry.Txn
	var err error
	if step == enter {
		txn, err = now.entry(o.m.keys, o.in.session.ID())
	} else {
		txn, err = now.succession(o.m.keys, o.in.id, o.in.session.ID())
	}
	if err != nil {
		return err
	}
	rev, err := registry.Apply(ctx, o.m.reg, txn)
	switch {
	case err == nil:
		o.taken = now.reason(step)
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
	o.log.Error("office not taken; trying again", "error", err)
	o.mu.Lock()
	o.refuses = 20
	o.mu.Unlock()
	return nil
}

// entered records what this incarnation has written ahead of its event.
func (o *officeLoop) entered(txn registry.Txn, rev registry.Rev) {
	for _, op := range txn.Then {
		o.feed.put(op.Key.Name(), rev, registry.Entry{
			Key: op.Key, Value: op.Value, Created: rev, Modified: rev, Owner: op.Session, Txn: txn.ID,
		})
	}
}

// service is the leading of one term.
type service struct {
	end      context.CancelCauseFunc
	done     chan struct{} // closed when it has ended
	progress progress
	reported bool // that it is stuck
}

// serve begins to lead.
func (o *officeLoop) serve(ctx context.Context, wg *sync.WaitGroup) *service {
	o.mu.Lock()
	term := o.office.leaderRev
	o.handed = ""
	o.mu.Unlock()
	why := cmp.Or(o.taken, "the term goes on")
	o.taken = ""
	s := &service{done: make(chan struct{})}
	ctx, s.end = context.WithCancelCause(ctx)
	s.progress.begin()
	wg.Go(func() {
		defer close(s.done)
		o.log.Info("leading", "term", term.Seq, "why", why)
		began := time.Now()
		err := lead(ctx, o, term, &s.progress)
		o.log.Info("no longer leading", "term", term.Seq, "why", o.whyOver(ctx, err), "after", time.Since(began).Round(time.Millisecond))
		if err == nil || ctx.Err() != nil {
			return
		}
		s.progress.begin() // the term may be over already; if it is not, nobody leads
		s.progress.fail(err)
	})
	return s
}

// stop ends the leading of a term, if there is one.
func (s *service) stop() {
	if s != nil {
		s.end(errTermOver)
		<-s.done
	}
}

func (s *service) over() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// announce writes who should act when the office falls vacant, and whose clock is off, if
// that is not what is written already or is to be written anew. It leaves the leader record,
// and hence the term, alone.
func (o *officeLoop) announce(ctx context.Context, names []string, clocks clockNotice, anew bool) error {
	o.mu.Lock()
	now, incomplete := o.office, o.incomplete
	o.mu.Unlock()
	if now.present != o.in.session.ID() ||
		!anew && slices.Equal(now.successors, names) && now.clocks.names(clocks.off) && slices.Equal(now.incomplete, incomplete) {
		return nil
	}
	value, err := record.Encode(record.Present{Successors: names, Clock: clocks.at, Off: clocks.off, Incomplete: incomplete})
	if err != nil {
		return err
	}
	txn := registry.Txn{Then: []registry.Op{registry.Set(o.m.keys.Present(), now.presentRev, value)}}
	rev, err := registry.Apply(ctx, o.m.reg, txn)
	if err != nil {
		return fmt.Errorf("name successors: %w", err)
	}
	o.mu.Lock()
	if o.office.presentRev == now.presentRev { // run may take a while to read the feed
		o.office.presentRev, o.office.successors, o.office.clocks, o.office.incomplete = rev, names, clocks, incomplete
	}
	o.mu.Unlock()
	o.feed.put(o.m.keys.Present().Name(), rev, registry.Entry{
		Key: o.m.keys.Present(), Value: value, Modified: rev, Owner: o.in.session.ID(),
	})
	return nil
}

// resign hands the office to a successor, if this incarnation is in office and one lives.
func (o *officeLoop) resign(ctx context.Context) bool {
	o.mu.Lock()
	successors := o.office.successors
	o.mu.Unlock()
	return o.handOver(ctx, successors)
}

// handOver resigns in favour of the first of heirs that lives.
func (o *officeLoop) handOver(ctx context.Context, heirs []string) bool {
	o.mu.Lock()
	now := o.office
	o.mu.Unlock()
	if now.present != o.in.session.ID() {
		return false
	}
	for _, to := range heirs {
		txn, err := now.resignation(o.m.keys, to)
		if err != nil {
			return false
		}
		o.hands(instanceOf(to)) // before the term is seen to be over
		rev, err := registry.Apply(ctx, o.m.reg, txn)
		if err != nil {
			o.hands("")
			o.log.Debug("office not handed over", "to", to, "error", err)
			continue
		}
		leader := txn.Then[0]
		o.feed.put(leader.Key.Name(), rev, registry.Entry{Key: leader.Key, Value: leader.Value, Modified: rev})
		o.log.Debug("resigned", "to", to)
		return true
	}
	return false
}

// hands takes note of whom the office is being handed to.
func (o *officeLoop) hands(to string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.handed = to
}

// whyOver returns why this incarnation leads no more, for the log.
func (o *officeLoop) whyOver(ctx context.Context, err error) string {
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
