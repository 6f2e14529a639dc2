package explore

import (
	"context"
	"slices"

	"github.com/rota-dev/rota/coordinator/internal/batch"
	"github.com/rota-dev/rota/coordinator/internal/member"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// What becomes of requests, of replies, and of those who wait for them.

// arrive has a request reach the store.
func (x *explorer) arrive(n *exState, p *exProc, kind int) error {
	f := *p.flights[kind]
	p.flights[kind] = &f
	f.arrived = true
	var violation error
	if !f.doubt {
		f.rev, f.err, violation = x.commit(n, f.exRequest)
		return violation
	}
	r := &exRetry{exDesk: exDesk{store: &n.store}}
	r.apply = func(t registry.Txn) (registry.Rev, error) {
		var rev registry.Rev
		var err error
		rev, err, violation = x.commit(n, exRequest{t, f.by, f.term})
		return rev, err
	}
	f.rev, f.err = registry.Apply(context.Background(), r, f.txn)
	return violation
}

// lose has the sender of a request never hear of its outcome. It will ask again, while the
// request may still arrive.
func (x *explorer) lose(n *exState, p *exProc, kind int) {
	f := *p.flights[kind]
	p.flights[kind] = &f
	n.abandon(&f)
	f.doubt, f.arrived, f.rev, f.err = true, false, registry.Rev{}, nil
}

// answer has a process hear of the outcome of its request.
func (x *explorer) answer(n *exState, p *exProc, kind int) error {
	f := p.flights[kind]
	p.flights[kind] = nil
	refusal, refused := batch.FindConflict(f.err)
	switch kind {
	case exClaiming:
		return x.settle(n, p, f)
	case exEntering:
		switch {
		case f.err == nil:
			p.phase, p.told.rev = exUp, f.rev
		case refused && refusal.Index == 0: // the name is taken: by its predecessor
			p.send(kind, f.txn).doubt = f.doubt
		default:
			x.giveUp(n, p)
		}
	case exTelling:
		if f.err != nil {
			x.giveUp(n, p)
			return nil
		}
		m, err := record.Decode[record.Member](f.txn.Then[0].Value)
		if err != nil {
			panic(err)
		}
		p.told = exTold{rev: f.rev, draining: m.Draining, blocked: m.Blocked[exJob]}
	case exLeading:
		x.planned(n, p, f)
	case exResigning:
		x.resigned(n, p, f)
	case exOffering:
		if f.err == nil {
			p.offers = 0
		}
	case exAsking:
		if f.err != nil {
			if t := x.ask(n, p); t != nil {
				p.send(kind, *t)
			}
		}
	case exResetting:
		if f.err != nil {
			p.send(kind, *x.askReset(n, p))
		}
	}
	return nil
}

// settle has a process act on the outcome of its claims.
func (x *explorer) settle(n *exState, p *exProc, f *exFlight) error {
	l, a := x.ledger(n, p)
	ld := *f.load
	ld.Parts = nil
	for _, e := range f.load.Parts {
		part := *e
		part.Job = a
		ld.Parts = append(ld.Parts, &part)
	}
	l.WritesInFlight = 1
	x.work.started = nil
	if err := l.ApplyResult(context.Background(), member.WriteResult{Load: ld, Rev: f.rev, Err: f.err}); err != nil {
		x.giveUp(n, p)
		return nil
	}
	if err := x.started(n, p); err != nil {
		return err
	}
	p.acct = l.CopyJobState(x.segment())
	return nil
}

// planned has a leader act on the outcome of its transaction.
func (x *explorer) planned(n *exState, p *exProc, f *exFlight) {
	if f.err != nil {
		if refusal, refused := batch.FindConflict(f.err); refused && refusal.Index == 0 && len(f.txn.If) > 0 && p.leading {
			p.over = p.term
			x.serve(n, p)
		}
		return
	}
	for _, op := range f.txn.Then { // what it has written it knows
		if op.Key == x.planKey() {
			p.feeds[exPlans] = []exEntry{{key: op.Key, value: string(op.Value), modified: f.rev.Seq, txn: f.txn.ID}}
			x.takePlans(p)
		}
		if op.Key == x.keys.Seat() && p.office.Seat == p.session {
			p.office.SeatRev = f.rev
		}
	}
}

// resigned has a process act on the outcome of its resignation.
func (x *explorer) resigned(n *exState, p *exProc, f *exFlight) {
	p.retired = true
	if f.err != nil || f.rev.Seq < p.office.LeaderRev.Seq {
		return
	}
	leader, err := record.Decode[record.Leader](f.txn.Then[0].Value)
	if err != nil {
		panic(err)
	}
	p.office.Leader, p.office.LeaderRev = leader, f.rev
	x.serve(n, p)
}

// giveUp has a process end its incarnation.
func (x *explorer) giveUp(n *exState, p *exProc) {
	if n.store.alive(p.session) {
		n.doomed = append(slices.Clip(n.doomed), p.session)
	}
	barred := p.barred
	if x.lingers {
		barred = barred.Union(p.inside)
	}
	x.forsake(n, p)
	*p = exProc{name: p.name, barred: barred, closed: p.closed}
	if p.closed {
		p.phase = exGone
	}
}

// crash has a process vanish. Its session goes later.
func (x *explorer) crash(n *exState, p *exProc) {
	if n.store.alive(p.session) {
		n.doomed = append(slices.Clip(n.doomed), p.session)
	}
	x.forsake(n, p)
	*p = exProc{name: p.name, phase: exGone, session: p.session}
}

// forsake leaves the requests of a process to themselves.
func (x *explorer) forsake(n *exState, p *exProc) {
	for _, f := range p.flights {
		if f != nil {
			n.abandon(f)
		}
	}
}

// abandon leaves a request to itself: it may still arrive.
func (s *exState) abandon(f *exFlight) {
	if !f.arrived {
		s.ghosts = append(slices.Clip(s.ghosts), f.exRequest)
	}
}
