package explain

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/group/claiming"
	"github.com/rota-dev/rota/internal/group/due"
	"github.com/rota-dev/rota/internal/group/planning"
	"github.com/rota-dev/rota/internal/group/snapshot"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/registry"
)

// Records are the records of a job and of its group, each as of its own read.
type Records struct {
	Now        record.Instant
	Keys       record.Keys
	Job        string
	Definition json.RawMessage // as stored; nil: there is none, or it cannot be read
	Stored     record.Job      // the parsed Definition
	Control    *record.Control // the stored intent; nil: none is stored, or it cannot be read
	Defined    *record.Defined // of a job that is defined as data; nil: there is none, or it cannot be read
	Rests      bool            // the job is defined and has no other records; Definition is that of Defined
	Group      record.GroupControl
	Plan       *record.Plan // nil: there is none, or it cannot be read
	Leader     string       // the leader's instance; "" means that there is none
	Term       uint64
	Skewed     map[string]record.Duration  // by incarnation: how far its clock is ahead
	Members    map[string]record.Member    // by incarnation
	Live       map[registry.SessionID]bool // the sessions of live instances
	Claims     map[string]record.Claims    // by incarnation
	Followed   map[string]*record.Plan     // the plans of the jobs that the job follows, by name
	Unreadable map[registry.Key]string     // damaged records, and the rule that each breaks
	Pools      snapshot.Pools
	Compile    due.Compiler               // nil: schedules are not known
	Skew       time.Duration              // that owners allow for, if they compare clocks; the records do not hold it
	programs   map[int]due.Program        // by epoch number; filled by Explain
	progress   planning.JobProgress       // filled by Explain
	failures   []record.Failure           // of all records; filled by Explain
	runners    map[string]record.Runs     // by incarnation; filled by Explain
	pending    record.Runs                // re-runs that are not claimed; filled by Explain
	leader     planning.View              // of a leader; filled by Explain
	traces     map[string]*claiming.Trace // of the present decision of each owner, by incarnation; filled by Explain
}

// NewRecords returns the records that explain a job, with the plans of the jobs that it follows.
func NewRecords(s *snapshot.Snapshot, job string, followed []string) Records {
	segment := record.Segment(job)
	leader, term := s.ReadLeader()
	r := Records{
		Keys: s.Keys, Job: job, Definition: s.Jobs[segment].Def, Stored: s.Jobs[segment].Job, Control: s.Control[segment].Control,
		Plan: s.Plans[segment].Plan, Leader: record.InstanceOf(leader), Term: term, Skewed: s.Skewed(), Skew: claiming.DefaultSkew, Unreadable: map[registry.Key]string{}, Pools: s.Pools(),
		Members: map[string]record.Member{}, Live: map[registry.SessionID]bool{}, Claims: map[string]record.Claims{},
	}
	if s.Group.GroupControl != nil {
		r.Group = *s.Group.GroupControl
	}
	if len(followed) > 0 {
		r.Followed = map[string]*record.Plan{}
	}
	for _, name := range followed {
		if p := s.Plans[record.Segment(name)].Plan; p != nil {
			r.Followed[name] = p
		}
	}
	for inc, m := range s.Members {
		r.Members[inc] = m.Member
	}
	for session := range s.Live {
		r.Live[session] = true
	}
	for inc, c := range s.Claims[segment] {
		r.Claims[inc] = c.Claims
	}
	for key, err := range s.Unreadable {
		if r.Unreadable[key] = err.Error(); errors.Is(err, registry.ErrForeign) {
			r.Unreadable[key] = "another program wrote it"
		}
	}
	return r
}

// Verdict is the result of a gate.
type Verdict string

// The verdicts.
const (
	OK      Verdict = "ok"      // the fire has passed the gate
	Stop    Verdict = "stop"    // the fire has not passed the gate
	Unknown Verdict = "unknown" // the records do not show whether it has
)

// Verb names the method of operator.Operator that helps a fire that is stopped, or History.
type Verb string

// The verbs.
const (
	Cancel      Verb = "Cancel"
	Disable     Verb = "Disable" // an instance, so that its shards move
	Enable      Verb = "Enable"
	Reset       Verb = "Reset"
	Resume      Verb = "Resume"
	ResumeGroup Verb = "ResumeGroup"
	Retry       Verb = "Retry"
	Trigger     Verb = "Trigger"
	History     Verb = "History" // no method: the run history has the outcome
)

// Gate is a condition of a run, as checked for one fire.
type Gate struct {
	Name    string
	Verdict Verdict
	Detail  string
}

// Answer explains a fire of some shards.
type Answer struct {
	Shards  shardset.Set
	Fire    record.Instant // zero if there is no fire
	Gates   []Gate         // up to the first that stops the fire
	Summary string
	Do      string // the remedy; empty if none is needed or possible
	Verb    Verb   // the method of an operator that helps; empty if none does
	Target  string // the instance that Verb is for, if it is for one
	Stops   bool   // whether a gate stops the fire
	// Quotes are the errors of runs that the texts quote, the longest first. Whoever may not see errors gets the texts without them.
	Quotes []string
}

// Explain explains a fire for each of shards. Fire zero means the newest fire that is due for each. Shards
// with equal answers share one. Shards that the job does not have are ignored.
func Explain(r Records, shards shardset.Set, fire record.Instant) []Answer {
	r.derive()
	var out []Answer
	for _, part := range r.divide(shards.Intersect(shardset.Range(0, r.Total()))) {
		first, _ := part.Min()
		a := r.explainShard(first, fire)
		a.Shards, a.Quotes = part, r.findQuotes(&a, first)
		same := slices.IndexFunc(out, a.sameAs)
		if same < 0 {
			out = append(out, a)
			continue
		}
		out[same].Shards = out[same].Shards.Union(part)
	}
	slices.SortFunc(out, func(a, b Answer) int {
		x, _ := a.Shards.Min()
		y, _ := b.Shards.Min()
		return x - y
	})
	return out
}

// findQuotes returns the errors of a shard's failures that the texts of an answer quote.
func (r *Records) findQuotes(a *Answer, shard int) (quotes []string) {
	quoted := func(text string) bool {
		return strings.Contains(a.Summary, text) || strings.Contains(a.Do, text) ||
			slices.ContainsFunc(a.Gates, func(g Gate) bool { return strings.Contains(g.Detail, text) })
	}
	for _, f := range r.failures {
		if f.Error != "" && f.Shards.Has(shard) && !due.DropsNext(f.Error) && !slices.Contains(quotes, f.Error) && quoted(f.Error) {
			quotes = append(quotes, f.Error)
		}
	}
	slices.SortFunc(quotes, func(a, b string) int { return len(b) - len(a) })
	return quotes
}

// Total returns how many shards the job has, at least 1: a job without a definition is explained for
// shard 0.
func (r *Records) Total() int {
	if r.Plan != nil {
		return r.Plan.Shards()
	}
	return max(r.Stored.Shards, 1)
}

// sameAs reports whether two answers differ at most in their shards.
func (a Answer) sameAs(b Answer) bool {
	return a.Fire == b.Fire && a.Summary == b.Summary && a.Do == b.Do && a.Verb == b.Verb && a.Target == b.Target && slices.Equal(a.Gates, b.Gates)
}

// derive computes the parts of the records that all shards share.
func (r *Records) derive() {
	r.runners, r.leader = map[string]record.Runs{}, r.view()
	owners := map[string]shardset.Set{}
	if r.Plan != nil {
		owners = r.Plan.Owners
		r.progress.Watermarks = r.Plan.Watermarks
		r.failures = append(r.failures, r.Plan.Failures...)
		r.pending = append(r.pending, r.Plan.Reruns...)
	}
	for _, inc := range sortedKeys(r.Claims) {
		c := r.Claims[inc]
		r.progress.AddClaims(owners[inc], c)
		r.failures = append(r.failures, c.Failures...)
		r.runners[inc] = c.Running
	}
	r.pending = due.Unclaimed(slices.Concat(r.pending, r.progress.HandedBack), r.progress.Watermarks)
	if r.programs = snapshot.Compile(r.Plan, r.Compile); r.Plan != nil {
		r.decide()
	}
}

// view returns the view of a leader that knows the records, and has just begun to observe them.
func (r *Records) view() planning.View {
	segment := record.Segment(r.Job)
	v := planning.View{
		Live: r.Live, Members: map[string]planning.MemberRecord{}, Jobs: map[string]planning.JobRecord{}, Control: map[string]planning.ControlRecord{},
		Plans: map[string]planning.PlanRecord{}, GroupExclusion: r.Group.Exclusion,
	}
	for inc, m := range r.Members {
		v.Members[inc] = planning.MemberRecord{Member: m}
	}
	if r.Definition != nil {
		v.Jobs[segment] = planning.JobRecord{Job: r.Stored}
	}
	if r.Control != nil {
		v.Control[segment] = planning.ControlRecord{Control: r.Control}
	}
	if r.Plan != nil {
		v.Plans[segment] = planning.PlanRecord{Plan: r.Plan}
	}
	v.BeginAbsences()
	return v
}

// decide lets each owner decide what to claim now, if it may claim at all: that is checked apart. For shards without an
// owner, an owner "" decides.
func (r *Records) decide() {
	plan, unowned := *r.Plan, shardset.Range(0, r.Plan.Shards())
	plan.Owners = map[string]shardset.Set{}
	for inc, shards := range r.Plan.Owners {
		plan.Owners[inc], unowned = shards, unowned.Minus(shards)
	}
	plan.Owners[""] = unowned
	r.traces = map[string]*claiming.Trace{}
	for inc := range plan.Owners {
		in := claiming.Input{
			Me: inc, Plan: &plan, Programs: r.programs, Claims: r.Claims[inc], Blocked: r.Members[inc].Blocked[r.Job],
			Now: r.Now, MayClaim: true, FreeSlots: r.freeSlots(inc), Trace: &claiming.Trace{},
		}
		if r.Members[inc].Clock != 0 {
			in.AllowedSkew = r.Skew
		}
		in.Decide()
		r.traces[inc] = in.Trace
	}
}

// divide divides shards into parts whose answers are equal: no record treats shards of a part
// differently. There may be 10,000 shards, and few parts.
func (r *Records) divide(shards shardset.Set) []shardset.Set {
	if shards.IsZero() {
		return nil
	}
	parts := []shardset.Set{shards}
	split := func(by shardset.Set) {
		if by.IsZero() {
			return
		}
		next := make([]shardset.Set, 0, len(parts)+1)
		for _, p := range parts {
			in := p.Intersect(by)
			if out := p.Minus(by); !out.IsZero() {
				next = append(next, out)
			}
			if !in.IsZero() {
				next = append(next, in)
			}
		}
		parts = next
	}
	splitByRuns := func(runs record.Runs) {
		for _, g := range runs {
			split(g.Shards)
		}
	}
	if p := r.Plan; p != nil {
		for _, inc := range sortedKeys(p.Owners) {
			split(p.Owners[inc])
		}
		for i := range p.Epochs {
			split(shardset.Range(0, p.Epochs[i].Job().Shards))
		}
		splitByRuns(p.Cancels)
		split(p.Frozen)
		split(p.Disabled)
		for _, t := range p.Triggers {
			if t.Shards != nil {
				split(*t.Shards)
			}
		}
	}
	if r.Control != nil {
		split(r.Control.Disabled)
		for _, a := range r.Control.Acts {
			split(a.DisabledShards())
		}
	}
	for _, inc := range sortedKeys(r.Members) {
		m := r.Members[inc]
		split(m.Blocked[r.Job])
		split(m.Waiting[r.Job].Shards)
	}
	for _, inc := range sortedKeys(r.runners) {
		splitByRuns(r.runners[inc])
	}
	splitByRuns(r.pending)
	for _, f := range r.failures {
		split(f.Shards)
	}
	var out []shardset.Set
	for _, p := range parts {
		for _, g := range r.progress.Watermarks.Split(p) {
			out = append(out, g.Shards)
		}
	}
	return out
}
