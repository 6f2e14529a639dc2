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

// addOp adds lines about the record that an operation wrote.
func (t *Transcript) addOp(c *memory.Commit, o *registry.Op) error {
	switch dir := o.Key.Dir(); {
	case o.Key == t.keys.Seat():
		switch o.Kind {
		case registry.OpCreateOwned:
			t.addLine(c, "leads")
		case registry.OpDelete:
			t.addLine(c, "resigns")
		}
		return t.addSkew(c, o)
	case dir == t.keys.Members():
		return t.addMember(c, o)
	case dir == t.keys.Jobs():
		if o.Kind == registry.OpDelete {
			t.addLine(c, "%s: deletes the definition", o.Key.Name())
			return nil
		}
		_, job, err := record.DecodeDefinition(o.Value)
		if err != nil {
			return err
		}
		t.addLine(c, "%s: stores revision %d of the definition: %s", job.Name, job.Revision, countOf(job.Shards, "shard"))
	case o.Key == t.keys.GroupControl():
		return t.addGroupControl(c, o)
	case dir == t.keys.Controls():
		return t.addControl(c, o)
	case dir == t.keys.Plans():
		return t.addPlan(c, o)
	case dir.Dir() == t.keys.ClaimsOf("x").Dir():
		return t.addClaims(c, o)
	case dir.Dir() == t.keys.Data("x", 0).Dir().Dir():
		t.addLine(c, "%s: stores the checkpoint %q of shard %s", dir.Name(), o.Value, o.Key.Name())
	}
	return nil
}

// addSkew adds lines about clocks that the leader finds skewed, or within bounds again.
func (t *Transcript) addSkew(c *memory.Commit, o *registry.Op) error {
	if o.Kind == registry.OpDelete {
		return nil
	}
	now, err := record.Decode[record.Seat](o.Value)
	if err != nil {
		return err
	}
	for _, inc := range slices.Sorted(maps.Keys(now.Skewed)) {
		if _, skewed := t.skewed[inc]; !skewed {
			t.addLine(c, "finds the clock of %s skewed", t.process(inc))
		}
	}
	for _, inc := range slices.Sorted(maps.Keys(t.skewed)) {
		if _, skewed := now.Skewed[inc]; !skewed && t.members[t.keys.Member(inc)] != nil {
			t.addLine(c, "finds the clock of %s no longer skewed", t.process(inc))
		}
	}
	t.skewed = now.Skewed
	return nil
}

func countOf[N int | uint64](n N, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// shardsOf returns "shard 2" or "shards 0-1".
func shardsOf(set shardset.Set) string {
	if set.Len() == 1 {
		return "shard " + set.String()
	}
	return "shards " + set.String()
}

func (t *Transcript) addMember(c *memory.Commit, o *registry.Op) error {
	old := t.members[o.Key]
	if o.Kind == registry.OpDelete {
		delete(t.members, o.Key)
		t.addLine(c, "reaps the member record of %s", t.process(o.Key.Name()))
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
		t.addLine(c, "joins and offers %s", strings.Join(m.Jobs, ", "))
	case m.Draining && !old.Draining:
		t.addLine(c, "drains")
	case !slices.Equal(m.Jobs, old.Jobs):
		t.addLine(c, "offers %s", strings.Join(m.Jobs, ", "))
	}
	for _, job := range slices.Sorted(maps.Keys(m.Ahead)) {
		if is := m.Ahead[job]; old == nil || old.Ahead[job] != is {
			t.addLine(c, "%s: waits until %s, which is ahead of its clock", job, t.instant(is.At))
		}
	}
	return nil
}

func (t *Transcript) addControl(c *memory.Commit, o *registry.Op) error {
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
	write := func(format string, args ...any) { t.addLine(c, now.Job+": "+format, args...) }
	switch {
	case now.Paused && !old.Paused:
		write("asks for a pause")
	case now.Stopped && !old.Stopped:
		write("asks to stop the schedule")
	case !now.Paused && !now.Stopped && (old.Paused || old.Stopped):
		write("asks to resume")
	}
	if now.Resets > old.Resets {
		write("asks for a reset")
	}
	if s := now.Disabled.Minus(old.Disabled); !s.IsZero() {
		write("asks to disable %s", shardsOf(s))
	}
	if s := old.Disabled.Minus(now.Disabled); !s.IsZero() {
		write("asks to enable %s", shardsOf(s))
	}
	addExclusion(&old.Exclusion, &now.Exclusion, write)
	for _, tr := range now.Triggers {
		if tr.Number > old.LastTrigger {
			write("asks for trigger %d", tr.Number)
		}
	}
	return nil
}

func (t *Transcript) addGroupControl(c *memory.Commit, o *registry.Op) error {
	now, err := record.DecodeGroupControl(o.Value)
	if err != nil {
		return err
	}
	addExclusion(&t.excluded, &now.Exclusion, func(format string, args ...any) { t.addLine(c, "all jobs: "+format, args...) })
	t.excluded = now.Exclusion
	return nil
}

// addExclusion adds lines about instances and hosts that an operator disables or enables.
func addExclusion(old, now *record.Exclusion, write func(string, ...any)) {
	for _, kind := range []struct {
		name     string
		old, now []string
	}{{"instance", old.Instances, now.Instances}, {"host", old.Hosts, now.Hosts}} {
		for _, name := range kind.now {
			if !slices.Contains(kind.old, name) {
				write("asks to disable %s %s", kind.name, name)
			}
		}
		for _, name := range kind.old {
			if !slices.Contains(kind.now, name) {
				write("asks to enable %s %s", kind.name, name)
			}
		}
	}
}

// addPlan adds lines about the fields that a commit changed in a plan.
func (t *Transcript) addPlan(c *memory.Commit, o *registry.Op) error {
	old := t.plans[o.Key]
	if o.Kind == registry.OpDelete {
		delete(t.plans, o.Key)
		t.addLine(c, "%s: deletes the plan", old.Job)
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
	write := func(format string, args ...any) { t.addLine(c, now.Job+": "+format, args...) }

	t.addEpochs(old, now, write)
	t.addOwners(old, now, write)
	if s := now.Frozen.Minus(old.Frozen); !s.IsZero() {
		write("freezes %s", shardsOf(s))
	}
	if s := old.Frozen.Minus(now.Frozen); !s.IsZero() {
		write("unfreezes %s", shardsOf(s))
	}
	differing(now.Reruns, old.Reruns, func(shards shardset.Set, r record.Ref) { write("adds re-runs: %s of %s", shardsOf(shards), t.ref(r)) })
	differing(old.Reruns, now.Reruns, func(shards shardset.Set, r record.Ref) { write("drops re-runs: %s of %s", shardsOf(shards), t.ref(r)) })
	if s := now.Disabled.Minus(old.Disabled); !s.IsZero() {
		write("disables %s", shardsOf(s))
	}
	if s := old.Disabled.Minus(now.Disabled); !s.IsZero() {
		write("enables %s", shardsOf(s))
	}
	switch {
	case now.Paused && !old.Paused:
		write("pauses")
	case now.Stopped && !old.Stopped:
		write("stops the schedule")
	case !now.Paused && !now.Stopped && (old.Paused || old.Stopped):
		write("resumes")
	}
	if now.Resets > old.Resets {
		write("resets")
	}
	for _, tr := range now.Triggers {
		if !slices.ContainsFunc(old.Triggers, func(o record.Trigger) bool { return o.Number == tr.Number }) {
			write("adds trigger %d", tr.Number)
		}
	}
	for _, tr := range old.Triggers {
		if !slices.ContainsFunc(now.Triggers, func(n record.Trigger) bool { return n.Number == tr.Number }) {
			write("drops trigger %d", tr.Number)
		}
	}
	t.addEndedFires(old, now, write)
	if lost := now.Counts.Lost - old.Counts.Lost; now.Counts.Lost > old.Counts.Lost {
		write("counts %s as lost", countOf(lost, "run"))
	}
	switch {
	case now.Problem == old.Problem:
	case now.Problem == "":
		write("clears the problem")
	default:
		write("problem: %q", now.Problem)
	}
	return nil
}

// addEpochs adds lines about epochs that begin, get an end, or are dropped.
func (t *Transcript) addEpochs(old, now *record.Plan, write func(string, ...any)) {
	for i := range now.Epochs {
		e := &now.Epochs[i]
		was, known := old.Epoch(e.Number)
		if !known {
			write("epoch %d begins at %s: revision %d, %s", e.Number, t.instant(e.From), e.Job().Revision, countOf(e.Job().Shards, "shard"))
		}
		if e.Until != 0 && (!known || was.Until != e.Until) {
			write("epoch %d ends at %s", e.Number, t.instant(e.Until))
		}
	}
	for i := range old.Epochs {
		e := &old.Epochs[i]
		if _, kept := now.Epoch(e.Number); !kept {
			write("drops epoch %d", e.Number)
		}
	}
}

// addEndedFires adds lines about fires that are shown as ended, and about those that a job follows.
func (t *Transcript) addEndedFires(old, now *record.Plan, write func(string, ...any)) {
	if now.Fires != nil {
		for _, f := range now.Fires.Ended {
			if old.Fires == nil || f.At > old.Fires.Through {
				write("the fire at %s has ended: %s, %d failed, %d skipped", t.instant(f.At), countOf(f.Shards, "shard"), f.Failed, f.Skipped)
			}
		}
	}
	if now.Followed == nil || old.Followed == nil {
		return
	}
	for _, r := range now.Last().Released {
		if r.At > old.Followed.Through {
			write("releases the fire at %s", t.instant(r.At))
		}
	}
}

// addOwners adds lines about shards whose owner changed.
func (t *Transcript) addOwners(old, now *record.Plan, write func(string, ...any)) {
	for _, to := range slices.Sorted(maps.Keys(now.Owners)) {
		gained := now.Owners[to].Minus(old.Owners[to])
		for _, from := range slices.Sorted(maps.Keys(old.Owners)) {
			if part := gained.Intersect(old.Owners[from]); !part.IsZero() {
				write("moves %s from %s to %s", shardsOf(part), t.process(from), t.process(to))
				gained = gained.Minus(part)
			}
		}
		if !gained.IsZero() {
			write("assigns %s to %s", shardsOf(gained), t.process(to))
		}
	}
	assigned := unionOfOwners(now)
	for _, from := range slices.Sorted(maps.Keys(old.Owners)) {
		if lost := old.Owners[from].Minus(assigned); !lost.IsZero() {
			write("unassigns %s of %s", shardsOf(lost), t.process(from))
		}
	}
}

func unionOfOwners(p *record.Plan) (all shardset.Set) {
	for _, shards := range p.Owners {
		all = all.Union(shards)
	}
	return all
}

// process returns the client name of the process of an incarnation.
func (t *Transcript) process(incarnation string) string { return t.processes[incarnation] }

// addClaims adds lines about the claims record of a member for a job, or its reaping by the leader.
func (t *Transcript) addClaims(c *memory.Commit, o *registry.Op) error {
	old := t.claims[o.Key]
	if o.Kind == registry.OpDelete {
		delete(t.claims, o.Key)
		if owner := t.process(o.Key.Dir().Name()); owner != c.Client {
			t.addLine(c, "%s: reaps the claims of %s", old.Job, owner)
		}
		return nil
	}
	now, err := record.DecodeClaims(o.Value)
	if err != nil {
		return err
	}
	t.claims[o.Key] = &now
	if old == nil {
		old = &record.Claims{}
	}
	differing(old.Running, now.Running, func(shards shardset.Set, r record.Ref) {
		t.addLine(c, "%s: %s of %s ends", now.Job, shardsOf(shards), t.ref(r))
	})
	differing(now.Running, old.Running, func(shards shardset.Set, r record.Ref) {
		t.addLine(c, "%s: claims %s of %s", now.Job, shardsOf(shards), t.ref(r))
	})
	differing(now.Reruns, old.Reruns, func(shards shardset.Set, r record.Ref) {
		if r.IsRetry() {
			t.addLine(c, "%s: %s failed (%s): adds %s, not before %s", now.Job, shardsOf(shards),
				now.Failures[len(now.Failures)-1].Error, t.ref(r), t.instant(r.NotBefore))
		}
	})
	if n := now.Counts.Failed - old.Counts.Failed; n > 0 {
		t.addLine(c, "%s: counts %s as failed: %s", now.Job, countOf(n, "run"), now.Failures[len(now.Failures)-1].Error)
	}
	if n := now.Counts.Skipped - old.Counts.Skipped; n > 0 {
		t.addLine(c, "%s: skips %s of %s", now.Job, countOf(n, "fire"), shardsOf(passedWithoutClaim(old, &now)))
	}
	return nil
}

// passedWithoutClaim returns the shards whose watermark passed fires that were not claimed in
// time: the shards to which a count of skipped fires may refer.
func passedWithoutClaim(old, now *record.Claims) (passed shardset.Set) {
	for _, g := range now.Watermarks {
		for n := range g.Shards.All() {
			if before := old.Watermarks.Of(n); before.Epoch != g.Epoch || before.Fire != g.Fire {
				passed.Add(n)
			}
		}
	}
	for _, g := range now.Running {
		if !g.Missed {
			passed = passed.Minus(g.Shards)
		}
	}
	return passed
}

// differing calls f with each group of runs that is in one list and not in the other.
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

// ref returns the fire or trigger and the attempt of a run.
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
