package planning

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/rota-dev/rota/coordinator/internal/due"
	"github.com/rota-dev/rota/coordinator/strategy"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/registry"
)

// View is all that planning knows: what the leader's watches have delivered, and what it
// looked up. It may be behind the registry; the conditions of each transaction make up
// for that.
type View struct {
	Keys             record.Keys
	Term             registry.Rev // of the leader record
	Now              record.Instant
	Skew             time.Duration // how far clocks are taken to be apart at most
	Live             map[registry.SessionID]bool
	Members          map[string]MemberRecord  // by incarnation
	JustJoined       map[string]bool          // of them, those that have joined during the term and have not been seen alive
	Jobs             map[string]JobRecord     // by segment
	Control          map[string]ControlRecord // by segment
	GroupExclusion   record.Exclusion         // who is disabled for all jobs
	Plans            map[string]PlanRecord    // by segment
	Reads            map[string]FreshRead     // by incarnation
	UnreadablePlans  map[string]bool          // segments whose plan cannot be read
	EditedPlans      map[string]bool          // segments whose plan another hand changed: plans holds the leader's copy
	UnreadableInputs map[string]registry.Key  // by segment: a definition or an intent that cannot be read
	Compile          due.Compiler
	Strategies       map[string]strategy.Func   // by name, the built-in ones included
	Skewed           map[string]record.Duration // incarnations whose clocks are off
	skewReports      []string                   // incarnations that report watermarks or epochs ahead of their clocks
	OnStrategyCall   func(strategy, job string) // if set: told which strategy is asked next, for one may not return
	SlowTick         bool                       // the slow tick: clear away what has been served

	// away holds, for members that drain or are dead and ask for patience, for how long this
	// leader has seen them so. What follows from it is set by awaitReturns.
	Absences  map[string]time.Duration
	awaited   map[string]bool   // members that keep their shards though they drain or are dead
	returned  map[string]string // members of the same names that are back
	GraceEnds time.Duration     // until the first of the awaited has been so for long enough; 0: none is

	expired []string // members that are, by incarnation, sorted: any plan may have to take in what they claimed

	StrategyErrors map[string]error  // by job: why its strategy failed in the last decision
	strategyFails  map[string]string // by segment: the problem that the plan names for it
}

type MemberRecord struct {
	Rev registry.Rev
	record.Member
}

type JobRecord struct {
	Rev registry.Rev
	Def json.RawMessage
	record.Job
}

type ControlRecord struct {
	Rev registry.Rev
	*record.Control
}

type PlanRecord struct {
	Rev registry.Rev
	*record.Plan
}

type ClaimsRecord struct {
	Rev registry.Rev
	record.Claims
}

// FreshRead is a fresh reading of an incarnation's claims. Every commit up to seen was known
// to its maker before it began, so what they fence has stopped by then.
type FreshRead struct {
	Seen       uint64
	Claims     map[string]ClaimsRecord // by segment
	Unreadable map[string]bool         // segments whose record cannot be read
}

// Alive reports whether an incarnation's session stands in the instances directory.
func (v *View) Alive(incarnation string) bool { return v.Live[record.SessionOf(incarnation)] }

// NotUnderstood is the problem of a job that nobody offers any more because of its definitions.
const UnsupportedProblem = "no instance that is there and offers the job understands all definitions in force"

// puzzling reports whether somebody who lives would offer a job, if it understood it.
func (v *View) puzzling(job string) bool {
	for inc, m := range v.Members {
		if slices.Contains(m.Unsupported, job) && v.Alive(inc) {
			return true
		}
	}
	return false
}

// Offered reports whether somebody who lives offers a job.
func (v *View) IsOffered(job string) bool {
	for inc, m := range v.Members {
		if m.Offers(job) && v.Alive(inc) {
			return true
		}
	}
	return false
}

// DeadMembers returns the members that are dead and not yet buried, sorted. One that has just
// joined is not taken for dead: what tells that it lives is on its way.
func (v *View) ExpiredMembers() []string {
	var dead []string
	for inc := range v.Members {
		if !v.Alive(inc) && !v.JustJoined[inc] {
			dead = append(dead, inc)
		}
	}
	slices.Sort(dead)
	return dead
}

// looked returns the look at an incarnation if it was begun after commit rev was known.
func (v *View) looked(incarnation string, rev registry.Rev) (FreshRead, bool) {
	l, ok := v.Reads[incarnation]
	return l, ok && l.Seen >= rev.Seq
}

// claimsOf returns what an incarnation has claimed of a job, according to a look.
func (l FreshRead) claimsOf(segment string) record.Claims { return l.Claims[segment].Claims }

// without returns owners less those without shards.
func withoutEmpty(owners map[string]shardset.Set) map[string]shardset.Set {
	maps.DeleteFunc(owners, func(_ string, s shardset.Set) bool { return s.IsZero() })
	return owners
}
