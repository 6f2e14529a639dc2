package explore

import (
	"fmt"
	"slices"

	"github.com/rota-dev/rota/coordinator/internal/member"
	"github.com/rota-dev/rota/registry"
)

// What can happen in a state. All decisions are made by the functions that the library
// itself runs; what stands here is what lies between them: views that are behind, requests
// and replies on their way, the end of sessions and of processes, and time.

// emit is told of a step and the state that it leads to.
type emit func(label string, next *exState, violation error)

// next tells emit of all that can happen in s.
func (x *explorer) next(s *exState, emit emit) {
	for i := range s.procs {
		x.procNext(s, i, emit)
	}
	for i := range s.ghosts {
		n := s.clone()
		n.ghosts = slices.Delete(slices.Clone(s.ghosts), i, i+1)
		_, _, violation := x.commit(n, s.ghosts[i])
		emit(fmt.Sprintf("a request that was given up arrives: %s", exText(s.ghosts[i].txn)), n, violation)
	}
	for i, id := range s.doomed {
		n := s.clone()
		n.doomed = slices.Delete(slices.Clone(s.doomed), i, i+1)
		n.store.end(id)
		emit(fmt.Sprintf("session %s ends", id), n, nil)
	}
	if s.now < len(exInstants)-1 {
		n := s.clone()
		n.now++
		emit("time passes", n, nil)
	}
	if s.left.lags > 0 {
		n := s.clone()
		n.left.lags--
		past := s.store
		n.past = &past
		emit("a member of the store stays behind", n, nil)
	}
	if leader, ok := s.store.get(x.keys.Leader()); ok && s.left.hands > 0 {
		n := s.clone()
		n.left.hands--
		x.must(n.store.apply(registry.Txn{Then: []registry.Op{registry.Delete(leader.key, registry.Rev{Seq: leader.modified})}}, x.waived))
		emit("another hand takes the leader record away", n, nil)
	}
}

func exText(t registry.Txn) string { return fmt.Sprint(t.If, t.Then) }

func (x *explorer) must(rev registry.Rev, err error) registry.Rev {
	if err != nil {
		panic(err)
	}
	return rev
}

// procNext tells emit of all that can happen to a process.
func (x *explorer) procNext(s *exState, i int, emit emit) {
	p := &s.procs[i]
	step := func(label string, f func(n *exState, p *exProc) error) {
		n := s.clone()
		violation := f(n, &n.procs[i])
		emit(p.name+" "+label, n, violation)
	}
	for k := range p.flights {
		f := p.flights[k]
		if f == nil {
			continue
		}
		if !f.arrived {
			step(exKindNames[k]+" arrives", func(n *exState, p *exProc) error { return x.arrive(n, p, k) })
		} else if p.lives() {
			step(exKindNames[k]+" is answered", func(n *exState, p *exProc) error { return x.answer(n, p, k) })
		}
		if s.left.losses > 0 && !f.doubt {
			step("loses the answer to "+exKindNames[k], func(n *exState, p *exProc) error {
				n.left.losses--
				x.lose(n, p, k)
				return nil
			})
		}
	}
	for shard := range p.inside.Union(p.barred).All() {
		step(fmt.Sprintf("function of shard %d returns", shard), func(_ *exState, p *exProc) error {
			x.returns(p, shard, nil)
			return nil
		})
		if x.hands && p.closed && p.inside.Has(shard) {
			step(fmt.Sprintf("function of shard %d hands its run back", shard), func(_ *exState, p *exProc) error {
				x.returns(p, shard, member.ErrHandedBack)
				return nil
			})
		}
	}
	switch p.phase {
	case exAway:
		if i > 0 && p.pristine() && s.procs[i-1].pristine() {
			return // one is like the other
		}
		step("joins", func(n *exState, _ *exProc) error {
			x.join(n, i)
			return nil
		})
		return
	case exGone:
		return
	}
	x.enters(s, p, step)
	if !s.store.alive(p.session) {
		step("learns that its session is lost", func(n *exState, p *exProc) error {
			x.giveUp(n, p)
			return nil
		})
	} else if s.left.expiries > 0 && p.phase == exUp {
		step("'s session expires", func(n *exState, p *exProc) error {
			n.left.expiries--
			n.store.end(p.session)
			return nil
		})
	}
	if s.left.crashes > 0 && p.phase == exUp {
		step("crashes", func(n *exState, p *exProc) error {
			n.left.crashes--
			x.crash(n, p)
			return nil
		})
	}
	if p.phase != exUp {
		return
	}
	x.hears(s, p, step)
	x.acts(s, p, step)
	x.isAsked(s, p, step)
}

// hears tells of what a process may be told of what it follows. A new leader is told of
// the directories one by one, those that hardly change at once.
func (x *explorer) hears(s *exState, p *exProc, step stepper) {
	for feed := range p.feeds {
		if feed > exOffice && !p.leading {
			continue
		}
		now := s.store.list(x.dir(feed))
		if s.past != nil && !p.synced[feed] && feed == exInstances {
			step("hears of instances as they were", func(n *exState, p *exProc) error {
				x.deliver(n, p, feed, s.past.list(x.dir(feed)))
				return nil
			})
		}
		switch {
		case p.synced[feed] && slices.Equal(p.feeds[feed], now), !p.synced[feed] && feed > exMembers:
		case !p.synced[feed] && feed == exMembers:
			step("hears of members and jobs for the first time", func(n *exState, p *exProc) error {
				for feed := exMembers; feed < exFeeds; feed++ {
					x.deliver(n, p, feed, s.store.list(x.dir(feed)))
				}
				return nil
			})
		default:
			step("hears of "+string(x.dir(feed).Name()), func(n *exState, p *exProc) error {
				x.deliver(n, p, feed, now)
				return nil
			})
		}
	}
}

// isAsked tells of what users and operators may ask of a process.
func (x *explorer) isAsked(s *exState, p *exProc, step stepper) {
	if s.left.totals > 0 && p.offers == 0 {
		step("brings another total", func(n *exState, p *exProc) error {
			n.left.totals--
			n.offered++
			p.offers = n.offered
			return nil
		})
	}
	if s.left.drains > 0 && !p.closed {
		step("drains", func(n *exState, p *exProc) error {
			n.left.drains--
			p.closed = true
			return nil
		})
	}
	if s.left.triggers > 0 && p.flights[exAsking] == nil {
		if t := x.ask(s, p); t != nil {
			step("is asked for a trigger", func(n *exState, p *exProc) error {
				n.left.triggers--
				p.send(exAsking, *t)
				return nil
			})
		}
	}
	if s.left.resets > 0 && p.flights[exResetting] == nil {
		if t := x.askReset(s, p); t != nil {
			step("is asked for a reset", func(n *exState, p *exProc) error {
				n.left.resets--
				p.send(exResetting, *t)
				return nil
			})
		}
	}
}

// enters tells of how a process brings its definition and, if it is new, itself.
func (x *explorer) enters(s *exState, p *exProc, step stepper) {
	switch {
	case p.flights[exOffering] != nil || p.flights[exEntering] != nil:
	case p.offers > 0:
		t := x.offer(s, p)
		if t == nil {
			step("finds its definition stored", func(_ *exState, p *exProc) error {
				p.offers = 0
				return nil
			})
			return
		}
		step("stores its definition", func(_ *exState, p *exProc) error {
			p.send(exOffering, *t)
			return nil
		})
	case p.phase == exJoining:
		step("asks to enter", func(_ *exState, p *exProc) error {
			x.enter(p)
			return nil
		})
	}
}

// stepper is told of a step of a process: how it changes the state, in which the process is
// p by then.
type stepper func(label string, change func(n *exState, p *exProc) error)

// acts tells of what a process does by itself.
func (x *explorer) acts(s *exState, p *exProc, step stepper) {
	if p.flights[exClaiming] == nil && p.synced[exPlans] {
		if acct, ld := x.claim(s, p); ld != nil {
			step("claims", func(_ *exState, p *exProc) error {
				p.acct = acct
				p.send(exClaiming, ld.Txn).load = ld
				return nil
			})
		}
	}
	if p.flights[exElecting] == nil && p.synced[exOffice] {
		if t, ok := x.elect(p); ok {
			step("runs for office", func(_ *exState, p *exProc) error {
				p.send(exElecting, t)
				return nil
			})
		}
	}
	if p.flights[exLeading] == nil && p.leading && !slices.Contains(p.synced[:], false) {
		for _, tidy := range []bool{false, true} {
			t, pending := x.round(s, p, tidy)
			if t == nil && slices.Equal(pending, p.pending) {
				continue
			}
			step("plans", func(_ *exState, p *exProc) error {
				p.pending = pending
				if t != nil {
					p.send(exLeading, *t).term = p.term
				}
				return nil
			})
			break // a tidy round does more than another only where that does nothing
		}
	}
	if p.flights[exTelling] == nil && p.flights[exClaiming] == nil && p.flights[exResigning] == nil {
		if t := x.resign(s, p); t != nil {
			step("resigns", func(_ *exState, p *exProc) error {
				p.send(exResigning, *t)
				return nil
			})
		} else if t := x.tell(s, p); t != nil {
			step("tells what it is", func(_ *exState, p *exProc) error {
				p.send(exTelling, *t)
				return nil
			})
		}
	}
	if p.told.draining && p.inside.IsZero() && p.flights[exClaiming] == nil && (p.acct == nil || p.acct.IsEmpty(p.inc, false)) {
		step("leaves", func(n *exState, p *exProc) error {
			n.store.end(p.session)
			x.crash(n, p)
			return nil
		})
	}
}
