package planning

import (
	"slices"

	"github.com/rota-dev/rota/internal/group/batch"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// Retirement deletes the records of a job that operators have retired and that no instance offers. Claims of live
// members stay until those members are reaped; createPlan reads them if a job of the same name is stored later.
type Retirement struct {
	Segment string
	Control *record.Control
	Key     registry.Key // of the control record
	Rev     registry.Rev // of the control record: the deletion of states depends on it
	Records batch.Items  // deletes the definition, the plan and the control record, as the view has them
}

// isRetiring reports whether operators have retired a job.
func (v *View) isRetiring(segment string) bool {
	c, ok := v.Control[segment]
	return ok && c.Retiring != nil
}

// findRetired returns the retired jobs whose records can be deleted, sorted: no instance offers them, their plans assign
// no shard, and no claims of an expired member wait to be added to their plans. Such a plan allows no claim.
func (r *round) findRetired() (segments []string) {
	for seg := range r.Control {
		_, unreadable := r.UnreadableInputs[seg]
		switch p, planned := r.Plans[seg]; {
		case !r.isRetiring(seg), unreadable, r.UnreadablePlans[seg], r.EditedPlans[seg]:
		case planned && (len(p.Owners) > 0 || r.hasUnabsorbedClaims(seg)):
		case r.isOfferedOrAwaited(seg, record.Job{Name: r.Control[seg].Job}):
		default:
			segments = append(segments, seg)
		}
	}
	slices.Sort(segments)
	return segments
}

// isOfferedOrAwaited reports whether an instance offers a job, or may: one that has just joined, or is awaited.
func (r *round) isOfferedOrAwaited(segment string, job record.Job) bool {
	for inc := range r.JustJoined {
		if m := r.Members[inc]; m.Offers(job) || m.LacksSupport(job) {
			return true
		}
	}
	return !r.isUnoffered(segment, job)
}

// hasUnabsorbedClaims reports whether an expired member has claims of a job, readable or not, or may have some that are
// not read yet.
func (r *round) hasUnabsorbedClaims(segment string) bool {
	return slices.ContainsFunc(r.expired, func(inc string) bool {
		l, ok := r.freshRead(inc, registry.Rev{})
		_, has := l.Claims[segment]
		return has || l.Unreadable[segment] || !ok
	})
}

// retire returns the deletion of a job's records.
func (r *round) retire(segment string) Retirement {
	c := r.Control[segment]
	ret := Retirement{Segment: segment, Control: c.Control, Key: r.Keys.Control(segment), Rev: c.Rev}
	for _, rec := range []struct {
		key registry.Key
		rev registry.Rev // zero: there is none
	}{{r.Keys.Job(segment), r.Jobs[segment].Rev}, {r.Keys.Plan(segment), r.Plans[segment].Rev}} {
		if rec.rev.IsZero() {
			ret.Records.Conds = append(ret.Records.Conds, registry.Absent(rec.key))
		} else {
			ret.Records.Ops = append(ret.Records.Ops, registry.Delete(rec.key, rec.rev))
		}
	}
	ret.Records.Ops = append(ret.Records.Ops, registry.Delete(ret.Key, c.Rev))
	return ret
}
