package explore

import (
	"context"
	"slices"

	"github.com/rota-dev/rota/internal/group/batch"
	"github.com/rota-dev/rota/internal/group/claimer"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// The fate of requests and replies, and the reactions of their senders.

// deliverRequest makes a request reach the store.
func (x *explorer) deliverRequest(n *world, p *process, kind int) error {
	f := *p.flights[kind]
	p.flights[kind] = &f
	f.arrived = true
	var violation error
	if !f.replyLost {
		f.rev, f.err, violation = x.commit(n, f.request)
		return violation
	}
	r := &lostReplyRegistry{recordingRegistry: recordingRegistry{store: &n.store}}
	r.apply = func(t registry.Txn) (registry.Rev, error) {
		var rev registry.Rev
		var err error
		rev, err, violation = x.commit(n, request{t, f.by, f.term})
		return rev, err
	}
	f.rev, f.err = registry.Apply(context.Background(), r, f.txn)
	return violation
}

// loseReply drops the reply to a request. The sender repeats the request, while the first may still arrive.
func (x *explorer) loseReply(n *world, p *process, kind int) {
	f := *p.flights[kind]
	p.flights[kind] = &f
	n.abandonRequest(&f)
	f.replyLost, f.arrived, f.rev, f.err = true, false, registry.Rev{}, nil
}

// deliverReply passes the outcome of a request to its sender.
func (x *explorer) deliverReply(n *world, p *process, kind int) error {
	f := p.flights[kind]
	p.flights[kind] = nil
	refusal, refused := batch.FindConflict(f.err)
	switch kind {
	case kindClaim:
		return x.settleClaims(n, p, f)
	case kindJoin:
		switch {
		case f.err == nil:
			p.phase, p.published.rev = phaseMember, f.rev
		case refused && refusal.Index == 0: // the predecessor's session still has the name
			p.send(kind, f.txn).replyLost = f.replyLost
		default:
			x.endIncarnation(n, p)
		}
	case kindPublish:
		if f.err != nil {
			x.endIncarnation(n, p)
			return nil
		}
		m, err := record.Decode[record.Member](f.txn.Then[0].Value)
		if err != nil {
			panic(err)
		}
		p.published = published{rev: f.rev, draining: m.Draining, blocked: m.Blocked[jobName]}
	case kindPlan:
		x.settlePlan(n, p, f)
	case kindResign:
		x.settleResignation(n, p, f)
	case kindDefine:
		if f.err == nil {
			p.brings = 0
		}
	case kindTrigger:
		if f.err != nil {
			if t := x.buildTrigger(n, p); t != nil {
				p.send(kind, *t)
			}
		}
	case kindCreate, kindDelete:
		x.settleDefinition(n, p, kind, f)
	case kindReset:
		if f.err != nil {
			p.send(kind, *x.buildReset(n, p))
		}
	}
	return nil
}

// settleClaims makes a claimer act on the outcome of its claims.
func (x *explorer) settleClaims(n *world, p *process, f *inFlight) error {
	l, a := x.claimerOf(n, p)
	ld := *f.load
	ld.Parts = nil
	for _, e := range f.load.Parts {
		part := *e
		part.Job = a
		ld.Parts = append(ld.Parts, &part)
	}
	l.WritesInFlight = 1
	x.work.started = nil
	if err := l.ApplyResult(context.Background(), claimer.WriteResult{Load: ld, Rev: f.rev, Err: f.err}); err != nil {
		x.endIncarnation(n, p)
		return nil
	}
	if err := x.judgeStarts(n, p); err != nil {
		return err
	}
	p.jobState = l.CopyJobState(x.segment())
	return nil
}

// settlePlan makes a leader act on the outcome of its transaction.
func (x *explorer) settlePlan(n *world, p *process, f *inFlight) {
	if f.err != nil {
		if refusal, refused := batch.FindConflict(f.err); refused && refusal.Index == 0 && len(f.txn.If) > 0 && p.leading {
			p.endedTerm = p.term
			x.updateTerm(n, p)
		}
		return
	}
	for _, op := range f.txn.Then { // a leader applies its own writes at once
		if op.Key == x.planKey() && op.Kind != registry.OpDelete {
			p.feeds[feedPlans] = []storedEntry{{key: op.Key, value: string(op.Value), modified: f.rev.Seq, txn: f.txn.ID}}
			x.applyPlans(p)
		}
		if op.Key == x.keys.Seat() && p.election.Seat == p.session {
			p.election.SeatRev = f.rev
		}
	}
}

// settleResignation makes a process act on the outcome of its resignation.
func (x *explorer) settleResignation(n *world, p *process, f *inFlight) {
	p.resigned = true
	if f.err != nil || f.rev.Seq < p.election.LeaderRev.Seq {
		return
	}
	leader, err := record.Decode[record.Leader](f.txn.Then[0].Value)
	if err != nil {
		panic(err)
	}
	p.election.Leader, p.election.LeaderRev = leader, f.rev
	x.updateTerm(n, p)
}

// endIncarnation ends the incarnation of a process, which can come back.
func (x *explorer) endIncarnation(n *world, p *process) {
	if n.store.alive(p.session) {
		n.expiring = append(slices.Clip(n.expiring), p.session)
	}
	blocked := p.blocked
	if x.lingers {
		blocked = blocked.Union(p.running)
	}
	x.abandonRequests(n, p)
	*p = process{name: p.name, blocked: blocked, draining: p.draining}
	if p.draining {
		p.phase = phaseStopped
	}
}

// stopProcess stops a process for good. Its session expires later.
func (x *explorer) stopProcess(n *world, p *process) {
	if n.store.alive(p.session) {
		n.expiring = append(slices.Clip(n.expiring), p.session)
	}
	x.abandonRequests(n, p)
	*p = process{name: p.name, phase: phaseStopped, session: p.session}
}

// abandonRequests abandons all requests of a process.
func (x *explorer) abandonRequests(n *world, p *process) {
	for _, f := range p.flights {
		if f != nil {
			n.abandonRequest(f)
		}
	}
}

// abandonRequest forgets the sender of a request. The request may still arrive.
func (s *world) abandonRequest(f *inFlight) {
	if !f.arrived {
		s.abandoned = append(slices.Clip(s.abandoned), f.request)
	}
}
