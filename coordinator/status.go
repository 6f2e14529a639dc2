package coordinator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/rota-dev/rota/coordinator/internal/planning"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/registry"
)

// Status is what is on record of a job. Numbers of shards are in ascending order.
type Status struct {
	Job string
	// Revision is that of the definition that is stored, and InForce that of the newest one
	// that leaders have taken up. While fires of earlier ones are owed, those hold as well.
	Revision, InForce int
	// Schedule is that of the newest definition that leaders have taken up, or of the stored one
	// if no leader has planned the job, as text: executor.ParseSchedule reads it. NextFire is the
	// next scheduled fire, zero if there is none or the job is paused or its schedule stopped. It takes an Operator that
	// knows the schedules: a Member's, or one of WithCompiler.
	Schedule string
	NextFire time.Time
	// Leader is who leads the group.
	Leader LeaderStatus
	// Intent is stored by operators. Paused, ScheduleStopped and Disabled are in force: a leader
	// has copied them into the plan.
	Intent          Intent
	Paused          bool
	ScheduleStopped bool
	Disabled        []int
	// Shards is how many there are, zero if no leader has planned the job: that is done when
	// somebody comes who offers it.
	Shards int
	// PerShard is what is on record of each shard, by its number.
	PerShard []ShardStatus
	// Unowned are shards that no member owns, Frozen those that are to move.
	Unowned, Frozen []int
	// Reruns are runs that a crash ended, or that were handed back, to be made again.
	Reruns []Runs
	// Triggers are the numbers of those that wait or run, sorted.
	Triggers []uint64
	// Problem is why the plan is not what it should be, Decisions why it is what it is: the
	// latest, oldest first.
	Problem   string
	Decisions []Decision
	// Counts are sums over the life of the job. Ended is when the last runs ended that did,
	// well or not; Failures are the latest of those that failed, oldest first.
	Counts   Counts
	Ended    time.Time
	Failures []Failure
	// Members are those that offer the job, own shards of it or have run some, by name.
	Members []MemberStatus
	// Unreadable are the keys of records of members that could not be read and are left out.
	Unreadable []registry.Key
}

// Runs is a run of each of some shards.
type Runs struct {
	Shards  []int
	Fire    time.Time // the scheduled instant, or that of the trigger
	Trigger uint64    // zero for a scheduled fire
	Attempt int       // from 1
}

// Failure is runs of one fire, or of one trigger, that failed.
type Failure struct {
	Runs           // of which Shards may lack some
	More int       // shards that failed and are not among Shards
	At   time.Time // when they ended
	// Error is what the first that failed returned, cut at 200 bytes.
	Error string
}

// Decision is why a leader changed a plan.
type Decision struct {
	At    time.Time
	By    string // the leader's name
	Term  uint64 // the number of the commit by which it came to office
	What  string // and why, in words that may change from version to version; cut at 200 bytes
	Again int    // how often the same had been decided before
}

// Counts are numbers of runs.
type Counts struct {
	Claimed   uint64
	Succeeded uint64
	Failed    uint64
	Skipped   uint64 // fires given up by the misfire policy, or of disabled shards
	Lost      uint64 // runs that a crash ended and that are not made again
	Unknown   uint64 // runs of which a crash left untold whether they had ended: the job does not track them
}

// Waiting is runs of a job that an instance has claimed and that wait there for a worker.
type Waiting struct {
	Shards []int     // in ascending order
	More   int       // shards that wait and are not among Shards: on record there are the first of many
	Since  time.Time // when the first of them began to wait
	// Behind is the bound that holds them back, in words that may change from version to version.
	Behind string
}

// MemberStatus is what is on record of a member's part in a job.
type MemberStatus struct {
	Instance string
	Host     string
	Session  registry.SessionID
	// Alive is whether its session was there. What one that is not had goes to others.
	Alive    bool
	Draining bool
	Offers   bool // it offers the job
	// NotUnderstood is whether it would, but for a definition that its version cannot run.
	Unsupported bool
	// Revision is that of the member's own definition of the job, if it offers it or would.
	// Differs is whether that is not the definition that is stored: it has another revision, or
	// other content, as the member found it when it wrote its record last.
	Revision int
	Differs  bool
	Shards   []int // that it owns
	Blocked  []int // that it cannot run: a function of an earlier session has not returned
	Running  []Runs
	// Waiting is those of Running that have not begun, as they have waited for a worker for
	// longer than 10 s. It is published every 10 s at most. The zero value: none have.
	Waiting Waiting
}

// Status returns what is on record of a job, which is meant for people: programs that act
// on it come too late.
//
// It is a snapshot of each record, not of all at one instant. Members go on while it is
// taken, so a shard that has just moved may have two owners or none, and sums may lack what
// a member that has just gone had counted. It reads a record for each member.
//
// If the plan of the job cannot be read, Status fails with an error that names the key. The
// leader and the owners of the job's shards log such a plan, and what to do.
//
// Of failures and decisions it holds the latest few. Those before are only in logs.
func (o *Operator) Status(ctx context.Context, job string) (Status, error) {
	st, err := o.readStatus(ctx, job)
	if err != nil {
		return Status{}, fmt.Errorf("status of %q: %w", job, err)
	}
	return st, nil
}

func (o *Operator) readStatus(ctx context.Context, job string) (Status, error) {
	segment := record.Segment(job)
	text, def, err := o.readDefinitionText(ctx, segment)
	if err != nil {
		return Status{}, err
	}
	c, _, err := o.readControl(ctx, def)
	if err != nil {
		return Status{}, err
	}
	plan, err := o.readPlan(ctx, segment)
	if err != nil {
		return Status{}, err
	}
	st := Status{
		Job: job, Revision: def.Revision, Schedule: scheduleOf(text), Intent: intentOf(job, c), Triggers: triggerNumbers(c.Triggers),
	}
	if st.Leader, err = o.readLeader(ctx); err != nil {
		return Status{}, err
	}
	var done planning.JobProgress
	var counts record.Counts
	var ended record.Instant
	var failures record.Failures
	owners := map[string]shardset.Set{}
	if plan != nil {
		st.addPlan(plan)
		st.NextFire = nextFire(plan, o.compile, time.Now())
		done.Watermarks = plan.Watermarks
		counts, ended, failures, owners = plan.Counts, plan.Ended, plan.Failures, plan.Owners
	}
	members, err := o.readMembers(ctx, &st)
	if err != nil {
		return Status{}, err
	}
	for inc := range owners {
		if _, known := members[inc]; !known { // gone since, or it cannot be read
			members[inc] = &MemberStatus{Instance: record.InstanceOf(inc), Session: record.SessionOf(inc)}
		}
	}
	for _, inc := range slices.Sorted(maps.Keys(members)) {
		m := members[inc]
		claims, err := o.readClaims(ctx, inc, segment, &st)
		if err != nil {
			return Status{}, err
		}
		m.Shards, m.Running = shardList(owners[inc]), runsOf(claims.Running)
		if m.Offers || m.Unsupported || len(m.Shards) > 0 || claims.Job != "" {
			st.Members = append(st.Members, *m)
		}
		done.AddClaims(owners[inc], claims)
		counts, ended, failures = counts.Add(claims.Counts), max(ended, claims.Ended), failures.With(claims.Failures...)
	}
	if plan != nil {
		st.addProgress(plan, done)
	}
	st.Counts, st.Ended, st.Failures = Counts(counts), ended.Time(), failuresOf(failures)
	return st, nil
}

// tellPlan tells what a plan says.
func (st *Status) addPlan(p *record.Plan) {
	st.InForce, st.Paused, st.Shards, st.Problem = p.Last().Job().Revision, p.Paused, p.Shards(), p.Problem
	unowned := shardset.Range(0, p.Shards())
	for _, shards := range p.Owners {
		unowned = unowned.Minus(shards)
	}
	st.Unowned, st.Frozen, st.Disabled = shardList(unowned), shardList(p.Frozen), shardList(p.Disabled)
	st.Schedule, st.ScheduleStopped = scheduleOf(p.Last().Def), p.Stopped
	for _, d := range p.Decisions {
		st.Decisions = append(st.Decisions, Decision{d.At.Time(), d.By, d.Term, d.What, d.Again})
	}
}

// plan returns the plan of a job, nil if there is none.
func (o *Operator) readPlan(ctx context.Context, segment string) (*record.Plan, error) {
	key := o.keys.Plan(segment)
	e, found, err := o.getRecord(ctx, key)
	if err != nil || !found {
		return nil, err
	}
	p, err := record.DecodePlan(e.Value)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", key, err)
	}
	return p, nil
}

// members returns what the members' records say about the job of st, by incarnation. See
// claims for how they are read.
func (o *Operator) readMembers(ctx context.Context, st *Status) (map[string]*MemberStatus, error) {
	live, err := o.reg.List(ctx, o.keys.Instances(), registry.ReadOptions{})
	if err != nil {
		return nil, err
	}
	alive := map[registry.SessionID]bool{}
	for _, e := range live.Entries {
		alive[e.Owner] = true
	}
	all, err := o.reg.List(ctx, o.keys.Members(), registry.ReadOptions{})
	if err != nil {
		return nil, err
	}
	out := make(map[string]*MemberStatus, len(all.Entries))
	for _, e := range all.Entries {
		m, err := record.Decode[record.Member](e.Value)
		if err != nil {
			st.Unreadable = append(st.Unreadable, e.Key)
			continue
		}
		revision, has := m.Revision(st.Job)
		out[e.Key.Name()] = &MemberStatus{
			Instance: m.Name, Host: m.Host, Session: m.Session, Alive: alive[m.Session], Draining: m.Draining,
			Offers: m.Offers(st.Job), Unsupported: slices.Contains(m.Unsupported, st.Job), Revision: revision,
			Differs: has && (revision != st.Revision || slices.Contains(m.Differs, st.Job)), Blocked: shardList(m.Blocked[st.Job]),
			Waiting: waitingOf(m.Waiting[st.Job]),
		}
	}
	return out, nil
}

// claims returns what an incarnation has claimed of a job, the zero record if nothing. The
// plan was read fresh, and reads of a handle never go back, so these cost no commits.
func (o *Operator) readClaims(ctx context.Context, incarnation, segment string, st *Status) (record.Claims, error) {
	key := o.keys.Claims(incarnation, segment)
	e, err := o.reg.Get(ctx, key, registry.ReadOptions{})
	switch {
	case errors.Is(err, registry.ErrNotFound):
		return record.Claims{}, nil
	case err != nil:
		return record.Claims{}, err
	}
	c, err := record.Decode[record.Claims](e.Value)
	if err != nil {
		st.Unreadable = append(st.Unreadable, key)
		return record.Claims{}, nil
	}
	return c, nil
}

func intentOf(job string, c *record.Control) Intent {
	return Intent{c.Paused, Scope{job, shardList(c.Disabled), c.Instances, c.Hosts}, c.Stopped}
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
	return Runs{shardList(g.Shards), g.Fire.Time(), g.Trigger, g.Attempt}
}

func failuresOf(fs record.Failures) []Failure {
	var out []Failure
	for _, f := range fs {
		out = append(out, Failure{runOf(f.RunGroup), f.More, f.At.Time(), f.Error})
	}
	return out
}

func waitingOf(w record.Waiting) Waiting {
	return Waiting{shardList(w.Shards), w.More, w.Since.Time(), w.Behind}
}
