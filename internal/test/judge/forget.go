package judge

import (
	"encoding/json"
	"slices"

	"github.com/rota-dev/rota/registry"
)

// beginLife begins the records of a job, at first or after it was forgotten. Fences and calls go on.
func (j *jobState) beginLife() {
	forgotten, override := j.stored, j.control.Override
	j.resetsBefore = max(j.resetsBefore, j.control.Resets)
	j.plan, j.control, j.hasControl, j.stored, j.inForce = nil, controlRecord{}, false, nil, nil
	j.sources = sources{overrides: []json.RawMessage{nil}}
	if forgotten != nil { // a leader that has not observed the deletions may begin with it, and with its override, for a while
		j.sources.addDefinition(forgotten)
		j.sources.addOverride(override)
	}
	j.resumed, j.epochs, j.ended, j.released = 0, nil, nil, nil
	j.triggers, j.requests, j.lastTrigger = map[uint64]shards{}, map[uint64]trigger{}, 0
	j.backfills = map[uint64]*backfill{}
	j.counts, j.perhapsPassed, j.ends = tallies{}, 0, 0
	for _, sh := range j.shards {
		*sh = shardState{fence: sh.fence, running: sh.running, attempts: sh.attempts, resets: sh.resets, active: sh.active, cancelled: sh.cancelled, asked: sh.asked}
	}
}

// findForgotten returns the segments of the jobs whose records a commit deletes, and those of defined jobs that are put to rest, or
// deleted. A leader deletes many retired jobs at once.
func (o *Judge) findForgotten(c *Commit) (forgotten, ended []string) {
	for i := range c.Then {
		if c.Then[i].Kind != registry.OpDelete {
			continue
		}
		dir, name, ok := o.splitKey(c.Then[i].Key)
		if !ok || name == groupSegment || dir != "jobs" && dir != "plan" && dir != "control" {
			continue
		}
		if j := o.jobs[name]; j != nil && j.defined.isKnown {
			if dir != "control" && !slices.Contains(ended, name) {
				ended = append(ended, name)
			}
		} else if !slices.Contains(forgotten, name) {
			forgotten = append(forgotten, name)
		}
	}
	return forgotten, ended
}

// judgeForget judges the deletion of a job's records, with the claims of all its owners.
func (o *Judge) judgeForget(c *Commit, j *jobState) {
	j.trail.add(c)
	deletes := func(key string) bool {
		return slices.ContainsFunc(c.Then, func(op registry.Op) bool {
			return op.Kind == registry.OpDelete && op.Key == registry.Key(o.group+key+"/"+j.segment)
		})
	}
	for key, exists := range map[string]bool{"jobs": j.stored != nil, "plan": j.plan != nil, "control": j.hasControl} {
		if exists && !deletes(key) {
			o.addJobViolation(14, j, "a commit deletes records of the job, but not %s", key)
		}
	}
	if j.plan != nil {
		for inc := range j.plan.Owners {
			if o.alive(inc) {
				o.addJobViolation(14, j, "the job was forgotten, but %s, whose session is alive, owns shards of it", inc)
			}
			if j.claims[inc] != nil && !deletes("claims/"+inc) {
				o.addJobViolation(14, j, "the job was forgotten, but not the claims of its owner %s", inc)
			}
		}
		j.firstLife += j.plan.Resets + 1
	}
	for inc := range j.claims {
		if !deletes("claims/" + inc) {
			continue
		}
		if o.alive(inc) {
			o.addJobViolation(14, j, "the claims of %s were deleted while its session is alive", inc)
		}
		delete(j.claims, inc)
	}
	o.judgeRetried(j)
	j.beginLife()
	for _, sh := range j.shards {
		for inc := range sh.running {
			if j.claims[inc] == nil {
				delete(sh.running, inc)
			}
		}
	}
	for _, c := range j.claims { // of members that owned shards once
		j.counts = j.counts.plus(c.Counts)
		j.ends += c.Counts.Succeeded + c.Counts.Failed
	}
	j.forgotten = o.now
	o.report.Forgotten++
}

// judgeOffered judges, in a settled fleet, that no live member offers a job without a plan.
func (o *Judge) judgeOffered(j *jobState) {
	for inc, m := range o.members {
		if o.alive(inc) && !m.Draining && slices.Contains(m.Jobs, j.name) {
			o.addJobViolation(14, j, "%s offers the job, but it has no plan", inc)
			return
		}
	}
}
