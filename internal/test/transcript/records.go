package transcript

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

// op tells what an operation changed.
func (t *Transcript) op(c *memory.Commit, o *registry.Op) error {
	gone := o.Kind == registry.OpDelete
	switch dir := o.Key.Dir(); {
	case o.Key == t.keys.Seat():
		switch o.Kind {
		case registry.OpCreateOwned:
			t.say(c, "leads")
		case registry.OpDelete:
			t.say(c, "resigns")
		}
		return t.clocks(c, o)
	case dir == t.keys.Members():
		return t.member(c, o)
	case dir == t.keys.Jobs():
		if gone {
			t.say(c, "%s: definition deleted", o.Key.Name())
			return nil
		}
		_, job, err := record.DecodeDefinition(o.Value)
		if err != nil {
			return err
		}
		t.say(c, "%s: defines revision %d of %s", job.Name, job.Revision, shardCount(job.Shards))
	case o.Key == t.keys.GroupControl():
		return t.groupControl(c, o)
	case dir == t.keys.Controls():
		return t.control(c, o)
	case dir == t.keys.Plans():
		return t.plan(c, o)
	case dir.Dir() == t.keys.ClaimsOf("x").Dir():
		return t.claim(c, o)
	}
	return nil
}

// clocks tells whose clocks a leader finds to be off, and whose no more.
func (t *Transcript) clocks(c *memory.Commit, o *registry.Op) error {
	if o.Kind == registry.OpDelete {
		return nil
	}
	now, err := record.Decode[record.Seat](o.Value)
	if err != nil {
		return err
	}
	for _, inc := range slices.Sorted(maps.Keys(now.Skewed)) {
		if _, off := t.off[inc]; !off {
			t.say(c, "finds the clock of %s off", t.process(inc))
		}
	}
	for _, inc := range slices.Sorted(maps.Keys(t.off)) {
		if _, off := now.Skewed[inc]; !off && t.members[t.keys.Member(inc)] != nil {
			t.say(c, "finds the clock of %s right again", t.process(inc))
		}
	}
	t.off = now.Skewed
	return nil
}

func shardCount(n int) string {
	if n == 1 {
		return "1 shard"
	}
	return fmt.Sprintf("%d shards", n)
}

func (t *Transcript) member(c *memory.Commit, o *registry.Op) error {
	old := t.members[o.Key]
	if o.Kind == registry.OpDelete {
		delete(t.members, o.Key)
		t.say(c, "strikes %s off the members", t.process(o.Key.Name()))
		return nil
	}
	m, err := record.Decode[record.Member](o.Value)
	if err != nil {
		return err
	}
	t.members[o.Key] = &m
	switch {
	case old == nil:
		t.processes[o.Key.Name()] = c.Client
		t.say(c, "joins, offers %s", strings.Join(m.Jobs, ", "))
	case m.Draining && !old.Draining:
		t.say(c, "drains")
	case !slices.Equal(m.Jobs, old.Jobs):
		t.say(c, "offers %s", strings.Join(m.Jobs, ", "))
	}
	for _, job := range slices.Sorted(maps.Keys(m.Ahead)) {
		if is := m.Ahead[job]; old == nil || old.Ahead[job] != is {
			t.say(c, "%s: waits until %s, which is ahead of its clock", job, t.instant(is.At))
		}
	}
	return nil
}

func (t *Transcript) control(c *memory.Commit, o *registry.Op) error {
	if o.Kind == registry.OpDelete {
		delete(t.controls, o.Key)
		return nil
	}
	now, err := record.DecodeControl(o.Value)
	if err != nil {
		return err
	}
	old := t.controls[o.Key]
	if old == nil {
		old = &record.Control{}
	}
	t.controls[o.Key] = now
	say := func(format string, args ...any) { t.say(c, now.Job+": "+format, args...) }
	switch {
	case now.Paused && !old.Paused:
		say("asks for a pause")
	case now.Stopped && !old.Stopped:
		say("asks to stop the schedule")
	case !now.Paused && !now.Stopped && (old.Paused || old.Stopped):
		say("asks to resume")
	}
	if now.Resets > old.Resets {
		say("asks for a reset")
	}
	if s := now.Disabled.Minus(old.Disabled); !s.IsZero() {
		say("asks to disable %s", s)
	}
	if s := old.Disabled.Minus(now.Disabled); !s.IsZero() {
		say("asks to enable %s", s)
	}
	exclusion(&old.Exclusion, &now.Exclusion, say)
	for _, tr := range now.Triggers {
		if tr.Number > old.LastTrigger {
			say("asks for trigger %d", tr.Number)
		}
	}
	return nil
}

func (t *Transcript) groupControl(c *memory.Commit, o *registry.Op) error {
	now, err := record.DecodeGroupControl(o.Value)
	if err != nil {
		return err
	}
	exclusion(&t.outside, &now.Exclusion, func(format string, args ...any) { t.say(c, "all jobs: "+format, args...) })
	t.outside = now.Exclusion
	return nil
}

// exclusion tells who is disabled, and who no longer is.
func exclusion(old, now *record.Exclusion, say func(string, ...any)) {
	for _, kind := range []struct {
		name     string
		old, now []string
	}{{"instance", old.Instances, now.Instances}, {"host", old.Hosts, now.Hosts}} {
		for _, name := range kind.now {
			if !slices.Contains(kind.old, name) {
				say("asks to disable %s %s", kind.name, name)
			}
		}
		for _, name := range kind.old {
			if !slices.Contains(kind.now, name) {
				say("asks to enable %s %s", kind.name, name)
			}
		}
	}
}

// plan tells what the leader changed.
func (t *Transcript) plan(c *memory.Commit, o *registry.Op) error {
	old := t.plans[o.Key]
	if o.Kind == registry.OpDelete {
		delete(t.plans, o.Key)
		t.say(c, "%s: plan deleted", old.Job)
		return nil
	}
	now, err := record.DecodePlan(o.Value)
	if err != nil {
		return err
	}
	t.plans[o.Key] = now
	if old == nil {
		old = &record.Plan{}
	}
	say := func(format string, args ...any) { t.say(c, now.Job+": "+format, args...) }

	t.epochs(old, now, say)
	t.moves(old, now, say)
	if s := now.Frozen.Minus(old.Frozen); !s.IsZero() {
		say("freezes %s", s)
	}
	if s := old.Frozen.Minus(now.Frozen); !s.IsZero() {
		say("thaws %s", s)
	}
	differing(now.Reruns, old.Reruns, func(shards shardset.Set, r record.Ref) { say("owes %s of %s", shards, t.ref(r)) })
	differing(old.Reruns, now.Reruns, func(shards shardset.Set, r record.Ref) { say("no longer owes %s of %s", shards, t.ref(r)) })
	if s := now.Disabled.Minus(old.Disabled); !s.IsZero() {
		say("disables %s", s)
	}
	if s := old.Disabled.Minus(now.Disabled); !s.IsZero() {
		say("enables %s", s)
	}
	switch {
	case now.Paused && !old.Paused:
		say("pauses")
	case now.Stopped && !old.Stopped:
		say("stops the schedule")
	case !now.Paused && !now.Stopped && (old.Paused || old.Stopped):
		say("resumes")
	}
	if now.Resets > old.Resets {
		say("resets")
	}
	for _, tr := range now.Triggers {
		if !slices.ContainsFunc(old.Triggers, func(o record.Trigger) bool { return o.Number == tr.Number }) {
			say("trigger %d is to run", tr.Number)
		}
	}
	for _, tr := range old.Triggers {
		if !slices.ContainsFunc(now.Triggers, func(n record.Trigger) bool { return n.Number == tr.Number }) {
			say("trigger %d is served", tr.Number)
		}
	}
	if lost := now.Counts.Lost - old.Counts.Lost; now.Counts.Lost > old.Counts.Lost {
		say("counts %d as lost", lost)
	}
	if now.Problem != old.Problem {
		say("problem: %q", now.Problem)
	}
	return nil
}

func (t *Transcript) epochs(old, now *record.Plan, say func(string, ...any)) {
	for i := range now.Epochs {
		e := &now.Epochs[i]
		was, known := old.Epoch(e.Number)
		if !known {
			say("from %s on: revision %d of %s", t.instant(e.From), e.Job().Revision, shardCount(e.Job().Shards))
		}
		if e.Until != 0 && (!known || was.Until != e.Until) {
			say("until %s: revision %d of %s", t.instant(e.Until), e.Job().Revision, shardCount(e.Job().Shards))
		}
	}
	for i := range old.Epochs {
		e := &old.Epochs[i]
		if _, kept := now.Epoch(e.Number); !kept {
			say("done with revision %d of %s", e.Job().Revision, shardCount(e.Job().Shards))
		}
	}
}

// moves tells of the shards that have another owner than before.
func (t *Transcript) moves(old, now *record.Plan, say func(string, ...any)) {
	for _, to := range slices.Sorted(maps.Keys(now.Owners)) {
		gained := now.Owners[to].Minus(old.Owners[to])
		for _, from := range slices.Sorted(maps.Keys(old.Owners)) {
			if part := gained.Intersect(old.Owners[from]); !part.IsZero() {
				say("moves %s from %s to %s", part, t.process(from), t.process(to))
				gained = gained.Minus(part)
			}
		}
		if !gained.IsZero() {
			say("gives %s to %s", gained, t.process(to))
		}
	}
	kept := owned(now)
	for _, from := range slices.Sorted(maps.Keys(old.Owners)) {
		if lost := old.Owners[from].Minus(kept); !lost.IsZero() {
			say("takes %s from %s", lost, t.process(from))
		}
	}
}

func owned(p *record.Plan) (all shardset.Set) {
	for _, shards := range p.Owners {
		all = all.Union(shards)
	}
	return all
}

// process returns by what name the store knows the process of an incarnation.
func (t *Transcript) process(incarnation string) string { return t.processes[incarnation] }

// claim tells what a member did for a job, or that the leader took over its record.
func (t *Transcript) claim(c *memory.Commit, o *registry.Op) error {
	old := t.claims[o.Key]
	if o.Kind == registry.OpDelete {
		delete(t.claims, o.Key)
		if owner := t.process(o.Key.Dir().Name()); owner != c.Client {
			t.say(c, "%s: buries the claims of %s", old.Job, owner)
		}
		return nil
	}
	now, err := record.Decode[record.Claims](o.Value)
	if err != nil {
		return err
	}
	t.claims[o.Key] = &now
	if old == nil {
		old = &record.Claims{}
	}
	differing(old.Running, now.Running, func(shards shardset.Set, r record.Ref) {
		t.say(c, "%s: %s of %s ends", now.Job, shards, t.ref(r))
	})
	differing(now.Running, old.Running, func(shards shardset.Set, r record.Ref) {
		t.say(c, "%s: claims %s of %s", now.Job, shards, t.ref(r))
	})
	if n := now.Counts.Failed - old.Counts.Failed; n > 0 {
		t.say(c, "%s: %d failed: %s", now.Job, n, now.Failures[len(now.Failures)-1].Error)
	}
	if n := now.Counts.Skipped - old.Counts.Skipped; n > 0 {
		t.say(c, "%s: skips %d", now.Job, n)
	}
	return nil
}

// differing calls f with what stands in one and not in the other.
func differing(one, other record.Runs, f func(shardset.Set, record.Ref)) {
	for _, g := range one {
		rest := g.Shards
		for _, h := range other {
			if h.Ref == g.Ref {
				rest = rest.Minus(h.Shards)
			}
		}
		if !rest.IsZero() {
			f(rest, g.Ref)
		}
	}
}

// ref names a run.
func (t *Transcript) ref(r record.Ref) string {
	what := "the fire at " + t.instant(r.Fire)
	if r.Trigger > 0 {
		what = fmt.Sprintf("trigger %d", r.Trigger)
	}
	if r.Missed {
		what = "the missed fire at " + t.instant(r.Fire)
	}
	if r.Attempt > 1 {
		what += fmt.Sprintf(", attempt %d", r.Attempt)
	}
	return what
}
