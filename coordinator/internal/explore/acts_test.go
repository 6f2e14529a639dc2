package explore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/rota-dev/rota/coordinator"
	"github.com/rota-dev/rota/coordinator/internal/batch"
	"github.com/rota-dev/rota/coordinator/internal/coordtest"
	"github.com/rota-dev/rota/coordinator/internal/election"
	"github.com/rota-dev/rota/coordinator/internal/feed"
	"github.com/rota-dev/rota/coordinator/internal/member"
	"github.com/rota-dev/rota/coordinator/internal/planning"
	"github.com/rota-dev/rota/coordinator/internal/skew"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/registry"
)

// What processes do. All decisions are those of the functions that the library itself runs,
// which are called here with a process as it stands; what they want to commit is taken down.

// exSession is a session that its process takes to be alive.
type exSession struct {
	registry.Session
	id registry.SessionID
}

func (s exSession) ID() registry.SessionID { return s.id }

func (s exSession) State() (registry.SessionState, time.Time) {
	return registry.SessionConnected, time.Now().Add(time.Hour)
}

// ledger returns the ledger of a process as it stands.
func (x *explorer) ledger(s *exState, p *exProc) (*member.Claimer, *member.JobState) {
	l := &member.Claimer{
		Clock: time.Now, Keys: x.keys, Reg: &exDesk{store: &s.store}, Session: exSession{id: p.session}, Me: p.inc, Work: x.work, Log: x.log,
		Blocked: &member.BlockedShards{Running: map[string]shardset.Set{}, Old: map[string]shardset.Set{}, OnUnblocked: func() {}},
		Jobs:    map[string]*member.JobState{}, Dirty: map[*member.JobState]struct{}{}, Held: map[*member.JobState]struct{}{}, Frozen: map[*member.JobState]struct{}{},
		Nudge: make(chan struct{}, 1), Closed: p.closed, MayClaim: !p.closed, Flushing: true, Running: p.inside.Len(),
	}
	l.Inbox.Running, l.Inbox.Closed = p.inside.Len(), p.closed
	if all := p.inside.Union(p.barred); !all.IsZero() {
		l.Blocked.Running[exJob] = all
	}
	if !p.barred.IsZero() {
		l.Blocked.Old[exJob] = p.barred
	}
	var a *member.JobState
	if p.acct != nil {
		a = &member.JobState{}
		*a = *p.acct
		l.Jobs[a.Segment] = a
		if a.Plan != nil && !a.Plan.Frozen.IsZero() {
			l.Frozen[a] = struct{}{}
		}
	}
	return l, a
}

// claim returns the transaction that records the claims of a process, nil if there is none.
func (x *explorer) claim(s *exState, p *exProc) (*member.JobState, *batch.Load[*member.PendingWrite]) {
	l, a := x.ledger(s, p)
	if a == nil {
		return nil, nil
	}
	l.MarkDirty(a)
	entries := l.DecideWrites(s.clock().Time())
	if len(entries) == 0 {
		return nil, nil
	}
	loads := l.PackWrites(entries)
	a.Writing = true
	return l.CopyJobState(x.segment()), &loads[0]
}

// started judges what a ledger has started.
func (x *explorer) started(n *exState, p *exProc) error {
	for _, r := range x.work.started {
		if p.inside.Has(r.Shard) || p.barred.Has(r.Shard) {
			return fmt.Errorf("%s starts shard %d, whose function has not returned here", p.name, r.Shard)
		}
		for i := range n.procs {
			q := &n.procs[i]
			if q.name != p.name && q.inside.Has(r.Shard) && n.store.alive(q.session) && n.store.alive(p.session) {
				return fmt.Errorf("%s starts shard %d, whose function has not returned at %s", p.name, r.Shard, q.name)
			}
		}
		p.inside = p.inside.Union(shardset.Of(r.Shard))
	}
	return nil
}

// takePlans has the ledger of a process take in the plans that it was told of.
func (x *explorer) takePlans(p *exProc) {
	l, _ := x.ledger(&exState{}, p)
	f := feed.New(x.keys.Plans(), x.log, func(e registry.Entry) (*record.Plan, error) { return x.plan(string(e.Value)), nil })
	b := registry.Batch{Kind: registry.Snapshot}
	for i := range p.feeds[exPlans] {
		b.Puts = append(b.Puts, p.feeds[exPlans][i].entry())
	}
	f.ApplyBatch(b)
	l.Plans = f.NewReader(func() {})
	l.ApplyPlans(context.Background())
	p.acct = l.CopyJobState(x.segment())
}

// returns has a function return, with an error that is nil or hands the run back.
func (x *explorer) returns(p *exProc, shard int, err error) {
	if p.barred.Has(shard) {
		p.barred = p.barred.Minus(shardset.Of(shard))
		return
	}
	l, a := x.ledger(&exState{}, p)
	l.TrackRun(context.Background(), a, shard, true)(err)
	l.DrainInbox()
	p.inside = p.inside.Minus(shardset.Of(shard))
	p.acct = l.CopyJobState(x.segment())
}

// elect returns what a process does about the office.
func (x *explorer) elect(p *exProc) (registry.Txn, bool) {
	var t registry.Txn
	var err error
	switch step, _ := p.office.NextStep(p.inc, p.session, 0); step {
	case election.AcceptSeat:
		t, err = p.office.AcceptanceTxn(x.keys, p.session)
	case election.TakeSeat:
		t, err = p.office.SuccessionTxn(x.keys, p.inc, p.session)
	default:
		return t, false
	}
	if err != nil {
		panic(err)
	}
	t.ID = registry.NewTxnID()
	return t, true
}

// member returns the Member that a process is.
func (x *explorer) member(p *exProc, desk *exDesk) *member.Member {
	m := &member.Member{
		Reg: desk, Keys: x.keys, Name: p.name, Work: x.work, Log: x.log, Clock: time.Now, Draining: p.closed,
		Defs: map[string]json.RawMessage{exJob: fmtDef(1, 1, "")},
	}
	m.Blocked.Old = map[string]shardset.Set{}
	if !p.barred.IsZero() {
		m.Blocked.Old[exJob] = p.barred
	}
	return m
}

// operator returns the Operator that a process has.
func (x *explorer) operator(desk *exDesk) *coordinator.Operator {
	o, err := coordinator.NewOperator(desk, "x", "default")
	if err != nil {
		panic(err)
	}
	return o
}

// officeLoop returns the one of a process, which knows of the office what the process does.
func (x *explorer) officeLoop(p *exProc, desk *exDesk) *member.Elector {
	in := &member.Incarnation{ID: p.inc, Session: exSession{id: p.session}}
	o := member.NewElector(x.member(p, desk), in, nil, x.log)
	o.State = p.office
	return o
}

// round is what a leader does with what it knows: the transaction that it sends, if any,
// and whose claims it follows from then on.
func (x *explorer) round(s *exState, p *exProc, tidy bool) (*registry.Txn, []string) {
	desk := &exDesk{store: &s.store}
	o := x.officeLoop(p, desk)
	m := o.M
	l := &member.Leader{
		M: m, Me: p.inc, Elector: o, Log: x.log, Progress: &member.Progress{}, Nudge: make(chan struct{}, 1),
		BrokenPlans: map[string]bool{}, SentAlone: map[string]bool{}, WatchedClaims: map[string]func(){}, Restorer: member.NewRestorer(),
		PlanFeed: feed.New(x.keys.Plans(), x.log, func(registry.Entry) (*record.Plan, error) { return nil, nil }),
		View: planning.View{
			Keys: x.keys, Term: p.term, Compile: x.work.Compile, SlowTick: tidy,
			Live: map[registry.SessionID]bool{}, Members: map[string]planning.MemberRecord{}, Jobs: map[string]planning.JobRecord{},
			Control: map[string]planning.ControlRecord{}, Plans: map[string]planning.PlanRecord{}, Reads: map[string]planning.FreshRead{}, UnreadablePlans: map[string]bool{},
			EditedPlans: map[string]bool{},
		},
	}
	x.see(l, p)
	if tidy && !l.View.NeedsClearing() {
		return nil, p.pending
	}
	for _, inc := range p.pending {
		l.WatchedClaims[inc] = nil
	}
	d, err := l.DecideWithReads(context.Background(), s.clock())
	if err != nil {
		panic(err)
	}
	checkPure(&l.View, &d)
	for i := range d.Changes {
		d.Changes[i].Why = nil // people read it in the plan: states that are alike would differ
	}
	if _, err = l.CommitDecision(context.Background(), d); err == nil && x.named {
		err = o.PublishSeat(context.Background(), l.Successors(), skew.Notice{}, false)
	}
	if err != nil && !errors.Is(err, errTaken) {
		panic(err)
	}
	return desk.wanted, d.Follow
}

// checkPure decides again: the view stays as it is, and the decision is the same.
func checkPure(v *planning.View, d *planning.Decision) {
	before := coordtest.Snapshot(v)
	again := planning.Decide(v)
	if coordtest.Snapshot(v) != before || coordtest.Snapshot(again) != coordtest.Snapshot(d) {
		panic("a decision changes its view, or the next one")
	}
}

// see fills a leader's view with what its process was told.
func (x *explorer) see(l *member.Leader, p *exProc) {
	v := &l.View
	know := func(e *exEntry) (string, registry.Rev) {
		l.LastCommit = max(l.LastCommit, e.modified)
		return e.key.Name(), registry.Rev{Seq: e.modified}
	}
	for i := range p.feeds[exInstances] {
		v.Live[p.feeds[exInstances][i].owner] = true
	}
	for i := range p.feeds[exMembers] {
		e := &p.feeds[exMembers][i]
		name, rev := know(e)
		m, err := record.Decode[record.Member]([]byte(e.value))
		if err != nil {
			panic(err)
		}
		v.Members[name] = planning.MemberRecord{Rev: rev, Member: m}
	}
	for i := range p.feeds[exJobs] {
		e := &p.feeds[exJobs][i]
		name, rev := know(e)
		def, job, err := record.DecodeDefinition([]byte(e.value))
		if err != nil {
			panic(err)
		}
		v.Jobs[name] = planning.JobRecord{Rev: rev, Def: def, Job: job}
	}
	for i := range p.feeds[exPlans] {
		e := &p.feeds[exPlans][i]
		name, rev := know(e)
		v.Plans[name] = planning.PlanRecord{Rev: rev, Plan: x.plan(e.value)}
	}
	for i := range p.feeds[exControls] {
		e := &p.feeds[exControls][i]
		name, rev := know(e)
		c, err := record.DecodeControl([]byte(e.value))
		if err != nil {
			panic(err)
		}
		v.Control[name] = planning.ControlRecord{Rev: rev, Control: c}
	}
}

// tell returns how a process publishes what has changed about itself, if anything has.
func (x *explorer) tell(s *exState, p *exProc) *registry.Txn {
	if p.told.draining == p.closed && p.told.blocked.Equal(p.barred) {
		return nil
	}
	desk := &exDesk{store: &s.store}
	m := x.member(p, desk)
	in := &member.Incarnation{ID: p.inc, Session: exSession{id: p.session}}
	in.Claimer, _ = x.ledger(s, p) // none of its claims is on its way
	if p.closed {
		settled := in.Claimer.StopClaiming()
		in.Claimer.NotifyWaiters()
		select {
		case <-settled:
		default:
			return nil // it has an answer to give first
		}
	}
	in.Elector = &member.Elector{M: m, In: in, Log: x.log}
	next := m.ComposeState(in)
	told := member.PublishedState{Rev: p.told.rev, Member: record.Member{Draining: p.told.draining}}
	if err := m.PublishState(context.Background(), in, told, &next); !errors.Is(err, errTaken) {
		panic(err)
	}
	return desk.wanted
}

// join opens a session. A process that is told to brings its definition before it enters.
func (x *explorer) join(n *exState, i int) {
	p := &n.procs[i]
	p.phase, p.session = exJoining, n.store.open()
	p.inc = record.Incarnation(p.name, p.session)
	if x.brings > 0 {
		p.offers = 1 + i%x.brings
		n.offered = max(n.offered, p.offers)
	}
}

// enter asks for entrance to the fleet.
func (x *explorer) enter(p *exProc) {
	m := x.member(p, nil)
	in := &member.Incarnation{ID: p.inc, Session: exSession{id: p.session}}
	now := m.ComposeState(in)
	t, err := m.BuildJoinTxn(in, now.Member)
	if err != nil {
		panic(err)
	}
	p.told = exTold{blocked: now.Member.Blocked[exJob], draining: now.Member.Draining}
	p.send(exEntering, t)
}

// offer returns how a process stores the definition that it brings, if that is called for.
func (x *explorer) offer(s *exState, p *exProc) *registry.Txn {
	desk := &exDesk{store: &s.store}
	m := x.member(p, desk)
	_, err := m.TryStoreDefinitions(context.Background(), map[string]json.RawMessage{exJob: x.definition(p.offers)}, member.Fresh, map[registry.Key]bool{})
	if err != nil && !errors.Is(err, errTaken) {
		panic(err)
	}
	return desk.wanted
}

// definition returns that of a revision: each adds a shard.
func (x *explorer) definition(revision int) json.RawMessage {
	more := ""
	if len(x.levels) > 0 {
		more = fmt.Sprintf(`,"tracking":%q`, x.levels[(revision-1)%len(x.levels)])
	}
	return fmtDef(revision, x.shards+revision-1, more)
}

// ask returns how a process writes down a trigger, if the job is there.
func (x *explorer) ask(s *exState, p *exProc) *registry.Txn {
	desk := &exDesk{store: &s.store}
	_, err := x.operator(desk).Trigger(context.Background(), exJob, "", nil)
	if errors.Is(err, coordinator.ErrUnknownJob) {
		return nil
	}
	if !errors.Is(err, errTaken) {
		panic(err)
	}
	c, err := record.DecodeControl(desk.wanted.Then[0].Value)
	if err != nil {
		panic(err)
	}
	c.Triggers[len(c.Triggers)-1].At = s.clock() // the wall clock is none of this world's
	if desk.wanted.Then[0].Value, err = record.Encode(c); err != nil {
		panic(err)
	}
	return desk.wanted
}

// askReset returns how a process writes down a reset, if the job is there.
func (x *explorer) askReset(s *exState, p *exProc) *registry.Txn {
	desk := &exDesk{store: &s.store}
	err := x.operator(desk).Reset(context.Background(), exJob)
	if errors.Is(err, coordinator.ErrUnknownJob) {
		return nil
	}
	if !errors.Is(err, errTaken) {
		panic(err)
	}
	return desk.wanted
}

// resign returns how a process that drains hands over the office, if it has it.
func (x *explorer) resign(s *exState, p *exProc) *registry.Txn {
	if !p.closed || p.retired || p.told.draining {
		return nil
	}
	desk := &exDesk{store: &s.store}
	o := x.officeLoop(p, desk)
	o.Resign(context.Background())
	return desk.wanted
}

// deliver tells a process what a directory holds.
func (x *explorer) deliver(n *exState, p *exProc, feed int, now []exEntry) {
	if feed == exOffice {
		x.deliverOffice(n, p, now)
	}
	p.feeds[feed], p.synced[feed] = now, true
	if feed == exPlans {
		x.takePlans(p)
	}
}

// deliverOffice has the process take in what has become of the office.
func (x *explorer) deliverOffice(n *exState, p *exProc, now []exEntry) {
	o := x.officeLoop(p, nil)
	r := o.Feed.NewReader(func() {})
	for i, entries := range [][]exEntry{p.feeds[exOffice], now} {
		b := registry.Batch{Kind: registry.Snapshot}
		for k := range entries {
			b.Puts = append(b.Puts, entries[k].entry())
			b.Rev.Seq = max(b.Rev.Seq, entries[k].modified)
		}
		b.Rev.Seq += uint64(i) << 40 // what is gone from the second went after all of the first
		o.Feed.ApplyBatch(b)
		o.ReadFeed(r)
	}
	p.office = o.State
	x.serve(n, p)
}

// serve begins and ends terms as the office says. With a term ends the wait for what the
// leader has sent.
func (x *explorer) serve(n *exState, p *exProc) {
	step, _ := p.office.NextStep(p.inc, p.session, 0)
	term := registry.Rev{}
	if step == election.Lead && p.office.LeaderRev != p.over {
		term = p.office.LeaderRev
	}
	if term == p.term {
		return
	}
	p.leading, p.term, p.pending = term != registry.Rev{}, term, nil
	if f := p.flights[exLeading]; f != nil {
		n.abandon(f)
		p.flights[exLeading] = nil
	}
	for feed := exInstances; feed < exFeeds; feed++ {
		p.feeds[feed], p.synced[feed] = nil, false
	}
}
