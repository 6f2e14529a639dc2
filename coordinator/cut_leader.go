package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/rota-dev/rota/internal/parallel"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// selfDiagnosis is how often, give or take a fifth, a leader plans without being asked,
// and clears away what has been served.
const selfDiagnosis = 30 * time.Second

// errTermOver is why a leader stops.
var errTermOver = errors.New("term over")

// leader is an incarnation in office for one term. One goroutine owns it.
type leader struct {
	m      *Member
	me     string
	office *officeLoop
	log    *slog.Logger
	logs   *planLog
	nudge  chan struct{} // one slot: something in the view has changed
	end    context.CancelCauseFunc
	*progress

	view    view
	whole   bool   // all has been read once: who is new from now on has just joined
	content bool   // the last decision was that nothing is to be done, and the view has not changed
	seen    uint64 // the newest commit that is known
	broken  map[string]bool
	alone   map[string]bool // segments whose last change conflicted: it goes alone

	instances *reader[registry.SessionID]
	members   *reader[record.Member]
	jobs      *reader[jobItem]
	controls  *reader[controls]
	plans     *reader[*record.Plan]
	planFeed  *feed[*record.Plan]
	following map[string]func() // claims directories of pending moves, and how to stop
	absent    map[string]absence
	comparing
	missing
	*restoring
	overdue time.Time // when one who is awaited has been so for long enough; zero: nobody is

	panics map[string]string // by job: the panic of its strategy that was logged last
}

// lead is what is true only during this term: it follows the records that planning rests
// on and commits what they call for. It returns when ctx ends or the term is over.
func lead(ctx context.Context, o *officeLoop, term registry.Rev, p *progress) error {
	ctx, end := context.WithCancelCause(ctx)
	l := &leader{
		m: o.m, me: o.in.id, office: o, log: o.log.With("term", term.Seq), nudge: make(chan struct{}, 1), end: end, progress: p,
		broken: map[string]bool{}, alone: map[string]bool{}, following: map[string]func(){}, planFeed: o.plans,
		restoring: newRestoring(),
		view: view{
			keys: o.m.keys, term: term, skew: o.m.skew, compile: o.m.work.Compile, strategies: o.m.strategies,
			asks: func(strategy, job string) { p.do("strategy "+strategy, "job "+job) },
			live: map[registry.SessionID]bool{}, members: map[string]memberItem{}, newborn: map[string]bool{}, jobs: map[string]jobItem{},
			control: map[string]controlItem{}, plans: map[string]planItem{}, looks: map[string]look{}, restore: map[string]bool{},
		},
	}
	l.logs = newPlanLog(l.log)
	defer l.logs.flush()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer end(nil)
	if o.m.clocks {
		l.comparing, l.view.off = newComparing(time.Now(), o.m.clock(), term.Seq), o.noticed().off
	}
	l.instances = followFeed(ctx, &wg, l, o.m.keys.Instances(), func(e registry.Entry) (registry.SessionID, error) { return e.Owner, nil })
	l.members = followFeed(ctx, &wg, l, o.m.keys.Members(), decodeMember)
	l.jobs = followFeed(ctx, &wg, l, o.m.keys.Jobs(), func(e registry.Entry) (jobItem, error) {
		def, job, err := record.DecodeDefinition(e.Value)
		if err == nil {
			err = checkJobOf(e.Key, job.Name)
		}
		return jobItem{rev: e.Modified, def: def, Job: job}, err
	})
	l.controls = followFeed(ctx, &wg, l, o.m.keys.Controls(), decodeControls)
	l.plans = o.plans.reader(l.wakeUp)
	defer l.plans.close()
	return l.loop(ctx, &wg)
}

// followFeed follows a directory for the length of the term.
func followFeed[T any](ctx context.Context, wg *sync.WaitGroup, l *leader, dir registry.Key, decode func(registry.Entry) (T, error)) *reader[T] {
	f := newFeed(dir, l.log, decode)
	r := f.reader(l.wakeUp)
	wg.Go(func() {
		if err := f.run(ctx, l.m.reg); err != nil && ctx.Err() == nil {
			if !errors.Is(err, registry.ErrClosed) { // which ends the whole member, and is logged once
				l.log.Error("leader cannot follow", "directory", string(dir), "error", err)
			}
			l.end(fmt.Errorf("follow %s: %w", dir, err))
		}
	})
	return r
}

// controls is what the directory of operators' intent holds: of a job, or of the group.
type controls struct {
	job   *record.Control
	group record.GroupControl
}

func decodeControls(e registry.Entry) (controls, error) {
	if e.Key.Name() != record.GroupSegment {
		c, err := record.DecodeControl(e.Value)
		if err == nil {
			err = checkJobOf(e.Key, c.Job)
		}
		return controls{job: c}, err
	}
	c, err := record.DecodeGroupControl(e.Value)
	if err != nil {
		return controls{}, err
	}
	return controls{group: *c}, nil
}

func (l *leader) wakeUp() {
	select {
	case l.nudge <- struct{}{}:
	default:
	}
}

func (l *leader) loop(ctx context.Context, wg *sync.WaitGroup) error {
	jitter := newJitter(l.m.name, "planning unasked")
	tick := time.NewTimer(selfDiagnosis)
	defer tick.Stop()
	backoff := time.Duration(0)
	for {
		l.begin()
		err := l.round(ctx, wg)
		l.view.tidy = l.view.tidy && err != nil // a claim that came between is in the way of clearing
		switch {
		case errors.Is(err, errTermOver) || ctx.Err() != nil:
			return err
		case err != nil:
			backoff = min(max(2*backoff, 5*time.Millisecond), time.Second)
			l.fail(err)
			l.log.Debug("planning again", "after", backoff, "error", err)
			if !pause(ctx, backoff) {
				return context.Cause(ctx)
			}
			continue
		}
		backoff = 0
		var overdue <-chan time.Time
		if !l.overdue.IsZero() {
			overdue = time.After(time.Until(l.overdue))
		}
		var answered <-chan time.Time
		if !l.judging.IsZero() {
			answered = time.After(time.Until(l.judging))
		}
		var search <-chan time.Time
		if at := earliest(l.again, earliest(l.missing.next(), l.recheck)); !at.IsZero() {
			search = time.After(time.Until(at))
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-l.nudge:
		case <-search:
		case <-overdue:
			l.content, l.overdue = false, time.Time{} // the round that looks may be put off by doubt
		case <-answered:
			l.content = false
		case <-tick.C:
			l.view.tidy = true
			l.compareAgain()
			l.takeForDead()
			tick.Reset(selfDiagnosis + time.Duration((jitter.Float64()-0.5)*float64(selfDiagnosis)*2/5))
		}
	}
}

// earliest returns the earlier of two instants of which zero is none.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// round takes in what has changed, decides, and commits. An error asks for another round
// a little later.
func (l *leader) round(ctx context.Context, wg *sync.WaitGroup) error {
	l.recheckForeign(ctx)
	if !l.takeNews() {
		l.do("the first reading", "the group")
		return nil // the first snapshots are not all there
	}
	if err := l.checkMissing(ctx); err != nil {
		return err
	}
	if !l.again.IsZero() && !time.Now().Before(l.again) {
		l.content = false
	}
	if l.content && !l.view.clearable() {
		if err := l.announce(ctx); err != nil {
			return err
		}
		l.rest()
		return nil
	}
	l.content = false
	l.judgeClocks()
	if l.doubtful(time.Now()) || !l.office.noticed().names(l.view.off) || !l.office.announced() {
		if err := l.announce(ctx); err != nil { // first of all: members that are named have to act
			return err
		}
	}
	if l.doubtful(time.Now()) {
		l.rest()
		return nil
	}
	defer func() { clear(l.view.looks) }() // each round looks for itself
	if err := l.restoreDefinitions(ctx); err != nil {
		return err
	}
	d, err := l.decide(ctx, record.InstantOf(l.m.clock()))
	if err != nil {
		return err
	}
	l.logPanics()
	l.lookAgain()
	planned, err := l.commit(ctx, d)
	l.follow(ctx, wg, d.pending)
	l.overdue = time.Time{}
	if l.view.patience > 0 {
		l.overdue = time.Now().Add(l.view.patience)
	}
	if err != nil {
		return err
	}
	if planned {
		l.wakeUp() // what follows from it
	}
	if !planned || l.view.tidy { // shards that change hands come first, but not for ever
		if err := l.announce(ctx); err != nil {
			return err
		}
	}
	l.content = len(d.changes) == 0 && len(d.burials) == 0 && len(d.pending) == 0
	l.rest()
	return nil
}

// logPanics logs the stack of a strategy's panic, once for each text while the strategy fails.
func (l *leader) logPanics() {
	panics := map[string]string{}
	for job, err := range l.view.strategyErrors {
		var p *strategyPanic
		if !errors.As(err, &p) {
			continue
		}
		panics[job] = p.Error()
		if l.panics[job] != p.Error() {
			l.log.Error("strategy panicked", "job", job, "error", p, "stack", string(p.stack))
		}
	}
	l.panics = panics
}

// takeNews brings the view up to date, and reports whether it is whole.
func (l *leader) takeNews() bool {
	changed := false
	whole := l.instances.take(func(n news[registry.SessionID]) { changed = true })
	if changed { // few: the instances of a fleet
		l.content = false
		clear(l.view.live)
		for _, s := range l.instances.feed.byName() {
			l.view.live[s] = true
		}
		maps.DeleteFunc(l.view.newborn, func(inc string, _ bool) bool { return l.view.alive(inc) })
	}
	whole = l.members.take(func(n news[record.Member]) {
		if l.takeWaiting(n) {
			return
		}
		l.arrive(n)
		l.observe(n)
		take(l, l.view.members, n, memberItem{rev: n.rev, Member: n.value})
		l.hear(n)
	}) && whole
	whole = l.jobs.take(func(n news[jobItem]) {
		take(l, l.view.jobs, n, n.value)
		setIf(l.badJobs, n.name, n.broken)
	}) && whole
	whole = l.controls.take(func(n news[controls]) {
		if n.name == record.GroupSegment {
			l.content = false
			l.view.outside = n.value.group.Exclusion // of nobody if it has gone or cannot be read
			return
		}
		take(l, l.view.control, n, controlItem{rev: n.rev, Control: n.value.job})
		setIf(l.badControls, n.name, n.broken)
	}) && whole
	whole = l.plans.take(func(n news[*record.Plan]) {
		if l.defend(n) {
			return
		}
		delete(l.view.restore, n.name)
		take(l, l.view.plans, n, planItem{rev: n.rev, Plan: n.value})
		delete(l.broken, n.name)
		if n.broken {
			l.broken[n.name] = true
			logUnreadable(l.log, slog.LevelError, l.m.keys.Plan(n.name), n.err)
		}
	}) && whole
	l.view.broken, l.view.spoilt = l.brokenPlans(), l.spoilt()
	l.whole = l.whole || whole
	return whole
}

// takeForDead is for the slow tick.
func (l *leader) takeForDead() {
	l.content = l.content && len(l.view.newborn) == 0
	clear(l.view.newborn)
}

// arrive takes note of a member that was not there before and has not been seen alive. It
// owns nothing: nobody has dealt to it. So nothing is lost if it has died already, which a
// watch may leave out; the slow tick asks.
func (l *leader) arrive(n news[record.Member]) {
	if n.gone || n.broken {
		delete(l.view.newborn, n.name)
	} else if _, known := l.view.members[n.name]; l.whole && !known && !l.view.alive(n.name) {
		l.view.newborn[n.name] = true
	}
}

// setIf adds a name to a set, or removes it.
func setIf(set map[string]bool, name string, member bool) {
	if delete(set, name); member {
		set[name] = true
	}
}

func take[T, V any](l *leader, m map[string]V, n news[T], v V) {
	l.content = false
	l.seen = max(l.seen, n.rev.Seq)
	if n.gone || n.broken {
		delete(m, n.name)
		return
	}
	m[n.name] = v
}

// decide runs the planning function until it has seen all it needs to see. What it is sure
// to ask for it is given at once: the claims of the dead, and of those who run shards that
// wait to move.
func (l *leader) decide(ctx context.Context, now record.Instant) (decision, error) {
	l.view.now = now
	wanted := l.view.deadMembers()
	for inc := range l.following {
		if l.view.alive(inc) {
			wanted = append(wanted, inc)
		}
	}
	l.view.away = l.absences()
	for {
		l.do("looks at claims", "")
		if err := l.look(ctx, wanted); err != nil {
			return decision{}, err
		}
		l.do("planning", "")
		d, err := l.plan(ctx)
		if err != nil {
			return decision{}, err
		}
		if len(d.looks) == 0 {
			return d, nil
		}
		wanted = d.looks
	}
}

// looksAtOnce is how many incarnations a leader looks at together. One who joins is given
// shards of all others, and waits until all of them have been looked at.
const looksAtOnce = 16

// look looks at incarnations.
func (l *leader) look(ctx context.Context, incarnations []string) error {
	var mu sync.Mutex
	return parallel.Each(ctx, looksAtOnce, incarnations, func(ctx context.Context, inc string) error {
		look, err := l.readClaims(ctx, inc)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		l.view.looks[inc] = look
		return nil
	})
}

// readClaims reads an incarnation's claims.
func (l *leader) readClaims(ctx context.Context, incarnation string) (look, error) {
	out := look{seen: l.seen, claims: map[string]claimsItem{}, broken: map[string]bool{}}
	listing, err := l.m.reg.List(ctx, l.m.keys.ClaimsOf(incarnation), fresh)
	if err != nil {
		return look{}, fmt.Errorf("look at claims of %s: %w", incarnation, err)
	}
	for _, e := range listing.Entries {
		claims, err := record.Decode[record.Claims](e.Value)
		if err == nil {
			err = checkJobOf(e.Key, claims.Job)
		}
		if err != nil {
			l.logs.unreadable(e, err)
			out.broken[e.Key.Name()] = true
			continue
		}
		out.claims[e.Key.Name()] = claimsItem{rev: e.Modified, Claims: claims}
	}
	for key := range l.foreign {
		if key.Dir() == l.m.keys.ClaimsOf(incarnation) {
			out.broken[key.Name()] = true
		}
	}
	return out, nil
}

// commit sends what was decided, as few transactions as possible, and reports whether a
// plan was written. Burials rest on the plans, so they wait until those are written.
func (l *leader) commit(ctx context.Context, d decision) (planned bool, err error) {
	term := []registry.Cond{registry.At(l.m.keys.Leader(), l.view.term)}
	shares := make(map[string]share, len(d.changes))
	changes := slices.DeleteFunc(slices.Clone(d.changes), func(c change) bool {
		c.note(record.Decision{At: l.view.now, Term: l.view.term.Seq, By: l.m.name})
		pc, err := c.share(l.m.keys)
		if err != nil {
			l.log.Error("plan not written", "job", c.plan.Job, "error", err)
			return true
		}
		shares[c.segment] = pc
		return false
	})
	loads := pack(term, changes, l.m.reg.Limits(),
		func(c change) share { return shares[c.segment] }, func(c change) bool { return l.alone[c.segment] })
	var failed error
	l.do("the writing", "plans")
	for _, ld := range loads {
		rev, err := registry.Apply(ctx, l.m.reg, ld.txn)
		if err == nil {
			l.committed(ld.parts, rev)
			continue
		}
		if err := l.refused(ctx, ld, err); err != nil {
			return len(loads) > 0, err
		}
		failed = err
	}
	if len(loads) > 0 {
		return true, failed
	}
	return false, l.bury(ctx, d.burials, term)
}

// problemOf returns the problem of a job's plan as it was before the changes of this round.
func (l *leader) problemOf(segment string) string {
	if p, ok := l.view.plans[segment]; ok {
		return p.Problem
	}
	return ""
}

func (l *leader) committed(changes []change, rev registry.Rev) {
	l.came()
	l.seen = max(l.seen, rev.Seq)
	for _, c := range changes {
		l.logs.planned(&c, rev.Seq, l.problemOf(c.segment))
		l.planFeed.put(c.segment, rev, c.plan)
		l.keepPlan(c, rev)
		delete(l.alone, c.segment)
	}
}

// refused returns errTermOver if that is what the refusal means. Otherwise the change
// that it names goes alone next time, so that it holds up no other.
func (l *leader) refused(ctx context.Context, ld load[change], err error) error {
	refusal, ok := conflict(err)
	if !ok {
		for _, c := range ld.parts {
			l.unsure[c.segment] = true
		}
		return err
	}
	if refusal.Index == 0 {
		return errTermOver
	}
	if part, ok := ld.owner(refusal.Index); ok {
		c := ld.parts[part]
		l.alone[c.segment] = true
		l.logs.conflicted(ctx, l.m.reg, c.segment, c.plan.Job, l.m.keys.Plan(c.segment))
		if refusal.Index < len(ld.txn.If) && ld.txn.If[refusal.Index].Kind == registry.CondDead {
			l.suspectOwner(c.segment, ld.txn.If[refusal.Index].Session)
		}
		return l.findForeign(ctx, ld.txn, refusal.Index)
	}
	return nil
}

// bury removes what dead incarnations left.
func (l *leader) bury(ctx context.Context, burials []burial, term []registry.Cond) error {
	for _, b := range burials {
		buried, err := l.buryOne(ctx, b, term)
		if err != nil {
			return err
		}
		if buried {
			l.came()
			delete(l.view.members, b.incarnation)
			l.logs.buried(b.incarnation)
			l.forget(b.incarnation)
		}
	}
	return nil
}

// buryOne reports false for one that turns out to live, or to have left something else: it
// has just joined, and its instance has not been delivered yet. The view will tell; to
// plan again because of it would only delay what is planned.
func (l *leader) buryOne(ctx context.Context, b burial, term []registry.Cond) (buried bool, err error) {
	for _, ld := range b.loads(l.m.reg.Limits(), term) {
		_, err := registry.Apply(ctx, l.m.reg, ld.txn)
		refusal, refused := conflict(err)
		switch {
		case refused && refusal.Index == 0:
			return false, errTermOver
		case refused:
			l.log.Debug("not buried", "incarnation", b.incarnation, "error", err)
			return false, nil
		case err != nil:
			return false, fmt.Errorf("bury %s: %w", b.incarnation, err)
		}
	}
	return true, nil
}

// follow watches the claims of those who run shards that wait to move, and of no others.
func (l *leader) follow(ctx context.Context, wg *sync.WaitGroup, pending []string) {
	for inc, stop := range l.following {
		if !slices.Contains(pending, inc) {
			stop()
			delete(l.following, inc)
		}
	}
	for _, inc := range pending {
		if _, ok := l.following[inc]; ok {
			continue
		}
		fctx, stop := context.WithCancel(ctx)
		l.following[inc] = stop
		wg.Go(func() {
			registry.Follow(fctx, l.m.reg, l.m.keys.ClaimsOf(inc), func(registry.Batch) error {
				l.wakeUp()
				return nil
			})
		})
	}
}

// successors returns who should take the office when it falls vacant, in order.
func (l *leader) successors() []string {
	var out []string
	for inc, m := range l.view.members {
		if _, off := l.view.off[inc]; !off && inc != l.me && !m.Draining && l.view.alive(inc) {
			out = append(out, inc)
		}
	}
	slices.Sort(out)
	return out[:min(len(out), maxSuccessors)]
}

// maxSuccessors is how many are named: enough for the first ones to die with the leader.
const maxSuccessors = 3
