package eventlog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/group/feed"
	"github.com/rota-dev/rota/internal/group/planning"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// PlanLog logs a leader's changes of plans, one line for all jobs of a burst, and the problems of
// jobs. A nil PlanLog logs nothing.
type PlanLog struct {
	collector
	to *slog.Logger

	whys     map[string][]string // by job: the reasons for the changes of its plan
	commit   uint64              // of the last change
	problems map[string]string   // by job, problems that changed; empty: the problem is over
	reaped   []string            // instances whose records were deleted

	unreadable map[registry.Key]registry.Rev // the version of each unreadable claims record that was logged
	conflicts  map[string]*conflictRun       // by segment
}

// conflictRun is an unbroken series of conflicts on a job's plan.
type conflictRun struct {
	since  time.Time
	logged bool
}

// conflictsLogged is how long all changes of a plan must conflict before that is logged. The next
// round resolves a conflict that comes from a race.
const conflictsLogged = 5 * time.Second

// NewPlanLog returns a log that writes to to.
func NewPlanLog(to *slog.Logger) *PlanLog {
	p := &PlanLog{
		to: to, whys: map[string][]string{}, problems: map[string]string{},
		unreadable: map[registry.Key]registry.Rev{}, conflicts: map[string]*conflictRun{},
	}
	p.take = p.takeChanges
	return p
}

// RecordPlan records a committed change of a plan. problem is the plan's problem before the change.
// A change that is upkeep only shows at DEBUG.
func (p *PlanLog) RecordPlan(c *planning.Change, commit uint64, problem string) {
	if p == nil {
		return
	}
	job := c.Plan.Job
	p.to.Debug("plan written", "job", job, "why", strings.Join(slices.Concat(c.Why, c.Upkeep), "; "), "commit", commit)
	p.endConflicts(c.Segment, job)
	if len(c.Why) == 0 {
		return
	}
	p.collect(func() {
		p.whys[job], p.commit = append(p.whys[job], c.Why...), commit
		if c.Plan.Problem != problem {
			p.problems[job] = c.Plan.Problem
		}
	})
}

// RecordReaping records that the records of an expired incarnation were deleted.
func (p *PlanLog) RecordReaping(incarnation string) {
	if p == nil {
		return
	}
	p.to.Debug("reaped an incarnation", "incarnation", incarnation)
	p.collect(func() { p.reaped = append(p.reaped, record.InstanceOf(incarnation)) })
}

// takeChanges clears the changes since the last line, and returns what logs them.
func (p *PlanLog) takeChanges() (log func()) {
	whys, commit, problems, reaped := p.whys, p.commit, p.problems, p.reaped
	p.whys, p.problems, p.reaped = map[string][]string{}, map[string]string{}, nil
	return func() { p.logChanges(whys, commit, problems, reaped) }
}

// logChanges logs changes that takeChanges has cleared.
func (p *PlanLog) logChanges(whys map[string][]string, commit uint64, problems map[string]string, reaped []string) {
	texts := make([]string, 0, len(whys))
	for _, job := range slices.Sorted(maps.Keys(whys)) {
		texts = append(texts, fmt.Sprintf("%s (%s)", job, strings.Join(whys[job], ", ")))
	}
	if len(texts) > 0 {
		p.to.Info("plans changed", "jobs", len(texts), "why", joinTexts(texts, "job"), "commit", commit)
	}
	if len(reaped) > 0 {
		p.to.Info("reaped expired instances", "instances", len(reaped), "names", joinTexts(reaped, "instance"))
	}
	jobs := map[string][]string{} // by problem
	for _, job := range slices.Sorted(maps.Keys(problems)) {
		jobs[problems[job]] = append(jobs[problems[job]], job)
	}
	for _, problem := range slices.Sorted(maps.Keys(jobs)) {
		names := jobs[problem]
		if problem == "" {
			p.to.Info("problem of jobs is over", "jobs", len(names), "names", JoinJobs(names))
			continue
		}
		p.to.Warn("jobs have a problem", "jobs", len(names), "names", JoinJobs(names), "problem", problem,
			"remedy", "Status of each job reports the problem until it is over")
	}
}

// LogUnreadable logs a claims record that cannot be read, once for each version of the record.
func (p *PlanLog) LogUnreadable(e registry.Entry, err error) {
	if p == nil {
		return
	}
	p.mu.Lock()
	known := p.unreadable[e.Key] == e.Modified
	p.unreadable[e.Key] = e.Modified
	p.mu.Unlock()
	if !known {
		feed.LogUnreadable(p.to, slog.LevelError, e.Key, err)
	}
}

// LogConflict logs a plan on which every write conflicts. The reason may be a value that the registry
// cannot decode: lists and watches leave it out, but its key exists, so the plan cannot be created.
func (p *PlanLog) LogConflict(ctx context.Context, reg registry.Registry, segment, job string, key registry.Key) {
	if p == nil {
		return
	}
	r := p.conflicts[segment]
	if r == nil {
		r = &conflictRun{since: time.Now()}
		p.conflicts[segment] = r
	}
	if r.logged || time.Since(r.since) < conflictsLogged {
		return
	}
	_, err := reg.Get(ctx, key, registry.ReadOptions{Fresh: true})
	if ctx.Err() != nil || err != nil && !errors.Is(err, registry.ErrForeign) && !errors.Is(err, registry.ErrNotFound) {
		return // the next conflict tries again
	}
	r.logged = true
	p.to.Warn("every write of a plan conflicts", "job", job, "key", string(key), "since", r.since, "error", err,
		"next", "the leader retries each second; until then the job keeps its present plan",
		"remedy", "if another program wrote the record, delete the key: the leader then plans the job anew")
}

// endConflicts ends the series of conflicts that LogConflict has recorded.
func (p *PlanLog) endConflicts(segment, job string) {
	if r := p.conflicts[segment]; r != nil {
		delete(p.conflicts, segment)
		if r.logged {
			p.to.Info("plan can be written again", "job", job, "after", time.Since(r.since).Round(time.Millisecond))
		}
	}
}
