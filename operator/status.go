package operator

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/group/due"
	"github.com/rota-dev/rota/internal/group/planning"
	"github.com/rota-dev/rota/internal/group/snapshot"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/registry"
)

// Status is the recorded state of a job. Lists of shards are in ascending order.
type Status struct {
	Job string `json:"name"`
	// Kind is the kind of a job that is defined as data (Operator.Define), empty for one that is registered in code.
	Kind string `json:"kind,omitempty"`
	// Rests reports that the job is defined as data and rests: it has no plan, and the leader wakes it at Wakes for NextFire, or
	// for the next act of an operator. Wakes is zero if it has no next fire. Counts, Ended and Failures are as of the beginning of the rest.
	Rests bool      `json:"rests,omitempty"`
	Wakes time.Time `json:"wakes,omitzero"`
	// DeletedBy is the act of a Delete in force: the leader deletes the job's records once its runs have ended. It is zero if there is none.
	DeletedBy Act `json:"deleted_by,omitzero"`
	// Revision is the revision of the stored definition. InForce is that of the newest
	// definition in the plan. They differ until the leader has applied the stored one. Fires
	// of earlier definitions may still be due under these.
	Revision int `json:"revision"`
	InForce  int `json:"in_force"`
	// Schedule is the text of the schedule in the newest definition of the plan, or in the
	// stored one if there is no plan. schedule.Parse parses it.
	Schedule string `json:"schedule"`
	// Definition is the definition that Schedule is of, as JSON with the fields of executor.Job. It includes
	// parameters, which may be secret, so the JSON of Status does not have it.
	Definition json.RawMessage `json:"-"`
	// NextFire is the next scheduled fire. It is zero if there is none, if the job is paused
	// or its schedule stopped, or if the Operator has no compiler; see WithCompiler. Fires that count from
	// the ends of runs have none while all shards run.
	NextFire time.Time `json:"next,omitzero"`
	// Overdue is the oldest fire that is due for a shard and not claimed: because the shard has no
	// owner, or its last run has not ended, or its owner is late. It is zero if there is none, if
	// the job is paused or retiring, or if the Operator has no compiler. Fires that a run on time overlaps do not count if the
	// job skips them (executor.SkipOverlapping). If fires count from the ends of runs, as with
	// schedule.Always and FixedDelay, a shard that runs has no due fire, and a run that is to be made again
	// counts from when it became pending.
	Overdue time.Time `json:"overdue,omitzero"`
	// AwaitedPool is the pool of the job if there is an Overdue fire and an owner of shards waits for slots of the pool. It is empty otherwise.
	AwaitedPool string `json:"awaited_pool,omitempty"`
	// Leader is the leader of the group.
	Leader LeaderStatus `json:"leader,omitzero"`
	// Intent is the intent that operators have stored. Paused, ScheduleStopped and Disabled
	// are the parts of it that the leader has copied into the plan, and so are in force.
	Intent          Intent `json:"intent"`
	Paused          bool   `json:"paused"`
	ScheduleStopped bool   `json:"schedule_stopped"`
	Disabled        []int  `json:"disabled"`
	// GroupPaused reports whether the job is paused in force because the whole group is (Operator.PauseGroup).
	// Intent has the job's own pause only.
	GroupPaused bool `json:"group_paused,omitempty"`
	// Shards is the number of shards of the newest definition in the plan. It is zero if the job has no plan yet:
	// the leader makes one when a member first offers the job.
	Shards int `json:"shards"`
	// UnofferedSince is since when the job has had neither a live instance that offers it nor an owner of a shard, as
	// the leader has observed. It is zero otherwise.
	UnofferedSince time.Time `json:"unoffered_since,omitzero"`
	// PerShard has an element for each shard; the index is the shard's number. Until the fires of an earlier
	// definition with more shards have been claimed or skipped, it also has those.
	PerShard []ShardStatus `json:"per_shard"`
	// Unowned lists the shards without an owner, Frozen those that are about to move.
	Unowned []int `json:"unowned"`
	Frozen  []int `json:"frozen"`
	// Reruns are pending runs that are made again, because their owner crashed, handed them
	// back, or had them fail and they are retried.
	Reruns []Runs `json:"reruns"`
	// Triggers are the numbers of pending and running triggers, in ascending order.
	Triggers []uint64 `json:"triggers"`
	// Backfills are the backfills with fires that have not begun.
	Backfills []Backfill `json:"backfills,omitempty"`
	// Problem names the reason why shards do not run or move; docs/operating/messages.md lists the
	// texts. It is empty if there is none. Decisions are the latest changes of the plan,
	// oldest first.
	Problem   string     `json:"problem,omitempty"`
	Decisions []Decision `json:"decisions"`
	// Counts are totals since the job was created. Ended is the time at which runs last ended,
	// with or without an error. Failures are the latest failures, oldest first.
	Counts   Counts    `json:"counts"`
	Ended    time.Time `json:"last_end,omitzero"`
	Failures []Failure `json:"failures"`
	// Failing are the shards whose last ended run failed, as far as Failures name them. A shard that runs again
	// still counts, until the run has ended, if the Operator has a compiler; of jobs whose fires count from the ends of
	// runs, such as daemons, it does not.
	Failing []int `json:"failing"`
	// Members are the members that offer the job, own shards or have claims, sorted by
	// incarnation.
	Members []MemberStatus `json:"owners"`
	// Unreadable lists the keys of member and claims records that could not be decoded. The
	// rest of Status does not include them.
	Unreadable []registry.Key `json:"unreadable"`
}

// Runs is one run for each of Shards.
type Runs struct {
	Shards  []int     `json:"shards"`
	Fire    time.Time `json:"fire,omitzero"`     // the scheduled instant, or the time of the trigger
	Trigger uint64    `json:"trigger,omitempty"` // the number of the trigger; zero for a scheduled fire
	Attempt int       `json:"attempt,omitempty"` // from 1
	// NotBefore is when a retry may begin at the earliest. It is zero for other attempts.
	NotBefore time.Time `json:"not_before,omitzero"`
}

// Failure describes failed runs of one fire or trigger.
type Failure struct {
	Runs           // Shards may be incomplete
	More int       `json:"more,omitempty"` // the number of failed shards that are not in Shards
	At   time.Time `json:"at"`             // when they ended
	// Error is the error of the first run that failed, cut at 200 bytes.
	Error string `json:"error"`
	// Again reports that the runs are made again after this failure, by the job's retry policy.
	Again bool `json:"again,omitempty"`

	lastTrigger uint64 // the greatest trigger that the shards had claimed
}

// Decision is a change of a plan by a leader.
type Decision struct {
	At    time.Time `json:"at"`
	By    string    `json:"by"`    // the leader's name
	Term  uint64    `json:"term"`  // the leader's term
	What  string    `json:"what"`  // the change and its reason, cut at 200 bytes. The text is not stable across versions
	Again int       `json:"again"` // how many times the same decision was made before
}

// Counts are numbers of runs.
type Counts struct {
	Claimed   uint64 `json:"claimed"`
	Succeeded uint64 `json:"succeeded"`
	Failed    uint64 `json:"failed"`  // without those that are retried
	Skipped   uint64 `json:"skipped"` // fires skipped by the misfire or overlap policy, of disabled shards, or of a job without instances
	Lost      uint64 `json:"lost"`    // runs that a crash ended and that are not made again
	Unknown   uint64 `json:"unknown"` // runs that may or may not have ended before a crash: the job does not track ends
	Retried   uint64 `json:"retried"` // attempts that failed and were followed, or will be, by another
}

// Waiting describes claimed runs of a job that wait for a worker in an instance.
type Waiting struct {
	Shards []int     `json:"waiting"`                // in ascending order, perhaps not all
	More   int       `json:"waiting_more,omitempty"` // the number of waiting shards that are not in Shards
	Since  time.Time `json:"waiting_since,omitzero"` // when the first of them began to wait
	// Behind is the bound that they wait for. The text is not stable across versions.
	Behind string `json:"waits_behind,omitempty"`
}

// MemberStatus is the recorded state of a member with regard to one job.
type MemberStatus struct {
	Instance string             `json:"instance"`
	Host     string             `json:"host"`
	Session  registry.SessionID `json:"session,omitempty"`
	// Alive reports whether the session existed. Shards of an expired member are reassigned.
	Alive    bool `json:"alive"`
	Draining bool `json:"draining"` // the instance is shutting down
	Offers   bool `json:"offers"`   // the member offers the job
	// Unsupported reports whether the member has registered the job but cannot offer it,
	// because its version of the program cannot compile a definition in force.
	Unsupported bool `json:"unsupported"`
	// Revision is the revision of the member's own definition of the job. Differs reports
	// whether that definition has another revision or content than the stored one, as of the
	// member's last record. Own names the fields that differ, if the member found the stored one
	// when it offered the job; of a member that is about to be replaced in a deployment it is empty.
	Revision int    `json:"revision"`
	Differs  bool   `json:"differs"`
	Own      string `json:"own,omitempty"`
	// LocalDiffers reports whether its part of the job that is not stored is not that of most, as
	// in JobSummary.
	LocalDiffers bool   `json:"local_differs"`
	Shards       []int  `json:"shards"`  // the shards that it owns
	Blocked      []int  `json:"blocked"` // shards that it may not own until a function of its earlier session returns
	Running      []Runs `json:"running"` // claimed runs that are not recorded as ended
	// Waiting lists those of Running that have waited for a worker for longer than 10 s. It is
	// published at most every 10 s. The zero value means that there are none.
	Waiting
}

// Status returns the recorded state of a job. It is meant for people and dashboards; the state
// may have changed by the time Status returns.
//
// Each record is read at an instant of its own. So a shard that is just moving may appear with
// two owners or none, and totals may lack the counts of a member that is just being reaped.
// The cost is one read per member and a few more.
//
// A job that is defined as data may rest (Status.Rests), or be about to be deleted: without other records, Status fails with ErrDeleting.
//
// Status fails with ErrUnknownJob if no process has stored the job, and with an error that
// names the key if the job's plan cannot be decoded. The leader and the owners log such a
// plan, with a remedy.
//
// Failures and Decisions hold the latest few; the logs have the earlier ones.
func (o *Operator) Status(ctx context.Context, job string) (Status, error) {
	st, err := o.readStatus(ctx, job)
	if err != nil {
		return Status{}, fmt.Errorf("status of %q: %w", job, err)
	}
	return st, nil
}

func (o *Operator) readStatus(ctx context.Context, job string) (Status, error) {
	segment := record.Segment(job)
	if err := o.checkFormat(ctx); err != nil {
		return Status{}, err
	}
	s, err := o.getReadable(ctx, o.keys.Job(segment))
	awake := s.Jobs[segment].Name != ""
	var defined planning.DefinedRecord
	if err == nil && (!awake || s.Jobs[segment].Kind != "") {
		defined, err = o.putResting(ctx, s, segment)
	}
	if err == nil && s.Jobs[segment].Name == "" {
		err = ErrUnknownJob
		if defined.Defined != nil {
			err = ErrDeleting
		}
	}
	if err == nil {
		err = o.get(ctx, s, o.keys.Control(segment), o.keys.Plan(segment))
	}
	if err == nil {
		err = s.Check(o.keys.Control(segment), o.keys.Plan(segment))
	}
	if err == nil {
		err = o.getFleet(ctx, s, segment)
	}
	if err == nil {
		err = o.listPools(ctx, s)
	}
	if err == nil {
		err = s.CheckForeign()
	}
	if err != nil {
		return Status{}, err
	}
	st := statusOf(s, segment, snapshot.Compile(s.Plans[segment].Plan, o.compile), time.Now())
	st.Leader = leaderOf(s)
	if d := defined.Defined; d != nil {
		st.addDefined(d, awake, s.Plans[segment].Plan != nil, s.Control[segment].Control)
	}
	members := memberStatuses(s, job, st.Revision)
	for inc := range s.Owners(segment) {
		if _, known := members[inc]; !known { // reaped since the plan was read, or unreadable
			members[inc] = &MemberStatus{Instance: record.InstanceOf(inc), Session: record.SessionOf(inc)}
		}
	}
	for _, inc := range slices.Sorted(maps.Keys(members)) {
		m := members[inc]
		claims, claimed := s.Claims[segment][inc]
		m.Shards, m.Running = shardList(s.Owners(segment)[inc]), runsOf(claims.Running)
		if m.Offers || m.Unsupported || len(m.Shards) > 0 || claimed {
			st.Members = append(st.Members, *m)
		}
	}
	st.Unreadable = slices.Concat(s.Damaged(o.keys.Members()), s.Damaged(o.keys.ClaimsOf("x").Dir()))
	return st, nil
}

// statusOf returns the Status of a job by its records, without the parts that depend on the group: Leader, Members and
// Unreadable. There must be a definition; see Snapshot.Definition.
func statusOf(s *snapshot.Snapshot, segment string, programs map[int]due.Program, now time.Time) Status {
	def, plan, control := s.Definition(segment), s.Plans[segment].Plan, s.Control[segment].Control
	if control == nil {
		control = controlWithoutRecord(def.Job, plan)
	}
	st := Status{
		Job: def.Name, Kind: def.Kind, Revision: def.Revision, Schedule: scheduleOf(def.Def), Definition: def.Def, Intent: intentOf(def.Name, control),
		Triggers: triggerNumbers(control.Triggers), Backfills: backfillsOf(control.Backfills),
	}
	var counts record.Counts
	var ended record.Instant
	var failures record.Failures
	if plan != nil {
		st.addPlan(plan)
		counts, ended, failures = plan.Counts, plan.Ended, plan.Failures
	}
	for _, inc := range slices.Sorted(maps.Keys(s.Claims[segment])) {
		claims := s.Claims[segment][inc]
		counts, ended, failures = counts.Add(claims.Counts), max(ended, claims.Ended), failures.With(claims.Failures...)
	}
	if plan != nil {
		done, progress := s.Progress(segment)
		st.addProgress(plan, done)
		all := shardset.Range(0, plan.Shards())
		st.Overdue = due.OldestUnclaimed(plan, programs, progress, all, record.InstantOf(now)).Time()
		if !st.Overdue.IsZero() {
			st.AwaitedPool = s.AwaitedPool(segment)
		}
		st.NextFire = due.NextFire(plan, programs, progress, all, now)
		st.Failing = shardList(due.FailingShards(plan, programs, done.Watermarks, done.Running, failures))
	}
	if control.Retiring != nil { // the leader may not have paused it yet
		st.Overdue, st.AwaitedPool, st.NextFire = time.Time{}, "", time.Time{}
	}
	st.Counts, st.Ended, st.Failures = Counts(counts), ended.Time(), failuresOf(failures)
	return st
}

// addDefined adds the content of the record of a defined job. The control record may be nil.
func (st *Status) addDefined(d *record.Defined, awake, planned bool, c *record.Control) {
	if d.IsDeleted() {
		st.DeletedBy = actOf(&d.By)
		st.Overdue, st.AwaitedPool, st.NextFire = time.Time{}, "", time.Time{}
		return
	}
	if planned {
		return
	}
	if r := d.Rest; r != nil {
		st.Counts, st.Ended, st.Failures = Counts(r.Counts), r.Ended.Time(), failuresOf(r.Failures)
		if c == nil {
			st.Intent.Paused = false // StartPaused applied before the first rest
		}
	}
	st.Rests, st.NextFire = !awake, d.Next.Time()
	if st.Rests && d.Next != 0 {
		st.Wakes = d.Next.Add(-planning.WakeAhead).Time()
	}
}

// addPlan adds the content of a plan.
func (st *Status) addPlan(p *record.Plan) {
	st.InForce, st.Paused, st.Shards, st.Problem = p.Last().Job().Revision, p.Paused, p.Last().Job().Shards, p.Problem
	st.GroupPaused, st.UnofferedSince = p.GroupPause != nil, p.Unoffered.Time()
	all := shardset.Range(0, st.Shards)
	unowned := all
	for _, shards := range p.Owners {
		unowned = unowned.Minus(shards)
	}
	st.Unowned, st.Frozen, st.Disabled = shardList(unowned), shardList(p.Frozen.Intersect(all)), shardList(p.Disabled.Intersect(all))
	st.Definition, st.Schedule, st.ScheduleStopped = p.Last().Def, scheduleOf(p.Last().Def), p.Stopped
	for _, d := range p.Decisions {
		st.Decisions = append(st.Decisions, Decision{d.At.Time(), d.By, d.Term, d.What, d.Again})
	}
}

// memberStatuses returns the status of each member for a job whose stored definition has a revision, by incarnation.
func memberStatuses(s *snapshot.Snapshot, job string, revision int) map[string]*MemberStatus {
	out := make(map[string]*MemberStatus, len(s.Members))
	differing, inForce := record.CompareLocal(s.LiveMembers(), job), s.InForce(record.Segment(job), job)
	for inc, m := range s.Members {
		own, _ := m.Revision(job)
		other, differs := m.FindOther(job, revision)
		alive := s.IsLive(m.Session)
		out[inc] = &MemberStatus{
			Instance: m.Name, Host: m.Host, Session: m.Session, Alive: alive, Draining: m.Draining,
			Offers: m.Offers(inForce), Unsupported: slices.Contains(m.Unsupported, job), Revision: own,
			Differs: differs, Own: other.Own, Blocked: shardList(m.Blocked[job]), Waiting: waitingOf(m.Waiting[job]),
			LocalDiffers: alive && !m.Draining && slices.Contains(differing, m.Name),
		}
	}
	return out
}

func intentOf(job string, c *record.Control) Intent {
	return Intent{
		Paused: c.Paused, Disabled: Scope{job, shardList(c.Disabled), c.Instances, c.Hosts}, ScheduleStopped: c.Stopped,
		Until: c.Until.Time(), HeldBy: actOf(c.HeldBy),
		Override: overrideOf(c.Override), OverriddenBy: actOf(c.OverriddenBy), RetiredBy: actOf(c.Retiring),
	}
}

func shardList(s shardset.Set) []int { return slices.Collect(s.All()) }

func triggerNumbers(triggers []record.Trigger) []uint64 {
	var out []uint64
	for _, t := range triggers {
		out = append(out, t.Number)
	}
	return out
}

func runsOf(groups record.Runs) []Runs {
	var out []Runs
	for _, g := range groups {
		out = append(out, runOf(g))
	}
	return out
}

func runOf(g record.RunGroup) Runs {
	return Runs{shardList(g.Shards), g.Fire.Time(), g.Trigger, g.Attempt, g.NotBefore.Time()}
}

func failuresOf(fs record.Failures) []Failure {
	var out []Failure
	for _, f := range fs {
		out = append(out, Failure{runOf(f.RunGroup), f.More, f.At.Time(), f.Error, f.Again, f.LastTrigger})
	}
	return out
}

func waitingOf(w record.Waiting) Waiting {
	return Waiting{shardList(w.Shards), w.More, w.Since.Time(), w.Behind}
}
