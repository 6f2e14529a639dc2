package planning

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/rota-dev/rota/coordinator/strategy"
	"github.com/rota-dev/rota/internal/group/due"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// View is the input of Decide: what the leader's watches have delivered, and what it has read. It
// may be behind the registry; the conditions of each transaction make up for that.
type View struct {
	Keys             record.Keys
	Term             registry.Rev // of the leader record
	ListByKey        bool         // see registry.Limits: moves of many jobs go in parts
	Now              record.Instant
	Skew             time.Duration // the largest difference between two clocks that rota allows for
	Live             map[registry.SessionID]bool
	Members          map[string]MemberRecord  // by incarnation
	JustJoined       map[string]bool          // members that joined during the term and have not been seen alive
	Jobs             map[string]JobRecord     // by segment
	Defined          map[string]DefinedRecord // by segment, of the jobs in Jobs that were defined as data
	DefinedSynced    bool                     // a job in Jobs that is missing in Defined was deleted
	Control          map[string]ControlRecord // by segment
	Group            GroupRecord              // the pause of the group
	GroupExclusion   record.Exclusion         // instances and hosts that are disabled for all jobs
	Plans            map[string]PlanRecord    // by segment
	Reads            map[string]FreshRead     // by incarnation
	PartReads        map[string]FreshRead     // by incarnation: of the segments in Only
	Ends             map[string]EndsOfJob     // by segment, of jobs that others follow
	UnreadablePlans  map[string]bool          // by segment
	EditedPlans      map[string]bool          // segments whose plan another writer changed; Plans holds the leader's copy
	UnreadableInputs map[string]registry.Key  // by segment: a definition or control record that cannot be read
	Compile          due.Compiler
	Strategies       map[string]strategy.Func   // by name, the built-in ones included
	StrategyProblems map[string]string          // of the last Decision
	Skewed           map[string]record.Duration // incarnations whose clocks are skewed
	OnStrategyCall   func(strategy, job string) // if set, called before each strategy, as a strategy may not return
	SlowTick         bool                       // clear served parts of plans
	RestTick         bool                       // put defined jobs to rest

	// Absences holds how long this leader has seen members with a restart grace drain or expired.
	Absences map[string]time.Duration
}

// MemberRecord is a member record and its revision.
type MemberRecord struct {
	Rev registry.Rev
	record.Member
}

// JobRecord is a stored definition, its parsed form and its revision. During a decision it is the effective
// definition, if an override applies.
type JobRecord struct {
	Rev registry.Rev
	Def json.RawMessage
	record.Job
	Stored json.RawMessage // the stored definition, if Def is an override of it
}

// DefinedRecord is the record of a defined job and its revision.
type DefinedRecord struct {
	Rev registry.Rev
	*record.Defined
}

// ControlRecord is a control record and its revision.
type ControlRecord struct {
	Rev registry.Rev
	*record.Control
}

// PlanRecord is a plan and its revision.
type PlanRecord struct {
	Rev registry.Rev
	*record.Plan
}

// ClaimsRecord is a claims record and its revision.
type ClaimsRecord struct {
	Rev registry.Rev
	record.Claims
}

// FreshRead is a read of all claims records of an incarnation. The leader knew every commit up to
// Seen before the read began, so the read contains every claim that those commits fence off.
type FreshRead struct {
	Seen       uint64
	Claims     map[string]ClaimsRecord // by segment
	Unreadable map[string]bool         // segments whose record cannot be read
	Only       map[string]bool         // of a PartRead: the segments that were read
}

// EndsOfJob holds copies of claims records of a job, by incarnation. What they say of ended runs is true,
// however old they are.
type EndsOfJob map[string]record.Claims

// claimsOf returns the incarnation's claims of a job.
func (l FreshRead) claimsOf(segment string) record.Claims { return l.Claims[segment].Claims }

// freshRead returns the fresh read of an incarnation, if it began after commit rev was known.
func (v *View) freshRead(incarnation string, rev registry.Rev) (FreshRead, bool) {
	if l, ok := v.Reads[incarnation]; ok && l.Seen >= rev.Seq {
		return l, true
	}
	return FreshRead{}, false
}

// freshPart is freshRead, or a read of a part that has the segment.
func (v *View) freshPart(incarnation, segment string, rev registry.Rev) (FreshRead, bool) {
	if l, ok := v.freshRead(incarnation, rev); ok {
		return l, true
	}
	l, ok := v.PartReads[incarnation]
	return l, ok && l.Seen >= rev.Seq && l.Only[segment]
}

// Alive reports whether the session of an incarnation is in the instances directory.
func (v *View) Alive(incarnation string) bool { return v.Live[record.SessionOf(incarnation)] }

// HasBothRecords reports whether the view has the member record of an incarnation and its session.
func (v *View) HasBothRecords(incarnation string) bool {
	_, known := v.Members[incarnation]
	return known && v.Alive(incarnation)
}

// IsOffered reports whether a live member offers a job.
func (v *View) IsOffered(job record.Job) bool {
	for inc, m := range v.Members {
		if m.Offers(job) && v.Alive(inc) {
			return true
		}
	}
	return false
}

// isUnsupported reports whether a live member would offer a job if it supported its definitions.
func (v *View) isUnsupported(job record.Job) bool {
	for inc, m := range v.Members {
		if m.LacksSupport(job) && v.Alive(inc) {
			return true
		}
	}
	return false
}

// ExpiredMembers returns the members that have expired and are not reaped yet, sorted. A member
// that has just joined does not count: its instance may not have been delivered yet.
func (v *View) ExpiredMembers() []string {
	var expired []string
	for inc := range v.Members {
		if !v.Alive(inc) && !v.JustJoined[inc] {
			expired = append(expired, inc)
		}
	}
	slices.Sort(expired)
	return expired
}

// NeedsClearing reports whether this is a slow tick and a plan has something to clear.
func (v *View) NeedsClearing() bool {
	if !v.SlowTick {
		return false
	}
	for _, p := range v.Plans {
		if isClearable(p.Plan) {
			return true
		}
	}
	return false
}

// isClearable reports whether a plan has parts that may have been served.
func isClearable(p *record.Plan) bool {
	return len(p.Reruns) > 0 || len(p.Triggers) > 0 || len(p.Cancels) > 0 || len(p.Epochs) > 1 || len(p.Last().Released) > 0
}

// segments returns all jobs that have a plan or a definition, sorted.
func (v *View) segments() []string {
	var segs []string
	for seg := range v.Plans {
		segs = append(segs, seg)
	}
	for seg := range v.Jobs {
		if _, ok := v.Plans[seg]; !ok && !v.UnreadablePlans[seg] {
			segs = append(segs, seg)
		}
	}
	slices.Sort(segs)
	return segs
}

// InForce returns the definition by which shards are assigned: the plan's newest one, or before
// there is a plan, the stored one. Its RunOn is always that of the stored one. RunOn selects
// instances and does not change a run, so no fire has runs of two definitions because of it. And
// a new definition may have to wait until the fires of earlier ones are served, which no instance
// with the earlier labels may be left to do.
func (v *View) InForce(segment string) record.Job {
	stored, known := v.Jobs[segment]
	p, ok := v.Plans[segment]
	if !ok {
		return stored.Job
	}
	job := p.Last().Job()
	if known && stored.Revision >= job.Revision {
		job.RunOn = stored.RunOn
	}
	return job
}

// definitionInForce returns the definition of InForce.
func (v *View) definitionInForce(segment string) json.RawMessage {
	if p, ok := v.Plans[segment]; ok {
		return p.Last().Def
	}
	return v.Jobs[segment].Def
}

// shardCount returns how many shards of a job need an owner.
func (v *View) shardCount(segment string, job record.Job) int {
	if p, ok := v.Plans[segment]; ok {
		return p.Shards()
	}
	return job.Shards
}

// mayOwn reports whether a member that offers a job may own shards of it: it is not disabled for
// the job, and has its labels.
func (v *View) mayOwn(segment, inc string) bool {
	return !v.isDisabledFor(segment, inc) && record.HasLabels(v.Members[inc].Labels, v.InForce(segment).RunOn)
}

// isDisabledFor reports whether a member is disabled for this job. Members that are disabled for
// all jobs are left out earlier, both live and awaited ones.
func (v *View) isDisabledFor(segment, inc string) bool {
	c, ok := v.Control[segment]
	if !ok {
		return false
	}
	m := v.Members[inc]
	return c.Excludes(&m.Member)
}
