package coordinator

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

const claimsOnly = `,"tracking":"claims"`

// claimWrites returns how many commits since the last call wrote claims.
func (g *group) claimWrites() int {
	n := 0
	for _, c := range g.commits() {
		for _, op := range c.Then {
			if strings.Contains(string(op.Key), "/claims/") {
				n++
				break
			}
		}
	}
	return n
}

func TestTrackClaims(t *testing.T) {
	bubble(t, "write a fire down in one commit, with which go the ends of the one before", func(t *testing.T, g *group) {
		a := g.start("a", def("job", 0, 4, claimsOnly))
		g.server.Record()
		for n := range 5 {
			until(n + 1)
			time.Sleep(30 * time.Second)
			assert.Equal(t, once(4), shards(a.began()))
			assert.Equal(t, 1, g.claimWrites())
			claims := g.claims(a.incarnation(), "job")
			assert.Equal(t, "0-3", claims.Running.Shards().String())
			assert.Equal(t, record.Counts{Claimed: uint64(4 * (n + 1)), Succeeded: uint64(4 * n)}, claims.Counts)
		}
	})
	bubble(t, "claim what came due during a run when that has ended", func(t *testing.T, g *group) {
		a := g.startWorking("a", takes(90*time.Second), def("job", 0, 1, claimsOnly))
		until(2)
		require.Len(t, a.began(), 1)
		time.Sleep(30 * time.Second)
		runs := a.began()
		require.Len(t, runs, 1)
		assert.Equal(t, bubbleBegan().Add(2*time.Minute), runs[0].Fire.UTC())
	})
	bubble(t, "let a shard go whose run has ended, for one commit more", func(t *testing.T, g *group) {
		a := g.start("a", def("job", 0, 4, claimsOnly))
		until(1)
		g.server.Record()
		b := g.start("b", def("job", 0, 4, claimsOnly))
		assert.Equal(t, map[string]string{"a": "0-1", "b": "2-3"}, g.owners("job"))
		assert.Equal(t, 1, g.claimWrites())
		assert.Empty(t, g.claims(a.incarnation(), "job").Running)
		a.began()
		until(2)
		assert.Equal(t, once(4), merged(shards(a.began()), shards(b.began())))
	})
	bubble(t, "keep a shard whose function has not returned", func(t *testing.T, g *group) {
		a := g.startWorking("a", takes(30*time.Second), def("job", 0, 4, claimsOnly))
		until(1)
		g.start("b", def("job", 0, 4, claimsOnly))
		assert.Equal(t, map[string]string{"a": "0-3"}, g.owners("job"))
		assert.Equal(t, "2-3", g.plan("job").Frozen.String())
		assert.ElementsMatch(t, []int{2, 3}, a.asked())
		time.Sleep(30 * time.Second)
		assert.Equal(t, map[string]string{"a": "0-1", "b": "2-3"}, g.owners("job"))
	})
	bubble(t, "keep a shard of an owner that drains until its function has returned", func(t *testing.T, g *group) {
		a := g.startWorking("a", takes(30*time.Second), def("job", 0, 2, claimsOnly))
		b := g.startWorking("b", takes(30*time.Second), def("job", 0, 2, claimsOnly))
		until(1)
		require.NoError(t, a.Drain(t.Context()))
		time.Sleep(5 * time.Second)
		assert.Equal(t, map[string]string{"a": "0", "b": "1"}, g.owners("job"))
		time.Sleep(30 * time.Second)
		assert.Equal(t, map[string]string{"b": "0-1"}, g.owners("job"))
		a.began()
		b.began()
		until(2)
		assert.Equal(t, once(2), shards(b.began()))
		assert.Zero(t, g.counts("job").Unknown)
	})
	bubble(t, "do not begin while their owner has not observed a move, and none is lost or doubled", func(t *testing.T, g *group) {
		g.start("c", def("other", 0, 1, `,"start_paused":true`)) // it leads
		a := g.start("a", def("job", 0, 4, claimsOnly))
		until(3)
		require.Len(t, a.began(), 12)
		release := g.server.HoldWatch("a")
		b := g.start("b", def("job", 0, 4, claimsOnly))
		until(4)
		assert.Equal(t, "2-3", g.plan("job").Frozen.String())
		assert.Equal(t, map[string]string{"a": "0-3"}, g.owners("job"), "the ends are not on record")
		assert.Empty(t, a.began(), "a claim names the plan that was replaced")
		release()
		time.Sleep(time.Second)
		assert.Equal(t, map[string]string{"a": "0-1", "b": "2-3"}, g.owners("job"))
		assert.Equal(t, once(4), merged(shards(a.began()), shards(b.began())))
		until(5)
		assert.Equal(t, once(4), merged(shards(a.began()), shards(b.began())))
	})
	bubble(t, "leave nothing on record when their owner drains", func(t *testing.T, g *group) {
		a := g.start("a", def("job", 0, 4, claimsOnly))
		b := g.start("b", def("job", 0, 4, claimsOnly))
		until(1)
		a.goes()
		time.Sleep(time.Second)
		assert.Equal(t, map[string]string{"b": "0-3"}, g.owners("job"))
		assert.Zero(t, g.counts("job").Unknown)
		assert.EqualValues(t, 2, g.plan("job").Counts.Succeeded)
		until(2)
		assert.Equal(t, once(4), shards(b.began()[2:]))
	})
	bubble(t, "are counted as unknown after a crash, and not made again, whatever the job wants", func(t *testing.T, g *group) {
		a := g.start("a", def("job", 0, 2, `,"on_crash":"rerun elsewhere"`+claimsOnly))
		b := g.start("b", def("job", 0, 2, `,"on_crash":"rerun elsewhere"`+claimsOnly))
		until(1)
		require.Equal(t, once(2), merged(shards(a.began()), shards(b.began())))
		defer g.server.Partition("a")()
		until(2)
		assert.Equal(t, map[string]string{"b": "0-1"}, g.owners("job"))
		runs := b.began()
		assert.Equal(t, once(2), shards(runs))
		for _, r := range runs {
			assert.Equal(t, 1, r.Attempt)
		}
		counts := g.plan("job").Counts
		assert.EqualValues(t, 1, counts.Unknown)
		assert.Zero(t, counts.Lost)
	})
	bubble(t, "are counted as unknown when who was waited for is back", func(t *testing.T, g *group) {
		g.grace = time.Minute
		a := g.start("a", def("job", 0, 2, claimsOnly))
		g.start("b", def("job", 0, 2, claimsOnly))
		until(1)
		g.server.Expire("a")
		time.Sleep(5 * time.Second)
		assert.Equal(t, map[string]string{"a": "0", "b": "1"}, g.owners("job"))
		assert.EqualValues(t, 1, g.plan("job").Counts.Unknown)
		a.began()
		until(2)
		assert.Len(t, a.began(), 1)
	})
	bubble(t, "leave nothing on record of a job that is paused", func(t *testing.T, g *group) {
		a := g.start("a", def("job", 0, 2, claimsOnly))
		until(1)
		require.NotEmpty(t, g.claims(a.incarnation(), "job").Running)
		require.NoError(t, a.Pause(t.Context(), "job"))
		time.Sleep(time.Second)
		assert.Empty(t, g.claims(a.incarnation(), "job").Running)
		assert.Equal(t, record.Counts{Claimed: 2, Succeeded: 2}, g.counts("job"))
	})
	bubble(t, "of a trigger end at once, so that it is cleared", func(t *testing.T, g *group) {
		a := g.start("a", def("job", 0, 2, claimsOnly))
		_, err := a.Trigger(t.Context(), "job", "", nil)
		require.NoError(t, err)
		time.Sleep(time.Second)
		assert.Equal(t, once(2), shards(a.began()))
		assert.Empty(t, g.claims(a.incarnation(), "job").Running)
		time.Sleep(time.Minute)
		assert.Empty(t, g.plan("job").Triggers)
	})
	bubble(t, "end with the fires that their shard passes over when it is disabled", func(t *testing.T, g *group) {
		a := g.start("a", def("job", 0, 2, claimsOnly))
		until(1)
		require.NoError(t, a.Disable(t.Context(), Scope{Job: "job", Shards: []int{0, 1}}))
		until(3)
		assert.Len(t, a.began(), 2)
		assert.Empty(t, g.claims(a.incarnation(), "job").Running)
		assert.Equal(t, record.Counts{Claimed: 2, Succeeded: 2, Skipped: 4}, g.counts("job"))
	})
}

func TestTracking_Changes(t *testing.T) {
	bubble(t, "while the job runs: no fire is lost or doubled, and the total may change as well", func(t *testing.T, g *group) {
		a, b := g.start("a", def("job", 0, 2, "")), g.start("b", def("job", 0, 2, ""))
		fires := map[time.Time]map[int]int{}
		levels := []string{"", claimsOnly}
		for n := 1; n < 20; n++ {
			until(n)
			if n%3 == 0 {
				next := offering(def("job", n, 2+n%2, levels[n/3%2]))
				a.Offer(next)
				b.Offer(next)
			}
			for _, r := range append(a.began(), b.began()...) {
				if fires[r.Fire] == nil {
					fires[r.Fire] = map[int]int{}
				}
				fires[r.Fire][r.Shard]++
				assert.Equal(t, 1, r.Attempt)
			}
		}
		assert.Len(t, fires, 19)
		for fire, ran := range fires {
			assert.Contains(t, []map[int]int{once(2), once(3)}, ran, fire)
		}
		assert.Len(t, g.plan("job").Epochs, 1)
		assert.Zero(t, g.counts("job").Unknown+g.counts("job").Lost)
	})
	bubble(t, "at an instant: a run is made again after a crash if it was claimed before, and else counted", func(t *testing.T, g *group) {
		long := func(ctx context.Context, r Run) error {
			if r.Attempt == 1 {
				<-ctx.Done()
			}
			return context.Cause(ctx)
		}
		a := g.startWorking("a", long, def("job", 0, 1, ""))
		until(1)
		a.Offer(offering(def("job", 1, 2, claimsOnly)))
		until(2) // shard 0 runs as it was claimed, shard 1 is new
		require.Equal(t, once(2), shards(a.began()))
		g.server.Expire("a")
		time.Sleep(5 * time.Second)
		runs := a.began()
		require.Len(t, runs, 2)
		assert.Equal(t, 2, runs[0].Attempt)
		assert.Equal(t, bubbleBegan().Add(time.Minute), runs[0].Fire.UTC())
		assert.Equal(t, 1, runs[1].Attempt, "the fire that shard 0 owed")
		assert.EqualValues(t, 1, g.plan("job").Counts.Unknown)
		assert.Zero(t, g.plan("job").Counts.Lost)
	})
}

func TestPlan_FailoverOfWhatIsNotTracked(t *testing.T) {
	w := newWorld(t)
	a, b := w.member("a", "job"), w.member("b", "job")
	w.define("job", 4, 0, claimsOnly)
	w.settle()
	had := w.plan("job").Owners[b]
	w.running(b, "job", had, fire(1, 1))
	w.kill(b)
	w.settle()
	assert.Equal(t, map[string]string{a: "0-3"}, w.owners("job"))
	assert.Empty(t, w.plan("job").Reruns)
	assert.Equal(t, record.Counts{Unknown: uint64(had.Len())}, w.plan("job").Counts)
}

func TestRecordsEnds(t *testing.T) {
	plan := func() *record.Plan {
		e, err := record.NewEpoch(1, start, []byte(def("job", 0, 2, claimsOnly)))
		require.NoError(t, err)
		return &record.Plan{Job: "job", Epochs: []record.Epoch{e}}
	}
	require.False(t, recordsEnds(plan()))
	for name, change := range map[string]func(*record.Plan){
		"a shard is to move":                 func(p *record.Plan) { p.Frozen = shardset.Of(1) },
		"a definition waits to be forgotten": func(p *record.Plan) { p.Epochs = append(p.Epochs, epoch(t, 2, at(1), 2)) },
		"a trigger waits to be cleared":      func(p *record.Plan) { p.Triggers = []record.Trigger{{Number: 1, Gen: 1}} },
		"the job is paused":                  func(p *record.Plan) { p.Paused = true },
		"the schedule is stopped":            func(p *record.Plan) { p.Stopped, p.Last().Until = true, at(1) },
	} {
		t.Run("when "+name, func(t *testing.T) {
			p := plan()
			change(p)
			assert.True(t, recordsEnds(p))
		})
	}
	t.Run("without a plan", func(t *testing.T) { assert.True(t, recordsEnds(nil)) })
}
