package rotatest

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

// matter is something that is not at rest.
type matter struct {
	kind   kind
	job    string         // empty: all of a group
	shards shardset.Set   // empty: not about shards
	due    record.Instant // of what is owed
	what   string
}

type kind int

const (
	inRun  kind = iota // a run is on record
	owed               // a run is due and not claimed
	moving             // who has what is about to change
)

func (m matter) String() string {
	switch {
	case m.job == "":
		return m.what
	case m.shards.IsZero():
		return fmt.Sprintf("%s: %s", m.job, m.what)
	}
	return fmt.Sprintf("%s/%s: %s", m.job, m.shards, m.what)
}

// matters returns all that is not at rest now and will be some time, if no process crashes
// or comes and nobody intervenes: what no process offers, or is paused or disabled, rests.
func (b *books) matters(now time.Time) []matter {
	var out []matter
	for _, g := range b.groups {
		if m, ok := g.leaderless(); ok {
			out = append(out, m)
		}
		for _, j := range g.all() {
			v := &viewing{jobBooks: j, now: record.InstantOf(now)}
			v.look()
			out = append(out, v.matters...)
		}
	}
	return out
}

func (g *group) leaderless() (matter, bool) {
	if machine, ok := g.books.sessions[g.office]; ok && !g.books.buried[machine] {
		return matter{}, false
	}
	for incarnation, m := range g.members {
		if g.books.alive(incarnation) && !m.Draining {
			return matter{kind: moving, what: "nobody leads"}, true
		}
	}
	return matter{}, false
}

// viewing is a look at a job.
type viewing struct {
	*jobBooks
	now     record.Instant
	matters []matter
}

func (v *viewing) add(k kind, shards shardset.Set, due record.Instant, format string, args ...any) {
	v.matters = append(v.matters, matter{k, v.name, shards, due, fmt.Sprintf(format, args...)})
}

func (v *viewing) look() {
	offered, may := v.offered()
	if v.plan == nil {
		if offered && v.stored != nil {
			v.add(moving, shardset.Set{}, 0, "there is no plan yet")
		}
		return
	}
	v.runs()
	if !offered {
		return
	}
	v.intent()
	v.owners(may)
	if may && !v.plan.Paused {
		v.reruns()
		v.triggers()
		v.fires()
	}
}

// runs looks at the runs on record. Those of the dead are for owners to look at.
func (v *viewing) runs() {
	for _, incarnation := range slices.Sorted(maps.Keys(v.claims)) {
		if !v.group.books.alive(incarnation) {
			continue
		}
		instance, _ := split(incarnation)
		for _, r := range v.inFlight(v.claims[incarnation]) {
			v.add(inRun, r.Shards, 0, "%s is on record as running on %s", describe(r.Ref), instance)
		}
	}
}

// intent looks at what is in the registry and not yet in the plan.
func (v *viewing) intent() {
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

// owners looks at who has what. Shards that nobody may own are free for long.
func (v *viewing) owners(may bool) {
	free := shardset.Range(0, v.plan.Shards())
	for _, incarnation := range slices.Sorted(maps.Keys(v.plan.Owners)) {
		shards := v.plan.Owners[incarnation]
		free = free.Minus(shards)
		if _, may := v.offers(incarnation); !may {
			instance, _ := split(incarnation)
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

func (v *viewing) reruns() {
	for _, g := range v.plan.Reruns {
		v.unclaimed(g.Shards.Minus(v.plan.Disabled), g.Ref)
	}
}

func (v *viewing) triggers() {
	if v.control != nil && len(v.control.Triggers) > 0 {
		t := v.control.Triggers[0]
		v.add(owed, shardset.Set{}, t.At, "trigger %d has not been taken up", t.Number)
	}
	for _, t := range v.plan.Triggers {
		if e, ok := v.plan.Epoch(t.Epoch); ok {
			shards := shardset.Range(0, e.Job().Shards)
			if t.Shards != nil {
				shards = shards.Intersect(*t.Shards)
			}
			v.unclaimed(shards.Minus(v.plan.Disabled), record.Ref{Epoch: t.Epoch, Fire: t.At, Trigger: t.Number, Attempt: 1})
		}
	}
}

// unclaimed adds the shards that owe a run.
func (v *viewing) unclaimed(shards shardset.Set, r record.Ref) {
	for _, part := range v.marks.Split(shards) {
		if !part.Covers(r) {
			v.add(owed, part.Shards, r.Fire, "owe %s", describe(r))
		}
	}
}

// fires looks at the fires of the schedule that have come. Those behind the re-run of a
// disabled shard wait with it.
func (v *viewing) fires() {
	var waiting shardset.Set
	for _, g := range v.plan.Reruns {
		for _, part := range v.marks.Split(g.Shards.Intersect(v.plan.Disabled)) {
			if g.Trigger == 0 && !part.Covers(g.Ref) {
				waiting = waiting.Union(part.Shards)
			}
		}
	}
	for i := range v.plan.Epochs {
		e := v.epochs[v.plan.Epochs[i].Number]
		for _, part := range v.marks.Split(e.shards.Minus(waiting)) {
			after, ok := e.after(part.Watermark)
			if !ok {
				continue
			}
			if fire := e.next(after); fire != 0 && fire <= v.now {
				v.add(owed, part.Shards, fire, "owe the fire of %s", clock(fire.Time()))
			}
		}
	}
}

// describe returns what a run is in words.
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
