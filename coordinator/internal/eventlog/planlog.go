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

	"github.com/rota-dev/rota/coordinator/internal/feed"
	"github.com/rota-dev/rota/coordinator/internal/planning"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// PlanLog logs the plans of a leader, in one line for all jobs that a change of the fleet
// concerns, and the problems of jobs. A nil one logs nothing.
type PlanLog struct {
	collector
	to *slog.Logger

	whys     map[string][]string // by job: why its plan was changed
	commit   uint64              // the last
	problems map[string]string   // by job, those that have changed; empty: there is none any more
	reaped   []string            // instances whose records were removed

	unreadable map[registry.Key]registry.Rev // records of claims that cannot be read, as logged last
	conflicts  map[string]*conflictRun       // by segment
}

// refusals is changes of a job's plan that conflicted, one after the other.
type conflictRun struct {
	since  time.Time
	logged bool
}

// stubborn is how long each change of a plan may conflict before that is logged. A conflict
// that comes of a race is over with the next look.
const conflictsLogged = 5 * time.Second

func NewPlanLog(to *slog.Logger) *PlanLog {
	p := &PlanLog{
		to: to, whys: map[string][]string{}, problems: map[string]string{},
		unreadable: map[registry.Key]registry.Rev{}, conflicts: map[string]*conflictRun{},
	}
	p.collector.log = p.logChanges
	return p
}

// Planned records a change that was committed, and the problem before it. Upkeep happens day
// by day, and shows at DEBUG only.
func (p *PlanLog) RecordPlan(c *planning.Change, commit uint64, problem string) {
	if p == nil {
		return
	}
	job := c.Plan.Job
	p.to.Debug("planned a job", "job", job, "why", strings.Join(slices.Concat(c.Why, c.Upkeep), "; "), "commit", commit)
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

// Buried records that the records of a dead incarnation were removed.
func (p *PlanLog) RecordReaping(incarnation string) {
	if p == nil {
		return
	}
	p.to.Debug("buried one", "incarnation", incarnation)
	p.collect(func() { p.reaped = append(p.reaped, record.InstanceOf(incarnation)) })
}

// report logs the changes since the last report.
func (p *PlanLog) logChanges() {
	texts := make([]string, 0, len(p.whys))
	for _, job := range slices.Sorted(maps.Keys(p.whys)) {
		texts = append(texts, fmt.Sprintf("%s (%s)", job, strings.Join(p.whys[job], ", ")))
	}
	if len(texts) > 0 {
		p.to.Info("planned", "jobs", len(texts), "why", JoinTexts(texts, "jobs"), "commit", p.commit)
	}
	if len(p.reaped) > 0 {
		p.to.Info("buried", "instances", len(p.reaped), "names", JoinTexts(p.reaped, "instances"))
		p.reaped = nil
	}
	jobs := map[string][]string{} // by problem
	for _, job := range slices.Sorted(maps.Keys(p.problems)) {
		jobs[p.problems[job]] = append(jobs[p.problems[job]], job)
	}
	for _, problem := range slices.Sorted(maps.Keys(jobs)) {
		names := jobs[problem]
		if problem == "" {
			p.to.Info("jobs have no problem any more", "jobs", len(names), "names", JoinJobs(names))
			continue
		}
		p.to.Warn("jobs have a problem", "jobs", len(names), "names", JoinJobs(names), "problem", problem,
			"remedy", "Status of such a job has it as Problem until it is over")
	}
	clear(p.whys)
	clear(p.problems)
}

// Unreadable logs a record of claims that cannot be read, once for each version of it.
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

// Conflicted logs a plan whose every write conflicts. A registry leaves a value that it cannot
// decode out of lists and watches, but the key exists, so the plan cannot be created.
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
		return // the next conflict is another occasion
	}
	r.logged = true
	p.to.Warn("plan conflicts again and again", "job", job, "key", string(key), "since", r.since, "error", err,
		"next", "the job stays as it is, and changes are tried each second",
		"remedy", "if the record is not one of rota's, delete the key: then the job is planned anew")
}

// accepted ends what conflicted has begun.
func (p *PlanLog) endConflicts(segment, job string) {
	if r := p.conflicts[segment]; r != nil {
		delete(p.conflicts, segment)
		if r.logged {
			p.to.Info("plan is written again", "job", job, "after", time.Since(r.since).Round(time.Millisecond))
		}
	}
}
