package planning

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/coordinator/strategy"
	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/group/due"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/registry"
)

// world is a view to which decisions can be applied, without a registry.
type world struct {
	t      testing.TB
	View   *View
	seq    uint64
	claims map[string]map[string]ClaimsRecord // by incarnation and segment

	uncompared bool // the view is too large to be compared after each decision
}

func NewWorld(t testing.TB) *world {
	t.Helper()
	keys, err := record.NewKeys("test", "default")
	require.NoError(t, err)
	strategies, err := strategy.Known(nil)
	require.NoError(t, err)
	_, measured := t.(*testing.B)
	return &world{
		t: t, seq: 100, uncompared: measured, claims: map[string]map[string]ClaimsRecord{},
		View: &View{
			Keys: keys, Now: coordtest.Start, Skew: 5 * time.Second, Live: map[registry.SessionID]bool{},
			Members: map[string]MemberRecord{}, Jobs: map[string]JobRecord{}, Control: map[string]ControlRecord{},
			Plans: map[string]PlanRecord{}, Reads: map[string]FreshRead{}, UnreadablePlans: map[string]bool{},
			Compile:    func(json.RawMessage) (due.Program, error) { return coordtest.Minutely{}, nil },
			Strategies: strategies,
		},
	}
}

func (w *world) nextRev() registry.Rev {
	w.seq++
	return registry.Rev{Seq: w.seq}
}

// Join adds a live member; its incarnation is name.name.
func (w *world) Join(name string, jobs ...string) string {
	return w.joinAs(name, registry.SessionID(name), jobs...)
}

// joinAs adds a live member with the given session.
func (w *world) joinAs(name string, session registry.SessionID, jobs ...string) string {
	inc := record.Incarnation(name, session)
	w.View.Live[session] = true
	w.View.Members[inc] = MemberRecord{Rev: w.nextRev(), Member: record.Member{Name: name, Session: session, Jobs: jobs}}
	return inc
}

func (w *world) editMember(inc string, f func(*record.Member)) {
	m := w.View.Members[inc].Member
	f(&m)
	w.View.Members[inc] = MemberRecord{Rev: w.nextRev(), Member: m}
}

func (w *world) expire(inc string) { delete(w.View.Live, record.SessionOf(inc)) }

// Define stores a definition; more holds further JSON fields.
func (w *world) Define(job string, shards, revision int, more string) {
	def := json.RawMessage(fmt.Sprintf(`{"name":%q,"revision":%d,"shards":%d%s}`, job, revision, shards, more))
	parsed, err := record.ParseJob(def)
	require.NoError(w.t, err)
	w.View.Jobs[job] = JobRecord{Rev: w.nextRev(), Def: def, Job: parsed}
}

func (w *world) editControl(job string, f func(*record.Control)) {
	c := record.Control{Job: job}
	if old, ok := w.View.Control[job]; ok {
		c = *old.Control
	}
	f(&c)
	w.View.Control[job] = ControlRecord{Rev: w.nextRev(), Control: &c}
}

// claim edits an incarnation's claims record.
func (w *world) claim(inc, job string, f func(*record.Claims)) {
	if w.claims[inc] == nil {
		w.claims[inc] = map[string]ClaimsRecord{}
	}
	c := w.claims[inc][job].Claims
	c.Job = job
	f(&c)
	w.claims[inc][job] = ClaimsRecord{Rev: w.nextRev(), Claims: c}
}

// startRuns has an incarnation claim a run of shards.
func (w *world) startRuns(inc, job string, shards shardset.Set, r record.Ref) {
	w.claim(inc, job, func(c *record.Claims) {
		c.Running = c.Running.With(shards, r)
		c.Watermarks = c.Watermarks.Raise(shards, r.Watermark())
	})
}

func (w *world) readClaims(inc string) {
	l := FreshRead{Seen: w.seq, Claims: map[string]ClaimsRecord{}, Unreadable: map[string]bool{}}
	for seg, c := range w.claims[inc] {
		l.Claims[seg] = c
	}
	w.View.Reads[inc] = l
}

// decide decides, with the reads that the decision asks for.
func (w *world) decide() Decision {
	w.t.Helper()
	for range 10 {
		d := w.decideOnce()
		if len(d.Reads) == 0 {
			return d
		}
		for _, inc := range d.Reads {
			w.readClaims(inc)
		}
	}
	w.t.Fatal("no decision after ten rounds of reads")
	return Decision{}
}

// decideOnce decides, and checks that the view is the same after it.
func (w *world) decideOnce() Decision {
	w.t.Helper()
	before := ""
	if !w.uncompared {
		before = coordtest.Snapshot(w.View)
	}
	d := Decide(w.View)
	if !w.uncompared {
		require.Equal(w.t, before, coordtest.Snapshot(w.View), "Decide writes nothing into its View")
	}
	w.View.StrategyProblems = d.StrategyProblems
	return d
}

// round decides, applies the decision, and returns it.
func (w *world) round() Decision {
	w.t.Helper()
	d := w.decide()
	for _, c := range d.Changes {
		pc, err := c.EncodeShare(w.View.Keys)
		require.NoError(w.t, err)
		require.Equal(w.t, w.View.Plans[c.Segment].Rev, c.rev, "a change names the plan that it replaces")
		value, err := record.Encode(c.Plan)
		require.NoError(w.t, err)
		p, err := record.DecodePlan(value)
		require.NoError(w.t, err, "a written plan can be read")
		w.View.Plans[c.Segment] = PlanRecord{Rev: w.nextRev(), Plan: p}
		for _, op := range pc.Ops {
			w.applyOp(op)
		}
	}
	for _, b := range d.Reapings {
		for _, ld := range b.PackLoads(registry.PortableLimits, nil) {
			for _, op := range ld.Txn.Then {
				w.applyOp(op)
			}
		}
	}
	clear(w.View.Reads)
	return d
}

func (w *world) applyOp(op registry.Op) {
	for inc, records := range w.claims {
		for seg, c := range records {
			if op.Kind == registry.OpDelete && op.Key == w.View.Keys.Claims(inc, seg) {
				require.Equal(w.t, c.Rev, op.Rev)
				delete(records, seg)
			}
		}
	}
	for inc, m := range w.View.Members {
		if op.Kind == registry.OpDelete && op.Key == w.View.Keys.Member(inc) {
			require.Equal(w.t, m.Rev, op.Rev)
			delete(w.View.Members, inc)
		}
	}
	for seg := range w.View.Control {
		if op.Kind == registry.OpSet && op.Key == w.View.Keys.Control(seg) {
			c, err := record.DecodeControl(op.Value)
			require.NoError(w.t, err)
			w.View.Control[seg] = ControlRecord{Rev: w.nextRev(), Control: c}
		}
	}
}

// Settle makes rounds until there is nothing to do.
func (w *world) Settle() {
	w.t.Helper()
	for range 20 {
		if d := w.round(); len(d.Changes) == 0 && len(d.Reapings) == 0 {
			return
		}
	}
	w.t.Fatal("not settled after 20 rounds")
}

// editPlan replaces a plan, as if a leader had committed it.
func (w *world) editPlan(job string, f func(*record.Plan)) {
	p := w.Plan(job).Clone()
	f(p)
	w.View.Plans[job] = PlanRecord{Rev: w.nextRev(), Plan: p}
}

// changeOf returns the change of a job's plan, nil if there is none.
func (d Decision) changeOf(job string) *Change {
	if i := slices.IndexFunc(d.Changes, func(c Change) bool { return c.Segment == job }); i >= 0 {
		return &d.Changes[i]
	}
	return nil
}

func (w *world) Plan(job string) *record.Plan {
	w.t.Helper()
	p, ok := w.View.Plans[job]
	require.True(w.t, ok, "%s has no plan", job)
	return p.Plan
}

// owners returns the plan's owners as text.
func (w *world) owners(job string) map[string]string {
	out := map[string]string{}
	for inc, s := range w.Plan(job).Owners {
		out[inc] = s.String()
	}
	return out
}
