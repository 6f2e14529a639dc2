package diagnosis

import (
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/group/due"
	"github.com/rota-dev/rota/internal/group/snapshot"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/registry"
)

const inc = "a.1"

// world is the records of a group with one live instance, which leads and owns the shards of a job.
type world struct {
	t       *testing.T
	keys    record.Keys
	meta    any
	seat    *record.Seat
	leader  *record.Leader
	session registry.SessionID // of the instance's owned key; "": there is none
	member  *record.Member
	job     string // a definition; "": there is none
	plan    *record.Plan
	control *record.Control
	claims  map[string]record.Claims // by incarnation
}

func newWorld(t *testing.T) *world {
	keys, err := record.NewKeys("test", "default")
	require.NoError(t, err)
	plan := coordtest.PlanOfOwnShards(t, 4)
	plan.Owners = map[string]shardset.Set{inc: shardset.Range(0, 4)}
	return &world{
		t: t, keys: keys, meta: record.Meta{Format: 1}, seat: &record.Seat{}, leader: &record.Leader{Incarnation: inc, Session: "1"}, session: "1",
		member: &record.Member{Name: "a", Session: "1", Jobs: []string{"job"}}, job: coordtest.Def("job", 0, 4, ""), plan: plan,
		claims: map[string]record.Claims{inc: {Job: "job"}},
	}
}

func (w *world) entry(key registry.Key, v any) registry.Entry {
	value, err := record.Encode(v)
	require.NoError(w.t, err)
	return registry.Entry{Key: key, Value: value, Modified: registry.Rev{Seq: 1}}
}

func (w *world) records() *Records {
	r := &Records{Snapshot: snapshot.New(w.keys), Now: coordtest.At(5)}
	if w.meta != nil {
		r.Put(w.entry(w.keys.Meta(), w.meta))
	}
	if w.leader != nil {
		r.Put(w.entry(w.keys.Leader(), w.leader))
	}
	if w.seat != nil {
		r.Put(w.entry(w.keys.Seat(), w.seat))
	}
	if w.session != "" {
		e := w.entry(w.keys.Instance("a"), record.Instance{Session: w.session})
		e.Owner = w.session
		r.Put(e)
	}
	if w.member != nil {
		r.Put(w.entry(w.keys.Member(inc), w.member))
	}
	if w.job != "" {
		r.Put(registry.Entry{Key: w.keys.Job("job"), Value: []byte(w.job), Modified: registry.Rev{Seq: 1}})
	}
	if w.plan != nil {
		r.Put(w.entry(w.keys.Plan("job"), w.plan))
	}
	if w.control != nil {
		r.Put(w.entry(w.keys.Control("job"), w.control))
	}
	for inc, c := range w.claims {
		r.Put(w.entry(w.keys.Claims(inc, "job"), c))
	}
	return r
}

func TestDiagnose(t *testing.T) {
	require.Empty(t, Diagnose(newWorld(t).records()))
	for name, c := range map[string]struct {
		change   func(*world)
		kind     Kind
		severity Severity
		what     string
	}{
		"no leader":                  {func(w *world) { w.seat = nil }, Leaderless, Error, "no leader"},
		"no leader record":           {func(w *world) { w.leader = nil }, Missing, Error, "record of the leader is missing"},
		"an incomplete member":       {func(w *world) { w.seat.Incomplete = []string{"b.2"} }, Missing, Warning, "b.2 is alive"},
		"a clock behind":             {func(w *world) { w.seat.Skewed = map[string]record.Duration{inc: -record.Duration(time.Hour)} }, Clock, Error, "1h0m0s behind the fleet's median"},
		"an answer that differs":     {func(w *world) { w.member.Difference = record.Duration(time.Minute) }, Clock, Warning, "differed by about 1m0s"},
		"two clocks":                 {func(w *world) { w.seat.Differing = map[string]record.Duration{"b.2": record.Duration(time.Hour)} }, Clock, Warning, "the clock of b differed by 1h0m0s from the leader's"},
		"a clock unlike the store's": {func(w *world) { w.seat.Differing = map[string]record.Duration{inc: -record.Duration(time.Hour)} }, Clock, Warning, "the clock of a differed by -1h0m0s from the store's"},
		"claims ahead":               {func(w *world) { w.member.Ahead = map[string]record.Ahead{"job": {Epoch: 1, At: coordtest.At(90)}} }, Clock, Error, "before their time"},
		"an expired member":          {func(w *world) { w.session = "" }, Expired, Warning, "has expired"},
		"another definition":         {func(w *world) { w.member.Differs = []string{"job"} }, Differs, Warning, "other content"},
		"a lower revision":           {func(w *world) { w.job = coordtest.Def("job", 3, 4, "") }, Differs, Info, "a has revision 0, and revision 3 is stored"},
		"a revision left behind": {func(w *world) {
			w.job, w.member.Own = coordtest.Def("job", 3, 4, ""), map[string]string{"job": "shards 5"}
		}, Differs, Warning, "a has revision 0 (shards 5), and revision 3 is stored"},
		"a blocked shard": {func(w *world) { w.member.Blocked = map[string]shardset.Set{"job": shardset.Of(1, 2)} }, Stuck, Error, "may not own shards 1-2"},
		"runs that wait": {func(w *world) {
			w.member.Waiting = map[string]record.Waiting{"job": {Shards: shardset.Of(1), More: 2, Behind: "Workers 1"}}
		}, Stuck, Warning, "3 runs on a wait"},
		"a plan without definition": {func(w *world) { w.job = "" }, Orphaned, Warning, "a plan without"},
		"claims without a member":   {func(w *world) { w.claims["b.2"] = record.Claims{Job: "job"} }, Orphaned, Warning, "claims of b.2"},
		"an owner without a member": {func(w *world) { w.plan.Owners["b.2"], w.plan.Owners[inc] = shardset.Of(0), shardset.Of(1, 2, 3) }, Orphaned, Warning, "names the owner b.2"},
		"a definition without plan": {func(w *world) { w.plan = nil }, Missing, Warning, "the job has no plan"},
		"one that no member offers": {func(w *world) { w.plan, w.member.Jobs = nil, nil }, Unoffered, Info, "no live instance offers it"},
		"unowned shards":            {func(w *world) { w.plan.Owners[inc] = shardset.Of(0) }, Unowned, Error, "3 of 4 shards have no owner (1-3): the leader has not assigned them yet"},
		"a problem":                 {func(w *world) { w.plan.Problem = "a new definition waits" }, Problem, Warning, "a new definition waits"},
		"an unoffered job":          {func(w *world) { w.plan.Owners, w.member.Jobs = nil, nil }, Unoffered, Error, "4 of 4 shards have no owner (0-3): no live instance offers the job"},
		"shards that stay frozen": {func(w *world) {
			w.plan.Frozen = shardset.Of(2)
			w.plan.Note(record.Decision{At: coordtest.At(3), What: "freeze 2"})
		}, Stuck, Warning, "though nothing runs: shard 2;"},
		"no record of the namespace": {func(w *world) { w.meta = nil }, Missing, Warning, "namespace is missing"},
		"a newer namespace":          {func(w *world) { w.meta = record.Meta{Format: 9} }, Format, Error, "format 9"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			c.change(w)
			findings := Diagnose(w.records())
			var kinds []Kind
			for _, f := range findings {
				kinds = append(kinds, f.Kind)
			}
			require.Contains(t, kinds, c.kind, "%+v", findings)
			for _, f := range findings {
				if f.Kind == c.kind {
					assert.Equal(t, c.severity, f.Severity)
					assert.Contains(t, f.What, c.what)
					assert.NotEmpty(t, f.Do)
				}
			}
		})
	}
	t.Run("shards that were frozen just now are no finding", func(t *testing.T) {
		w := newWorld(t)
		w.plan.Frozen = shardset.Of(2)
		w.plan.Note(record.Decision{At: coordtest.At(5) - 1, What: "freeze 2"})
		assert.Empty(t, Diagnose(w.records()))
	})
	t.Run("an awaited member is information", func(t *testing.T) {
		w := newWorld(t)
		w.session, w.member.RestartGrace = "", record.Duration(time.Hour)
		f := Diagnose(w.records())
		require.NotEmpty(t, f)
		assert.Equal(t, Expired, f[len(f)-1].Kind)
		assert.Equal(t, Info, f[len(f)-1].Severity)
	})
	t.Run("without a leader no remedy waits for one", func(t *testing.T) {
		w := newWorld(t)
		w.session, w.seat = "", nil
		for _, f := range Diagnose(w.records()) {
			assert.False(t, strings.HasPrefix(f.Do, "the leader "), "%+v", f)
		}
	})
	t.Run("a foreign value is one finding, and its counterparts are not orphaned", func(t *testing.T) {
		w := newWorld(t)
		w.job = ""
		r := w.records()
		assert.Contains(t, r.MissingCounterparts(), w.keys.Job("job"))
		r.PutForeign(w.keys.Job("job"), registry.ErrForeign)
		f := Diagnose(r)
		require.Len(t, f, 1)
		assert.Equal(t, Foreign, f[0].Kind)
	})
	t.Run("a definition that this program cannot compile is information", func(t *testing.T) {
		r := newWorld(t).records()
		r.Compile = func(json.RawMessage) (due.Program, error) { return nil, errors.New("schedule: lunar") }
		f := Diagnose(r)
		require.Len(t, f, 1)
		assert.Equal(t, Finding{Info, Unsupported, "job", r.Keys.Job("job"), "this program cannot compile the definition: schedule: lunar", "use the version that the fleet runs"}, f[0])
	})
}

// Without a leader no finding promises an act of one.
func TestDiagnose_WithoutALeader(t *testing.T) {
	promises := regexp.MustCompile(`(^|[;:,] )the leader (has|is|makes|reaps|deletes|moves)|wait for the leader|leader's log`)
	for name, change := range map[string]func(*world){
		"an expired member": func(w *world) { w.session = "" },
		"a lost job":        func(w *world) { w.job, w.plan = "", nil },
		"many triggers": func(w *world) {
			w.control = &record.Control{Job: "job", LastTrigger: 60}
			for i := range 60 {
				w.control.Triggers = append(w.control.Triggers, record.Trigger{Number: uint64(i + 1), At: coordtest.At(1)})
			}
		},
		"unowned shards": func(w *world) { w.plan.Owners[inc] = shardset.Of(0) },
		"a retiring job": func(w *world) { w.control = &record.Control{Job: "job", Retiring: &record.Act{By: "kim"}} },
		"a retired job": func(w *world) {
			w.control, w.member.Jobs = &record.Control{Job: "job", Retiring: &record.Act{By: "kim"}}, nil
		},
		"a frozen shard":  func(w *world) { w.plan.Frozen = shardset.Of(1) },
		"a job to plan":   func(w *world) { w.plan = nil },
		"an orphaned job": func(w *world) { w.job = "" },
	} {
		w := newWorld(t)
		change(w)
		w.seat, w.leader = nil, nil
		findings := Diagnose(w.records())
		require.NotEmpty(t, findings, name)
		for _, f := range findings {
			assert.NotRegexp(t, promises, f.What+" | "+f.Do, name)
		}
	}
}
