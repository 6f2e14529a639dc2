package coordinator

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/registry"
)

// world is a view whose decisions can be carried out, without a registry.
type world struct {
	t      testing.TB
	v      *view
	seq    uint64
	claims map[string]map[string]claimsItem // by incarnation and segment
}

// start is when worlds begin.
const start = record.Instant(1_000_000_000_000_000_000)

func newWorld(t testing.TB) *world {
	t.Helper()
	keys, err := record.NewKeys("test", "default")
	require.NoError(t, err)
	strategies, err := KnownStrategies(nil)
	require.NoError(t, err)
	return &world{
		t: t, seq: 100, claims: map[string]map[string]claimsItem{},
		v: &view{
			keys: keys, now: start, skew: 5 * time.Second, live: map[registry.SessionID]bool{},
			members: map[string]memberItem{}, jobs: map[string]jobItem{}, control: map[string]controlItem{},
			plans: map[string]planItem{}, looks: map[string]look{}, broken: map[string]bool{},
			compile:    func(json.RawMessage) (Program, error) { return minutely{}, nil },
			strategies: strategies,
		},
	}
}

// minutely is a program with a fire each minute, of which the latest runs.
type minutely struct{}

func (minutely) Owed(last, until, now time.Time) Owed {
	end := now
	if !until.IsZero() && !until.After(now) {
		end = until.Add(-1)
	}
	first := last.Truncate(time.Minute).Add(time.Minute)
	if first.After(end) {
		if !until.IsZero() && !first.Before(until) {
			return Owed{}
		}
		return Owed{Wake: first}
	}
	latest := end.Truncate(time.Minute)
	return Owed{Fire: latest, Through: latest, Skipped: int(latest.Sub(first) / time.Minute), Wake: latest.Add(time.Minute)}
}

func (p minutely) Passed(last, until, now time.Time) Owed {
	o := p.Owed(last, until, now)
	if !o.Fire.IsZero() {
		o.Fire, o.Skipped = time.Time{}, o.Skipped+1
	}
	if !until.IsZero() && !o.Wake.Before(until) {
		o.Wake = time.Time{}
	}
	return o
}

func (w *world) rev() registry.Rev {
	w.seq++
	return registry.Rev{Seq: w.seq}
}

// member adds a live member; its incarnation is name.name.
func (w *world) member(name string, jobs ...string) string {
	return w.enter(name, registry.SessionID(name), jobs...)
}

// enter adds a live member with a session of any name.
func (w *world) enter(name string, session registry.SessionID, jobs ...string) string {
	inc := record.Incarnation(name, session)
	w.v.live[session] = true
	w.v.members[inc] = memberItem{rev: w.rev(), Member: record.Member{Name: name, Session: session, Jobs: jobs}}
	return inc
}

func (w *world) change(inc string, f func(*record.Member)) {
	m := w.v.members[inc].Member
	f(&m)
	w.v.members[inc] = memberItem{rev: w.rev(), Member: m}
}

func (w *world) kill(inc string) { delete(w.v.live, sessionOf(inc)) }

// define stores a definition; more is further JSON fields.
func (w *world) define(job string, shards, revision int, more string) {
	def := json.RawMessage(fmt.Sprintf(`{"name":%q,"revision":%d,"shards":%d%s}`, job, revision, shards, more))
	parsed, err := record.ParseJob(def)
	require.NoError(w.t, err)
	w.v.jobs[job] = jobItem{rev: w.rev(), def: def, Job: parsed}
}

func (w *world) intend(job string, f func(*record.Control)) {
	c := record.Control{Job: job}
	if old, ok := w.v.control[job]; ok {
		c = *old.Control
	}
	f(&c)
	w.v.control[job] = controlItem{rev: w.rev(), Control: &c}
}

// claim writes an incarnation's claims record.
func (w *world) claim(inc, job string, f func(*record.Claims)) {
	if w.claims[inc] == nil {
		w.claims[inc] = map[string]claimsItem{}
	}
	c := w.claims[inc][job].Claims
	c.Job = job
	f(&c)
	w.claims[inc][job] = claimsItem{rev: w.rev(), Claims: c}
}

// running makes shards of an incarnation run a fire.
func (w *world) running(inc, job string, shards shardset.Set, r record.Ref) {
	w.claim(inc, job, func(c *record.Claims) {
		c.Running = c.Running.With(shards, r)
		c.Marks = c.Marks.Raise(shards, r.Mark())
	})
}

func (w *world) look(inc string) {
	l := look{seen: w.seq, claims: map[string]claimsItem{}, broken: map[string]bool{}}
	for seg, c := range w.claims[inc] {
		l.claims[seg] = c
	}
	w.v.looks[inc] = l
}

// decide looks until it has decided.
func (w *world) decide() decision {
	w.t.Helper()
	for range 10 {
		d := decide(w.v)
		if len(d.looks) == 0 {
			return d
		}
		for _, inc := range d.looks {
			w.look(inc)
		}
	}
	w.t.Fatal("it never stops looking")
	return decision{}
}

// round decides and carries out, and returns what was decided.
func (w *world) round() decision {
	w.t.Helper()
	d := w.decide()
	for _, c := range d.changes {
		pc, err := c.share(w.v.keys)
		require.NoError(w.t, err)
		require.Equal(w.t, w.v.plans[c.segment].rev, c.rev, "a change names the plan that it replaces")
		value, err := record.Encode(c.plan)
		require.NoError(w.t, err)
		p, err := record.DecodePlan(value)
		require.NoError(w.t, err, "a plan that is written can be read")
		w.v.plans[c.segment] = planItem{rev: w.rev(), Plan: p}
		for _, op := range pc.ops {
			w.carryOut(op)
		}
	}
	for _, b := range d.burials {
		for _, ld := range b.loads(registry.PortableLimits, nil) {
			for _, op := range ld.txn.Then {
				w.carryOut(op)
			}
		}
	}
	clear(w.v.looks)
	return d
}

func (w *world) carryOut(op registry.Op) {
	for inc, records := range w.claims {
		for seg, c := range records {
			if op.Kind == registry.OpDelete && op.Key == w.v.keys.Claims(inc, seg) {
				require.Equal(w.t, c.rev, op.Rev)
				delete(records, seg)
			}
		}
	}
	for inc, m := range w.v.members {
		if op.Kind == registry.OpDelete && op.Key == w.v.keys.Member(inc) {
			require.Equal(w.t, m.rev, op.Rev)
			delete(w.v.members, inc)
		}
	}
	for seg := range w.v.control {
		if op.Kind == registry.OpSet && op.Key == w.v.keys.Control(seg) {
			c, err := record.DecodeControl(op.Value)
			require.NoError(w.t, err)
			w.v.control[seg] = controlItem{rev: w.rev(), Control: c}
		}
	}
}

// settle goes on until there is nothing to do.
func (w *world) settle() {
	w.t.Helper()
	for range 20 {
		if d := w.round(); len(d.changes) == 0 && len(d.burials) == 0 {
			return
		}
	}
	w.t.Fatal("it never settles")
}

func (w *world) plan(job string) *record.Plan {
	w.t.Helper()
	p, ok := w.v.plans[job]
	require.True(w.t, ok, "%s has no plan", job)
	return p.Plan
}

// owners returns the plan's owners as text.
func (w *world) owners(job string) map[string]string {
	out := map[string]string{}
	for inc, s := range w.plan(job).Owners {
		out[inc] = s.String()
	}
	return out
}

// at returns the n-th minute after start.
func at(n int) record.Instant {
	return record.InstantOf(start.Time().Truncate(time.Minute).Add(time.Duration(n) * time.Minute))
}
