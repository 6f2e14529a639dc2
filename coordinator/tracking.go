package coordinator

import (
	"slices"

	"github.com/rota-dev/rota/internal/record"
)

// tracked returns how much an owner has to write of a job's runs, by the plan that it knows.
//
// That is what the job says only while nobody waits to hear more. A move waits for runs to end,
// a definition for what has been claimed of the one before, an earlier definition and a trigger
// for their last run, and who has paused a job wants to see it at rest: then all is written. So
// all who read claims may go on taking what stands in a record as running for running: at worst
// it lets them wait for one more commit.
func tracked(p *record.Plan) string {
	if p == nil || p.Paused || !p.Frozen.IsZero() || len(p.Triggers) > 0 || len(p.Epochs) > 1 || p.Last().Until != 0 {
		return record.TrackRuns
	}
	if level := p.Last().Job().Tracking; level != "" {
		return level
	}
	return record.TrackRuns
}

// tracksRuns reports whether a record tells, also after a crash, which runs had not ended.
func tracksRuns(j record.Job) bool { return j.Tracking == "" || j.Tracking == record.TrackRuns }

// wantsReruns reports whether a run that a crash ended, or that was handed back, is to be made
// again: work is done at least once.
func wantsReruns(j record.Job) bool { return tracksRuns(j) && j.OnCrash != record.CrashFail }

// untracked reports whether there are runs in a plan that nobody hears of unless he asks.
func untracked(p *record.Plan) bool {
	return slices.ContainsFunc(p.Epochs, func(e record.Epoch) bool { return e.Job().Tracking == record.TrackNothing })
}

// owesAnswer reports whether the record of an owner may not tell what it runs: of a job that
// tracks nothing it is true only if it says that it was written by the plan that is known.
func (a *account) owesAnswer(me string) bool {
	return a.plan != nil && untracked(a.plan) && !a.plan.Owners[me].IsZero() && a.claims.Plan != a.planRev.Seq
}

// answered reports whether an owner's record may be believed. Of a job that tracks nothing a
// claim carries no condition that freezing a shard could make fail, so the owner has to say
// that it has heard of it. The dead run nothing.
func (p *planning) answered(inc string, l look) bool {
	return !untracked(p.old.Plan) || !p.alive(inc) || l.claimsOf(p.segment).Plan >= p.old.rev.Seq
}
