package coordinator

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/registry"
)

// view is all that planning knows: what the leader's watches have delivered, and what it
// looked up. It may be behind the registry; the conditions of each transaction make up
// for that.
type view struct {
	keys       record.Keys
	term       registry.Rev // of the leader record
	now        record.Instant
	skew       time.Duration // how far clocks are taken to be apart at most
	live       map[registry.SessionID]bool
	members    map[string]memberItem   // by incarnation
	newborn    map[string]bool         // of them, those that have joined during the term and have not been seen alive
	jobs       map[string]jobItem      // by segment
	control    map[string]controlItem  // by segment
	outside    record.Exclusion        // who is disabled for all jobs
	plans      map[string]planItem     // by segment
	looks      map[string]look         // by incarnation
	broken     map[string]bool         // segments whose plan cannot be read
	restore    map[string]bool         // segments whose plan another hand changed: plans holds the leader's copy
	spoilt     map[string]registry.Key // by segment: a definition or an intent that cannot be read
	compile    Compiler
	strategies map[string]Strategy        // by name, the built-in ones included
	off        map[string]record.Duration // incarnations whose clocks are off
	silent     []string                   // incarnations that report watermarks or epochs ahead of their clocks
	asks       func(strategy, job string) // if set: told which strategy is asked next, for one may not return
	tidy       bool                       // the slow tick: clear away what has been served

	// away holds, for members that drain or are dead and ask for patience, for how long this
	// leader has seen them so. What follows from it is set by awaitReturns.
	away     map[string]time.Duration
	awaited  map[string]bool   // members that keep their shards though they drain or are dead
	heirs    map[string]string // members of the same names that are back
	patience time.Duration     // until the first of the awaited has been so for long enough; 0: none is

	dead []string // members that are, by incarnation, sorted: any plan may have to take in what they claimed

	strategyErrors map[string]error  // by job: why its strategy failed in the last decision
	strategyFails  map[string]string // by segment: the problem that the plan names for it
}

type memberItem struct {
	rev registry.Rev
	record.Member
}

type jobItem struct {
	rev registry.Rev
	def json.RawMessage
	record.Job
}

type controlItem struct {
	rev registry.Rev
	*record.Control
}

type planItem struct {
	rev registry.Rev
	*record.Plan
}

type claimsItem struct {
	rev registry.Rev
	record.Claims
}

// look is a fresh reading of an incarnation's claims. Every commit up to seen was known
// to its maker before it began, so what they fence has stopped by then.
type look struct {
	seen   uint64
	claims map[string]claimsItem // by segment
	broken map[string]bool       // segments whose record cannot be read
}

// alive reports whether an incarnation's session stands in the instances directory.
func (v *view) alive(incarnation string) bool { return v.live[sessionOf(incarnation)] }

// notUnderstood is the problem of a job that nobody offers any more because of its definitions.
const notUnderstood = "no instance that is there and offers the job understands all definitions in force"

// puzzling reports whether somebody who lives would offer a job, if it understood it.
func (v *view) puzzling(job string) bool {
	for inc, m := range v.members {
		if slices.Contains(m.NotUnderstood, job) && v.alive(inc) {
			return true
		}
	}
	return false
}

// offered reports whether somebody who lives offers a job.
func (v *view) offered(job string) bool {
	for inc, m := range v.members {
		if m.Offers(job) && v.alive(inc) {
			return true
		}
	}
	return false
}

// deadMembers returns the members that are dead and not yet buried, sorted. One that has just
// joined is not taken for dead: what tells that it lives is on its way.
func (v *view) deadMembers() []string {
	var dead []string
	for inc := range v.members {
		if !v.alive(inc) && !v.newborn[inc] {
			dead = append(dead, inc)
		}
	}
	slices.Sort(dead)
	return dead
}

// sessionOf returns the session of an incarnation, whose record may be gone.
func sessionOf(incarnation string) registry.SessionID {
	return registry.SessionID(incarnation[strings.LastIndexByte(incarnation, '.')+1:])
}

// looked returns the look at an incarnation if it was begun after commit rev was known.
func (v *view) looked(incarnation string, rev registry.Rev) (look, bool) {
	l, ok := v.looks[incarnation]
	return l, ok && l.seen >= rev.Seq
}

// claimsOf returns what an incarnation has claimed of a job, according to a look.
func (l look) claimsOf(segment string) record.Claims { return l.claims[segment].Claims }

// without returns owners less those without shards.
func withoutEmpty(owners map[string]shardset.Set) map[string]shardset.Set {
	maps.DeleteFunc(owners, func(_ string, s shardset.Set) bool { return s.IsZero() })
	return owners
}
