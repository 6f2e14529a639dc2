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
type emitStep func(label string, next *world, violation error)

// next tells emit of all that can happen in s.
func (x *explorer) emitSteps(s *world, emit emitStep) {
	for i := range s.procs {
		x.emitProcessSteps(s, i, emit)
	}
	for i := range s.abandoned {
		n := s.clone()
		n.abandoned = slices.Delete(slices.Clone(s.abandoned), i, i+1)
		_, _, violation := x.commit(n, s.abandoned[i])
		emit(fmt.Sprintf("an abandoned request arrives: %s", txnText(s.abandoned[i].txn)), n, violation)
	}
	for i, id := range s.expiring {
		n := s.clone()
		n.expiring = slices.Delete(slices.Clone(s.expiring), i, i+1)
		n.store.expireSession(id)
		emit(fmt.Sprintf("session %s expires", id), n, nil)
	}
	if s.now < len(instants)-1 {
		n := s.clone()
		n.now++
		emit("time passes", n, nil)
	}
	if s.left.staleReads > 0 {
		n := s.clone()
		n.left.staleReads--
		past := s.store
		n.staleStore = &past
		emit("a member of the store falls behind", n, nil)
	}
	if leader, ok := s.store.get(x.keys.Leader()); ok && s.left.recordEdits > 0 {
		n := s.clone()
		n.left.recordEdits--
		x.must(n.store.apply(registry.Txn{Then: []registry.Op{registry.Delete(leader.key, registry.Rev{Seq: leader.modified})}}, x.removed))
		emit("another writer deletes the leader record", n, nil)
	}
}

func txnText(t registry.Txn) string { return fmt.Sprint(t.If, t.Then) }

func (x *explorer) must(rev registry.Rev, err error) registry.Rev {
	if err != nil {
		panic(err)
	}
	return rev
}

// procNext tells emit of all that can happen to a process.
func (x *explorer) emitProcessSteps(s *world, i int, emit emitStep) {
	p := &s.procs[i]
	step := func(label string, f func(n *world, p *process) error) {
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
			step(kindNames[k]+" arrives", func(n *world, p *process) error { return x.deliverRequest(n, p, k) })
		} else if p.isRunning() {
			step(kindNames[k]+" is answered", func(n *world, p *process) error { return x.deliverReply(n, p, k) })
		}
		if s.left.lostReplies > 0 && !f.replyLost {
			step("loses the reply to "+kindNames[k], func(n *world, p *process) error {
				n.left.lostReplies--
				x.loseReply(n, p, k)
				return nil
			})
		}
	}
	for shard := range p.running.Union(p.blocked).All() {
		step(fmt.Sprintf("handler of shard %d returns", shard), func(_ *world, p *process) error {
			x.endHandler(p, shard, nil)
			return nil
		})
		if x.handsBack && p.draining && p.running.Has(shard) {
			step(fmt.Sprintf("handler of shard %d hands its run back", shard), func(_ *world, p *process) error {
				x.endHandler(p, shard, member.ErrHandedBack)
				return nil
			})
		}
	}
	switch p.phase {
	case phaseOffline:
		if i > 0 && p.isUnused() && s.procs[i-1].isUnused() {
			return // one is like the other
		}
		step("opens a session", func(n *world, _ *process) error {
			x.openSession(n, i)
			return nil
		})
		return
	case phaseStopped:
		return
	}
	x.emitJoin(s, p, step)
	if !s.store.alive(p.session) {
		step("detects that its session is lost", func(n *world, p *process) error {
			x.endIncarnation(n, p)
			return nil
		})
	} else if s.left.expiries > 0 && p.phase == phaseMember {
		step("'s session expires", func(n *world, p *process) error {
			n.left.expiries--
			n.store.expireSession(p.session)
			return nil
		})
	}
	if s.left.crashes > 0 && p.phase == phaseMember {
		step("crashes", func(n *world, p *process) error {
			n.left.crashes--
			x.stopProcess(n, p)
			return nil
		})
	}
	if p.phase != phaseMember {
		return
	}
	x.emitObservations(s, p, step)
	x.emitActions(s, p, step)
	x.emitRequests(s, p, step)
}

// hears tells of what a process may be told of what it follows. A new leader is told of
// the directories one by one, those that hardly change at once.
func (x *explorer) emitObservations(s *world, p *process, step emitProcessStep) {
	for feed := range p.feeds {
		if feed > feedElection && !p.leading {
			continue
		}
		now := s.store.list(x.dir(feed))
		if s.staleStore != nil && !p.synced[feed] && feed == feedInstances {
			step("observes stale instances", func(n *world, p *process) error {
				x.deliverFeed(n, p, feed, s.staleStore.list(x.dir(feed)))
				return nil
			})
		}
		switch {
		case p.synced[feed] && slices.Equal(p.feeds[feed], now), !p.synced[feed] && feed > feedMembers:
		case !p.synced[feed] && feed == feedMembers:
			step("observes members and jobs for the first time", func(n *world, p *process) error {
				for feed := feedMembers; feed < feedCount; feed++ {
					x.deliverFeed(n, p, feed, s.store.list(x.dir(feed)))
				}
				return nil
			})
		default:
			step("observes "+string(x.dir(feed).Name()), func(n *world, p *process) error {
				x.deliverFeed(n, p, feed, now)
				return nil
			})
		}
	}
}

// isAsked tells of what users and operators may ask of a process.
func (x *explorer) emitRequests(s *world, p *process, step emitProcessStep) {
	if s.left.revisions > 0 && p.brings == 0 {
		step("brings another definition", func(n *world, p *process) error {
			n.left.revisions--
			n.highestRevision++
			p.brings = n.highestRevision
			return nil
		})
	}
	if s.left.drains > 0 && !p.draining {
		step("drains", func(n *world, p *process) error {
			n.left.drains--
			p.draining = true
			return nil
		})
	}
	if s.left.triggers > 0 && p.flights[kindTrigger] == nil {
		if t := x.buildTrigger(s, p); t != nil {
			step("requests a trigger", func(n *world, p *process) error {
				n.left.triggers--
				p.send(kindTrigger, *t)
				return nil
			})
		}
	}
	if s.left.resets > 0 && p.flights[kindReset] == nil {
		if t := x.buildReset(s, p); t != nil {
			step("requests a reset", func(n *world, p *process) error {
				n.left.resets--
				p.send(kindReset, *t)
				return nil
			})
		}
	}
}

// enters tells of how a process brings its definition and, if it is new, itself.
func (x *explorer) emitJoin(s *world, p *process, step emitProcessStep) {
	switch {
	case p.flights[kindDefine] != nil || p.flights[kindJoin] != nil:
	case p.brings > 0:
		t := x.buildDefinition(s, p)
		if t == nil {
			step("finds its definition stored", func(_ *world, p *process) error {
				p.brings = 0
				return nil
			})
			return
		}
		step("stores its definition", func(_ *world, p *process) error {
			p.send(kindDefine, *t)
			return nil
		})
	case p.phase == phaseJoining:
		step("requests to join", func(_ *world, p *process) error {
			x.sendJoin(p)
			return nil
		})
	}
}

// stepper is told of a step of a process: how it changes the state, in which the process is
// p by then.
type emitProcessStep func(label string, change func(n *world, p *process) error)

// acts tells of what a process does by itself.
func (x *explorer) emitActions(s *world, p *process, step emitProcessStep) {
	if p.flights[kindClaim] == nil && p.synced[feedPlans] {
		if acct, ld := x.buildClaim(s, p); ld != nil {
			step("claims", func(_ *world, p *process) error {
				p.jobState = acct
				p.send(kindClaim, ld.Txn).load = ld
				return nil
			})
		}
	}
	if p.flights[kindElect] == nil && p.synced[feedElection] {
		if t, ok := x.buildElection(p); ok {
			step("requests the seat", func(_ *world, p *process) error {
				p.send(kindElect, t)
				return nil
			})
		}
	}
	if p.flights[kindPlan] == nil && p.leading && !slices.Contains(p.synced[:], false) {
		for _, tidy := range []bool{false, true} {
			t, pending := x.buildPlan(s, p, tidy)
			if t == nil && slices.Equal(pending, p.following) {
				continue
			}
			step("plans", func(_ *world, p *process) error {
				p.following = pending
				if t != nil {
					p.send(kindPlan, *t).term = p.term
				}
				return nil
			})
			break // a tidy round does more than another only where that does nothing
		}
	}
	if p.flights[kindPublish] == nil && p.flights[kindClaim] == nil && p.flights[kindResign] == nil {
		if t := x.buildResignation(s, p); t != nil {
			step("resigns", func(_ *world, p *process) error {
				p.send(kindResign, *t)
				return nil
			})
		} else if t := x.buildPublication(s, p); t != nil {
			step("publishes its member record", func(_ *world, p *process) error {
				p.send(kindPublish, *t)
				return nil
			})
		}
	}
	if p.published.draining && p.running.IsZero() && p.flights[kindClaim] == nil && (p.jobState == nil || p.jobState.IsEmpty(p.inc, false)) {
		step("leaves", func(n *world, p *process) error {
			n.store.expireSession(p.session)
			x.stopProcess(n, p)
			return nil
		})
	}
}
