package operator

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
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
	"github.com/rota-dev/rota/registry/memory"
)

// groupWithJobs returns the records of a group whose jobs the incarnation "a.1" owns. Only job-00000 has
// a schedule.
func groupWithJobs(t testing.TB, jobs int) (g *summaries, claim func(job int)) {
	t.Helper()
	o, err := New(memory.New().Client("console"), "test", "")
	require.NoError(t, err)
	o = o.WithCompiler(func(def json.RawMessage) (due.Program, error) {
		if _, j, err := record.DecodeDefinition(def); err != nil || j.Name != "job-00000" {
			return nil, errors.New("no schedule")
		}
		return coordtest.Minutely{}, nil
	})
	g = o.newSummaries(snapshot.New(o.keys))
	rev := registry.Rev{Seq: 1}
	put := func(key registry.Key, v any) {
		value, err := record.Encode(v)
		require.NoError(t, err)
		rev.Seq++
		g.put(registry.Entry{Key: key, Value: value, Modified: rev})
	}
	name := func(n int) string { return fmt.Sprintf("job-%05d", n) }
	for n := range jobs {
		def := json.RawMessage(coordtest.Def(name(n), 1, 1, ""))
		epoch, err := record.NewEpoch(1, record.InstantOf(coordtest.BubbleStart()), def)
		require.NoError(t, err)
		put(o.keys.Job(name(n)), def)
		put(o.keys.Plan(name(n)), &record.Plan{
			Format: record.Format, Job: name(n), Epochs: []record.Epoch{epoch}, Owners: map[string]shardset.Set{"a.1": shardset.Of(0)},
		})
	}
	return g, func(n int) {
		put(o.keys.Claims("a.1", name(n)), record.Claims{Job: name(n), Counts: record.Counts{Claimed: 1}})
	}
}

// TestSummaries_ComputeChangedSummaries counts summaries: the cost of a screen must depend on the number of
// changed jobs, not on the number of jobs.
func TestSummaries_ComputeChangedSummaries(t *testing.T) {
	const jobs = 1000
	g, claim := groupWithJobs(t, jobs)
	now := coordtest.BubbleStart()
	computed := func() int {
		before := g.computed
		g.refresh(now)
		return g.computed - before
	}
	assert.Equal(t, jobs, computed())
	st, _ := g.changes(now)
	require.Len(t, st.Jobs, jobs)
	assert.Equal(t, 1, st.Jobs[jobs-1].Expired, "the owner has no instance key")

	assert.Zero(t, computed(), "nothing has changed")
	for n := range 17 {
		claim(n)
		claim(n)
	}
	assert.Equal(t, 17, computed(), "each changed job once")
	st, removed := g.changes(now)
	assert.Len(t, st.Jobs, 17)
	assert.Empty(t, removed)
	assert.EqualValues(t, 1, st.Jobs[16].Counts.Claimed)
	assert.Len(t, g.status(now).Jobs, jobs)

	for n := range 3 {
		now = now.Add(time.Minute)
		assert.Equal(t, 1, computed(), "a fire of one job came due, %d", n)
		st, _ = g.changes(now)
		require.Len(t, st.Jobs, 1)
		assert.Equal(t, "job-00000", st.Jobs[0].Job)
	}
	assert.Equal(t, 1, g.expiries.jobs.Len())

	g.put(registry.Entry{Key: g.records.Keys.Instance("a"), Value: []byte("{}"), Owner: "1"})
	assert.Zero(t, computed(), "no record of a job has changed")
	st, _ = g.changes(now)
	require.Len(t, st.Jobs, jobs)
	assert.Zero(t, st.Jobs[0].Expired, "the owner is alive")
}

func TestSummaries_ChangesNameRemovedJobs(t *testing.T) {
	g, claim := groupWithJobs(t, 3)
	now := coordtest.BubbleStart()
	g.changes(now)
	g.remove(g.records.Keys.Job("job-00001"))
	st, removed := g.changes(now)
	assert.Empty(t, removed, "its plan has the definition")
	assert.Len(t, st.Jobs, 1)
	g.remove(g.records.Keys.Plan("job-00001"))
	st, removed = g.changes(now)
	assert.Equal(t, []string{"job-00001"}, removed)
	assert.Empty(t, st.Jobs)
	assert.Len(t, g.status(now).Jobs, 2)
	assert.Equal(t, []string{"a.1"}, g.records.Incarnations())
	claim(1)
	st, removed = g.changes(now)
	assert.Empty(t, st.Jobs, "claims alone are no job")
	assert.Empty(t, removed)
}

// TestSummaries_UpdatesEqualAFreshRead changes records in random order. The state of the group equals that of a new reading of
// the records, and so does the one that a caller of changes has put together.
func TestSummaries_UpdatesEqualAFreshRead(t *testing.T) {
	const jobs = 4
	for seed := range uint64(10) {
		rng := rand.New(rand.NewPCG(seed, 0))
		g, _ := groupWithJobs(t, jobs)
		o := &Operator{keys: g.records.Keys, namespace: g.namespace, group: g.name, compile: g.compile}
		stored := map[registry.Key]registry.Entry{}
		rev := uint64(1_000_000)
		change := func(key registry.Key, v any) {
			delete(stored, key)
			g.remove(key)
			if v == nil {
				return
			}
			value, err := record.Encode(v)
			require.NoError(t, err)
			rev++
			e := registry.Entry{Key: key, Value: value, Modified: registry.Rev{Seq: rev}}
			if key.Dir() == o.keys.Instances() {
				e.Owner = "1"
			}
			stored[key] = e
			g.put(e)
		}
		for n := range jobs { // as groupWithJobs has put them
			name := fmt.Sprintf("job-%05d", n)
			change(o.keys.Job(name), json.RawMessage(coordtest.Def(name, 1, 1, "")))
			change(o.keys.Plan(name), g.records.Plans[name].Plan)
		}
		now, seen := coordtest.BubbleStart(), map[string]JobSummary{}
		for step := range 60 {
			name := fmt.Sprintf("job-%05d", rng.IntN(jobs))
			plan := &record.Plan{Format: record.Format, Job: name, Owners: map[string]shardset.Set{"a.1": shardset.Of(0)}}
			epoch, err := record.NewEpoch(1, record.InstantOf(coordtest.BubbleStart()), json.RawMessage(coordtest.Def(name, 1, 1, "")))
			require.NoError(t, err)
			plan.Epochs = []record.Epoch{epoch}
			member := record.Member{Name: "a", Session: "1", Jobs: []string{name}, Differs: []string{name}}
			changes := []struct {
				key    registry.Key
				values []any
			}{
				{o.keys.Job(name), []any{nil, "spoilt", json.RawMessage(coordtest.Def(name, step, 1, ""))}},
				{o.keys.Plan(name), []any{nil, "spoilt", plan}},
				{o.keys.Control(name), []any{nil, "spoilt", &record.Control{Job: name, Paused: true}}},
				{o.keys.Claims("a.1", name), []any{nil, "spoilt", record.Claims{Job: name, Counts: record.Counts{Claimed: uint64(step)}}}},
				{o.keys.Member("a.1"), []any{nil, "spoilt", member}},
				{o.keys.Instance("a"), []any{nil, record.Instance{Session: "1"}}},
				{o.keys.GroupControl(), []any{nil, "spoilt", &record.GroupControl{Paused: true}}},
				{o.keys.Seat(), []any{nil, record.Seat{}}},
				{o.keys.Leader(), []any{nil, record.Leader{Incarnation: "a.1"}}},
			}
			c := changes[rng.IntN(len(changes))]
			change(c.key, c.values[rng.IntN(len(c.values))])
			now = now.Add(time.Duration(rng.IntN(90)) * time.Second)

			fresh := snapshot.New(o.keys)
			fresh.PutAll(slices.Collect(maps.Values(stored)))
			want := o.newSummaries(fresh).status(now)
			require.Equal(t, want, g.status(now), "seed %d, step %d, %s", seed, step, c.key)
			st, removed := g.changes(now)
			for _, name := range removed {
				delete(seen, name)
			}
			for _, j := range st.Jobs {
				seen[j.Job] = j
			}
			jobs := make([]JobSummary, 0, len(seen))
			for _, name := range slices.Sorted(maps.Keys(seen)) {
				jobs = append(jobs, seen[name])
			}
			require.Equal(t, want.Jobs, jobs, "seed %d, step %d, %s", seed, step, c.key)
		}
	}
}

// BenchmarkSummaries_Changes is a screen that is shown again: 10,000 jobs, of which 17 have changed.
func BenchmarkSummaries_Changes(b *testing.B) {
	g, claim := groupWithJobs(b, 10_000)
	g.put(registry.Entry{Key: g.records.Keys.Instance("a"), Value: []byte("{}"), Owner: "1"})
	now := coordtest.BubbleStart()
	g.changes(now)
	for b.Loop() {
		for n := range 17 {
			claim(n * 500)
		}
		st, _ := g.changes(now)
		require.Len(b, st.Jobs, 17)
	}
}
