package planning

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/rota-dev/rota/internal/group/due"
	"github.com/rota-dev/rota/internal/group/event"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/scheduletext"
	"github.com/rota-dev/rota/internal/shardset"
)

// FindFollowers returns the segments of the jobs that follow each job, by the segment of the followed one. A job
// follows by its stored definition and by the one in force: the stored one may be lost or unreadable for a while.
func FindFollowers(v *View) map[string][]string {
	var followers map[string][]string
	add := func(after *scheduletext.After, seg string) {
		if followers == nil {
			followers = map[string][]string{}
		}
		for _, name := range after.Jobs {
			if followed := record.Segment(name); !slices.Contains(followers[followed], seg) {
				followers[followed] = append(followers[followed], seg)
			}
		}
	}
	for seg, job := range v.Jobs {
		if job.After != nil {
			add(job.After, seg)
		}
	}
	for seg, plan := range v.Plans {
		if after := plan.Last().Job().After; after != nil {
			add(after, seg)
		}
	}
	return followers
}

// followProblem returns why a job cannot follow the jobs that its definition names, "" if it can.
func (r *round) followProblem(segment string) string {
	if len(r.followers) == 0 {
		return ""
	}
	after := r.InForce(segment).After
	if after == nil {
		return ""
	}
	if circle := r.circles.Through(r.Jobs[segment].Name); circle != nil {
		return fmt.Sprintf("follows itself through jobs %q", circle)
	}
	for _, name := range after.Jobs {
		job, ok := r.Jobs[record.Segment(name)]
		switch {
		case !ok:
			return fmt.Sprintf("follows job %q, which has no definition", name)
		case r.isRetiring(record.Segment(name)):
			return fmt.Sprintf("follows job %q, which is retiring", name)
		case !due.TracksRuns(job.Job):
			return fmt.Sprintf("follows job %q, which does not record the ends of runs", name)
		}
		prog, err := r.compileDef(job.Def)
		if err == nil && due.CountsEnds(prog) {
			return fmt.Sprintf("follows job %q, whose shards have no common fires", name)
		}
	}
	return ""
}

// followedBy returns the names of the jobs that a job follows by its stored definition.
func (r *round) followedBy(name string) []string {
	if after := r.Jobs[record.Segment(name)].After; after != nil {
		return after.Jobs
	}
	return nil
}

// followFires makes the ended fires of other jobs fires of this job. Each becomes one, or is counted as skipped,
// in the order of their instants.
func (p *jobPlanner) followFires() {
	after := p.next.Last().Job().After
	switch {
	case after == nil && p.next.Followed == nil:
		return
	case after == nil:
		p.next.Followed = nil
		p.explainUpkeep("follow no job")
		return
	case p.next.Followed == nil:
		p.next.Followed = &record.Followed{Through: p.next.Last().From - 1}
		p.explainUpkeep("follow from %v on", p.next.Last().From.Time())
	}
	if before := p.prev.Last().Job().After; before != nil && !slices.Equal(before.Jobs, after.Jobs) {
		// The job follows the others from its new epoch on, and their fires have numbers of their own.
		p.next.Followed = &record.Followed{Through: max(p.next.Followed.Through, p.next.Last().From-1)}
	}
	p.countMissedFires(after)
	for _, f := range p.findFollowedFires(p.next, after) {
		if !p.followFire(f, after) {
			return
		}
		followed := *p.next.Followed
		followed.Through, followed.Number = f.at, cmp.Or(f.number, followed.Number)
		p.next.Followed = &followed
	}
}

// followedFire is an instant at which followed jobs have fires, all of which have ended.
type followedFire struct {
	at     record.Instant
	number uint64                      // of the fire of the job named first, zero if it has none
	fires  map[string]record.EndedFire // by the name of the job
}

// findFollowedFires returns the instants at which followed jobs have ended fires that a plan has not followed
// yet, as far as the fires of all these jobs up to there have ended.
func (r *round) findFollowedFires(plan *record.Plan, after *scheduletext.After) []followedFire {
	found := map[record.Instant]followedFire{}
	limit := record.Instant(math.MaxInt64)
	for i, name := range after.Jobs {
		parent, ok := r.Plans[record.Segment(name)]
		if !ok || parent.Fires == nil {
			return nil
		}
		limit = min(limit, parent.Fires.Through)
		for _, e := range parent.Fires.Ended {
			if e.At <= plan.Followed.Through {
				continue
			}
			f, ok := found[e.At]
			if !ok {
				f = followedFire{at: e.At, fires: map[string]record.EndedFire{}}
			}
			if i == 0 {
				f.number = e.Number
			}
			if also, ok := f.fires[name]; ok { // a trigger at the very instant of a fire: they are one
				e.Failed, e.Skipped = e.Failed+also.Failed, e.Skipped+also.Skipped
			}
			f.fires[name] = e
			found[e.At] = f
		}
	}
	var out []followedFire
	for _, at := range slices.Sorted(maps.Keys(found)) {
		if at <= limit {
			out = append(out, found[at])
		}
	}
	return out
}

// followFire releases a fire, or counts it as skipped. It returns false if that has to wait.
func (p *jobPlanner) followFire(f followedFire, after *scheduletext.After) bool {
	if p.next.Paused || p.next.Stopped {
		p.explainUpkeep("pass fire %v: the schedule is stopped", f.at.Time())
		return true
	}
	e := p.next.Last()
	if e.Until != 0 {
		return false // the next epoch runs it
	}
	if wanted, counts := wantsFire(after, f); !wanted {
		if counts {
			p.skipFollowed(e, 1, f.at, f.at)
		} else {
			p.explainUpkeep("pass fire %v: no run failed", f.at.Time())
		}
		return true
	}
	if len(e.Released) >= record.MaxReleases {
		p.needsRoom = true
		return false
	}
	released := p.Now
	if n := len(e.Released); n > 0 {
		released = max(released, e.Released[n-1].Released+1)
	}
	e.Released = append(slices.Clone(e.Released), record.Release{At: f.at, Released: released})
	p.explainUpkeep("release fire %v", f.at.Time())
	return true
}

// wantsFire reports whether a job fires after a followed fire, and whether the fire counts as skipped otherwise.
func wantsFire(after *scheduletext.After, f followedFire) (wanted, counts bool) {
	all, failed, skipped := len(f.fires) == len(after.Jobs), 0, 0
	for _, e := range f.fires {
		failed += e.Failed
		skipped += e.Skipped
	}
	switch after.On {
	case scheduletext.AfterEnd:
		return all, true
	case scheduletext.AfterFailure:
		return all && failed > 0, !all
	}
	return all && failed+skipped == 0, true
}

// countMissedFires counts as skipped the ended fires that the plan of the job named first lists no more.
func (p *jobPlanner) countMissedFires(after *scheduletext.After) {
	parent, ok := p.Plans[record.Segment(after.Jobs[0])]
	if !ok || parent.Fires == nil || len(parent.Fires.Ended) == 0 || p.next.Followed.Number == 0 {
		return
	}
	oldest := parent.Fires.Ended[0]
	if missed := int(oldest.Number) - 1 - int(p.next.Followed.Number); missed > 0 {
		p.skipFollowed(p.next.Last(), missed, 0, oldest.At-1)
		p.next.Followed = &record.Followed{Through: max(p.next.Followed.Through, oldest.At-1), Number: oldest.Number - 1}
	}
}

// skipFollowed counts fires as skipped by all shards of an epoch. From is zero if the first one is not known.
func (p *jobPlanner) skipFollowed(e *record.Epoch, fires int, from, through record.Instant) {
	shards := shardset.Range(0, e.Job().Shards)
	p.next.Counts.Skipped += uint64(fires * shards.Len())
	p.change.Skipped = append(p.change.Skipped, event.Skipped{
		Job: p.next.Job, Kind: e.Job().Kind, Reason: event.Upstream, Shards: shards, Fires: fires, From: from, Through: through,
	})
	p.explainUpkeep("skip %d fires through %v: the followed jobs", fires, through.Time())
}

// clearReleased removes the released fires that all shards have claimed or skipped.
func (p *jobPlanner) clearReleased(progress *JobProgress) {
	for i := range p.next.Epochs {
		e := &p.next.Epochs[i]
		served := len(e.Released)
		for _, part := range progress.Watermarks.Split(shardset.Range(0, e.Job().Shards)) {
			served = countUntil(e.Released[:served], func(r record.Release) bool {
				return part.Epoch < e.Number || part.Epoch == e.Number && part.Fire < r.At
			})
		}
		served = countUntil(e.Released[:served], func(r record.Release) bool { return p.keepsFireWithReads(r.At) })
		if served > 0 {
			e.Released = slices.Clone(e.Released[served:])
			p.explainUpkeep("clear %d released fires of epoch %d", served, e.Number)
		}
	}
}

// countUntil returns how many releases come before the first one that f reports.
func countUntil(releases []record.Release, f func(record.Release) bool) int {
	if i := slices.IndexFunc(releases, f); i >= 0 {
		return i
	}
	return len(releases)
}
