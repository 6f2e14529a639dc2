package executor

import "fmt"

// maxDelayShards bounds the shards of jobs whose fires count from ends: each shard has its own
// watermark in the records.
const maxDelayShards = 1000

// CountsEnds is described in due.EndCounter.
func (p *program) CountsEnds() bool { return p.countsEnds }

// checkEndCounter returns the rules that a definition breaks whose fires count from the ends of runs.
func (d definition) checkEndCounter() []problem {
	if !d.Schedule.CountsEnds() {
		return nil
	}
	var all []problem
	refuse := func(refused bool, field, rule string) {
		if refused {
			all = append(all, problem{field, fmt.Errorf("%s, with a schedule that counts from the ends of runs", rule)})
		}
	}
	refuse(d.Tracking != TrackRuns, "Tracking", "must be TrackRuns")
	refuse(d.Shards > maxDelayShards, "Shards", fmt.Sprintf("must be at most %d", maxDelayShards))
	refuse(d.OnMisfire != RunOnce, "OnMisfire", "does not apply")
	refuse(d.OnOverlap != WaitForRun, "OnOverlap", "does not apply")
	refuse(d.CatchupWindow != 0, "CatchupWindow", "does not apply")
	return all
}
