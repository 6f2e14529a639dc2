package judge

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rota-dev/rota/registry"
)

// Judge judges a fleet by the commits of its registry and the reports of its handlers. One goroutine passes
// them to it, in order.
type Judge struct {
	group         string       // the directory of the group's records
	names         registry.Key // the directory of instance keys
	now           time.Time
	sessions      map[registry.SessionID]*sessionState
	leader        leaderState
	members       map[string]*memberRecord // by incarnation
	joined        map[string]time.Time     // by instance: when it joined last
	control       controlRecord            // of all jobs
	excluded      map[exclusion]bool       // incarnations that were ever disabled
	jobs          map[string]*jobState     // by segment
	disturbances  map[string][]span        // by client; those of "" concern all
	maxDelay      time.Duration
	maxClockError time.Duration // of instances, against the right time
	wrongClocks   bool          // clocks may be further apart than MaxClockSkew
	logLag        time.Duration
	logUnit       time.Duration
	terms         []span // in each of which a leader began
	pools         map[string]*poolState
	trail         trail
	report        *Report
}

// Commit is a transaction, or the begin or end of a session.
type Commit struct {
	Rev    registry.Rev
	At     time.Time
	Client string             // that sent it, or "" if unknown
	Opened registry.SessionID // the session that begins
	Ended  registry.SessionID // the session that ends
	If     []registry.Cond    // nil if Client is unknown
	Then   []registry.Op
	Err    error // why it was refused
}

type sessionState struct {
	client string // that opened it
	ended  bool
	end    time.Time // when it ended
	forced bool      // expired before its TTL, by a fault
	run    bool      // it has claimed a run
}

type leaderState struct {
	leaderRecord
	term   uint64
	since  instant
	client string
}

// jobState is the observed state of a job.
type jobState struct {
	segment       string
	name          string
	plan          *planRecord
	control       controlRecord
	resumed       instant // when the last pause ended
	epochs        []epoch // all that plans have had, by number
	claims        map[string]*claimsRecord
	shards        []*shardState
	works         map[life]*workState
	triggers      map[uint64]shards  // pending shards, by number
	requests      map[uint64]trigger // all that plans have had, by number
	lastTrigger   uint64
	backfills     map[uint64]*backfill // with the fires that no plan has had yet, by number
	stored        []byte               // the stored definition; nil for none
	inForce       []byte               // the last plan
	sources       sources              // of definitions in force
	firstLife     int                  // of its fires and triggers, since an operator has forgotten it
	forgotten     time.Time            // when that was
	resetsBefore  int                  // that operators had asked for then; a leader that has not observed it may begin a plan with them
	hasControl    bool
	counts        tallies     // of the observed commits
	perhapsPassed int         // the part of counts.Skipped that a leader with an older plan of the followed job does not count
	ended         []endedFire // of the job, as plans show them
	released      []release   // fires of a job that follows others, sorted
	defined       definedState
	ends          int // runs whose end was recorded
	trail         trail
}

// workState holds what all runs of a fire or trigger must have in common.
type workState struct {
	epoch, total int
}

// shardState is the observed state of a shard.
type shardState struct {
	owner     string  // "" for none
	owned     instant // since when
	free      instant // since when no claims record lists a run of it
	unfrozen  instant // since when it is not frozen
	enabled   instant // since when it is not disabled
	epoch     int     // of the watermark
	watermark instant
	fence     uint64
	running   map[string]run // by incarnation: as its claims record lists it
	orphan    *orphan
	attempts  map[attempt]*claimState
	resets    int // the highest of the keys of attempts
	active    []*Call
	cancelled map[life]instant // when a plan first named these runs as cancelled
	asked     map[life]bool    // the runs that operators have cancelled, whether or not a plan named them
}

// orphan is a run that is to be made again: its session has ended, or its owner handed it back or
// retries it.
type orphan struct {
	run
	fence   uint64
	since   instant
	pending bool // on record as a re-run
	follow  run  // the attempt that is on record instead, if its owner put it there
}

// claimState is a claim that was committed.
type claimState struct {
	life        life
	incarnation string
	session     *sessionState
	at          instant // of the claim
	pool        string  // empty: the job has none
	fence       uint64
	fire        instant
	started     bool
	returned    instant // when its call returned; 0: not yet observed
	failed      bool    // its call returned an error
	recorded    bool    // its end was recorded, and no further attempt was put on record
}

// Options configure a Judge.
type Options struct {
	// Promptly is the longest delay of a claim or failover that no fault disturbs.
	Promptly time.Duration
	// Clocks is the largest difference of an instance's clock from the right time.
	Clocks time.Duration
	// WrongClocks is set if clocks may differ by more than MaxClockSkew. Only then an attempt may be
	// claimed again after a reset.
	WrongClocks bool
	// LogLag is the longest time from a commit to its instant in the log.
	LogLag time.Duration
	// LogUnit is the unit in which the log has instants, rounded down: that of ZooKeeper has milliseconds.
	LogUnit time.Duration
	// Trail is how many lines to print about the commits before a violation.
	Trail int
}

// New returns a judge of a group of a namespace. It must receive all commits since the store was empty.
func New(namespace, group string, o Options) *Judge {
	return &Judge{
		group:         namespace + "/groups/" + group + "/",
		names:         registry.Key(namespace).Join("instances"),
		sessions:      map[registry.SessionID]*sessionState{},
		members:       map[string]*memberRecord{},
		joined:        map[string]time.Time{},
		excluded:      map[exclusion]bool{},
		jobs:          map[string]*jobState{},
		disturbances:  map[string][]span{},
		maxDelay:      o.Promptly + 2*o.Clocks, // the leader's clock and the owner's may differ in opposite directions
		maxClockError: o.Clocks,
		wrongClocks:   o.WrongClocks,
		logLag:        o.LogLag,
		logUnit:       o.LogUnit,
		pools:         map[string]*poolState{},
		report:        &Report{Faults: map[string]int{}, Actions: map[string]int{}, most: o.Trail},
	}
}

// Report returns the results so far. Later judgements change it.
func (o *Judge) Report() *Report { return o.report }

// JudgeCommits judges the commits that follow those of earlier calls.
func (o *Judge) JudgeCommits(log []Commit) {
	for i := range log {
		c := &log[i]
		o.now = c.At
		switch {
		case c.Opened != "":
			o.sessions[c.Opened] = &sessionState{client: c.Client}
			o.trail.add(c)
		case c.Ended != "":
			o.trail.add(c)
			o.judgeSessionEnd(c)
		case c.Err != nil:
			o.report.Conflicts++
		case len(c.Then) > 0:
			o.report.Commits++
			o.judgeTxn(c)
		}
	}
}

// AddViolation records a violation that the caller found.
func (o *Judge) AddViolation(promise int, format string, args ...any) {
	o.addJobViolation(promise, nil, format, args...)
}

// JudgeAcceptedTrigger judges that an accepted trigger reached the plan, unless the job was forgotten after the request.
func (o *Judge) JudgeAcceptedTrigger(job string, number uint64, requested time.Time) {
	if j := o.jobs[job]; j == nil || number > j.lastTrigger && j.forgotten.Before(requested) {
		o.addJobViolation(2, j, "trigger %d was accepted but never reached the plan", number)
	}
}

// addJobViolation records a violation. j may be nil.
func (o *Judge) addJobViolation(promise int, j *jobState, format string, args ...any) {
	v := Violation{At: o.now, Promise: promise, Text: fmt.Sprintf(format, args...)}
	if j != nil {
		v.Text = j.name + ": " + v.Text
		if o.report.trails < maxTrails {
			o.report.trails++
			v.Trail = j.trail.text(j.segment, &o.trail, o.report)
		}
	}
	o.report.addViolation(v)
}

// reaping is the deletion of a claims record.
type reaping struct {
	job         *jobState
	incarnation string
	claims      *claimsRecord
}

// judgeTxn judges a committed transaction.
func (o *Judge) judgeTxn(c *Commit) {
	var reaped []reaping
	var planned []*jobState
	before := map[*jobState]tallies{}
	forgotten, ended := o.findForgotten(c)
	for i := range c.Then {
		op := &c.Then[i]
		dir, name, ok := o.splitKey(op.Key)
		if !ok {
			o.addSessionClient(op)
			continue
		}
		if op.Kind == registry.OpDelete && (slices.Contains(forgotten, name) || slices.Contains(ended, name)) {
			o.job(name).defined.noteRecord(op)
			continue
		}
		kind, inc, _ := strings.Cut(dir, "/")
		if j := o.jobs[name]; kind == "defined" || j != nil && j.defined.isKnown {
			o.job(name).defined.noteRecord(op)
		}
		switch kind {
		case "election":
			if name == "leader" {
				o.trail.add(c)
				o.judgeLeader(c, op)
			}
		case "members":
			o.judgeMember(op, name)
		case "control":
			o.judgeControl(op, name)
		case "jobs":
			o.addDefinition(op, o.job(name))
		case "defined":
			if !slices.Contains(ended, name) {
				o.judgeDefined(c, op, o.job(name))
			}
		case "plan":
			j := o.job(name)
			j.trail.add(c)
			if j.plan != nil {
				before[j] = j.plan.Counts
			}
			if o.judgePlan(c, op, j); j.plan != nil {
				planned = append(planned, j)
			}
		case "ends":
			if op.Kind != registry.OpDelete {
				o.judgeEndsRecord(c, op)
			}
		case "claims":
			j := o.job(name)
			j.trail.add(c)
			if op.Kind == registry.OpDelete {
				reaped = append(reaped, reaping{job: j, incarnation: inc, claims: j.claims[inc]})
			} else {
				o.judgeClaimsRecord(c, op, j, inc)
			}
		}
	}
	for _, segment := range forgotten {
		o.judgeForget(c, o.job(segment))
	}
	for _, segment := range ended {
		o.judgeLifeEnd(c, o.job(segment))
	}
	for _, b := range reaped {
		o.judgeReap(b)
	}
	o.judgeFailover(reaped, before)
	for _, j := range planned {
		o.judgeFires(j, j.plan)
	}
}

// addSessionClient records the client of a session from its instance key, for logs without clients.
func (o *Judge) addSessionClient(op *registry.Op) {
	if op.Key.Dir() != o.names || op.Kind != registry.OpCreateOwned {
		return
	}
	if s := o.sessions[op.Session]; s != nil && s.client == "" {
		s.client = strings.TrimPrefix(op.Key.Name(), "~")
	}
}

// splitKey splits a key of the group into directory and name.
func (o *Judge) splitKey(k registry.Key) (dir, name string, ok bool) {
	rest, ok := strings.CutPrefix(string(k), o.group)
	if !ok {
		return "", "", false
	}
	i := strings.LastIndexByte(rest, '/')
	if i < 0 {
		return "", "", false
	}
	return rest[:i], rest[i+1:], true
}

func (o *Judge) job(segment string) *jobState {
	j := o.jobs[segment]
	if j == nil {
		j = &jobState{
			segment: segment, name: segment, claims: map[string]*claimsRecord{},
			works: map[life]*workState{},
		}
		j.beginLife()
		o.jobs[segment] = j
	}
	return j
}

func (j *jobState) shard(n int) *shardState {
	for len(j.shards) <= n {
		j.shards = append(j.shards, &shardState{running: map[string]run{}, attempts: map[attempt]*claimState{}})
	}
	return j.shards[n]
}

func (j *jobState) epoch(gen int) *epoch {
	for i := range j.epochs {
		if j.epochs[i].Number == gen {
			return &j.epochs[i]
		}
	}
	return nil
}

// session returns the session of an incarnation.
func (o *Judge) session(incarnation string) *sessionState {
	return o.sessions[sessionOf(incarnation)]
}

func sessionOf(incarnation string) registry.SessionID {
	return registry.SessionID(incarnation[strings.LastIndexByte(incarnation, '.')+1:])
}

func nameOf(incarnation string) string {
	return incarnation[:max(0, strings.LastIndexByte(incarnation, '.'))]
}

func (o *Judge) alive(incarnation string) bool {
	s := o.session(incarnation)
	return s != nil && !s.ended
}

// ExpectForcedExpiry announces that a fault expires the sessions of a client before their TTL, which no clock
// of the client can foresee.
func (o *Judge) ExpectForcedExpiry(client string) {
	for _, s := range o.sessions {
		if s.client == client && !s.ended {
			s.forced = true
		}
	}
}

// HasClaimed reports whether a client has ever claimed a run.
func (o *Judge) HasClaimed(client string) bool {
	for _, s := range o.sessions {
		if s.client == client && s.run {
			return true
		}
	}
	return false
}

// LiveSession returns the session of a client that is alive.
func (o *Judge) LiveSession(client string) (id registry.SessionID, ok bool) {
	for id, s := range o.sessions {
		if s.client == client && !s.ended {
			return id, true
		}
	}
	return "", false
}

// SessionEnd returns when a session ended.
func (o *Judge) SessionEnd(id registry.SessionID) (at time.Time, ok bool) {
	s := o.sessions[id]
	if s == nil {
		return time.Time{}, false
	}
	return s.end, s.ended
}

// IsWhole reports whether the given number of members is alive, one of them leads, they own all shards of all
// jobs, and no re-run is pending.
func (o *Judge) IsWhole(members int) bool {
	live := 0
	for inc := range o.members {
		if o.alive(inc) {
			live++
		}
	}
	if live != members || !o.alive(o.leader.Incarnation) {
		return false
	}
	for _, j := range o.jobs {
		if j.plan == nil && (j.defined.isKnown || j.stored == nil) { // a Delete may have named one that was never defined
			continue
		}
		if j.plan == nil || j.plan.Frozen != 0 {
			return false
		}
		for n, sh := range j.shards {
			if sh.orphan != nil || n < j.total() && !o.alive(j.plan.owner(n)) {
				return false
			}
		}
	}
	return len(o.jobs) > 0
}

// IsIdle reports whether no run of these jobs is in progress on record and no re-run of them is pending. Without
// jobs, it concerns all.
func (o *Judge) IsIdle(jobs ...string) bool {
	for _, j := range o.jobs {
		if len(jobs) > 0 && !slices.Contains(jobs, j.name) {
			continue
		}
		for _, sh := range j.shards {
			if sh.orphan != nil || len(sh.running) > 0 {
				return false
			}
		}
	}
	return true
}

// IsDraining reports whether an instance has published that it drains.
func (o *Judge) IsDraining(instance string) bool {
	for inc, m := range o.members {
		if nameOf(inc) == instance && m.Draining {
			return true
		}
	}
	return false
}

// CountFailed returns how many runs the current records count as failed.
func (o *Judge) CountFailed() int {
	n := 0
	for _, j := range o.jobs {
		if j.plan != nil {
			n += j.plan.Counts.Failed
		}
		for _, c := range j.claims {
			n += c.Counts.Failed
		}
	}
	return n
}

// Shard is a shard of a job.
type Shard struct {
	Job    string
	Number int
}

// OwnedShards returns the shards that plans assign to a client whose session is alive.
func (o *Judge) OwnedShards(client string) []Shard {
	var owned []Shard
	for _, j := range o.jobs {
		if j.plan == nil {
			continue
		}
		for inc, set := range j.plan.Owners {
			if s := o.session(inc); s != nil && s.client == client && !s.ended {
				set.all(func(n int) { owned = append(owned, Shard{j.name, n}) })
			}
		}
	}
	return owned
}

// total returns the total of the newest epoch.
func (j *jobState) total() int {
	if len(j.epochs) == 0 {
		return 0
	}
	return j.epochs[len(j.epochs)-1].Def.Shards
}

// Leader returns the client of the current or last leader.
func (o *Judge) Leader() string { return o.leader.client }

// judgeLeader judges a write of the leader record.
func (o *Judge) judgeLeader(c *Commit, op *registry.Op) {
	if op.Kind == registry.OpDelete {
		o.addJobViolation(6, nil, "%q deleted the leader record", c.Client)
		return
	}
	rec, err := decode[leaderRecord](op.Value)
	if err != nil {
		o.addJobViolation(6, nil, "leader record: %v", err)
		return
	}
	if s := o.sessions[o.leader.Session]; s != nil && !s.ended && c.Client != "" && c.Client != o.leader.client {
		o.addJobViolation(6, nil, "%s replaced the leader %s, whose session is alive", c.Client, o.leader.Incarnation)
	}
	s := o.sessions[rec.Session]
	if s == nil || s.ended {
		o.addJobViolation(6, nil, "%s became leader after its session ended", rec.Incarnation)
		return
	}
	o.leader = leaderState{*rec, c.Rev.Seq, instantOf(o.now), s.client}
	o.terms = append(o.terms, span{o.leader.since, o.leader.since.add(slotPrompt + o.maxDelay)})
	o.report.Terms++
}

// judgeControl records the intent of operators.
func (o *Judge) judgeControl(op *registry.Op, name string) {
	rec := &controlRecord{}
	if op.Kind != registry.OpDelete {
		var err error
		if rec, err = decode[controlRecord](op.Value); err != nil {
			o.addJobViolation(9, nil, "control record of %s: %v", name, err)
			return
		}
	}
	for inc, m := range o.members {
		o.noteExcluded(name, rec, inc, m)
	}
	if name == groupSegment {
		o.addPoolSizes(rec)
		o.control = *rec
		return
	}
	j := o.job(name)
	j.hasControl = op.Kind != registry.OpDelete
	o.judgeBackfills(j, rec)
	j.addAskedCancels(rec)
	j.control = *rec
	j.sources.addOverride(rec.Override)
}

// groupSegment is the name of the control record of all jobs.
const groupSegment = "-group"

// exclusion is the exclusion of an incarnation from a job, or from all of the group.
type exclusion struct {
	segment, incarnation string
}

// noteExcluded records an incarnation that is disabled.
func (o *Judge) noteExcluded(segment string, c *controlRecord, inc string, m *memberRecord) {
	if c.disables(m) {
		o.excluded[exclusion{segment, inc}] = true
	}
}

func (o *Judge) judgeMember(op *registry.Op, incarnation string) {
	if op.Kind == registry.OpDelete {
		if o.alive(incarnation) {
			o.addJobViolation(4, nil, "the member record of %s was deleted while its session is alive", incarnation)
		}
		delete(o.members, incarnation)
		return
	}
	rec, err := decode[memberRecord](op.Value)
	if err != nil {
		o.addJobViolation(5, nil, "member record of %s: %v", incarnation, err)
		return
	}
	if o.members[incarnation] == nil {
		o.joined[rec.Name] = o.now
	}
	o.members[incarnation] = rec
	o.noteExcluded(groupSegment, &o.control, incarnation, rec)
	for segment, j := range o.jobs {
		o.noteExcluded(segment, &j.control, incarnation, rec)
	}
}

// judgeSessionEnd judges the end of a session: its runs in progress have to be made again.
func (o *Judge) judgeSessionEnd(c *Commit) {
	s := o.sessions[c.Ended]
	if s == nil || s.ended {
		return
	}
	s.ended, s.end = true, o.now
	for _, j := range o.jobs {
		for inc := range j.claims {
			if sessionOf(inc) == c.Ended {
				o.addOrphans(j, inc)
			}
		}
	}
}

func (o *Judge) addOrphans(j *jobState, inc string) {
	for _, g := range j.claims[inc].Running {
		g.Shards.all(func(n int) {
			sh := j.shard(n)
			if sh.orphan != nil {
				o.addJobViolation(3, j, "shard %d: %s was lost, but %s, which was lost before it, has not been made again", n, g.run, sh.orphan.run)
			}
			o.report.InFlight++
			sh.orphan = &orphan{run: g.run, fence: sh.fence, since: instantOf(o.now)}
		})
	}
}

// latest returns the latest time that the clock of the writer of this commit can have shown.
func (o *Judge) latest() instant { return instantOf(o.now).add(o.maxClockError + o.logUnit) }
