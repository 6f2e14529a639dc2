package coordinator

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

func TestLead_HandOver(t *testing.T) {
	bubble(t, "by resigning takes one commit, and the office is vacant no longer than it takes", func(t *testing.T, g *group) {
		const rtt = 20 * time.Millisecond
		a := g.start("a", def("job", 0, 4, ""))
		b := g.start("b", def("job", 0, 4, ""))
		for _, name := range []string{"a", "b"} {
			g.server.Delay(name, rtt/2, rtt/2)
			defer g.server.Delay(name, 0, 0)
		}
		g.server.Record()
		require.NoError(t, a.Drain(t.Context()))
		time.Sleep(time.Second)
		var resigned, entered []memory.Commit
		for _, c := range g.commits() {
			for _, op := range c.Then {
				switch {
				case op.Key == g.keys.Leader():
					resigned = append(resigned, c)
				case op.Kind == registry.OpCreateOwned:
					entered = append(entered, c)
				}
			}
		}
		require.Len(t, resigned, 1)
		require.Len(t, entered, 1)
		assert.Equal(t, "b", entered[0].Client)
		assert.LessOrEqual(t, entered[0].At.Sub(resigned[0].At), rtt)
		assert.Equal(t, b.incarnation(), g.leader().Incarnation)
	})
	bubble(t, "to one that has begun to drain is no vacancy either", func(t *testing.T, g *group) {
		g.start("a", def("job", 0, 4, ""))
		b := g.start("b", def("job", 0, 4, ""))
		a := g.members[0]
		g.server.Record()
		a.reg.before(writing(is(g.keys.Leader()), func() { b.Member.change(func() { b.draining = true }) }))
		require.NoError(t, a.Drain(t.Context()))
		time.Sleep(time.Second)
		var resigned, entered time.Time
		for _, c := range g.commits() {
			for _, op := range c.Then {
				switch {
				case op.Key == g.keys.Leader():
					resigned = c.At
				case op.Kind == registry.OpCreateOwned:
					entered = c.At
				}
			}
		}
		assert.Equal(t, resigned, entered)
	})
	bubble(t, "by a crash is one election, by the first successor, as soon as the session is gone", func(t *testing.T, g *group) {
		a := g.start("a", def("job", 0, 4, ""))
		for _, name := range []string{"b", "c", "d", "e"} {
			g.start(name, def("job", 0, 4, ""))
		}
		gone := a.session()
		g.server.Record()
		defer g.server.Partition("a")()
		time.Sleep(20 * time.Second)
		var over, elected time.Time
		elections := 0
		for _, c := range g.server.Log() {
			if c.Ended == gone {
				over = c.At
			}
			for _, op := range c.Then {
				if op.Key == g.keys.Leader() {
					elections, elected = elections+1, c.At
				}
			}
		}
		assert.Equal(t, 1, elections, "refusals included")
		assert.Equal(t, over, elected)
		assert.Contains(t, g.leader().Incarnation, "b.")
	})
}

// What a leader does is counted in times that its store takes to answer: virtual time has no other.
func TestLead_Join(t *testing.T) {
	written := func(commits []memory.Commit, key registry.Key) (at []time.Time) {
		for _, c := range commits {
			if slices.ContainsFunc(c.Then, func(op registry.Op) bool { return op.Key == key }) {
				at = append(at, c.At)
			}
		}
		return at
	}
	bubble(t, "has shards of all others change hands after seven answers of the store", func(t *testing.T, g *group) {
		const rtt = 20 * time.Millisecond
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			g.start(name, def("job", 0, 60, ""))
		}
		for _, name := range []string{"a", "b", "c", "d", "e", "aa"} {
			g.server.Delay(name, rtt/2, rtt/2)
			defer g.server.Delay(name, 0, 0)
		}
		time.Sleep(time.Second)
		g.server.Record()
		began := time.Now()
		g.begin(g.worker("aa", nil, def("job", 0, 60, "")))
		time.Sleep(time.Second - time.Millisecond)
		commits, after := g.commits(), func(d time.Duration) time.Time { return began.Add(d) }
		// The session, the namespace's record, the definitions, the entrance; the freeze, the looks, the plan.
		assert.Equal(t, []time.Time{after(4*rtt + rtt/2), after(6*rtt + rtt/2)}, written(commits, g.keys.Plan("job")))
		assert.Equal(t, []time.Time{after(7*rtt + rtt/2)}, written(commits, g.keys.Present()), "successors are named when the shards have changed hands")
		assert.NotEmpty(t, g.owners("job")["aa"])
		assert.Zero(t, g.members[0].log.count("not buried"))
	})
	bubble(t, "makes a successor also where there is always something to plan", func(t *testing.T, g *group) {
		g.start("a", def("job", 0, 1000, ""))
		g.server.Delay("a", 100*time.Millisecond, 100*time.Millisecond)
		defer g.server.Delay("a", 0, 0)
		op, _ := g.operator()
		g.server.Record()
		for i := range int((selfDiagnosis + selfDiagnosis/5) / (50 * time.Millisecond)) {
			require.NoError(t, op.Disable(t.Context(), Scope{Job: "job", Shards: []int{i}}))
			if i == 10 {
				g.begin(g.worker("b", nil)) // which offers nothing
			}
			time.Sleep(50 * time.Millisecond)
		}
		commits := g.commits()
		assert.Greater(t, len(written(commits, g.keys.Plan("job"))), 100)
		assert.Len(t, written(commits, g.keys.Present()), 1)
		assert.Contains(t, g.text(g.keys.Present()), "b.")
	})
	bubble(t, "by one whose session nobody hears of is cleared away at the slow tick", func(t *testing.T, g *group) {
		g.start("a", def("job", 0, 1, ""))
		time.Sleep(time.Minute)
		ghost := g.keys.Member("ghost.G")
		g.put(ghost, "{}")
		time.Sleep(time.Second)
		_, found := g.get(ghost)
		require.True(t, found, "it may have just joined")
		time.Sleep(selfDiagnosis + selfDiagnosis/5)
		_, found = g.get(ghost)
		assert.False(t, found)
	})
}

func TestLead_Office(t *testing.T) {
	serves := func(t *testing.T, g *group) {
		t.Helper()
		time.Sleep(5 * time.Second)
		g.start("new", def("new", 0, 1, ""))
		assert.Equal(t, map[string]string{"new": "0"}, g.owners("new"))
	}
	bubble(t, "whose record another hand spoils is taken again", func(t *testing.T, g *group) {
		a := g.start("a", def("job", 0, 1, ""))
		g.spoil(g.keys.Leader())
		serves(t, g)
		assert.Equal(t, a.incarnation(), g.leader().Incarnation)
		assert.Equal(t, 1, a.log.count(string(g.keys.Leader())))
	})
	bubble(t, "whose record another hand deletes is taken again", func(t *testing.T, g *group) {
		a := g.start("a", def("job", 0, 1, ""))
		g.remove(g.keys.Leader())
		serves(t, g)
		assert.Equal(t, a.incarnation(), g.leader().Incarnation)
	})
	bubble(t, "whose record is spoilt when it falls vacant is taken all the same", func(t *testing.T, g *group) {
		g.start("a", def("job", 0, 1, ""))
		defer g.server.Partition("a")()
		g.spoil(g.keys.Leader())
		b := g.start("b", def("job", 0, 1, ""))
		time.Sleep(20 * time.Second)
		require.NotContains(t, g.text(g.keys.Leader()), "spoilt")
		assert.Equal(t, b.incarnation(), g.leader().Incarnation)
		assert.Equal(t, map[string]string{"b": "0"}, g.owners("job"))
	})
	bubble(t, "that another hand vacates is entered again", func(t *testing.T, g *group) {
		g.start("a", def("job", 0, 1, ""))
		g.remove(g.keys.Present())
		serves(t, g)
	})
}

func TestLead_Spoilt(t *testing.T) {
	// Each record is spoilt in a fleet that runs two jobs. The other job goes on, and a
	// log names the record.
	for name, key := range map[string]func(g *group, a *worker) registry.Key{
		"plan":    func(g *group, _ *worker) registry.Key { return g.keys.Plan("bad") },
		"job":     func(g *group, _ *worker) registry.Key { return g.keys.Job("bad") },
		"control": func(g *group, _ *worker) registry.Key { return g.keys.Control("bad") },
		"claims":  func(g *group, a *worker) registry.Key { return g.keys.Claims(a.incarnation(), "bad") },
		"member":  func(g *group, a *worker) registry.Key { return g.keys.Member(a.incarnation()) },
	} {
		for _, who := range []string{"a", "b"} { // a leads
			bubble(t, name+" record of "+who+" takes nothing else down and is named in the log", func(t *testing.T, g *group) {
				both := []string{def("good", 0, 4, ""), def("bad", 0, 4, "")}
				workers := map[string]*worker{"a": g.start("a", both...), "b": g.start("b", both...)}
				until(1)
				spoilt := key(g, workers[who])
				g.spoil(spoilt)
				until(3)
				g.start("c", both...)
				until(4)
				all := map[int]int{}
				for _, w := range g.members {
					for _, r := range w.began() {
						if r.Job == "good" && r.Fire.Equal(bubbleBegan().Add(4*time.Minute)) {
							all[r.Shard]++
						}
					}
				}
				assert.Equal(t, once(4), all)
				logged := 0
				for _, w := range g.members {
					logged += w.log.count(string(spoilt))
				}
				assert.Positive(t, logged)
				assert.LessOrEqual(t, logged, 40)
				if name != "member" { // whose shards stay, for nobody knows what it offers
					assert.Contains(t, g.owners("good"), "c")
				}
			})
		}
	}
}

func TestLead_UnwritablePlan(t *testing.T) {
	bubble(t, "holds up no other job, and is not tried without end", func(t *testing.T, g *group) {
		noise := func() string { // that cannot be deflated below the bound twice over
			var b strings.Builder
			for range 90 << 10 {
				b.WriteByte(byte('!' + 2 + rand.N(57)))
			}
			return b.String()
		}
		a := g.start("a", def("big", 0, 1, `,"param":"`+noise()+`"`))
		require.Equal(t, map[string]string{"a": "0"}, g.owners("big"))
		b := g.start("b", def("big", 1, 1, `,"param":"`+noise()+`"`), def("small", 0, 1, ""))
		assert.Equal(t, map[string]string{"b": "0"}, g.owners("small"))
		time.Sleep(5 * time.Minute)
		tries := a.log.count("plan not written") + b.log.count("plan not written")
		assert.Positive(t, tries)
		assert.LessOrEqual(t, tries, 20)
	})
}

func TestLead_Triggers(t *testing.T) {
	bubble(t, "are taken in as fast as they are served, however many they are", func(t *testing.T, g *group) {
		a := g.start("a", def("job", 0, 2, ""))
		op, _ := g.operator()
		const many = 4 * record.MaxTriggers // in a third of the time between slow ticks
		for range many {
			_, err := op.Trigger(t.Context(), "job", "", nil)
			require.NoError(t, err)
			time.Sleep(selfDiagnosis / 3 / many)
		}
		time.Sleep(time.Second)
		triggered := 0
		for _, r := range a.began() {
			if r.Trigger > 0 {
				triggered++
			}
		}
		assert.Equal(t, 2*many, triggered)
	})
	bubble(t, "outlive the leader and whoever runs them", func(t *testing.T, g *group) {
		a := g.startWorking("a", takes(time.Hour), def("job", 0, 2, ""))
		b := g.startWorking("b", takes(0), def("job", 0, 2, ""))
		require.Equal(t, a.incarnation(), g.leader().Incarnation)
		heal := g.server.Partition("a") // the leader is gone and nobody knows
		defer heal()
		n, err := b.Trigger(t.Context(), "job", "hello", nil)
		require.NoError(t, err)
		assert.EqualValues(t, 1, n)
		time.Sleep(ttl + 2*time.Second)
		ran := map[int]int{}
		for _, r := range b.began() {
			if r.Trigger == 1 {
				assert.Equal(t, "hello", r.Param)
				ran[r.Shard]++
			}
		}
		assert.Equal(t, once(2), ran)
	})
	bubble(t, "in flight on the one that crashes run again, with their parameter", func(t *testing.T, g *group) {
		a := g.startWorking("a", takes(time.Hour), def("job", 0, 2, ""))
		b := g.start("b", def("job", 0, 2, ""))
		_, err := a.Trigger(t.Context(), "job", "hello", nil)
		require.NoError(t, err)
		time.Sleep(time.Second)
		mine := a.began()
		require.Len(t, mine, 1)
		time.Sleep(2 * selfDiagnosis)
		b.began()
		defer g.server.Partition("a")()
		time.Sleep(ttl + 2*time.Second)
		var again []Run
		for _, r := range b.began() {
			if r.Trigger == 1 {
				again = append(again, r)
			}
		}
		require.Len(t, again, 1)
		assert.Equal(t, mine[0].Shard, again[0].Shard)
		assert.Equal(t, 2, again[0].Attempt)
		assert.Equal(t, "hello", again[0].Param)
		assert.Greater(t, again[0].Fence, mine[0].Fence)
	})
	bubble(t, "of a job that nobody has paused do not pause it, whatever its definition says of new jobs", func(t *testing.T, g *group) {
		a := g.start("a", def("job", 0, 1, ""))
		g.start("b", def("job", 1, 1, `,"start_paused":true`))
		time.Sleep(10 * time.Second)
		_, err := a.Trigger(t.Context(), "job", "", nil)
		require.NoError(t, err)
		time.Sleep(time.Second)
		assert.False(t, g.plan("job").Paused)
		ran := 0
		for _, w := range g.members {
			ran += len(w.began())
		}
		assert.Equal(t, 1, ran)
	})
	bubble(t, "of a job that starts paused leave it so", func(t *testing.T, g *group) {
		a := g.start("a", def("job", 0, 1, `,"start_paused":true`))
		g.start("b", def("job", 1, 1, ""))
		_, err := a.Trigger(t.Context(), "job", "", nil)
		require.NoError(t, err)
		until(2)
		assert.Empty(t, a.began())
		require.NoError(t, a.Resume(t.Context(), "job"))
		time.Sleep(time.Second)
		ran := 0
		for _, w := range g.members {
			ran += len(w.began())
		}
		assert.Equal(t, 1, ran)
	})
	bubble(t, "of an unknown job, a shard that does not exist or too many are refused", func(t *testing.T, g *group) {
		a := g.start("a", def("job", 0, 2, `,"start_paused":true`))
		_, err := a.Trigger(t.Context(), "nothing", "", nil)
		assert.ErrorIs(t, err, ErrUnknownJob)
		_, err = a.Trigger(t.Context(), "job", "", []int{2})
		assert.ErrorContains(t, err, "no shard 2 of 2")
		for err = nil; err == nil; {
			_, err = a.Trigger(t.Context(), "job", "", []int{0})
			synctest.Wait()
		}
		assert.ErrorIs(t, err, ErrTooManyTriggers)
	})
}

func TestLead_Pause(t *testing.T) {
	bubble(t, "is exact: once the plan says so, no claim commits", func(t *testing.T, g *group) {
		a := g.start("a", def("job", 0, 2, ""))
		b := g.start("b", def("job", 0, 2, ""))
		release := g.server.HoldWatch("b") // it does not hear of the pause
		g.server.Record()
		require.NoError(t, a.Pause(t.Context(), "job"))
		synctest.Wait()
		require.True(t, g.plan("job").Paused)
		until(3)
		assert.Empty(t, a.began())
		assert.Empty(t, b.began())
		release()
		synctest.Wait()
		require.NoError(t, b.Resume(t.Context(), "job"))
		until(4)
		assert.Equal(t, once(2), merged(shards(a.began()), shards(b.began())))
		var counts record.Counts
		for _, w := range g.members {
			counts = counts.Add(g.claims(w.incarnation(), "job").Counts)
		}
		assert.Zero(t, counts.Skipped, "what fell due during the pause is not owed")
	})
	bubble(t, "lets runs that have begun go on", func(t *testing.T, g *group) {
		ended := make(chan error, 1)
		a := g.startWorking("a", func(ctx context.Context, r Run) error {
			err := takes(90*time.Second)(ctx, r)
			ended <- err
			return err
		}, def("job", 0, 1, ""))
		until(1)
		require.NoError(t, a.Pause(t.Context(), "job"))
		until(4)
		require.Len(t, a.began(), 1)
		assert.NoError(t, <-ended)
		assert.EqualValues(t, 1, g.claims(a.incarnation(), "job").Counts.Succeeded)
	})
}
