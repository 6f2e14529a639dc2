package explore

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"hash/maphash"
	"log/slog"
	"slices"
	"time"

	"github.com/rota-dev/rota/coordinator/internal/batch"
	"github.com/rota-dev/rota/coordinator/internal/coordtest"
	"github.com/rota-dev/rota/coordinator/internal/due"
	"github.com/rota-dev/rota/coordinator/internal/election"
	"github.com/rota-dev/rota/coordinator/internal/member"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/registry"
)

// exState is all of a small world: a store, processes, and what is on its way between
// them. What it points to is shared with other states and never changed.
type exState struct {
	store   exStore
	past    *exStore // as a member of the store still shows it to who asks for the first time
	now     int      // an index of exInstants
	procs   []exProc
	ghosts  []exRequest // may still arrive; nobody waits for an answer
	doomed  []registry.SessionID
	left    exFaults
	claims  []exClaim // all that were ever made, sorted
	epochs  []exEpoch // all that there ever were, by generation
	asked   int       // triggers that were accepted
	resets  int       // resets that were accepted
	offered int       // the highest revision of the definition that anybody has brought
}

// exFaults is how much may still happen.
type exFaults struct {
	crashes, expiries, losses, totals, drains, triggers, resets, hands, lags int
}

// exClaim is a claim of a shard that was committed.
type exClaim struct {
	shard   int
	gen     int
	fire    record.Instant
	trigger uint64 // zero: the schedule asked for it
	attempt int
	ended   bool // by its function, or counted
}

// exEpoch is an epoch as the plan said last.
type exEpoch struct {
	gen, shards int
	from, until record.Instant
}

// exInstants are the times that there are. Two fires lie between them.
var exInstants = []record.Instant{exAt(1), exAt(60), exAt(120), exAt(150)}

func exAt(seconds int64) record.Instant { return record.InstantOf(time.Unix(1_200_000_000+seconds, 0)) }

// exPhase is how far a process has come.
type exPhase int

const (
	exAway exPhase = iota // it has no session
	exJoining
	exUp
	exGone // for good
)

// The directories that a process follows; a leader all of them.
const (
	exPlans = iota
	exOffice
	exInstances
	exMembers
	exJobs
	exControls
	exFeeds
)

// exProc is a process.
type exProc struct {
	name    string
	phase   exPhase
	session registry.SessionID
	inc     string
	feeds   [exFeeds][]exEntry // as last delivered
	synced  [exFeeds]bool

	acct    *member.JobState // of the ledger; nil: none yet
	inside  shardset.Set     // functions that have not returned
	barred  shardset.Set     // the same, of earlier incarnations
	closed  bool             // it drains
	retired bool             // and has done what it could to hand over the office
	offers  int              // the revision of the definition that it brings; zero: it has stored it
	told    exTold           // what its member record says
	office  election.State
	leading bool
	term    registry.Rev
	over    registry.Rev // the term that it knows to be over
	pending []string     // whose claims it follows as a leader

	flights [exKinds]*exFlight
}

// pristine reports that a process has done nothing so far.
func (p *exProc) pristine() bool {
	return p.phase == exAway && p.session == "" && p.barred.IsZero() && !p.closed
}

// exTold is what a process has published of itself.
type exTold struct {
	rev      registry.Rev
	draining bool
	blocked  shardset.Set
}

// The kinds of transactions that a process has on its way, one of each at most.
const (
	exClaiming = iota
	exLeading
	exElecting
	exEntering
	exTelling
	exResigning
	exOffering
	exAsking
	exResetting
	exKinds
)

var exKindNames = [...]string{"claim", "lead", "elect", "join", "tell", "resign", "offer", "trigger", "reset"}

// send sends a transaction.
func (p *exProc) send(kind int, t registry.Txn) *exFlight {
	f := &exFlight{exRequest: exRequest{txn: t, by: p.session}}
	p.flights[kind] = f
	return f
}

// exRequest is a transaction, and who has sent it.
type exRequest struct {
	txn  registry.Txn
	by   registry.SessionID
	term registry.Rev // of the leader that has, zero if it was sent as none
}

// exFlight is a transaction on its way.
type exFlight struct {
	exRequest
	load    *batch.Load[*member.PendingWrite] // of claims
	doubt   bool                              // its sender has lost an answer, and asks again
	arrived bool
	rev     registry.Rev
	err     error
}

// exJob is the one job there is.
const exJob = "job"

// exploration is what is the same in all states.
type explorer struct {
	keys    record.Keys
	dirs    [exFeeds]registry.Key
	encoder exEncoder
	work    *exWork
	log     *slog.Logger
	waived  func(t *registry.Txn, item int) bool
	seen    map[string]bool // guards that were come upon, if not nil
	plans   map[string]*record.Plan
	claims  map[string]record.Claims
	seeds   [2]maphash.Seed
	shards  int  // of the first definition
	brings  int  // how many revisions processes bring that join; zero: the first is stored
	named   bool // leaders name successors
	levels  []string
	lingers bool // functions may outlive their session
	hands   bool // functions of a process that drains may hand their runs back
}

func newExplorer() *explorer {
	keys, err := record.NewKeys("x", "default")
	if err != nil {
		panic(err)
	}
	return &explorer{
		keys: keys, plans: map[string]*record.Plan{}, claims: map[string]record.Claims{}, work: &exWork{},
		dirs: [exFeeds]registry.Key{
			exPlans: keys.Plans(), exOffice: keys.Election(), exInstances: keys.Instances(),
			exMembers: keys.Members(), exJobs: keys.Jobs(), exControls: keys.Controls(),
		}, log: slog.New(slog.DiscardHandler),
		waived: func(*registry.Txn, int) bool { return false },
		seeds:  [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()},
	}
}

// exWork takes down which runs a ledger starts.
type exWork struct{ started []member.Run }

func (w *exWork) Compile(json.RawMessage) (due.Program, error) { return coordtest.Minutely{}, nil }

func (w *exWork) Start(_ context.Context, r member.Run, _ func(error)) {
	w.started = append(w.started, r)
}

func (w *exWork) Yield(string, int, error) {}

func (x *explorer) segment() string { return record.Segment(exJob) }

func (x *explorer) planKey() registry.Key { return x.keys.Plan(x.segment()) }

func (x *explorer) claimsKey(inc string) registry.Key { return x.keys.Claims(inc, x.segment()) }

func (s *exState) clock() record.Instant { return exInstants[s.now] }

func (p *exProc) lives() bool { return p.phase == exJoining || p.phase == exUp }

// dir returns the directory that a feed follows.
func (x *explorer) dir(feed int) registry.Key { return x.dirs[feed] }

// plan returns a plan as read from the store. Plans are shared.
func (x *explorer) plan(value string) *record.Plan {
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

func (x *explorer) claimsOf(value string) record.Claims {
	c, ok := x.claims[value]
	if !ok {
		var err error
		if c, err = record.Decode[record.Claims]([]byte(value)); err != nil {
			panic(err)
		}
		x.claims[value] = c
	}
	return c
}

// clone returns a state that may be changed without s being.
func (s *exState) clone() *exState {
	n := *s
	n.procs = slices.Clone(s.procs)
	return &n
}

// digest is a state's name. States that differ only in what commits are numbered have one.
type digest [2]uint64

func (x *explorer) digest(s *exState) digest {
	e := &x.encoder
	e.buf, e.revs, e.ranked = e.buf[:0], e.revs[:0], false
	e.state(x, s) // collects the numbers
	e.revs = append(e.revs, 0)
	slices.Sort(e.revs)
	e.revs = slices.Compact(e.revs)
	e.ranked, e.buf = true, e.buf[:0]
	e.state(x, s)
	return digest{maphash.Bytes(x.seeds[0], e.buf), maphash.Bytes(x.seeds[1], e.buf)}
}

// exEncoder writes a state down: twice, for the numbers of commits are replaced by their
// order.
type exEncoder struct {
	buf    []byte
	revs   []uint64
	ranked bool
	ids    []registry.TxnID // of requests on their way
}

func (e *exEncoder) rev(seq uint64) {
	if !e.ranked {
		e.revs = append(e.revs, seq)
		return
	}
	i, _ := slices.BinarySearch(e.revs, seq)
	e.int(i)
}

func (e *exEncoder) int(n int) { e.buf = binary.AppendVarint(e.buf, int64(n)) }

func (e *exEncoder) text(s string) { e.int(len(s)); e.buf = append(e.buf, s...) }

func (e *exEncoder) set(s shardset.Set) { e.buf, _ = s.AppendText(e.buf); e.buf = append(e.buf, ';') }

func (e *exEncoder) bool(b bool) {
	if b {
		e.int(1)
	} else {
		e.int(0)
	}
}

func (e *exEncoder) state(x *explorer, s *exState) {
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
	if s.past != nil {
		e.store(x, s.past)
	}
	for i := range s.procs {
		e.proc(x, &s.procs[i])
	}
	e.int(len(s.ghosts))
	for i := range s.ghosts {
		e.request(&s.ghosts[i])
	}
	e.int(len(s.doomed))
	for _, id := range s.doomed {
		e.text(string(id))
	}
	e.int(s.left.crashes)
	e.int(s.left.expiries)
	e.int(s.left.losses)
	e.int(s.left.totals)
	e.int(s.left.drains)
	e.int(s.left.triggers)
	e.int(s.left.resets)
	e.int(s.left.hands)
	e.int(s.left.lags)
	e.int(s.asked)
	e.int(s.resets)
	e.int(s.offered)
	e.int(len(s.claims))
	for _, c := range s.claims {
		e.int(c.shard)
		e.int(c.gen)
		e.int(int(c.fire))
		e.int(int(c.trigger))
		e.int(c.attempt)
		e.bool(c.ended)
	}
	for _, p := range s.epochs {
		e.int(p.gen)
		e.int(p.shards)
		e.int(int(p.from))
		e.int(int(p.until))
	}
}

func (e *exEncoder) store(x *explorer, s *exStore) {
	e.int(s.opened)
	for _, id := range s.live {
		e.text(string(id))
	}
	e.int(len(s.entries))
	for i := range s.entries {
		e.entry(x, &s.entries[i])
	}
}

func (e *exEncoder) entry(x *explorer, n *exEntry) {
	e.text(string(n.key))
	if n.key.Dir() != x.dirs[exInstances] { // which says when and where the process began
		e.text(n.value)
	}
	e.rev(n.created)
	e.rev(n.modified)
	e.text(string(n.owner))
	e.int(slices.Index(e.ids, n.txn)) // whose else matters to nobody
}

func (e *exEncoder) proc(x *explorer, p *exProc) {
	e.int(int(p.phase))
	e.text(p.inc)
	for i := range p.feeds {
		e.bool(p.synced[i])
		e.int(len(p.feeds[i]))
		for k := range p.feeds[i] {
			e.text(string(p.feeds[i][k].key))
			e.rev(p.feeds[i][k].modified) // which names the value
		}
	}
	if a := p.acct; a != nil {
		e.rev(a.PlanRev.Seq)
		value, _ := record.Encode(&a.Claims)
		e.text(string(value))
		e.rev(a.Rev.Seq)
		e.rev(a.StalePlan.Seq)
		e.bool(a.Writing)
		for _, end := range a.Ended {
			e.int(end.Shard)
			e.bool(end.HandedBack)
		}
	}
	e.int(-1)
	e.set(p.inside)
	e.set(p.barred)
	e.bool(p.closed)
	e.bool(p.retired)
	e.int(p.offers)
	e.rev(p.told.rev.Seq)
	e.bool(p.told.draining)
	e.set(p.told.blocked)
	e.text(string(p.office.Leader.Session))
	e.rev(p.office.LeaderRev.Seq)
	e.text(string(p.office.Seat))
	e.rev(p.office.SeatRev.Seq)
	for _, inc := range p.office.Successors {
		e.text(inc)
	}
	e.int(-1)
	e.bool(p.leading)
	e.rev(p.term.Seq)
	e.rev(p.over.Seq)
	for _, inc := range p.pending {
		e.text(inc)
	}
	e.int(-1)
	for _, f := range p.flights {
		e.bool(f != nil)
		if f == nil {
			continue
		}
		e.request(&f.exRequest)
		e.bool(f.doubt)
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

func (e *exEncoder) request(r *exRequest) {
	e.text(string(r.by))
	e.rev(r.term.Seq)
	e.txn(&r.txn)
}

func (e *exEncoder) txn(t *registry.Txn) {
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
