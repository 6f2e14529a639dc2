package explore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/rota-dev/rota/internal/group/batch"
	"github.com/rota-dev/rota/internal/group/claimer"
	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/group/election"
	"github.com/rota-dev/rota/internal/group/elector"
	"github.com/rota-dev/rota/internal/group/feed"
	"github.com/rota-dev/rota/internal/group/leader"
	"github.com/rota-dev/rota/internal/group/member"
	"github.com/rota-dev/rota/internal/group/planning"
	"github.com/rota-dev/rota/internal/group/skew"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry"
)

// The actions of processes. Each builds the library's object (claimer, member, elector, leader) in the
// state of a process, calls it, and records the transaction that it wants to commit.

// liveSession is a session that its process believes to be alive.
type liveSession struct {
	registry.Session
	id registry.SessionID
}

func (s liveSession) ID() registry.SessionID { return s.id }

func (s liveSession) State() (registry.SessionState, time.Time) {
	return registry.SessionConnected, time.Now().Add(time.Hour)
}

// claimerOf returns a claimer in the state of a process, and its state of the job, nil if it has none.
func (x *explorer) claimerOf(s *world, p *process) (*claimer.Claimer, *claimer.JobState) {
	l := claimer.New(claimer.Config{
		Clock: func() time.Time { return s.clock().Time() }, Keys: x.keys, Reg: &recordingRegistry{store: &s.store}, Session: liveSession{id: p.session}, Me: p.inc, Work: x.work, Log: x.log,
		Namespace: claimer.Namespace{Unconditional: true}, // no world changes the record of the namespace
		Blocked:   &claimer.BlockedShards{Running: map[string]*shardset.Set{}, Old: map[string]shardset.Set{}, OnUnblocked: func() {}}, Closed: p.draining,
	}, nil)
	l.Draining, l.MayClaim, l.Flushing, l.Running = p.draining, !p.draining, true, p.running.Len()
	l.Inbox.Running = p.running.Len()
	if all := p.running.Union(p.blocked); !all.IsZero() {
		l.Blocked.Running[jobName] = &all
	}
	if !p.blocked.IsZero() {
		l.Blocked.Old[jobName] = p.blocked
	}
	var a *claimer.JobState
	if p.jobState != nil {
		a = &claimer.JobState{}
		*a = *p.jobState
		l.Jobs[a.Segment] = a
		if a.Plan != nil && !a.Plan.Frozen.IsZero() {
			l.Frozen[a] = struct{}{}
		}
	}
	return l, a
}

// buildClaim returns the transaction by which a process claims runs or records ends, nil if there is none.
func (x *explorer) buildClaim(s *world, p *process) (*claimer.JobState, *batch.Load[*claimer.PendingWrite]) {
	l, a := x.claimerOf(s, p)
	if a == nil {
		return nil, nil
	}
	l.MarkDirty(a)
	ld := l.NextWrite(s.clock().Time())
	if ld == nil {
		return nil, nil
	}
	a.Writing = true
	return l.CopyJobState(x.segment()), ld
}

// judgeStarts judges the runs that a claimer has started, and adds them to those of the process.
func (x *explorer) judgeStarts(n *world, p *process) error {
	for _, r := range x.work.started {
		if p.running.Has(r.Shard) || p.blocked.Has(r.Shard) {
			return fmt.Errorf("%s starts shard %d, whose handler has not returned here", p.name, r.Shard)
		}
		for i := range n.procs {
			q := &n.procs[i]
			if q.name != p.name && q.running.Has(r.Shard) && n.store.alive(q.session) && n.store.alive(p.session) {
				return fmt.Errorf("%s starts shard %d, whose handler has not returned at %s", p.name, r.Shard, q.name)
			}
		}
		p.running = p.running.Union(shardset.Of(r.Shard))
	}
	return nil
}

// applyPlans applies the plans that a process has observed to its claimer.
func (x *explorer) applyPlans(p *process) {
	l, _ := x.claimerOf(&world{}, p)
	f := feed.New(x.keys.Plans(), x.log, func(e registry.Entry) (*record.Plan, error) { return x.decodePlan(string(e.Value)), nil })
	b := registry.Batch{Kind: registry.Snapshot}
	for i := range p.feeds[feedPlans] {
		b.Puts = append(b.Puts, p.feeds[feedPlans][i].entry())
	}
	f.ApplyBatch(b)
	l.Plans = f.NewReader(func() {})
	l.ApplyPlans(context.Background())
	p.jobState = l.CopyJobState(x.segment())
}

// endHandler makes a handler return err, which is nil or hands the run back.
func (x *explorer) endHandler(s *world, p *process, shard int, err error) {
	if p.blocked.Has(shard) {
		p.blocked = p.blocked.Minus(shardset.Of(shard))
		return
	}
	l, a := x.claimerOf(s, p)
	if a == nil { // the job was deleted
		p.running = p.running.Minus(shardset.Of(shard))
		return
	}
	l.TrackRuns(context.Background(), a, shardset.Of(shard), record.Job{})(shard, err)
	l.DrainInbox()
	if !x.skips && !x.fromEnds {
		a.Ended[len(a.Ended)-1].At = 0 // of no effect, and fewer worlds differ
	}
	p.running = p.running.Minus(shardset.Of(shard))
	p.jobState = l.CopyJobState(x.segment())
}

// buildElection returns the transaction by which a process takes or accepts the seat.
func (x *explorer) buildElection(p *process) (registry.Txn, bool) {
	var t registry.Txn
	var err error
	switch step, _ := p.election.NextStep(p.inc, p.session, 0); step {
	case election.AcceptSeat:
		t, err = p.election.AcceptanceTxn(x.keys, p.session)
	case election.TakeSeat:
		t, err = p.election.SuccessionTxn(x.keys, p.inc, p.session)
	default:
		return t, false
	}
	if err != nil {
		panic(err)
	}
	t.ID = registry.NewTxnID()
	return t, true
}

// memberOf returns a Member in the state of a process.
func (x *explorer) memberOf(p *process, reg *recordingRegistry) *member.Member {
	m := &member.Member{
		Reg: reg, Keys: x.keys, Name: p.name, Work: x.work, Log: x.log, Clock: time.Now, Draining: p.draining,
		Defs: map[string]json.RawMessage{jobName: formatDefinition(1, 1, "")},
	}
	if x.kinds > 0 {
		m.Defs = nil
		m.OfferKinds(x.kindOf(p))
	}
	m.Blocked.Old = map[string]shardset.Set{}
	if !p.blocked.IsZero() {
		m.Blocked.Old[jobName] = p.blocked
	}
	return m
}

// operatorOf returns an Operator.
func (x *explorer) operatorOf(reg *recordingRegistry) *operator.Operator {
	o, err := operator.New(reg, "x", "default")
	if err != nil {
		panic(err)
	}
	return o.WithCompiler(x.work.Compile)
}

// electorOf returns an elector in the state of a process.
func (x *explorer) electorOf(p *process, reg *recordingRegistry) *elector.Elector {
	o := elector.New(elector.Self{
		ID: p.inc, Name: p.name, Session: liveSession{id: p.session}, Reg: reg, Keys: x.keys, Clock: time.Now, Compile: x.work.Compile,
		Planning: &elector.PlanningCalls{}, IsDraining: func() bool { return p.draining }, CheckRecords: func() {},
	}, nil, x.log)
	o.State = p.election
	return o
}

// buildPlan returns the next transaction of a leader, nil if there is none, and the incarnations whose
// claims it watches from then on.
func (x *explorer) buildPlan(s *world, p *process, regularCheck bool) (*registry.Txn, []string) {
	reg := &recordingRegistry{store: &s.store}
	o := x.electorOf(p, reg)
	l := &leader.Leader{
		Self: o.Self, Elector: o, Log: x.log, Progress: &elector.Progress{}, Nudge: make(chan struct{}, 1),
		BrokenPlans: map[string]bool{}, SentAlone: map[string]bool{}, WatchedClaims: map[string]func(){}, Edits: leader.NewEdits(reg, x.keys, x.log),
		PlanFeed: feed.New(x.keys.Plans(), x.log, func(registry.Entry) (*record.Plan, error) { return nil, nil }),
		View: planning.View{
			Keys: x.keys, Term: p.term, Compile: x.work.Compile, SlowTick: regularCheck,
			Live: map[registry.SessionID]bool{}, Members: map[string]planning.MemberRecord{}, Jobs: map[string]planning.JobRecord{},
			Control: map[string]planning.ControlRecord{}, Plans: map[string]planning.PlanRecord{}, Reads: map[string]planning.FreshRead{}, UnreadablePlans: map[string]bool{},
			EditedPlans: map[string]bool{}, Ends: map[string]planning.EndsOfJob{}, Defined: map[string]planning.DefinedRecord{}, PartReads: map[string]planning.FreshRead{}, RestTick: regularCheck,
		},
	}
	x.fillView(l, p)
	if regularCheck && !l.View.NeedsClearing() {
		return nil, p.following
	}
	for _, inc := range p.following {
		l.WatchedClaims[inc] = nil
	}
	if x.stepDefined(s, l, p); reg.recorded != nil {
		return reg.recorded, p.following
	}
	d, err := l.DecideWithReads(context.Background(), s.clock())
	if err != nil {
		panic(err)
	}
	if x.decisions++; x.decisions%128 == 1 { // each check costs more than the decision
		checkPure(&l.View, &d)
	}
	for i := range d.Changes {
		d.Changes[i].Why = nil // a text for people, which would make equal worlds differ
	}
	if _, err = l.CommitDecision(context.Background(), d); err == nil && x.named {
		err = o.PublishSeat(context.Background(), l.Successors(), skew.Notice{}, false)
	}
	if err != nil && !errors.Is(err, errRecorded) {
		panic(err)
	}
	return reg.recorded, d.Follow
}

// fillView fills a leader's view with the entries that its process has observed.
func (x *explorer) fillView(l *leader.Leader, p *process) {
	v := &l.View
	locate := func(e *storedEntry) (string, registry.Rev) {
		l.LastCommit = max(l.LastCommit, e.modified)
		return e.key.Name(), registry.Rev{Seq: e.modified}
	}
	for i := range p.feeds[feedInstances] {
		v.Live[p.feeds[feedInstances][i].owner] = true
	}
	for i := range p.feeds[feedMembers] {
		e := &p.feeds[feedMembers][i]
		name, rev := locate(e)
		m, err := record.Decode[record.Member]([]byte(e.value))
		if err != nil {
			panic(err)
		}
		v.Members[name] = planning.MemberRecord{Rev: rev, Member: m}
	}
	for i := range p.feeds[feedJobs] {
		e := &p.feeds[feedJobs][i]
		name, rev := locate(e)
		def, job, err := record.DecodeDefinition([]byte(e.value))
		if err != nil {
			panic(err)
		}
		v.Jobs[name] = planning.JobRecord{Rev: rev, Def: def, Job: job}
	}
	for i := range p.feeds[feedPlans] {
		e := &p.feeds[feedPlans][i]
		name, rev := locate(e)
		v.Plans[name] = planning.PlanRecord{Rev: rev, Plan: x.decodePlan(e.value)}
	}
	for i := range p.feeds[feedEnds] {
		ends, err := record.DecodeEnds([]byte(p.feeds[feedEnds][i].value))
		if err != nil {
			panic(err)
		}
		if v.Ends[x.segment()] == nil {
			v.Ends[x.segment()] = planning.EndsOfJob{}
		}
		v.Ends[x.segment()][ends.Incarnation] = ends.Claims
	}
	for i := range p.feeds[feedControls] {
		e := &p.feeds[feedControls][i]
		name, rev := locate(e)
		c, err := record.DecodeControl([]byte(e.value))
		if err != nil {
			panic(err)
		}
		v.Control[name] = planning.ControlRecord{Rev: rev, Control: c}
	}
}

// buildPublication returns the transaction by which a process updates its member record, nil if nothing
// has changed.
func (x *explorer) buildPublication(s *world, p *process) *registry.Txn {
	if p.published.draining == p.draining && p.published.blocked.Equal(p.blocked) {
		return nil
	}
	reg := &recordingRegistry{store: &s.store}
	m := x.memberOf(p, reg)
	in := &member.Incarnation{ID: p.inc, Session: liveSession{id: p.session}}
	in.Claimer, _ = x.claimerOf(s, p) // no claim is in flight
	if p.draining {
		settled := in.Claimer.StopClaiming()
		in.Claimer.NotifyWaiters()
		select {
		case <-settled:
		default:
			return nil // an end is to be recorded first
		}
	}
	in.Elector = &elector.Elector{Self: elector.Self{Session: in.Session}, Log: x.log} // holds no seat
	next := m.ComposeState(in)
	last := member.PublishedState{Rev: p.published.rev, Member: record.Member{Draining: p.published.draining}}
	if err := m.PublishState(context.Background(), in, last, &next); !errors.Is(err, errRecorded) {
		panic(err)
	}
	return reg.recorded
}

// openSession opens a session for a process. If the scenario asks for it, the process brings a
// definition, which it stores before it joins.
func (x *explorer) openSession(n *world, i int) {
	p := &n.procs[i]
	p.phase, p.session = phaseJoining, n.store.openSession()
	p.inc = record.Incarnation(p.name, p.session)
	if x.kinds > 0 {
		p.brings = 1 + i%x.kinds
	}
	if x.brings > 0 {
		p.brings = 1 + i%x.brings
		n.highestRevision = max(n.highestRevision, p.brings)
	}
}

// sendJoin sends the transaction by which a process joins.
func (x *explorer) sendJoin(p *process) {
	m := x.memberOf(p, nil)
	in := &member.Incarnation{ID: p.inc, Session: liveSession{id: p.session}}
	now := m.ComposeState(in)
	t, err := m.BuildJoinTxn(in, now.Member)
	if err != nil {
		panic(err)
	}
	p.published = published{blocked: now.Member.Blocked[jobName], draining: now.Member.Draining}
	p.send(kindJoin, t)
}

// buildDefinition returns the transaction that stores the definition which a process brings, nil if the
// stored one is not older.
func (x *explorer) buildDefinition(s *world, p *process) *registry.Txn {
	reg := &recordingRegistry{store: &s.store}
	m := x.memberOf(p, reg)
	if x.kinds > 0 {
		if _, err := m.TryStoreKind(context.Background(), x.kindOf(p)); err != nil && !errors.Is(err, errRecorded) {
			panic(err)
		}
		return reg.recorded
	}
	_, err := m.TryStoreDefinitions(context.Background(), map[string]json.RawMessage{jobName: x.definitionOf(p.brings)}, member.Fresh, map[registry.Key]bool{})
	if err != nil && !errors.Is(err, errRecorded) {
		panic(err)
	}
	return reg.recorded
}

// definitionOf returns the definition of a revision. Each has one shard more than the one before.
func (x *explorer) definitionOf(revision int) json.RawMessage {
	more := ""
	if len(x.tracking) > 0 {
		more = fmt.Sprintf(`,"tracking":%q`, x.tracking[(revision-1)%len(x.tracking)])
	}
	if x.skips {
		more += `,"on_overlap":"skip"`
	}
	return formatDefinition(revision, x.shards+revision-1, more)
}

// buildTrigger returns the transaction that requests a trigger, nil if the job is unknown.
func (x *explorer) buildTrigger(s *world, p *process) *registry.Txn {
	reg := &recordingRegistry{store: &s.store}
	_, err := x.operatorOf(reg).Trigger(context.Background(), jobName, "", nil)
	if errors.Is(err, operator.ErrUnknownJob) {
		return nil
	}
	if !errors.Is(err, errRecorded) {
		panic(err)
	}
	c, err := record.DecodeControl(reg.recorded.Then[0].Value)
	if err != nil {
		panic(err)
	}
	c.Triggers[len(c.Triggers)-1].At = s.clock() // the operator used the wall clock
	c.Acts = nil                                 // a text for people, with an instant of the wall clock
	if reg.recorded.Then[0].Value, err = record.Encode(c); err != nil {
		panic(err)
	}
	return reg.recorded
}

// buildReset returns the transaction that requests a reset, nil if the job is unknown.
func (x *explorer) buildReset(s *world, p *process) *registry.Txn {
	reg := &recordingRegistry{store: &s.store}
	err := x.operatorOf(reg).Reset(context.Background(), jobName)
	if errors.Is(err, operator.ErrUnknownJob) {
		return nil
	}
	if !errors.Is(err, errRecorded) {
		panic(err)
	}
	c, err := record.DecodeControl(reg.recorded.Then[0].Value)
	if err != nil {
		panic(err)
	}
	c.Acts = nil
	if reg.recorded.Then[0].Value, err = record.Encode(c); err != nil {
		panic(err)
	}
	return reg.recorded
}

// buildResignation returns the transaction by which a draining leader resigns, nil for other processes.
func (x *explorer) buildResignation(s *world, p *process) *registry.Txn {
	if !p.draining || p.resigned || p.published.draining {
		return nil
	}
	reg := &recordingRegistry{store: &s.store}
	o := x.electorOf(p, reg)
	o.Resign(context.Background())
	return reg.recorded
}

// deliverFeed makes a process observe the entries of a directory.
func (x *explorer) deliverFeed(n *world, p *process, feed int, now []storedEntry) {
	if feed == feedElection {
		x.deliverElection(n, p, now)
	}
	p.feeds[feed], p.synced[feed] = now, true
	if feed == feedPlans {
		x.applyPlans(p)
	}
}

// deliverElection passes the election records to the elector of a process: the ones observed before, and
// then the current ones, so that the elector notices deletions.
func (x *explorer) deliverElection(n *world, p *process, now []storedEntry) {
	o := x.electorOf(p, nil)
	r := o.Feed.NewReader(func() {})
	for i, entries := range [][]storedEntry{p.feeds[feedElection], now} {
		b := registry.Batch{Kind: registry.Snapshot}
		for k := range entries {
			b.Puts = append(b.Puts, entries[k].entry())
			b.Rev.Seq = max(b.Rev.Seq, entries[k].modified)
		}
		b.Rev.Seq += uint64(i) << 40 // entries missing from the second batch were deleted after the first
		o.Feed.ApplyBatch(b)
		o.ReadFeed(r)
	}
	p.election = o.State
	x.updateTerm(n, p)
}

// updateTerm begins or ends the term of a process according to the election records. At the end of a
// term it abandons the leader's request.
func (x *explorer) updateTerm(n *world, p *process) {
	step, _ := p.election.NextStep(p.inc, p.session, 0)
	term := registry.Rev{}
	if step == election.Lead && p.election.LeaderRev != p.endedTerm {
		term = p.election.LeaderRev
	}
	if term == p.term {
		return
	}
	p.leading, p.term, p.following = term != registry.Rev{}, term, nil
	if f := p.flights[kindPlan]; f != nil {
		n.abandonRequest(f)
		p.flights[kindPlan] = nil
	}
	for feed := feedInstances; feed < feedCount; feed++ {
		p.feeds[feed], p.synced[feed] = nil, false
	}
}

// checkPure decides again, and panics unless the view is unchanged and the decision is the same.
func checkPure(v *planning.View, d *planning.Decision) {
	before := coordtest.Snapshot(v)
	again := planning.Decide(v)
	if coordtest.Snapshot(v) != before || coordtest.Snapshot(again) != coordtest.Snapshot(d) {
		panic("a decision changes its view, or the next one")
	}
}
