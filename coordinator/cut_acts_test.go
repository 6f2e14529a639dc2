package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

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
func (x *exploration) ledger(s *exState, p *exProc) (*ledger, *account) {
	l := &ledger{
		clock: time.Now, keys: x.keys, reg: &exDesk{store: &s.store}, session: exSession{id: p.session}, me: p.inc, work: x.work, log: x.log,
		barred:   &barred{running: map[string]shardset.Set{}, old: map[string]shardset.Set{}, freed: func() {}},
		accounts: map[string]*account{}, dirty: map[*account]struct{}{}, held: map[*account]struct{}{}, frozen: map[*account]struct{}{},
		nudge: make(chan struct{}, 1), closed: p.closed, opened: !p.closed, flushing: true, running: p.inside.Len(),
	}
	l.inbox.running, l.inbox.closed = p.inside.Len(), p.closed
	if all := p.inside.Union(p.barred); !all.IsZero() {
		l.barred.running[exJob] = all
	}
	if !p.barred.IsZero() {
		l.barred.old[exJob] = p.barred
	}
	var a *account
	if p.acct != nil {
		a = &account{}
		*a = *p.acct
		l.accounts[a.segment] = a
		if a.plan != nil && !a.plan.Frozen.IsZero() {
			l.frozen[a] = struct{}{}
		}
	}
	return l, a
}

// keep returns an account as a state holds it.
func (l *ledger) keep(segment string) *account {
	a := l.accounts[segment]
	if a == nil {
		return nil
	}
	out := *a
	out.wake, out.index = 0, -1
	out.ended = slices.Clone(a.ended)
	return &out
}

// claim returns the transaction that records the claims of a process, nil if there is none.
func (x *exploration) claim(s *exState, p *exProc) (*account, *load[*entry]) {
	l, a := x.ledger(s, p)
	if a == nil {
		return nil, nil
	}
	l.mark(a)
	entries := l.entries(s.clock().Time())
	if len(entries) == 0 {
		return nil, nil
	}
	loads := l.loads(entries)
	a.writing = true
	return l.keep(x.segment()), &loads[0]
}

// started judges what a ledger has started.
func (x *exploration) started(n *exState, p *exProc) error {
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
func (x *exploration) takePlans(p *exProc) {
	l, _ := x.ledger(&exState{}, p)
	f := newFeed(x.keys.Plans(), x.log, func(e registry.Entry) (*record.Plan, error) { return x.plan(string(e.Value)), nil })
	b := registry.Batch{Kind: registry.Snapshot}
	for i := range p.feeds[exPlans] {
		b.Puts = append(b.Puts, p.feeds[exPlans][i].entry())
	}
	f.Apply(b)
	l.plans = f.reader(func() {})
	l.takePlans(context.Background())
	p.acct = l.keep(x.segment())
}

// returns has a function return, with an error that is nil or hands the run back.
func (x *exploration) returns(p *exProc, shard int, err error) {
	if p.barred.Has(shard) {
		p.barred = p.barred.Minus(shardset.Of(shard))
		return
	}
	l, a := x.ledger(&exState{}, p)
	l.done(context.Background(), a, shard, true)(err)
	l.takeInbox()
	p.inside = p.inside.Minus(shardset.Of(shard))
	p.acct = l.keep(x.segment())
}

// elect returns what a process does about the office.
func (x *exploration) elect(p *exProc) (registry.Txn, bool) {
	var t registry.Txn
	var err error
	switch step, _ := p.office.step(p.inc, p.session, 0); step {
	case enter:
		t, err = p.office.entry(x.keys, p.session)
	case succeed:
		t, err = p.office.succession(x.keys, p.inc, p.session)
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
func (x *exploration) member(p *exProc, desk *exDesk) *Member {
	m := &Member{
		reg: desk, keys: x.keys, name: p.name, work: x.work, log: x.log, clock: time.Now, draining: p.closed,
		defs: map[string]json.RawMessage{exJob: fmtDef(1, 1, "")},
	}
	m.barred.old = map[string]shardset.Set{}
	if !p.barred.IsZero() {
		m.barred.old[exJob] = p.barred
	}
	return m
}

// operator returns the Operator that a process has.
func (x *exploration) operator(desk *exDesk) *Operator {
	o, err := NewOperator(desk, "x", "default")
	if err != nil {
		panic(err)
	}
	return o
}

// officeLoop returns the one of a process, which knows of the office what the process does.
func (x *exploration) officeLoop(p *exProc, desk *exDesk) *officeLoop {
	in := &incarnation{id: p.inc, session: exSession{id: p.session}}
	o := newOfficeLoop(x.member(p, desk), in, nil, x.log)
	o.office = p.office
	return o
}

// round is what a leader does with what it knows: the transaction that it sends, if any,
// and whose claims it follows from then on.
func (x *exploration) round(s *exState, p *exProc, tidy bool) (*registry.Txn, []string) {
	desk := &exDesk{store: &s.store}
	o := x.officeLoop(p, desk)
	m := o.m
	l := &leader{
		m: m, me: p.inc, office: o, log: x.log, progress: &progress{}, nudge: make(chan struct{}, 1),
		broken: map[string]bool{}, alone: map[string]bool{}, following: map[string]func(){}, restoring: newRestoring(),
		planFeed: newFeed(x.keys.Plans(), x.log, func(registry.Entry) (*record.Plan, error) { return nil, nil }),
		view: view{
			keys: x.keys, term: p.term, compile: x.work.Compile, tidy: tidy,
			live: map[registry.SessionID]bool{}, members: map[string]memberItem{}, jobs: map[string]jobItem{},
			control: map[string]controlItem{}, plans: map[string]planItem{}, looks: map[string]look{}, broken: map[string]bool{},
			restore: map[string]bool{},
		},
	}
	x.see(l, p)
	if tidy && !l.view.clearable() {
		return nil, p.pending
	}
	for _, inc := range p.pending {
		l.following[inc] = nil
	}
	d, err := l.decide(context.Background(), s.clock())
	if err != nil {
		panic(err)
	}
	for i := range d.changes {
		d.changes[i].why = nil // people read it in the plan: states that are alike would differ
	}
	if _, err = l.commit(context.Background(), d); err == nil && x.named {
		err = o.announce(context.Background(), l.successors(), clockNotice{}, false)
	}
	if err != nil && !errors.Is(err, errTaken) {
		panic(err)
	}
	return desk.wanted, d.pending
}

// see fills a leader's view with what its process was told.
func (x *exploration) see(l *leader, p *exProc) {
	v := &l.view
	know := func(e *exEntry) (string, registry.Rev) {
		l.seen = max(l.seen, e.modified)
		return e.key.Name(), registry.Rev{Seq: e.modified}
	}
	for i := range p.feeds[exInstances] {
		v.live[p.feeds[exInstances][i].owner] = true
	}
	for i := range p.feeds[exMembers] {
		e := &p.feeds[exMembers][i]
		name, rev := know(e)
		m, err := record.Decode[record.Member]([]byte(e.value))
		if err != nil {
			panic(err)
		}
		v.members[name] = memberItem{rev: rev, Member: m}
	}
	for i := range p.feeds[exJobs] {
		e := &p.feeds[exJobs][i]
		name, rev := know(e)
		def, job, err := record.DecodeDefinition([]byte(e.value))
		if err != nil {
			panic(err)
		}
		v.jobs[name] = jobItem{rev: rev, def: def, Job: job}
	}
	for i := range p.feeds[exPlans] {
		e := &p.feeds[exPlans][i]
		name, rev := know(e)
		v.plans[name] = planItem{rev: rev, Plan: x.plan(e.value)}
	}
	for i := range p.feeds[exControls] {
		e := &p.feeds[exControls][i]
		name, rev := know(e)
		c, err := record.DecodeControl([]byte(e.value))
		if err != nil {
			panic(err)
		}
		v.control[name] = controlItem{rev: rev, Control: c}
	}
}

// tell returns how a process publishes what has changed about itself, if anything has.
func (x *exploration) tell(s *exState, p *exProc) *registry.Txn {
	if p.told.draining == p.closed && p.told.blocked.Equal(p.barred) {
		return nil
	}
	desk := &exDesk{store: &s.store}
	m := x.member(p, desk)
	in := &incarnation{id: p.inc, session: exSession{id: p.session}}
	in.ledger, _ = x.ledger(s, p) // none of its claims is on its way
	if p.closed {
		settled := in.ledger.close()
		in.ledger.tell()
		select {
		case <-settled:
		default:
			return nil // it has an answer to give first
		}
	}
	in.office = &officeLoop{m: m, in: in, log: x.log}
	next := m.standing(in)
	told := standing{rev: p.told.rev, member: record.Member{Draining: p.told.draining}}
	if err := m.tell(context.Background(), in, told, &next); !errors.Is(err, errTaken) {
		panic(err)
	}
	return desk.wanted
}

// join opens a session. A process that is told to brings its definition before it enters.
func (x *exploration) join(n *exState, i int) {
	p := &n.procs[i]
	p.phase, p.session = exJoining, n.store.open()
	p.inc = record.Incarnation(p.name, p.session)
	if x.brings > 0 {
		p.offers = 1 + i%x.brings
		n.offered = max(n.offered, p.offers)
	}
}

// enter asks for entrance to the fleet.
func (x *exploration) enter(p *exProc) {
	m := x.member(p, nil)
	in := &incarnation{id: p.inc, session: exSession{id: p.session}}
	now := m.standing(in)
	t, err := m.entrance(in, now.member)
	if err != nil {
		panic(err)
	}
	p.told = exTold{blocked: now.member.Blocked[exJob], draining: now.member.Draining}
	p.send(exEntering, t)
}

// offer returns how a process stores the definition that it brings, if that is called for.
func (x *exploration) offer(s *exState, p *exProc) *registry.Txn {
	desk := &exDesk{store: &s.store}
	m := x.member(p, desk)
	_, err := m.storeOnce(context.Background(), map[string]json.RawMessage{exJob: x.definition(p.offers)}, fresh, map[registry.Key]bool{})
	if err != nil && !errors.Is(err, errTaken) {
		panic(err)
	}
	return desk.wanted
}

// definition returns that of a revision: each adds a shard.
func (x *exploration) definition(revision int) json.RawMessage {
	more := ""
	if len(x.levels) > 0 {
		more = fmt.Sprintf(`,"tracking":%q`, x.levels[(revision-1)%len(x.levels)])
	}
	return fmtDef(revision, x.shards+revision-1, more)
}

// ask returns how a process writes down a trigger, if the job is there.
func (x *exploration) ask(s *exState, p *exProc) *registry.Txn {
	desk := &exDesk{store: &s.store}
	_, err := x.operator(desk).Trigger(context.Background(), exJob, "", nil)
	if errors.Is(err, ErrUnknownJob) {
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
func (x *exploration) askReset(s *exState, p *exProc) *registry.Txn {
	desk := &exDesk{store: &s.store}
	err := x.operator(desk).Reset(context.Background(), exJob)
	if errors.Is(err, ErrUnknownJob) {
		return nil
	}
	if !errors.Is(err, errTaken) {
		panic(err)
	}
	return desk.wanted
}

// resign returns how a process that drains hands over the office, if it has it.
func (x *exploration) resign(s *exState, p *exProc) *registry.Txn {
	if !p.closed || p.retired || p.told.draining {
		return nil
	}
	desk := &exDesk{store: &s.store}
	o := x.officeLoop(p, desk)
	o.resign(context.Background())
	return desk.wanted
}

// deliver tells a process what a directory holds.
func (x *exploration) deliver(n *exState, p *exProc, feed int, now []exEntry) {
	if feed == exOffice {
		x.deliverOffice(n, p, now)
	}
	p.feeds[feed], p.synced[feed] = now, true
	if feed == exPlans {
		x.takePlans(p)
	}
}

// deliverOffice has the process take in what has become of the office.
func (x *exploration) deliverOffice(n *exState, p *exProc, now []exEntry) {
	o := x.officeLoop(p, nil)
	r := o.feed.reader(func() {})
	for i, entries := range [][]exEntry{p.feeds[exOffice], now} {
		b := registry.Batch{Kind: registry.Snapshot}
		for k := range entries {
			b.Puts = append(b.Puts, entries[k].entry())
			b.Rev.Seq = max(b.Rev.Seq, entries[k].modified)
		}
		b.Rev.Seq += uint64(i) << 40 // what is gone from the second went after all of the first
		o.feed.Apply(b)
		o.take(r)
	}
	p.office = o.office
	x.serve(n, p)
}

// serve begins and ends terms as the office says. With a term ends the wait for what the
// leader has sent.
func (x *exploration) serve(n *exState, p *exProc) {
	step, _ := p.office.step(p.inc, p.session, 0)
	term := registry.Rev{}
	if step == serve && p.office.leaderRev != p.over {
		term = p.office.leaderRev
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
