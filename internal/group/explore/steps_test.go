package explore

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/group/claimer"
	"github.com/rota-dev/rota/registry"
)

// The steps that are possible in a world. The library's functions make the decisions; the steps add
// stale views, requests and replies in flight, the end of sessions and processes, and time.

// emitStep is called with each step: its label, the world that it leads to, and the promise that it breaks.
type emitStep func(label string, next *world, violation error)

// emitSteps emits all steps that are possible in s.
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

// emitProcessSteps emits the steps of a process.
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
		step(fmt.Sprintf("handler of shard %d returns", shard), func(n *world, p *process) error {
			x.endHandler(n, p, shard, nil)
			return nil
		})
		if x.handsBack && p.draining && p.running.Has(shard) {
			step(fmt.Sprintf("handler of shard %d hands its run back", shard), func(n *world, p *process) error {
				x.endHandler(n, p, shard, claimer.ErrHandedBack)
				return nil
			})
		}
		if s.left.failures > 0 && p.running.Has(shard) {
			step(fmt.Sprintf("handler of shard %d fails, to be retried", shard), func(n *world, p *process) error {
				n.left.failures--
				x.endHandler(n, p, shard, &claimer.RetryError{In: time.Duration(n.left.failures%2) * retryDelay, Err: errors.New("failed")})
				return nil
			})
		}
	}
	switch p.phase {
	case phaseOffline:
		if i > 0 && p.isUnused() && s.procs[i-1].isUnused() {
			return // unused processes are alike, so one order of them is enough
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

// emitObservations emits the observation of each directory that a process watches. A new leader reads
// instances first and then all others in one step, which keeps the number of worlds small.
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
			what := x.dir(feed).Name()
			if feed == feedDefined {
				what = "defined jobs"
			}
			step("observes "+what, func(n *world, p *process) error {
				x.deliverFeed(n, p, feed, now)
				return nil
			})
		}
	}
}

// emitRequests emits the actions of users and operators at a process.
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
	x.emitDefinitions(s, p, step)
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

// emitJoin emits the steps by which a process stores its definition and joins.
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

// emitProcessStep emits a step of a process. change modifies a copy of the world, in which p is the process.
type emitProcessStep func(label string, change func(n *world, p *process) error)

// emitActions emits the steps that a process decides on by itself.
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
		for _, regularCheck := range []bool{false, true} {
			t, pending := x.buildPlan(s, p, regularCheck)
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
			break // a regular check does more only if the ordinary round has nothing to do
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
