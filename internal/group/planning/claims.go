package planning

import (
	"maps"
	"slices"

	"github.com/rota-dev/rota/internal/group/due"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/registry"
)

// gaps is why the claims of all owners are not known: reads that are missing, and the problem
// that names the records which cannot be read.
type gaps struct {
	reads   []string
	problem string
}

func (g gaps) any() bool { return len(g.reads) > 0 || g.problem != "" }

// requestReads asks the leader to read the claims of incarnations.
func (r *round) requestReads(incarnations ...string) {
	for _, inc := range incarnations {
		r.reads[inc] = true
	}
}

// requestPart asks the leader to read the claims of the job by an incarnation, with all others of it if that is one request.
func (p *jobPlanner) requestPart(inc string) {
	if p.ListByKey {
		p.requestRecord(inc)
	} else {
		p.requestReads(inc)
	}
}

// requestRecord asks the leader to read the claims record of the job by an incarnation.
func (p *jobPlanner) requestRecord(inc string) { p.parts[inc] = append(p.parts[inc], p.segment) }

// listReads returns Reads and Parts of a Decision.
func (r *round) listReads() (reads []string, parts map[string][]string) {
	parts = map[string][]string{}
	for inc, segments := range r.parts {
		if !r.reads[inc] {
			parts[inc] = segments
			reads = append(reads, inc)
		}
	}
	reads = slices.AppendSeq(reads, maps.Keys(r.reads))
	slices.Sort(reads)
	return reads, parts
}

// reportGaps requests the missing reads and adds the problem to the plan.
func (p *jobPlanner) reportGaps(g gaps) {
	p.requestReads(g.reads...)
	p.addProblem(g.problem)
}

// claimsProblem returns the problem of a job if the claims record of an owner cannot be read, ""
// otherwise. The owner's shards stay where they are until the record is corrected or deleted.
func (p *jobPlanner) claimsProblem(inc string, l FreshRead) string {
	if !l.Unreadable[p.segment] {
		return ""
	}
	return unreadableProblem(p.Keys.Claims(inc, p.segment))
}

// collectWatermarks returns the watermarks of the plan and of the claims of all owners.
func (p *jobPlanner) collectWatermarks() (record.Watermarks, gaps) {
	all, missing := slices.Clone(p.next.Watermarks), gaps{}
	for _, inc := range p.sortedOwners() {
		l, ok := p.freshRead(inc, p.prev.Rev)
		if !ok {
			missing.reads = append(missing.reads, inc)
		}
		missing.problem = joinProblems(missing.problem, p.claimsProblem(inc, l))
		all = append(all, l.claimsOf(p.segment).Watermarks...)
	}
	return all, missing
}

// foldClaims writes into the plan the watermarks and the runs handed back that an owner recorded
// for shards that it loses.
func (p *jobPlanner) foldClaims(claims record.Claims, shards shardset.Set) {
	p.next.Watermarks = p.next.Watermarks.Fold(claims.Watermarks, shards)
	p.next.Reruns = due.Unclaimed(p.next.Reruns, p.next.Watermarks)
	p.foldFires(claims, shards)
	for _, g := range due.Unclaimed(claims.Reruns.Within(shards), p.next.Watermarks) {
		p.next.Reruns = p.next.Reruns.With(g.Shards, g.Ref)
		if g.IsRetry() {
			p.explain("retry %s", g.Shards)
		} else {
			p.explain("re-run %s, handed back", g.Shards)
		}
	}
}

// addOutcomes adds to the plan the outcomes of ended runs that are recorded in claims.
func (p *jobPlanner) addOutcomes(claims record.Claims) {
	p.next.Counts = p.next.Counts.Add(claims.Counts)
	p.next.Ended = max(p.next.Ended, claims.Ended)
	p.next.Failures = p.next.Failures.With(claims.Failures...)
}

// absorbOutcomes adds the outcomes in a claims record to the plan and deletes the record.
func (p *jobPlanner) absorbOutcomes(inc string, item ClaimsRecord) {
	p.addOutcomes(item.Claims)
	p.change.ops = append(p.change.ops, registry.Delete(p.Keys.Claims(inc, p.segment), item.Rev))
}
