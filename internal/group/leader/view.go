package leader

import (
	"log/slog"
	"maps"
	"reflect"

	"github.com/rota-dev/rota/internal/group/feed"
	"github.com/rota-dev/rota/internal/group/planning"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// controls is a record of the control directory: the operators' intent for a job or for the group.
type controls struct {
	job   *record.Control // nil: the record is the group's
	group record.GroupControl
}

func decodeControls(e registry.Entry) (controls, error) {
	if e.Key.Name() != record.GroupSegment {
		c, err := record.DecodeOf(e, record.DecodeControl)
		return controls{job: c}, err
	}
	c, err := record.DecodeGroupControl(e.Value)
	if err != nil {
		return controls{}, err
	}
	return controls{group: *c}, nil
}

// updateView applies the changes that the feeds have delivered, and reports whether all feeds have
// delivered a snapshot.
func (l *Leader) updateView() bool {
	changed := false
	synced := l.instances.Drain(func(n feed.Update[registry.SessionID]) {
		changed = true
		l.incomplete.observeInstance(n)
	})
	if changed {
		l.idle = false
		l.pools.markAll()
		clear(l.View.Live)
		for _, s := range l.instances.Feed.Values() {
			l.View.Live[s] = true
		}
		maps.DeleteFunc(l.View.JustJoined, func(inc string, _ bool) bool { return l.View.Alive(inc) })
	}
	synced = l.members.Drain(func(n feed.Update[record.Member]) {
		if l.applyWaiting(n) {
			return
		}
		l.noteJustJoined(n)
		l.incomplete.observeMember(n)
		applyUpdate(l, l.View.Members, n, planning.MemberRecord{Rev: n.Rev, Member: n.Value})
		l.observeClock(n)
	}) && synced
	synced = l.jobs.Drain(func(n feed.Update[planning.JobRecord]) {
		l.noteFollowed(followedBy(l.View.Jobs[n.Name].Job))
		applyUpdate(l, l.View.Jobs, n, n.Value)
		setMembership(l.Edits.badJobs, n.Name, n.Unreadable)
		l.noteFollowed(followedBy(n.Value.Job))
		l.notePools(n.Value.Job)
		l.defined.index.Ask(n.Name)
		l.showDefined(n.Name)
		l.reportCollisions(n.Name)
	}) && synced
	synced = l.controls.Drain(func(n feed.Update[controls]) {
		if n.Name == record.GroupSegment {
			l.idle = false
			l.View.GroupExclusion = n.Value.group.Exclusion // empty if the record was deleted or cannot be read
			l.View.Group = planning.GroupRecord{Rev: n.Rev, GroupControl: &n.Value.group}
			if n.Unreadable {
				l.View.Group.GroupControl = nil
			}
			l.noteSizes()
			return
		}
		applyUpdate(l, l.View.Control, n, planning.ControlRecord{Rev: n.Rev, Control: n.Value.job})
		setMembership(l.Edits.badControls, n.Name, n.Unreadable)
		l.defined.index.Ask(n.Name)
	}) && synced
	synced = l.ends.Drain(l.observeEnds) && synced
	synced = l.plans.Drain(func(n feed.Update[*record.Plan]) {
		if l.Edits.detectPlanEdit(&l.View, n, l.synced) {
			l.idle, l.LastCommit = false, max(l.LastCommit, n.Rev.Seq)
			return
		}
		delete(l.View.EditedPlans, n.Name)
		applyUpdate(l, l.View.Plans, n, planning.PlanRecord{Rev: n.Rev, Plan: n.Value})
		l.defined.index.Ask(n.Name)
		if n.Value != nil {
			l.notePools(n.Value.Last().Job())
		}
		l.reportEndedFires(n.Name)
		delete(l.BrokenPlans, n.Name)
		if n.Unreadable {
			l.BrokenPlans[n.Name] = true
			feed.LogUnreadable(l.Log, slog.LevelError, l.Self.Keys.Plan(n.Name), n.Err)
		}
	}) && synced
	l.View.UnreadablePlans, l.View.UnreadableInputs = l.Edits.unreadablePlans(l.BrokenPlans), l.Edits.unreadableInputs()
	for segment := range l.defined.unreadable {
		if l.View.Jobs[segment].Kind != "" {
			l.View.UnreadableInputs[segment] = l.Self.Keys.Defined(segment)
		}
	}
	l.synced = l.synced || synced
	return synced
}

// forgetJustJoined makes the regular check treat members that joined without a live session as
// expired.
func (l *Leader) forgetJustJoined() {
	l.idle = l.idle && len(l.View.JustJoined) == 0
	clear(l.View.JustJoined)
}

// noteJustJoined records a new member whose instance key the other watch has not delivered yet. Such
// a member is not expired. If its session has ended meanwhile, a watch may never show the instance
// key; the regular check covers that, and until then nothing is lost, as the member owns no shard.
func (l *Leader) noteJustJoined(n feed.Update[record.Member]) {
	if n.Deleted || n.Unreadable {
		delete(l.View.JustJoined, n.Name)
	} else if _, known := l.View.Members[n.Name]; l.synced && !known && !l.View.Alive(n.Name) {
		l.View.JustJoined[n.Name] = true
	}
}

// setMembership adds a name to a set if member is true, and removes it otherwise.
func setMembership(set map[string]bool, name string, member bool) {
	if delete(set, name); member {
		set[name] = true
	}
}

// applyUpdate stores the update of a record in a map of the view.
func applyUpdate[T, V any](l *Leader, m map[string]V, n feed.Update[T], v V) {
	l.idle = false
	l.LastCommit = max(l.LastCommit, n.Rev.Seq)
	if n.Deleted || n.Unreadable {
		delete(m, n.Name)
		return
	}
	m[n.Name] = v
}

// applyWaiting applies an update of a member record that changes only the waiting runs, and the clock
// reading that each version carries. It reports whether the update is one. Planning does not depend
// on these fields, so an idle leader stays idle.
func (l *Leader) applyWaiting(n feed.Update[record.Member]) bool {
	known, ok := l.View.Members[n.Name]
	if !ok || n.Deleted || n.Unreadable || maps.EqualFunc(known.Waiting, n.Value.Waiting, record.Waiting.Equal) {
		return false
	}
	before := known.Member
	before.Waiting, before.Clock = n.Value.Waiting, n.Value.Clock
	if !reflect.DeepEqual(before, n.Value) {
		return false
	}
	idle := l.idle
	applyUpdate(l, l.View.Members, n, planning.MemberRecord{Rev: n.Rev, Member: n.Value})
	l.idle = idle
	return true
}

// keepIntents passes on the control records that this leader knows, for a store that loses them. A term
// that ends before all records have been delivered knows none.
func (l *Leader) keepIntents() {
	if !l.synced || l.View.Group.GroupControl == nil {
		return
	}
	known := make(map[string]*record.Control, len(l.View.Control))
	for segment, c := range l.View.Control {
		known[segment] = c.Control
	}
	l.Self.KeepIntents(known, l.View.Group.GroupControl)
}
