package simulate

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/internal/group/claiming"
	"github.com/rota-dev/rota/internal/group/due"
	"github.com/rota-dev/rota/internal/group/explain"
	"github.com/rota-dev/rota/internal/group/snapshot"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/internal/test/judge"
	"github.com/rota-dev/rota/internal/test/long"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry"
)

var explained = flag.Uint64("simulate.explained", long.Pick[uint64](2, 60), "how many fleets to explain")

// TestExplain_AgreesWithDecisions explains the fires of each shard before each commit of some fleets, and compares the answers with
// the decisions of the shards' owners on the same records.
func TestExplain_AgreesWithDecisions(t *testing.T) {
	for seed := range *explained {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			c := Config{
				Seed: seed, Instances: 4, Jobs: 6, Shards: 3, Every: 20 * time.Second, Takes: 15 * time.Second, Long: 50 * time.Second, For: 15 * time.Minute,
				Faults: 15 * time.Second, TTL: 5 * time.Second, Drain: time.Second, Operators: true, Zones: seed%2 == 0, Levels: true, Policies: true,
			}
			switch seed % 3 {
			case 1:
				c.Grace = 15 * time.Second
			case 2:
				c.Wrong = time.Hour
			}
			w := newWitness(t, c)
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(c)
				f.tap = w.add
				for _, s := range f.specs {
					if s.retry.Max > 0 { // long enough for commits meanwhile
						s.retry.Initial, s.retry.MaxInterval = 2*time.Second, 4*time.Second
					}
				}
				if seed%2 == 1 {
					f.schedule(f.Every/2, f.boundByPools)
				}
				require.NoError(t, f.run())
			})
			t.Log(w.outcomes)
			require.Empty(t, w.mismatches, "seed %d", seed)
			if seed%2 == 1 {
				require.Greater(t, w.outcomes["waits/pool"], 100, "runs have waited for slots")
				require.Less(t, w.outcomes[unsettled], w.outcomes["waits/pool"])
			}
		})
	}
}

// boundByPools gives some jobs a pool, and changes its size again and again. At the end it is large enough for all.
func (f *fleet) boundByPools() error {
	size := 10_000
	if ends := f.until.Add(-2 * time.Minute); time.Now().Before(ends) {
		size = f.rng.IntN(7) // 0 holds all runs back
		f.schedule(min(time.Duration(f.rng.Float64()*float64(3*f.Every)), time.Until(ends)), f.boundByPools)
	}
	f.addNote("pool db has %d slots", size)
	f.callAsync(func(ctx context.Context) { f.operator.SetPool(ctx, "db", size) })
	for _, spec := range f.specs[:len(f.specs)-2] { // other overrides replace this one
		f.callAsync(func(ctx context.Context) {
			f.operator.Override(ctx, spec.name, operator.Override{Policies: map[string]any{"pool": "db"}})
		})
	}
	return nil
}

// witness explains the records of a fleet before each commit.
type witness struct {
	t          *testing.T
	skew       time.Duration
	records    *snapshot.Snapshot
	sessions   map[registry.Key]registry.SessionID // of owned keys
	programs   map[string]due.Program              // by definition
	outcomes   map[string]int
	mismatches []string // the first ones
}

func newWitness(t *testing.T, c Config) *witness {
	keys, err := record.NewKeys(namespace, "default")
	require.NoError(t, err)
	w := &witness{
		t: t, skew: c.Skew, records: snapshot.New(keys), sessions: map[registry.Key]registry.SessionID{}, programs: map[string]due.Program{}, outcomes: map[string]int{},
	}
	if w.skew == 0 {
		w.skew = claiming.DefaultSkew
	}
	return w
}

// add is the tap of a fleet.
func (w *witness) add(log []judge.Commit, _ []judge.Event, _ bool) {
	for i := range log {
		if c := &log[i]; c.Err == nil {
			w.compareJobs(c)
			w.apply(c)
		}
	}
}

func (w *witness) apply(c *judge.Commit) {
	for _, op := range c.Then {
		if op.Kind == registry.OpDelete {
			w.remove(op.Key)
			continue
		}
		if op.Session != "" {
			w.sessions[op.Key] = op.Session
		}
		w.records.Put(registry.Entry{Key: op.Key, Value: op.Value, Modified: c.Rev, Owner: w.sessions[op.Key]})
	}
	for key, session := range w.sessions {
		if session == c.Ended && c.Ended != "" {
			w.remove(key)
		}
	}
}

func (w *witness) remove(key registry.Key) {
	w.records.Remove(key)
	delete(w.sessions, key)
}

// compareJobs compares the answers about the jobs that a commit changes, at the instant before it.
func (w *witness) compareJobs(c *judge.Commit) {
	var segments []string
	for _, op := range c.Then {
		if segment, ofJob := w.records.JobOf(op.Key); ofJob && !slices.Contains(segments, segment) {
			segments = append(segments, segment)
		}
	}
	for _, segment := range segments {
		if p := w.records.Plans[segment].Plan; p != nil {
			w.compareJob(p, segment, record.InstantOf(c.At))
		}
	}
}

func (w *witness) compile(def json.RawMessage) (due.Program, error) {
	if p, ok := w.programs[string(def)]; ok {
		return p, nil
	}
	p, err := executor.Compile(def)
	if err == nil {
		w.programs[string(def)] = p
	}
	return p, err
}

func (w *witness) compareJob(p *record.Plan, segment string, now record.Instant) {
	var followed []string
	if after := p.Last().Job().After; after != nil {
		followed = after.Jobs
	}
	instants := []record.Instant{0}
	noteFires := func(runs record.Runs) {
		for _, g := range runs {
			instants = append(instants, g.Fire)
		}
	}
	noteFires(p.Reruns)
	decisions := map[string]decision{}
owners:
	for inc := range p.Owners {
		in := w.inputOf(inc, p, segment, now)
		for i := range p.Epochs {
			if pool := p.Epochs[i].Job().Pool; pool != "" {
				free, settled := w.freeSlots(inc, pool, now)
				if !settled {
					w.outcomes[unsettled]++
					continue owners
				}
				in.FreeSlots = map[string]int{pool: free}
			}
		}
		d := decision{in, in.Decide()}
		noteFires(d.in.Claims.Reruns)
		noteFires(d.out.Starts)
		decisions[inc] = d
	}
	slices.Sort(instants)
	for _, at := range slices.Compact(instants) {
		r := explain.NewRecords(w.records, p.Job, followed)
		r.Compile, r.Now, r.Skew = w.compile, now, w.skew
		for _, a := range explain.Explain(r, shardset.Range(0, p.Shards()), at) {
			for shard := range a.Shards.All() {
				if d, owned := decisions[p.OwnerOf(shard)]; owned {
					w.compare(d, shard, a)
				}
			}
		}
	}
}

// unsettled counts owners that have not announced yet that runs wait, or wait no more, and those with free slots for runs that wait.
const unsettled = "unsettled"

// freeSlots returns how many more runs of a pool an owner may claim. Explain knows only
// what the owner has announced, so the answer is settled once that agrees.
func (w *witness) freeSlots(inc, pool string, now record.Instant) (free int, settled bool) {
	running, waiting := 0, 0
	for segment, p := range w.records.Plans {
		if !p.HasPool() {
			continue
		}
		for _, g := range w.records.Claims[segment][inc].Running {
			if e, known := p.Epoch(g.Epoch); known && e.Job().Pool == pool {
				running += g.Shards.Len()
			}
		}
		in := w.inputOf(inc, p.Plan, segment, now)
		for _, waits := range in.Decide().Waits {
			if waits.Pool == pool {
				waiting += waits.Runs
			}
		}
	}
	records := w.records.Pools()
	limit := records.Held(pool, inc)
	if records.Slots[pool].Grants[inc].Deal == 0 {
		limit = 0
	}
	free = max(limit-running, 0)
	waits, announced := running+waiting > limit, limit == 0 || records.Demands[inc].Pools[pool].Want > limit
	return free, waiting == 0 || waits == announced && (!waits || free == 0)
}

// inputOf returns the input of a decision of an owner without free slots.
func (w *witness) inputOf(inc string, p *record.Plan, segment string, now record.Instant) claiming.Input {
	m := w.records.Members[inc]
	_, skewed := w.records.Skewed()[inc]
	return claiming.Input{
		Me: inc, Plan: p, Programs: snapshot.Compile(p, w.compile), Claims: w.records.Claims[segment][inc].Claims, Blocked: m.Blocked[p.Job],
		Now: now, MayClaim: w.records.IsLive(m.Session) && !m.Draining && !skewed, AllowedSkew: w.skew,
	}
}

// decision is a decision of an owner of shards, and its input.
type decision struct {
	in  claiming.Input
	out claiming.Decision
}

// compare compares an answer about a fire of a shard with the decision of the shard's owner.
func (w *witness) compare(d decision, shard int, a explain.Answer) {
	fire := record.Ref{Fire: a.Fire}
	if e := d.in.Plan.EpochAt(a.Fire); e != nil {
		fire.Epoch = e.Number
	}
	if text, ofTrigger := strings.CutPrefix(a.Summary, "The run of trigger "); ofTrigger {
		number, _, _ := strings.Cut(text, ",")
		fire.Trigger, _ = strconv.ParseUint(number, 10, 64)
	}
	want, got, last := d.outcome(shard, fire), outcome(a), a.Gates[len(a.Gates)-1]
	w.outcomes[want+"/"+last.Name]++
	agrees := want == got || want == "skips" && got == "waits" && mayBeSkipped(a)
	if last.Name == "claimed" && last.Verdict == explain.Unknown && isDue(a) {
		agrees, got = false, "for an unknown reason"
	}
	if !agrees && len(w.mismatches) < 5 {
		w.mismatches = append(w.mismatches, fmt.Sprintf("%v: the owner %s shard %d of %s, and not %s: %+v", d.in.Now, want, shard, d.in.Plan.Job, got, a))
	}
}

// outcome returns the owner's act on the fire, according to an answer.
func outcome(a explain.Answer) string {
	for part, outcome := range map[string]string{
		"may claim the": "claims", "may begin": "claims", "will skip it": "skips", "does not make attempt": "drops",
	} {
		if strings.Contains(a.Gates[len(a.Gates)-1].Detail, part) {
			return outcome
		}
	}
	return "waits"
}

// mayBeSkipped reports whether an answer leaves open whether the owner skips the instant now: because it is no fire, or since the shard
// is disabled.
func mayBeSkipped(a explain.Answer) bool {
	return !isDue(a) || strings.HasSuffix(a.Gates[len(a.Gates)-1].Detail, "its owner skips its fires")
}

// isDue reports whether an answer is about a fire that has come due.
func isDue(a explain.Answer) bool {
	return slices.ContainsFunc(a.Gates, func(g explain.Gate) bool { return g.Name == "due" && g.Verdict == explain.OK })
}

// outcome returns the owner's act on a fire or a triggered run of a shard.
func (d *decision) outcome(shard int, fire record.Ref) string {
	isOf := func(r record.Ref) bool {
		return r.Trigger == fire.Trigger && (fire.Trigger > 0 || r.Fire == fire.Fire && r.Epoch == fire.Epoch)
	}
	watermark := func(marks record.Watermarks) record.Watermark {
		return marks.Fold(d.in.Plan.Watermarks, shardset.Of(shard)).Of(shard)
	}
	before, after := watermark(d.in.Claims.Watermarks), watermark(d.out.Claims.Watermarks)
	passes := func(r record.Ref) bool { return !before.Covers(r) && after.Covers(r) }
	run, starts := d.out.Starts.Of(shard)
	switch {
	case starts && isOf(run):
		return "claims"
	case slices.ContainsFunc(slices.Concat(d.in.Plan.Reruns, d.in.Claims.Reruns), func(g record.RunGroup) bool {
		return g.Shards.Has(shard) && isOf(g.Ref) && passes(g.Ref)
	}):
		return "drops"
	case fire.Epoch != 0 && passes(fire):
		return "skips"
	}
	return "waits"
}
