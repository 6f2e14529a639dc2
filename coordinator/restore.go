package coordinator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/registry"
)

// While a term lasts, its leader alone writes plans, and no process deletes a plan or a definition
// or replaces a definition by one of a lower revision. A leader that observes such a change has observed
// another hand. It holds the plans in memory, which hold the definitions in force, and writes them again under its
// term. A later leader has no copy to compare with, and plans by the records that it finds.

// restoring is a leader's knowledge of plans and definitions that another hand changed.
type restoring struct {
	wrote  map[string]uint64 // by segment: the commit of this term that last wrote the plan
	unsure map[string]bool   // segments of whose last change the outcome is unknown

	badJobs, badControls map[string]bool // segments whose definition or intent cannot be read

	foreign map[registry.Key]bool // keys with values that this library did not write; lists hide them
	recheck time.Time             // when to read them again; zero: there are none

	again time.Time // when to look again at claims that cannot be read; zero: there are none
}

func newRestoring() *restoring {
	return &restoring{
		wrote: map[string]uint64{}, unsure: map[string]bool{}, badJobs: map[string]bool{}, badControls: map[string]bool{},
		foreign: map[registry.Key]bool{},
	}
}

// defend reports whether another hand changed a plan. Then the plan that the leader knows stays
// in the view, and planning writes it again over the stored value.
func (l *leader) defend(n news[*record.Plan]) bool {
	old, had := l.view.plans[n.name]
	unsure := l.unsure[n.name]
	delete(l.unsure, n.name) // after any other write the change can no longer be applied
	switch {
	case !had, !l.whole, unsure, errors.Is(n.err, record.ErrNewerFormat): // a newer version's record is no garbage
		return false
	case n.gone && !l.view.offered(old.Job):
		return false // an operator removes a job that no instance offers
	case !n.gone && n.rev.Seq <= max(l.view.term.Seq, l.wrote[n.name]):
		return false
	}
	l.view.plans[n.name] = planItem{rev: n.rev, Plan: old.Plan}
	l.view.restore[n.name] = true
	l.content = false
	l.seen = max(l.seen, n.rev.Seq)
	l.log.Warn("another hand changed or deleted a plan; it is written again", "job", old.Job, "key", string(l.m.keys.Plan(n.name)))
	return true
}

// restorePlan returns the change that writes a plan again. It changes nothing else: the next change
// has to rest on claims that were read after this one.
func (p *planning) restorePlan() (change, bool) {
	if p.broken[p.segment] {
		return change{}, false // by a value that cannot be replaced
	}
	p.c.rev, p.c.plan = p.plans[p.segment].rev, p.plans[p.segment].Clone()
	p.because("write again a plan that another hand changed")
	return p.c, true
}

// keepPlan records a plan that the leader committed.
func (l *leader) keepPlan(c change, rev registry.Rev) {
	l.wrote[c.segment] = rev.Seq
	delete(l.unsure, c.segment)
	delete(l.view.restore, c.segment)
	l.view.plans[c.segment] = planItem{rev: rev, Plan: c.plan}
}

// restoreDefinitions stores definitions again that are in force and that another hand deleted
// or replaced by one of a lower revision. One that no live instance offers may have been removed for good.
func (l *leader) restoreDefinitions(ctx context.Context) error {
	var parts []restoredDefinition
	for _, seg := range slices.Sorted(maps.Keys(l.view.plans)) {
		last := l.view.plans[seg].Last()
		stored, ok := l.view.jobs[seg]
		if ok && stored.Revision >= last.Job().Revision || l.badJobs[seg] || l.foreign[l.m.keys.Job(seg)] || !l.view.offered(last.Job().Name) {
			continue
		}
		d, err := restoreDefinition(l.m.keys.Job(seg), stored.rev, last)
		if err != nil {
			return err
		}
		parts = append(parts, d)
	}
	loads := pack([]registry.Cond{registry.At(l.m.keys.Leader(), l.view.term)}, parts, l.m.reg.Limits(),
		func(d restoredDefinition) share { return share{ops: []registry.Op{d.op}} }, func(restoredDefinition) bool { return false })
	for _, ld := range loads {
		l.do("the writing", "definitions")
		rev, err := registry.Apply(ctx, l.m.reg, ld.txn)
		if refusal, refused := conflict(err); refused {
			if refusal.Index == 0 {
				return errTermOver
			}
			if err := l.findForeign(ctx, ld.txn, refusal.Index); err != nil {
				return err
			}
			continue // the watch delivers the stored value
		}
		if err != nil {
			return fmt.Errorf("restore definitions: %w", err)
		}
		for _, d := range ld.parts {
			l.log.Warn("another hand deleted a definition or stored an older one; the one in force is stored again",
				"job", d.job.Name, "revision", d.job.Revision, "key", string(d.op.Key))
			l.jobs.feed.put(d.op.Key.Name(), rev, d.jobItem)
		}
	}
	return nil
}

// restoredDefinition is a definition to store again.
type restoredDefinition struct {
	jobItem
	job record.Job
	op  registry.Op
}

func restoreDefinition(key registry.Key, stored registry.Rev, e *record.Epoch) (restoredDefinition, error) {
	value, err := record.Encode(e.Def)
	if err != nil {
		return restoredDefinition{}, err
	}
	d := restoredDefinition{jobItem: jobItem{def: e.Def, Job: e.Job()}, job: e.Job(), op: registry.Create(key, value)}
	if !stored.IsZero() {
		d.op = registry.Set(key, stored, value)
	}
	return d, nil
}

// past is evidence, in claims, of a plan that another hand deleted.
type past struct {
	gen     int                     // the highest generation
	through record.Instant          // the last fire that was claimed
	running map[string]shardset.Set // by incarnations that live
}

// before returns the evidence of an earlier plan of a job that has none. That its definition was stored during the
// term does not show that there was none: an operator may have written the definition again after the plan was lost, and a
// later revision is stored while there is a plan. Without a plan no fire is claimed, so a look at any
// time is new enough.
func (p *planning) before(job jobItem) (was past, whole bool) {
	whole = true
	was.running = map[string]shardset.Set{}
	for inc, m := range p.members {
		if !m.Offers(job.Name) {
			continue
		}
		l, ok := p.looked(inc, registry.Rev{})
		if !ok {
			p.looks[inc], whole = true, false
			continue
		}
		claims := l.claimsOf(p.segment)
		for _, g := range claims.Marks {
			if was.gen = max(was.gen, g.Gen); g.Fire <= p.now.Add(p.skew) {
				was.through = max(was.through, g.Fire)
			}
		}
		for _, g := range claims.Running {
			was.gen = max(was.gen, g.Gen)
			if p.alive(inc) {
				was.running[inc] = was.running[inc].Union(g.Shards)
			}
		}
	}
	return was, whole
}

// keepRunning makes members the owners of the shards that they run.
func (p *planning) keepRunning(running map[string]shardset.Set) {
	left := shardset.Range(0, p.p.Shards())
	for _, inc := range slices.Sorted(maps.Keys(running)) {
		if part := running[inc].Intersect(left); !part.IsZero() {
			p.p.Owners[inc], left = part, left.Minus(part)
			p.because("leave %s with %s, which runs them", part, inc)
		}
	}
}

// foreignAgain is how long a leader leaves a foreign value alone before it reads the key again.
const foreignAgain = 2 * time.Second

// findForeign finds out whether a transaction was refused because of a foreign value: a key that
// lists do not show, and that exists all the same. No transaction can replace such a value.
func (l *leader) findForeign(ctx context.Context, t registry.Txn, index int) error {
	var key registry.Key
	if n := len(t.If); index < n && t.If[index].Kind == registry.CondAbsent {
		key = t.If[index].Key
	} else if index >= n && t.Then[index-n].Kind == registry.OpCreate {
		key = t.Then[index-n].Key
	} else {
		return nil
	}
	_, err := l.m.reg.Get(ctx, key, fresh)
	if !errors.Is(err, registry.ErrForeign) {
		return nil // the watch delivers the stored value
	}
	if !l.foreign[key] {
		l.log.Error("record left alone: another program wrote its value; delete the key", "key", string(key), "error", err)
	}
	l.foreign[key], l.recheck = true, time.Now().Add(foreignAgain)
	return nil
}

// findForeign finds out whether a definition was refused because of a foreign value at its key, which
// must not keep the process from joining for its other jobs.
func (m *Member) findForeign(ctx context.Context, t registry.Txn, err error, foreign map[registry.Key]bool) {
	refusal, refused := conflict(err)
	if !refused || refusal.Index < len(t.If) {
		return
	}
	key := t.Then[refusal.Index-len(t.If)].Key
	if _, err := m.reg.Get(ctx, key, fresh); errors.Is(err, registry.ErrForeign) {
		m.log.Error("record left alone: another program wrote its value; delete the key", "key", string(key), "error", err)
		foreign[key] = true
	}
}

// foreignRefuses is after how many conflicts on one vacancy an instance looks for foreign values.
const foreignRefuses = 10

// sayForeign logs which record of the office holds a foreign value: no instance leads until it is deleted.
func (o *officeLoop) sayForeign(ctx context.Context) {
	for _, key := range []registry.Key{o.m.keys.Leader(), o.m.keys.Present()} {
		if _, err := o.m.reg.Get(ctx, key, fresh); errors.Is(err, registry.ErrForeign) {
			o.log.Error("no instance can lead: another program wrote the value of the key; delete it", "key", string(key), "error", err)
		}
	}
}

// recheckForeign reads keys with foreign values again, some time later.
func (l *leader) recheckForeign(ctx context.Context) {
	if len(l.foreign) == 0 || time.Now().Before(l.recheck) {
		return
	}
	for key := range l.foreign {
		if _, err := l.m.reg.Get(ctx, key, fresh); err == nil || errors.Is(err, registry.ErrNotFound) {
			l.log.Info("a foreign value has gone", "key", string(key))
			delete(l.foreign, key)
			l.content = false
		}
	}
	if l.recheck = time.Now().Add(foreignAgain); len(l.foreign) == 0 {
		l.recheck = time.Time{}
	}
}

// unreadableAgain is how long a leader waits before it looks again at claims that it cannot read:
// it watches no claims, and an operator may have mended or removed the record.
const unreadableAgain = 5 * time.Second

// lookAgain sets when to look again at claims that cannot be read.
func (l *leader) lookAgain() {
	l.again = time.Time{}
	for _, seen := range l.view.looks {
		if len(seen.broken) > 0 {
			l.again = time.Now().Add(unreadableAgain)
		}
	}
}

// brokenPlans returns the segments whose plan cannot be read.
func (l *leader) brokenPlans() map[string]bool {
	if len(l.foreign) == 0 {
		return l.broken
	}
	all := maps.Clone(l.broken)
	for key := range l.foreign {
		if key.Dir() == l.m.keys.Plans() {
			all[key.Name()] = true
		}
	}
	return all
}

// spoilt returns, by segment, the key of a definition or of an intent that cannot be read.
func (l *leader) spoilt() map[string]registry.Key {
	out := map[string]registry.Key{}
	for seg := range l.badControls {
		out[seg] = l.m.keys.Control(seg)
	}
	for seg := range l.badJobs {
		out[seg] = l.m.keys.Job(seg)
	}
	for key := range l.foreign {
		if key.Dir() == l.m.keys.Jobs() {
			out[key.Name()] = key
		}
	}
	return out
}
