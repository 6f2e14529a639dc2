package explore

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"hash/maphash"
	"iter"
	"log/slog"
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/group/batch"
	"github.com/rota-dev/rota/internal/group/claimer"
	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/group/due"
	"github.com/rota-dev/rota/internal/group/election"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/registry"
)

// world is the state of a small world: a store, processes, and messages in flight. It shares memory with
// other worlds, so nothing that it points to may be modified.
type world struct {
	store            storeModel
	staleStore       *storeModel // shown to a process that reads a directory for the first time; nil: the store does not lag
	now              int         // an index of exInstants
	procs            []process
	abandoned        []request // requests that may still arrive, without a process that waits for the reply
	expiring         []registry.SessionID
	left             faultBudget
	claims           []claimedRun // all so far, sorted
	epochs           []epoch      // all so far, by number
	triggersAccepted int          // committed by operators
	resetsAccepted   int          // likewise
	highestRevision  int          // of all definitions that processes have brought
	created          int          // creations of the defined job that were committed
	deleting         bool         // a Delete of the defined job was answered and has not returned
	deleted          string       // the creation that a Delete has deleted which has returned
}

// faultBudget is the number of faults and requests that may still happen.
type faultBudget struct {
	crashes, expiries, lostReplies, revisions, drains, triggers, resets, recordEdits, staleReads, failures int

	defines, deletes int // of the job as data
}

// claimedRun is a committed claim.
type claimedRun struct {
	shard   int
	epoch   int
	fire    record.Instant
	trigger uint64 // zero: a fire of the schedule
	attempt int
	ended   bool // its handler returned and that was recorded, or it was counted as lost or unknown
}

// epoch is an epoch as in the latest plan.
type epoch struct {
	number, shards int
	from, until    record.Instant
}

// instants are the values of the clock. Two fires lie between them.
var instants = []record.Instant{instantAt(1), instantAt(60), instantAt(120), instantAt(150)}

// retryDelay is the delay of some retries: they wait for the next instant.
const retryDelay = 10 * time.Second

func instantAt(seconds int64) record.Instant {
	return record.InstantOf(time.Unix(1_200_000_000+seconds, 0))
}

// phase is the stage of a process.
type phase int

const (
	phaseOffline phase = iota // without a session
	phaseJoining
	phaseMember
	phaseStopped // it does not come back
)

// The directories that a process watches. A member watches the first two, a leader all.
const (
	feedPlans = iota
	feedElection
	feedInstances
	feedMembers
	feedJobs
	feedControls
	feedEnds
	feedDefined
	feedCount
)

// process is a process of the fleet, through all of its incarnations.
type process struct {
	name    string
	phase   phase
	session registry.SessionID
	inc     string
	feeds   [feedCount][]storedEntry // as last delivered
	synced  [feedCount]bool

	jobState  *claimer.JobState // of the claimer; nil: none yet
	running   shardset.Set      // shards whose handlers have not returned
	blocked   shardset.Set      // the same for handlers of earlier incarnations
	draining  bool
	resigned  bool      // it drains and has tried to resign
	brings    int       // revision of the definition, or of the kind of a defined job, that it has to store; zero: none
	published published // its member record
	election  election.State
	leading   bool
	term      registry.Rev
	endedTerm registry.Rev // a term that it knows to be over
	following []string     // incarnations whose claims it watches as a leader

	flights [kindCount]*inFlight
}

// isUnused reports whether a process has taken no step yet.
func (p *process) isUnused() bool {
	return p.phase == phaseOffline && p.session == "" && p.blocked.IsZero() && !p.draining
}

// published is the part of its member record that a process may change.
type published struct {
	rev      registry.Rev
	draining bool
	blocked  shardset.Set
}

// The kinds of transactions. A process has at most one of each kind in flight.
const (
	kindClaim = iota
	kindPlan
	kindElect
	kindJoin
	kindPublish
	kindResign
	kindDefine
	kindTrigger
	kindReset
	kindCreate
	kindDelete
	kindCount
)

var kindNames = [...]string{"claim", "plan", "elect", "join", "publish", "resign", "define", "trigger", "reset", "definition as data", "deletion"}

// send sends a transaction.
func (p *process) send(kind int, t registry.Txn) *inFlight {
	f := &inFlight{request: request{txn: t, by: p.session}}
	p.flights[kind] = f
	return f
}

// request is a transaction and its sender.
type request struct {
	txn  registry.Txn
	by   registry.SessionID
	term registry.Rev // of the leader that sent it; zero: another request
}

// inFlight is a request whose sender waits for the reply.
type inFlight struct {
	request
	load      *batch.Load[*claimer.PendingWrite] // of a claim
	replyLost bool                               // the sender repeats the request, since a reply was lost
	arrived   bool
	rev       registry.Rev
	err       error
}

// jobName is the only job.
const jobName = "job"

// explorer holds all that is the same in every world of a scenario.
type explorer struct {
	decisions  int // made so far
	keys       record.Keys
	dirs       [feedCount]registry.Key
	encoder    encoder
	work       *recordingWork
	log        *slog.Logger
	removed    func(t *registry.Txn, item int) bool
	guardsSeen map[string]bool // the guards of all requests so far; nil: not collected
	plans      map[string]*record.Plan
	claims     map[string]record.Claims
	seeds      [2]maphash.Seed
	shards     int  // of the first revision
	brings     int  // how many revisions joining processes bring; zero: revision 1 is stored
	named      bool // leaders name successors
	tracking   []string
	lingers    bool // handlers may outlive their session
	fromEnds   bool // fires count from the ends of runs
	tracks     bool // which fires have ended is tracked
	skips      bool // fires that come due during a run of their shard are skipped
	handsBack  bool // handlers of a draining process may hand their runs back
	deletes    int  // how many operators may request
	kinds      int  // of how many revisions processes have the kind of the job, which is defined as data; zero: it is not
}

func newExplorer() *explorer {
	keys, err := record.NewKeys("x", "default")
	if err != nil {
		panic(err)
	}
	return &explorer{
		keys: keys, plans: map[string]*record.Plan{}, claims: map[string]record.Claims{}, work: &recordingWork{},
		dirs: [feedCount]registry.Key{
			feedPlans: keys.Plans(), feedElection: keys.Election(), feedInstances: keys.Instances(),
			feedMembers: keys.Members(), feedJobs: keys.Jobs(), feedControls: keys.Controls(), feedEnds: keys.Ends(), feedDefined: keys.Defined(record.Segment(jobName)).Dir(),
		}, log: slog.New(slog.DiscardHandler),
		removed: func(*registry.Txn, int) bool { return false },
		seeds:   [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()},
	}
}

// recordingWork records the runs that a claimer starts.
type recordingWork struct {
	started  []claimer.Run
	fromEnds bool // as in explorer
}

func (w *recordingWork) Compile(json.RawMessage) (due.Program, error) {
	if w.fromEnds {
		return afterEnds{}, nil
	}
	return coordtest.Minutely{}, nil
}

// afterEnds is a program with a fire 40 s after the end of the last run.
type afterEnds struct{}

func (afterEnds) CountsEnds() bool { return true }

func (afterEnds) Due(last, until, now time.Time) due.Due {
	fire := last.Add(40 * time.Second)
	switch {
	case !until.IsZero() && !fire.Before(until):
		return due.Due{}
	case fire.After(now):
		return due.Due{Wake: fire}
	}
	return due.Due{Fire: fire, Through: fire, Wake: fire.Add(40 * time.Second)}
}

func (p afterEnds) SkipDue(last, until, now time.Time) due.Due {
	d := p.Due(last, until, now)
	if d.Fire.IsZero() {
		return d
	}
	through := now
	if !until.IsZero() && !now.Before(until) {
		through = until.Add(-1)
	}
	return due.Due{Skipped: 1, Through: through, Wake: p.Due(through, until, now).Wake}
}

func (w *recordingWork) Start(_ context.Context, r claimer.Run, shards iter.Seq[int], _ claimer.Done) {
	for r.Shard = range shards {
		w.started = append(w.started, r)
	}
}

func (w *recordingWork) Yield(string, int, error) {}

func (x *explorer) segment() string { return record.Segment(jobName) }

func (x *explorer) planKey() registry.Key { return x.keys.Plan(x.segment()) }

func (x *explorer) claimsKey(inc string) registry.Key { return x.keys.Claims(inc, x.segment()) }

func (s *world) clock() record.Instant { return instants[s.now] }

func (p *process) isRunning() bool { return p.phase == phaseJoining || p.phase == phaseMember }

// dir returns the directory of a feed.
func (x *explorer) dir(feed int) registry.Key { return x.dirs[feed] }

// decodePlan returns a plan as read from the store. Worlds share the result.
func (x *explorer) decodePlan(value string) *record.Plan {
	p, ok := x.plans[value]
	if !ok {
		var err error
		if p, err = record.DecodePlan([]byte(value)); err != nil {
			panic(err)
		}
		x.plans[value] = p
	}
	return p
}

func (x *explorer) decodeClaims(value string) record.Claims {
	c, ok := x.claims[value]
	if !ok {
		var err error
		if c, err = record.DecodeClaims([]byte(value)); err != nil {
			panic(err)
		}
		x.claims[value] = c
	}
	return c
}

// clone returns a copy of s with a copy of its processes.
func (s *world) clone() *world {
	n := *s
	n.procs = slices.Clone(s.procs)
	return &n
}

// digest identifies a world. Worlds that differ only in commit numbers, not in their order, are equal.
type digest [2]uint64

func (x *explorer) digest(s *world) digest {
	e := &x.encoder
	e.buf, e.revs, e.ranked = e.buf[:0], e.revs[:0], false
	e.state(x, s) // collects the commit numbers
	e.revs = append(e.revs, 0)
	slices.Sort(e.revs)
	e.revs = slices.Compact(e.revs)
	e.ranked, e.buf = true, e.buf[:0]
	e.state(x, s)
	return digest{maphash.Bytes(x.seeds[0], e.buf), maphash.Bytes(x.seeds[1], e.buf)}
}

// encoder encodes a world. It does so twice: first to collect the commit numbers, then with their ranks.
type encoder struct {
	buf    []byte
	revs   []uint64
	ranked bool
	ids    []registry.TxnID // of requests in flight
}

func (e *encoder) rev(seq uint64) {
	if !e.ranked {
		e.revs = append(e.revs, seq)
		return
	}
	i, _ := slices.BinarySearch(e.revs, seq)
	e.int(i)
}

func (e *encoder) int(n int) { e.buf = binary.AppendVarint(e.buf, int64(n)) }

func (e *encoder) text(s string) { e.int(len(s)); e.buf = append(e.buf, s...) }

func (e *encoder) set(s shardset.Set) { e.buf, _ = s.AppendText(e.buf); e.buf = append(e.buf, ';') }

func (e *encoder) bool(b bool) {
	if b {
		e.int(1)
	} else {
		e.int(0)
	}
}

func (e *encoder) state(x *explorer, s *world) {
	e.ids = e.ids[:0]
	for i := range s.procs {
		for _, f := range s.procs[i].flights {
			if f != nil {
				e.ids = append(e.ids, f.txn.ID)
			}
		}
	}
	e.int(s.now)
	e.store(x, &s.store)
	if s.staleStore != nil {
		e.store(x, s.staleStore)
	}
	for i := range s.procs {
		e.proc(x, &s.procs[i])
	}
	e.int(len(s.abandoned))
	for i := range s.abandoned {
		e.request(&s.abandoned[i])
	}
	e.int(len(s.expiring))
	for _, id := range s.expiring {
		e.text(string(id))
	}
	e.int(s.left.crashes)
	e.int(s.left.expiries)
	e.int(s.left.lostReplies)
	e.int(s.left.revisions)
	e.int(s.left.drains)
	e.int(s.left.triggers)
	e.int(s.left.resets)
	e.int(s.left.recordEdits)
	e.int(s.left.staleReads)
	e.int(s.left.failures)
	e.int(s.left.defines)
	e.int(s.left.deletes)
	e.int(s.created)
	e.bool(s.deleting)
	e.text(s.deleted)
	e.int(s.triggersAccepted)
	e.int(s.resetsAccepted)
	e.int(s.highestRevision)
	e.int(len(s.claims))
	for _, c := range s.claims {
		e.int(c.shard)
		e.int(c.epoch)
		e.int(int(c.fire))
		e.int(int(c.trigger))
		e.int(c.attempt)
		e.bool(c.ended)
	}
	for _, p := range s.epochs {
		e.int(p.number)
		e.int(p.shards)
		e.int(int(p.from))
		e.int(int(p.until))
	}
}

func (e *encoder) store(x *explorer, s *storeModel) {
	e.int(s.sessionsOpened)
	for _, id := range s.liveSessions {
		e.text(string(id))
	}
	e.int(len(s.entries))
	for i := range s.entries {
		e.entry(x, &s.entries[i])
	}
}

func (e *encoder) entry(x *explorer, n *storedEntry) {
	e.text(string(n.key))
	if n.key.Dir() != x.dirs[feedInstances] { // it has the host and start of the process
		e.text(n.value)
	}
	e.rev(n.created)
	e.rev(n.modified)
	e.text(string(n.owner))
	e.int(slices.Index(e.ids, n.txn)) // other transactions have no waiting sender
}

func (e *encoder) proc(x *explorer, p *process) {
	e.int(int(p.phase))
	e.text(p.inc)
	for i := range p.feeds {
		e.bool(p.synced[i])
		e.int(len(p.feeds[i]))
		for k := range p.feeds[i] {
			e.text(string(p.feeds[i][k].key))
			e.rev(p.feeds[i][k].modified) // identifies the value
		}
	}
	if a := p.jobState; a != nil {
		e.rev(a.PlanRev.Seq)
		value, _ := record.Encode(&a.Claims)
		e.text(string(value))
		e.rev(a.Rev.Seq)
		e.rev(a.EndsRev.Seq)
		e.rev(a.StalePlan.Seq)
		e.bool(a.Writing)
		for _, end := range a.Ended {
			e.int(end.Shard)
			e.bool(end.HandedBack)
			e.int(int(end.RetryIn))
			e.bool(end.Retry)
			e.int(int(end.At))
		}
		for _, t := range a.ClaimedAt {
			e.set(t.Shards)
			e.int(int(t.At))
		}
	}
	e.int(-1)
	e.set(p.running)
	e.set(p.blocked)
	e.bool(p.draining)
	e.bool(p.resigned)
	e.int(p.brings)
	e.rev(p.published.rev.Seq)
	e.bool(p.published.draining)
	e.set(p.published.blocked)
	e.text(string(p.election.Leader.Session))
	e.rev(p.election.LeaderRev.Seq)
	e.text(string(p.election.Seat))
	e.rev(p.election.SeatRev.Seq)
	for _, inc := range p.election.Successors {
		e.text(inc)
	}
	e.int(-1)
	e.bool(p.leading)
	e.rev(p.term.Seq)
	e.rev(p.endedTerm.Seq)
	for _, inc := range p.following {
		e.text(inc)
	}
	e.int(-1)
	for _, f := range p.flights {
		e.bool(f != nil)
		if f == nil {
			continue
		}
		e.request(&f.request)
		e.bool(f.replyLost)
		e.bool(f.arrived)
		if f.arrived {
			e.bool(f.err == nil)
			e.rev(f.rev.Seq)
			if refusal, ok := batch.FindConflict(f.err); ok {
				e.int(refusal.Index)
			}
		}
	}
}

func (e *encoder) request(r *request) {
	e.text(string(r.by))
	e.rev(r.term.Seq)
	e.txn(&r.txn)
}

func (e *encoder) txn(t *registry.Txn) {
	e.int(slices.Index(e.ids, t.ID))
	e.int(len(t.If))
	for _, c := range t.If {
		e.int(int(c.Kind))
		e.text(string(c.Key))
		e.rev(c.Rev.Seq)
		e.text(string(c.Session))
	}
	e.int(len(t.Then))
	for _, o := range t.Then {
		e.int(int(o.Kind))
		e.text(string(o.Key))
		e.rev(o.Rev.Seq)
		if o.Kind != registry.OpCreateOwned {
			e.text(string(o.Value))
		}
	}
}
