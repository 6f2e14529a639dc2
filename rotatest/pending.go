package rotatest

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

// pendingItem is something in the fleet that is not at rest.
type pendingItem struct {
	kind   itemKind
	job    string         // empty: all of a group
	shards shardset.Set   // empty: not about shards
	due    record.Instant // of a due run
	retry  bool           // of a run that is retried without bound
	what   string
}

type itemKind int

const (
	running itemKind = iota // a run is on record
	due                     // a run is due and not claimed
	moving                  // a shard is about to change its owner
)

func (m pendingItem) String() string {
	switch {
	case m.job == "":
		return m.what
	case m.shards.IsZero():
		return fmt.Sprintf("%s: %s", m.job, m.what)
	}
	return fmt.Sprintf("%s/%s: %s", m.job, m.shards, m.what)
}

// pendingItems returns everything that is not at rest now and comes to rest by itself. Jobs that
// are paused, disabled or without an instance are at rest.
func (b *model) pendingItems(now time.Time) []pendingItem {
	var out []pendingItem
	for _, g := range b.groups {
		if m, ok := g.leaderless(); ok {
			out = append(out, m)
		}
		for _, j := range g.allJobs() {
			v := &pendingScan{jobModel: j, now: record.InstantOf(now)}
			v.scan()
			out = append(out, v.items...)
		}
	}
	return out
}

func (g *groupModel) leaderless() (pendingItem, bool) {
	if machine, ok := g.model.sessions[g.leader]; ok && !g.model.crashed[machine] {
		return pendingItem{}, false
	}
	for incarnation, m := range g.members {
		if g.model.alive(incarnation) && !m.Draining {
			return pendingItem{kind: moving, what: "nobody leads"}, true
		}
	}
	return pendingItem{}, false
}

// pendingScan collects the pending items of a job.
type pendingScan struct {
	*jobModel
	now   record.Instant
	items []pendingItem
}

func (v *pendingScan) add(k itemKind, shards shardset.Set, due record.Instant, format string, args ...any) {
	v.items = append(v.items, pendingItem{kind: k, job: v.name, shards: shards, due: due, what: fmt.Sprintf(format, args...)})
}

func (v *pendingScan) scan() {
	offered, may := v.offered()
	if v.plan == nil {
		if offered && v.stored != nil {
			v.add(moving, shardset.Set{}, 0, "there is no plan yet")
		}
		return
	}
	v.addRuns()
	if !offered {
		return
	}
	v.addIntent()
	v.addOwners(may)
	if may && !v.plan.Paused {
		v.addReruns()
		v.addTriggers()
		v.addFires()
	}
}

// addRuns adds the recorded runs. Runs of expired incarnations are covered by addOwners.
func (v *pendingScan) addRuns() {
	for _, incarnation := range slices.Sorted(maps.Keys(v.claims)) {
		if !v.group.model.alive(incarnation) {
			continue
		}
		instance, _ := splitIncarnation(incarnation)
		for _, r := range v.inFlight(v.claims[incarnation]) {
			for shard := range r.Shards.All() {
				if v.isDaemonAtRest(shard, r.Epoch) {
					r.Shards = r.Shards.Minus(shardset.Of(shard))
				}
			}
			if r.Shards.IsZero() {
				continue
			}
			v.add(running, r.Shards, 0, "%s is on record as running on %s", describe(r.Ref), instance)
		}
	}
}

// addIntent adds intent and definitions that the plan does not reflect yet.
func (v *pendingScan) addIntent() {
	if c := v.control; c != nil && (c.Paused != v.plan.Paused || c.Stopped != v.plan.Stopped) {
		v.add(moving, shardset.Set{}, 0, "a pause, a stop of the schedule or a resume has not taken effect")
	}
	if c := v.control; c != nil && c.Resets > v.plan.Resets && !v.plan.Paused && !v.plan.Stopped {
		v.add(moving, shardset.Set{}, 0, "a reset has not taken effect")
	}
	if c := v.control; c != nil && !c.Disabled.Equal(v.plan.Disabled) {
		v.add(moving, shardset.Set{}, 0, "shards are disabled or enabled, and that has not taken effect")
	}
	if v.plan.Paused {
		return
	}
	last := v.plan.Last()
	if v.stored != nil && v.stored.Revision > last.Job().Revision {
		v.add(moving, shardset.Set{}, 0, "the definition of revision %d has not been taken up", v.stored.Revision)
	}
	if last.From > v.now {
		v.add(moving, shardset.Set{}, 0, "its newest definition counts from %s", clock(last.From.Time()))
	}
}

// addOwners adds shards that are about to change their owner. Shards that no instance may own
// are at rest.
func (v *pendingScan) addOwners(may bool) {
	free := shardset.Range(0, v.plan.Shards())
	for _, incarnation := range slices.Sorted(maps.Keys(v.plan.Owners)) {
		shards := v.plan.Owners[incarnation]
		free = free.Minus(shards)
		if _, may := v.offers(incarnation); !may {
			instance, _ := splitIncarnation(incarnation)
			v.add(moving, shards, 0, "are to move from %s", instance)
		}
	}
	if may && !free.IsZero() {
		v.add(moving, free, 0, "have no owner")
	}
	if !v.plan.Frozen.IsZero() {
		v.add(moving, v.plan.Frozen, 0, "are about to move")
	}
}

// reruns returns the pending re-runs: those of the plan, and those that owners have put on record since.
func (v *pendingScan) reruns() record.Runs {
	all := slices.Clone(v.plan.Reruns)
	for _, incarnation := range slices.Sorted(maps.Keys(v.claims)) {
		all = append(all, v.claims[incarnation].Reruns.Within(v.plan.Owners[incarnation])...)
	}
	return all
}

func (v *pendingScan) addReruns() {
	for _, g := range v.reruns() {
		from := len(v.items)
		v.addUnclaimed(g.Shards.Minus(v.plan.Disabled), g.Ref)
		for i := range v.items[from:] {
			v.items[from+i].retry = g.IsRetry() && v.epochs[g.Epoch].unbounded
		}
	}
}

func (v *pendingScan) addTriggers() {
	if v.control != nil && len(v.control.Triggers) > 0 {
		t := v.control.Triggers[0]
		v.add(due, shardset.Set{}, t.At, "trigger %d has not been taken up", t.Number)
	}
	for _, t := range v.plan.Triggers {
		if e, ok := v.plan.Epoch(t.Epoch); ok {
			shards := shardset.Range(0, e.Job().Shards)
			if t.Shards != nil {
				shards = shards.Intersect(*t.Shards)
			}
			v.addUnclaimed(shards.Minus(v.plan.Disabled), record.Ref{Epoch: t.Epoch, Fire: t.At, Trigger: t.Number, Attempt: 1})
		}
	}
}

// addUnclaimed adds the shards that have not claimed the run r.
func (v *pendingScan) addUnclaimed(shards shardset.Set, r record.Ref) {
	for _, part := range v.watermarks.Split(shards) {
		if !part.Covers(r) {
			v.add(due, part.Shards, max(r.Fire, r.NotBefore), "have not claimed %s", describe(r))
		}
	}
}

// addFires adds due fires of the schedule. Fires behind the re-run of a disabled shard wait with
// it, so they are at rest. A shard that runs, or waits for a re-run, has no fire that counts from its end.
func (v *pendingScan) addFires() {
	var waiting shardset.Set
	held := v.runningShards()
	for _, g := range v.reruns() {
		for _, part := range v.watermarks.Split(g.Shards) {
			if !part.Covers(g.Ref) {
				held = held.Union(part.Shards)
			}
		}
		for _, part := range v.watermarks.Split(g.Shards.Intersect(v.plan.Disabled)) {
			if g.Trigger == 0 && !part.Covers(g.Ref) {
				waiting = waiting.Union(part.Shards)
			}
		}
	}
	for i := range v.plan.Epochs {
		e := v.epochs[v.plan.Epochs[i].Number]
		shards := e.shards.Minus(waiting)
		if e.countsEnds {
			shards = shards.Minus(held)
		}
		for _, part := range v.watermarks.Split(shards) {
			after, ok := e.after(part.Watermark)
			if !ok {
				continue
			}
			if fire := e.next(after); fire != 0 && fire <= v.now {
				v.add(due, part.Shards, fire, "have not claimed the fire of %s", clock(fire.Time()))
			}
		}
	}
}

// describe returns a description of a run.
func describe(r record.Ref) string {
	text := "the run for " + clock(r.Fire.Time())
	if r.Trigger > 0 {
		text = fmt.Sprintf("the run for trigger %d", r.Trigger)
	}
	if r.Attempt > 1 {
		text += fmt.Sprintf(", attempt %d,", r.Attempt)
	}
	return text
}
