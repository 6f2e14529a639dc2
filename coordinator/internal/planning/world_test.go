package planning

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/coordinator/internal/coordtest"
	"github.com/rota-dev/rota/coordinator/internal/due"
	"github.com/rota-dev/rota/coordinator/strategy"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/registry"
)

// world is a view whose decisions can be carried out, without a registry.
type world struct {
	t      testing.TB
	V      *View
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
		V: &View{
			Keys: keys, Now: coordtest.Start, Skew: 5 * time.Second, Live: map[registry.SessionID]bool{},
			Members: map[string]MemberRecord{}, Jobs: map[string]JobRecord{}, Control: map[string]ControlRecord{},
			Plans: map[string]PlanRecord{}, Reads: map[string]FreshRead{}, UnreadablePlans: map[string]bool{},
			Compile:    func(json.RawMessage) (due.Program, error) { return coordtest.Minutely{}, nil },
			Strategies: strategies,
		},
	}
}

func (w *world) rev() registry.Rev {
	w.seq++
	return registry.Rev{Seq: w.seq}
}

// member adds a live member; its incarnation is name.name.
func (w *world) Member(name string, jobs ...string) string {
	return w.enter(name, registry.SessionID(name), jobs...)
}

// enter adds a live member with a session of any name.
func (w *world) enter(name string, session registry.SessionID, jobs ...string) string {
	inc := record.Incarnation(name, session)
	w.V.Live[session] = true
	w.V.Members[inc] = MemberRecord{Rev: w.rev(), Member: record.Member{Name: name, Session: session, Jobs: jobs}}
	return inc
}

func (w *world) change(inc string, f func(*record.Member)) {
	m := w.V.Members[inc].Member
	f(&m)
	w.V.Members[inc] = MemberRecord{Rev: w.rev(), Member: m}
}

func (w *world) kill(inc string) { delete(w.V.Live, record.SessionOf(inc)) }

// define stores a definition; more is further JSON fields.
func (w *world) Define(job string, shards, revision int, more string) {
	def := json.RawMessage(fmt.Sprintf(`{"name":%q,"revision":%d,"shards":%d%s}`, job, revision, shards, more))
	parsed, err := record.ParseJob(def)
	require.NoError(w.t, err)
	w.V.Jobs[job] = JobRecord{Rev: w.rev(), Def: def, Job: parsed}
}

func (w *world) intend(job string, f func(*record.Control)) {
	c := record.Control{Job: job}
	if old, ok := w.V.Control[job]; ok {
		c = *old.Control
	}
	f(&c)
	w.V.Control[job] = ControlRecord{Rev: w.rev(), Control: &c}
}

// claim writes an incarnation's claims record.
func (w *world) claim(inc, job string, f func(*record.Claims)) {
	if w.claims[inc] == nil {
		w.claims[inc] = map[string]ClaimsRecord{}
	}
	c := w.claims[inc][job].Claims
	c.Job = job
	f(&c)
	w.claims[inc][job] = ClaimsRecord{Rev: w.rev(), Claims: c}
}

// running makes shards of an incarnation run a fire.
func (w *world) running(inc, job string, shards shardset.Set, r record.Ref) {
	w.claim(inc, job, func(c *record.Claims) {
		c.Running = c.Running.With(shards, r)
		c.Watermarks = c.Watermarks.Raise(shards, r.Watermark())
	})
}

func (w *world) look(inc string) {
	l := FreshRead{Seen: w.seq, Claims: map[string]ClaimsRecord{}, Unreadable: map[string]bool{}}
	for seg, c := range w.claims[inc] {
		l.Claims[seg] = c
	}
	w.V.Reads[inc] = l
}

// decide looks until it has decided.
func (w *world) decide() Decision {
	w.t.Helper()
	for range 10 {
		d := w.decideOnce()
		if len(d.Reads) == 0 {
			return d
		}
		for _, inc := range d.Reads {
			w.look(inc)
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
		before = coordtest.Snapshot(w.V)
	}
	d := Decide(w.V)
	if !w.uncompared {
		require.Equal(w.t, before, coordtest.Snapshot(w.V), "Decide writes nothing into its View")
	}
	w.V.StrategyProblems = d.StrategyProblems
	return d
}

// round decides and carries out, and returns what was decided.
func (w *world) round() Decision {
	w.t.Helper()
	d := w.decide()
	for _, c := range d.Changes {
		pc, err := c.EncodeShare(w.V.Keys)
		require.NoError(w.t, err)
		require.Equal(w.t, w.V.Plans[c.Segment].Rev, c.rev, "a change names the plan that it replaces")
		value, err := record.Encode(c.Plan)
		require.NoError(w.t, err)
		p, err := record.DecodePlan(value)
		require.NoError(w.t, err, "a written plan can be read")
		w.V.Plans[c.Segment] = PlanRecord{Rev: w.rev(), Plan: p}
		for _, op := range pc.Ops {
			w.carryOut(op)
		}
	}
	for _, b := range d.Reapings {
		for _, ld := range b.PackLoads(registry.PortableLimits, nil) {
			for _, op := range ld.Txn.Then {
				w.carryOut(op)
			}
		}
	}
	clear(w.V.Reads)
	return d
}

func (w *world) carryOut(op registry.Op) {
	for inc, records := range w.claims {
		for seg, c := range records {
			if op.Kind == registry.OpDelete && op.Key == w.V.Keys.Claims(inc, seg) {
				require.Equal(w.t, c.Rev, op.Rev)
				delete(records, seg)
			}
		}
	}
	for inc, m := range w.V.Members {
		if op.Kind == registry.OpDelete && op.Key == w.V.Keys.Member(inc) {
			require.Equal(w.t, m.Rev, op.Rev)
			delete(w.V.Members, inc)
		}
	}
	for seg := range w.V.Control {
		if op.Kind == registry.OpSet && op.Key == w.V.Keys.Control(seg) {
			c, err := record.DecodeControl(op.Value)
			require.NoError(w.t, err)
			w.V.Control[seg] = ControlRecord{Rev: w.rev(), Control: c}
		}
	}
}

// settle goes on until there is nothing to do.
func (w *world) Settle() {
	w.t.Helper()
	for range 20 {
		if d := w.round(); len(d.Changes) == 0 && len(d.Reapings) == 0 {
			return
		}
	}
	w.t.Fatal("not settled after 20 rounds")
}

func (w *world) Plan(job string) *record.Plan {
	w.t.Helper()
	p, ok := w.V.Plans[job]
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
