package claimer

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"slices"

	"github.com/rota-dev/rota/internal/group/claiming"
	"github.com/rota-dev/rota/internal/group/due"
	"github.com/rota-dev/rota/internal/group/event"
	"github.com/rota-dev/rota/internal/group/feed"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/registry"
)

// ApplyPlans applies the plans that have changed to the states of their jobs.
func (c *Claimer) ApplyPlans(ctx context.Context) {
	c.Plans.Drain(func(n feed.Update[*record.Plan]) {
		j := c.Jobs[n.Name]
		if n.Deleted || n.Unreadable {
			if j != nil {
				if n.Deleted && j.life != "" { // put to rest, as a rule; the leader logs a plan that it restores
					c.ownershipLog.SetOwned(j.Claims.Job, shardset.Set{})
				} else {
					c.ownershipLog.LosePlan(ctx, j.Claims.Job, j.planKey, n.Err)
				}
				c.reportShards(j.Claims.Job, j.Plan, nil)
				j.Plan, j.PlanRev = nil, registry.Rev{}
				c.applyPoolsOf(ctx, j)
				delete(c.Frozen, j)
				if n.Deleted {
					c.setUnsupported(j, false)
					c.dropRested(j)
				}
			}
			return
		}
		mine := n.Value.Owners[c.Me]
		if j != nil && j.life != n.Value.Life && j.isAtRest() {
			c.drop(j)
			j = nil
		}
		if j == nil {
			if mine.IsZero() {
				return // other members own the job
			}
			j = &JobState{
				Segment: n.Name, key: c.Keys.Claims(c.Me, n.Name), planKey: c.Keys.Plan(n.Name),
				Claims: record.Claims{Job: n.Value.Job},
			}
			c.Jobs[n.Name] = j
		}
		c.reportShards(j.Claims.Job, j.Plan, n.Value)
		before := j.Plan
		j.life = n.Value.Life
		j.Plan, j.PlanRev, j.StalePlan = n.Value, n.Rev, registry.Rev{}
		c.ownershipLog.SetOwned(j.Claims.Job, mine)
		if delete(c.Frozen, j); !j.Plan.Frozen.IsZero() {
			c.Frozen[j] = struct{}{}
		}
		c.compileEpochs(j, before)
		c.applyPoolsOf(ctx, j)
		c.MarkDirty(j)
		c.yieldShards(j, j.Claims.Running.Shards())
	})
}

// isAtRest reports whether nothing of a job runs here or waits to be recorded.
func (j *JobState) isAtRest() bool { return len(j.Claims.Running)+len(j.Ended) == 0 }

// dropRested forgets a defined job that was put to rest: the leader has deleted its claims record with its plan, and the
// next life of the job begins with none. If another writer has deleted the plan instead, the next claim finds the record.
func (c *Claimer) dropRested(j *JobState) {
	if j.life != "" && j.Plan == nil && j.isAtRest() {
		c.drop(j)
	}
}

// drop forgets a job. A write of it that is in flight rests on a plan that is gone, or has been committed and changes nothing
// any more.
func (c *Claimer) drop(j *JobState) {
	c.reportShards(j.Claims.Job, j.Plan, nil)
	c.reportAhead(j, record.Ahead{})
	c.setUnsupported(j, false)
	c.releaseEnds(j)
	c.agenda.schedule(j, 0)
	delete(c.Frozen, j)
	c.setWaits(j, nil)
	j.Plan = nil
	delete(c.Jobs, j.Segment)
}

// reportShards reports a change of the shards that the plans of a job assign to this incarnation. A
// nil plan is none.
func (c *Claimer) reportShards(job string, before, after *record.Plan) {
	if c.Events.Shards == nil {
		return
	}
	e := event.Shards{Job: job}
	for _, p := range []*record.Plan{before, after} {
		if p != nil {
			e.Kind = p.Last().Job().Kind
		}
	}
	e.Before, e.FrozenBefore = c.shardsIn(before)
	e.After, e.FrozenAfter = c.shardsIn(after)
	if !e.Before.Equal(e.After) || !e.FrozenBefore.Equal(e.FrozenAfter) {
		event.Report(c.Events.Shards, e)
	}
}

// shardsIn returns the shards that a plan assigns to this incarnation, and those of them that are to
// move.
func (c *Claimer) shardsIn(p *record.Plan) (mine, frozen shardset.Set) {
	if p == nil {
		return mine, frozen
	}
	mine = p.Owners[c.Me]
	return mine, mine.Intersect(p.Frozen)
}

// reportShardsLost reports the loss of all shards at the end of the incarnation.
func (c *Claimer) reportShardsLost() {
	for _, segment := range slices.Sorted(maps.Keys(c.Jobs)) {
		j := c.Jobs[segment]
		c.reportShards(j.Claims.Job, j.Plan, nil)
	}
}

// yieldShards asks the Work to yield those of running shards whose run is cancelled, that are to move or are
// disabled, whose job is paused, or whose definition has been replaced.
func (c *Claimer) yieldShards(j *JobState, running shardset.Set) {
	if j.Plan == nil {
		return
	}
	for _, g := range j.Claims.Running {
		c.yield(j, j.Plan.Cancels.Naming(g.Shards.Intersect(running), g.Ref), ErrCancelled)
	}
	c.yield(j, running.Intersect(j.Plan.Frozen), ErrMoving)
	c.yield(j, running.Intersect(j.Plan.Disabled), ErrDisabled)
	if j.Plan.Paused {
		c.yield(j, running.Intersect(j.Claims.Running.Shards()), ErrPaused)
		return
	}
	outdated, _ := claiming.FindOutdated(j.Plan, j.Claims.Running, record.InstantOf(c.Clock()))
	c.yield(j, running.Intersect(outdated), ErrNewDefinition)
}

// yield asks the Work to yield shards.
func (c *Claimer) yield(j *JobState, shards shardset.Set, cause error) {
	for s := range shards.All() {
		c.Work.Yield(j.Claims.Job, s, cause)
	}
}

// compileEpochs compiles the definitions of a plan that the plan before does not have. An epoch of the same number has
// another definition if an operator has forgotten the job meanwhile.
func (c *Claimer) compileEpochs(j *JobState, before *record.Plan) {
	programs := make(map[int]due.Program, len(j.Plan.Epochs))
	for i := range j.Plan.Epochs {
		e := &j.Plan.Epochs[i]
		if p, ok := j.programs[e.Number]; ok && hasEpoch(before, e) {
			programs[e.Number] = p
			continue
		}
		p, err := c.compile(e.Def)
		if err != nil {
			if e.Number > j.loggedUnsupported { // once, not at each change of the plan
				j.loggedUnsupported = e.Number
				c.Log.Error("definition is not supported by this version; instances that support it run its fires",
					"job", j.Plan.Job, "epoch", e.Number, "error", err)
			}
			continue
		}
		programs[e.Number] = p
	}
	j.programs = programs
	c.setUnsupported(j, len(programs) < len(j.Plan.Epochs))
}

// compile compiles a definition that this process can run.
func (c *Claimer) compile(def json.RawMessage) (due.Program, error) {
	p, err := c.Work.Compile(def)
	if err != nil {
		return nil, err
	}
	if checker, ok := c.Work.(RunChecker); ok {
		err = checker.CheckRunnable(p)
	}
	return p, err
}

// hasEpoch reports whether a plan has an epoch of the same number with the same definition. A nil plan has none.
func hasEpoch(p *record.Plan, e *record.Epoch) bool {
	if p == nil {
		return false
	}
	known, ok := p.Epoch(e.Number)
	return ok && bytes.Equal(known.Def, e.Def)
}

// setUnsupported records whether a job's plan has a definition that this process cannot compile.
func (c *Claimer) setUnsupported(j *JobState, unsupported bool) {
	if unsupported != j.unsupported {
		j.unsupported = unsupported
		c.SetSupported(j.Claims.Job, !unsupported)
	}
}
