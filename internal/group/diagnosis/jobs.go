package diagnosis

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/group/due"
	"github.com/rota-dev/rota/internal/group/snapshot"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

// longLate is how late a fire is that is a finding.
const longLate = time.Hour

// checkLost reports jobs that live instances offer and of which neither the definition nor the plan can be read.
func (d *diagnosis) checkLost() {
	lost := map[string]string{} // by job: an instance that offers it
	for _, inc := range slices.Sorted(maps.Keys(d.Members)) {
		m := d.Members[inc]
		if !d.IsLive(m.Session) {
			continue
		}
		for _, job := range m.Jobs {
			segment := record.Segment(job)
			_, planned := d.Plans[segment]
			if _, defined := d.Jobs[segment]; !defined && !planned && lost[job] == "" {
				lost[job] = m.Name
			}
		}
	}
	for _, job := range slices.Sorted(maps.Keys(lost)) {
		d.add(Finding{
			Error, Missing, job, d.Keys.Plan(record.Segment(job)),
			fmt.Sprintf("%s offers the job, and neither its definition nor its plan can be read, so it does not run", lost[job]),
			"delete or restore the records that are named as foreign or unreadable; " + d.byLeader("makes them anew"),
		})
	}
}

// checkWaitingTriggers reports triggers that the leader does not take up.
func (d *diagnosis) checkWaitingTriggers() {
	for _, segment := range slices.Sorted(maps.Keys(d.Control)) {
		c := d.Control[segment]
		waiting, most := len(c.Triggers), record.MaxTriggers
		if bytes := record.ParamBytes(c.Triggers); waiting < most*3/4 && bytes < record.MaxWaitingParamBytes*3/4 {
			continue
		}
		f := Finding{
			Warning, Stuck, c.Job, d.Keys.Control(segment), fmt.Sprintf("%d triggers wait for the leader, of at most %d", waiting, most),
			"wait until earlier triggers have run; if the job is paused or no instance runs it, mend that",
		}
		if d.Seat == nil {
			f.What, f.Do = fmt.Sprintf("%d triggers wait, of at most %d, and the group has no leader", waiting, most), d.byLeader("takes them up")
		}
		if waiting > most {
			f.Severity, f.Do = Error, "the leader never takes up that many: restore the record, or delete it, which drops the triggers and ends pauses and disables"
		}
		d.add(f)
	}
}

// checkLateFires reports jobs whose oldest fire or pending run is late by more than longLate.
func (d *diagnosis) checkLateFires() {
	if d.Compile == nil || d.stopped || d.allDisabled {
		return
	}
	for _, segment := range slices.Sorted(maps.Keys(d.Plans)) {
		p := d.Plans[segment].Plan
		if p.Paused || d.isRetiring(segment) {
			continue
		}
		if d.isExplained(p.Job) {
			continue
		}
		add := func(what string) {
			d.add(Finding{Error, Stuck, p.Job, d.Keys.Plan(segment), what, adviseProblem(p.Job)})
		}
		if oldest := d.findLateFire(segment, p); oldest != 0 && oldest < d.Now.Add(-longLate) {
			add(fmt.Sprintf("the oldest fire that is due is late by %v", time.Duration(d.Now-oldest).Round(time.Minute)))
		}
		for _, g := range p.Reruns {
			if wait := time.Duration(g.NotBefore - d.Now); wait > longLate && wait > time.Duration(g.RetryDelay) {
				add(fmt.Sprintf("a retry of %s waits until %v, longer than its delay of %v", g.Shards.Text(), g.NotBefore, time.Duration(g.RetryDelay)))
			}
		}
	}
}

// isExplained reports whether an error of a job is among the findings already.
func (d *diagnosis) isExplained(job string) bool {
	return slices.ContainsFunc(d.findings, func(f Finding) bool { return f.Job == job && f.Severity == Error })
}

// findLateFire returns the oldest fire of a job that is due and not claimed for a shard that is enabled and runs nothing,
// zero if there is none.
func (d *diagnosis) findLateFire(segment string, p *record.Plan) record.Instant {
	return d.findLateFireOf(segment, p, func(running shardset.Set) shardset.Set { return shardset.Range(0, p.Shards()).Minus(running) })
}

// findLateFireOf is findLateFire for the shards that of selects, which gets those with a run in progress.
func (d *diagnosis) findLateFireOf(segment string, p *record.Plan, of func(running shardset.Set) shardset.Set) record.Instant {
	_, progress := d.Progress(segment)
	return due.OldestUnclaimed(p, snapshot.Compile(p, d.Compile), progress, of(progress.Running), d.Now)
}
