package member_test

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

	"github.com/rota-dev/rota/internal/group/claimer"
	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/group/leader"
	"github.com/rota-dev/rota/internal/group/membertest"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

func TestLeader_HandsOver(t *testing.T) {
	membertest.RunBubble(t, "by resignation: one commit, and the seat is free for one round trip", func(t *testing.T, g *membertest.Group) {
		const rtt = 20 * time.Millisecond
		a := g.Start("a", coordtest.Def("job", 0, 4, ""))
		b := g.Start("b", coordtest.Def("job", 0, 4, ""))
		for _, name := range []string{"a", "b"} {
			g.Server.Delay(name, rtt/2, rtt/2)
			defer g.Server.Delay(name, 0, 0)
		}
		g.Server.Record()
		require.NoError(t, a.Drain(t.Context()))
		time.Sleep(time.Second)
		var resigned, accepted []memory.Commit
		for _, c := range g.TakeCommits() {
			for _, op := range c.Then {
				switch {
				case op.Key == g.Keys.Leader():
					resigned = append(resigned, c)
				case op.Kind == registry.OpCreateOwned:
					accepted = append(accepted, c)
				}
			}
		}
		require.Len(t, resigned, 1)
		require.Len(t, accepted, 1)
		assert.Equal(t, "b", accepted[0].Client)
		assert.LessOrEqual(t, accepted[0].At.Sub(resigned[0].At), rtt)
		assert.Equal(t, b.Incarnation(), g.ReadLeader().Incarnation)
	})
	membertest.RunBubble(t, "to a draining successor: the seat is not free in between", func(t *testing.T, g *membertest.Group) {
		g.Start("a", coordtest.Def("job", 0, 4, ""))
		b := g.Start("b", coordtest.Def("job", 0, 4, ""))
		a := g.Members[0]
		g.Server.Record()
		a.Reg.BeforeTxn(membertest.OnFirstWrite(membertest.IsKey(g.Keys.Leader()), func() { b.Member.ChangeState(func() { b.Draining = true }) }))
		require.NoError(t, a.Drain(t.Context()))
		time.Sleep(time.Second)
		var resigned, accepted time.Time
		for _, c := range g.TakeCommits() {
			for _, op := range c.Then {
				switch {
				case op.Key == g.Keys.Leader():
					resigned = c.At
				case op.Kind == registry.OpCreateOwned:
					accepted = c.At
				}
			}
		}
		assert.Equal(t, resigned, accepted)
	})
	membertest.RunBubble(t, "by a crash: the first successor is elected when the session expires, with one commit", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 4, ""))
		for _, name := range []string{"b", "c", "d", "e"} {
			g.Start(name, coordtest.Def("job", 0, 4, ""))
		}
		gone := a.Session()
		g.Server.Record()
		defer g.Server.Partition("a")()
		time.Sleep(20 * time.Second)
		var over, elected time.Time
		elections := 0
		for _, c := range g.Server.Log() {
			if c.Ended == gone {
				over = c.At
			}
			for _, op := range c.Then {
				if op.Key == g.Keys.Leader() {
					elections, elected = elections+1, c.At
				}
			}
		}
		assert.Equal(t, 1, elections, "including refused commits")
		assert.Equal(t, over, elected)
		assert.Contains(t, g.ReadLeader().Incarnation, "b.")
	})
}

// TestLeader_HandlesJoin measures in round trips to the store, the only delay in virtual time.
func TestLeader_HandlesJoin(t *testing.T) {
	written := func(commits []memory.Commit, key registry.Key) (at []time.Time) {
		for _, c := range commits {
			if slices.ContainsFunc(c.Then, func(op registry.Op) bool { return op.Key == key }) {
				at = append(at, c.At)
			}
		}
		return at
	}
	membertest.RunBubble(t, "moves shards of all other members within seven round trips", func(t *testing.T, g *membertest.Group) {
		const rtt = 20 * time.Millisecond
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			g.Start(name, coordtest.Def("job", 0, 60, ""))
		}
		for _, name := range []string{"a", "b", "c", "d", "e", "aa"} {
			g.Server.Delay(name, rtt/2, rtt/2)
			defer g.Server.Delay(name, 0, 0)
		}
		time.Sleep(time.Second)
		g.Server.Record()
		began := time.Now()
		g.RunWorker(g.NewWorker("aa", nil, coordtest.Def("job", 0, 60, "")))
		time.Sleep(time.Second - time.Millisecond)
		commits, after := g.TakeCommits(), func(d time.Duration) time.Time { return began.Add(d) }
		// The round trips: session, meta, definitions, joining commit; freeze, fresh reads, plan.
		assert.Equal(t, []time.Time{after(4*rtt + rtt/2), after(6*rtt + rtt/2)}, written(commits, g.Keys.Plan("job")))
		assert.Equal(t, []time.Time{after(7*rtt + rtt/2)}, written(commits, g.Keys.Seat()), "successors are named after the shards have moved")
		assert.NotEmpty(t, g.ReadOwners("job")["aa"])
		assert.Zero(t, g.Members[0].Log.Count("not reaped"))
	})
	membertest.RunBubble(t, "names the new member as successor although plans change all the time", func(t *testing.T, g *membertest.Group) {
		g.Start("a", coordtest.Def("job", 0, 1000, ""))
		g.Server.Delay("a", 100*time.Millisecond, 100*time.Millisecond)
		defer g.Server.Delay("a", 0, 0)
		op, _ := g.NewOperator()
		g.Server.Record()
		for i := range int((leader.RegularCheck + leader.RegularCheck/5) / (50 * time.Millisecond)) {
			require.NoError(t, op.Disable(t.Context(), operator.Scope{Job: "job", Shards: []int{i}}))
			if i == 10 {
				g.RunWorker(g.NewWorker("b", nil)) // it offers no job
			}
			time.Sleep(50 * time.Millisecond)
		}
		commits := g.TakeCommits()
		assert.Greater(t, len(written(commits, g.Keys.Plan("job"))), 100)
		assert.Len(t, written(commits, g.Keys.Seat()), 1)
		assert.Contains(t, g.GetText(g.Keys.Seat()), "b.")
	})
	membertest.RunBubble(t, "reaps at the regular check a member whose instance key never appeared", func(t *testing.T, g *membertest.Group) {
		g.Start("a", coordtest.Def("job", 0, 1, ""))
		time.Sleep(time.Minute)
		ghost := g.Keys.Member("ghost.G")
		g.PutRecord(ghost, "{}")
		time.Sleep(time.Second)
		_, found := g.GetRecord(ghost)
		require.True(t, found, "the member may have just joined")
		time.Sleep(leader.RegularCheck + leader.RegularCheck/5)
		_, found = g.GetRecord(ghost)
		assert.False(t, found)
	})
}

func TestElector_RecoversElectionRecords(t *testing.T) {
	serves := func(t *testing.T, g *membertest.Group) {
		t.Helper()
		time.Sleep(5 * time.Second)
		g.Start("new", coordtest.Def("new", 0, 1, ""))
		assert.Equal(t, map[string]string{"new": "0"}, g.ReadOwners("new"))
	}
	membertest.RunBubble(t, "a damaged leader record is written again", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 1, ""))
		g.SpoilRecord(g.Keys.Leader())
		serves(t, g)
		assert.Equal(t, a.Incarnation(), g.ReadLeader().Incarnation)
		assert.Equal(t, 1, a.Log.Count(string(g.Keys.Leader())))
	})
	membertest.RunBubble(t, "a deleted leader record is written again", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 1, ""))
		g.RemoveRecord(g.Keys.Leader())
		serves(t, g)
		assert.Equal(t, a.Incarnation(), g.ReadLeader().Incarnation)
	})
	membertest.RunBubble(t, "a leader record that is damaged while the seat is free does not prevent an election", func(t *testing.T, g *membertest.Group) {
		g.Start("a", coordtest.Def("job", 0, 1, ""))
		defer g.Server.Partition("a")()
		g.SpoilRecord(g.Keys.Leader())
		b := g.Start("b", coordtest.Def("job", 0, 1, ""))
		time.Sleep(20 * time.Second)
		require.NotContains(t, g.GetText(g.Keys.Leader()), "spoilt")
		assert.Equal(t, b.Incarnation(), g.ReadLeader().Incarnation)
		assert.Equal(t, map[string]string{"b": "0"}, g.ReadOwners("job"))
	})
	membertest.RunBubble(t, "a deleted seat record is written again", func(t *testing.T, g *membertest.Group) {
		g.Start("a", coordtest.Def("job", 0, 1, ""))
		g.RemoveRecord(g.Keys.Seat())
		serves(t, g)
	})
}

func TestLeader_ToleratesDamagedRecords(t *testing.T) {
	// A record is damaged in a fleet that runs two jobs. The other job continues, and the log names
	// the record.
	for name, key := range map[string]func(g *membertest.Group, a *membertest.Worker) registry.Key{
		"plan":    func(g *membertest.Group, _ *membertest.Worker) registry.Key { return g.Keys.Plan("bad") },
		"job":     func(g *membertest.Group, _ *membertest.Worker) registry.Key { return g.Keys.Job("bad") },
		"control": func(g *membertest.Group, _ *membertest.Worker) registry.Key { return g.Keys.Control("bad") },
		"claims": func(g *membertest.Group, a *membertest.Worker) registry.Key {
			return g.Keys.Claims(a.Incarnation(), "bad")
		},
		"member": func(g *membertest.Group, a *membertest.Worker) registry.Key { return g.Keys.Member(a.Incarnation()) },
	} {
		for _, who := range []string{"a", "b"} { // a leads
			membertest.RunBubble(t, name+" record of "+who+" stops no other job and is named in the log", func(t *testing.T, g *membertest.Group) {
				both := []string{coordtest.Def("good", 0, 4, ""), coordtest.Def("bad", 0, 4, "")}
				workers := map[string]*membertest.Worker{"a": g.Start("a", both...), "b": g.Start("b", both...)}
				membertest.SleepToMinute(1)
				spoilt := key(g, workers[who])
				g.SpoilRecord(spoilt)
				membertest.SleepToMinute(3)
				g.Start("c", both...)
				membertest.SleepToMinute(4)
				all := map[int]int{}
				for _, w := range g.Members {
					for _, r := range w.TakeRuns() {
						if r.Job == "good" && r.Fire.Equal(coordtest.BubbleStart().Add(4*time.Minute)) {
							all[r.Shard]++
						}
					}
				}
				assert.Equal(t, membertest.OncePerShard(4), all)
				logged := 0
				for _, w := range g.Members {
					logged += w.Log.Count(string(spoilt))
				}
				assert.Positive(t, logged)
				assert.LessOrEqual(t, logged, 40)
				if name != "member" { // its shards stay, since the jobs that it offers are unknown
					assert.Contains(t, g.ReadOwners("good"), "c")
				}
			})
		}
	}
}

func TestLeader_PlanThatCannotBeWritten(t *testing.T) {
	membertest.RunBubble(t, "holds up no other job, and is retried rarely", func(t *testing.T, g *membertest.Group) {
		noise := func() string { // does not compress below the size limit when a plan holds it twice
			var b strings.Builder
			for range 90 << 10 {
				b.WriteByte(byte('!' + 2 + rand.N(57)))
			}
			return b.String()
		}
		a := g.Start("a", coordtest.Def("big", 0, 1, `,"param":"`+noise()+`"`))
		require.Equal(t, map[string]string{"a": "0"}, g.ReadOwners("big"))
		b := g.Start("b", coordtest.Def("big", 1, 1, `,"param":"`+noise()+`"`), coordtest.Def("small", 0, 1, ""))
		assert.Equal(t, map[string]string{"b": "0"}, g.ReadOwners("small"))
		time.Sleep(5 * time.Minute)
		tries := a.Log.Count("plan cannot be written") + b.Log.Count("plan cannot be written")
		assert.Positive(t, tries)
		assert.LessOrEqual(t, tries, 20)
	})
}

func TestLeader_Triggers(t *testing.T) {
	membertest.RunBubble(t, "are accepted as fast as they are served, without a limit in total", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 2, ""))
		op, _ := g.NewOperator()
		const many = 4 * record.MaxTriggers // within a third of the time between regular checks
		for range many {
			_, err := op.Trigger(t.Context(), "job", "", nil)
			require.NoError(t, err)
			time.Sleep(leader.RegularCheck / 3 / many)
		}
		time.Sleep(time.Second)
		triggered := 0
		for _, r := range a.TakeRuns() {
			if r.Trigger > 0 {
				triggered++
			}
		}
		assert.Equal(t, 2*many, triggered)
	})
	membertest.RunBubble(t, "survive a crash of the leader, which owns their shards", func(t *testing.T, g *membertest.Group) {
		a := g.StartWorking("a", membertest.WorkFor(time.Hour), coordtest.Def("job", 0, 2, ""))
		b := g.StartWorking("b", membertest.WorkFor(0), coordtest.Def("job", 0, 2, ""))
		require.Equal(t, a.Incarnation(), g.ReadLeader().Incarnation)
		heal := g.Server.Partition("a") // the leader is cut off, and its session has not expired
		defer heal()
		n, err := b.Trigger(t.Context(), "job", "hello", nil)
		require.NoError(t, err)
		assert.EqualValues(t, 1, n)
		time.Sleep(membertest.TTL + 2*time.Second)
		ran := map[int]int{}
		for _, r := range b.TakeRuns() {
			if r.Trigger == 1 {
				assert.Equal(t, "hello", r.Param)
				ran[r.Shard]++
			}
		}
		assert.Equal(t, membertest.OncePerShard(2), ran)
	})
	membertest.RunBubble(t, "in progress on a crashed instance run again, with their parameter", func(t *testing.T, g *membertest.Group) {
		a := g.StartWorking("a", membertest.WorkFor(time.Hour), coordtest.Def("job", 0, 2, ""))
		b := g.Start("b", coordtest.Def("job", 0, 2, ""))
		_, err := a.Trigger(t.Context(), "job", "hello", nil)
		require.NoError(t, err)
		time.Sleep(time.Second)
		mine := a.TakeRuns()
		require.Len(t, mine, 1)
		time.Sleep(2 * leader.RegularCheck)
		b.TakeRuns()
		defer g.Server.Partition("a")()
		time.Sleep(membertest.TTL + 2*time.Second)
		var again []claimer.Run
		for _, r := range b.TakeRuns() {
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
	membertest.RunBubble(t, "do not pause a running job when a new definition starts paused", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 1, ""))
		g.Start("b", coordtest.Def("job", 1, 1, `,"start_paused":true`))
		time.Sleep(10 * time.Second)
		_, err := a.Trigger(t.Context(), "job", "", nil)
		require.NoError(t, err)
		time.Sleep(time.Second)
		assert.False(t, g.ReadPlan("job").Paused)
		ran := 0
		for _, w := range g.Members {
			ran += len(w.TakeRuns())
		}
		assert.Equal(t, 1, ran)
	})
	membertest.RunBubble(t, "do not resume a job that starts paused", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 1, `,"start_paused":true`))
		g.Start("b", coordtest.Def("job", 1, 1, ""))
		_, err := a.Trigger(t.Context(), "job", "", nil)
		require.NoError(t, err)
		membertest.SleepToMinute(2)
		assert.Empty(t, a.TakeRuns())
		require.NoError(t, a.Resume(t.Context(), "job"))
		time.Sleep(time.Second)
		ran := 0
		for _, w := range g.Members {
			ran += len(w.TakeRuns())
		}
		assert.Equal(t, 1, ran)
	})
	membertest.RunBubble(t, "are refused for an unknown job, an unknown shard, or too many at once", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 2, `,"start_paused":true`))
		_, err := a.Trigger(t.Context(), "nothing", "", nil)
		assert.ErrorIs(t, err, operator.ErrUnknownJob)
		_, err = a.Trigger(t.Context(), "job", "", []int{2})
		assert.ErrorContains(t, err, "no shard 2 of 2")
		for err = nil; err == nil; {
			_, err = a.Trigger(t.Context(), "job", "", []int{0})
			synctest.Wait()
		}
		assert.ErrorIs(t, err, operator.ErrTooManyTriggers)
	})
}

func TestLeader_Pause(t *testing.T) {
	membertest.RunBubble(t, "is exact: once the plan is paused, no claim commits", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 2, ""))
		b := g.Start("b", coordtest.Def("job", 0, 2, ""))
		release := g.Server.HoldWatch("b") // it does not observe the pause
		g.Server.Record()
		require.NoError(t, a.Pause(t.Context(), "job"))
		synctest.Wait()
		require.True(t, g.ReadPlan("job").Paused)
		membertest.SleepToMinute(3)
		assert.Empty(t, a.TakeRuns())
		assert.Empty(t, b.TakeRuns())
		release()
		synctest.Wait()
		require.NoError(t, b.Resume(t.Context(), "job"))
		membertest.SleepToMinute(4)
		assert.Equal(t, membertest.OncePerShard(2), membertest.SumRuns(membertest.CountRuns(a.TakeRuns()), membertest.CountRuns(b.TakeRuns())))
		var counts record.Counts
		for _, w := range g.Members {
			counts = counts.Add(g.ReadClaims(w.Incarnation(), "job").Counts)
		}
		assert.Zero(t, counts.Skipped, "fires during the pause are not pending")
	})
	membertest.RunBubble(t, "lets runs in progress continue", func(t *testing.T, g *membertest.Group) {
		ended := make(chan error, 1)
		a := g.StartWorking("a", func(ctx context.Context, r claimer.Run) error {
			err := membertest.WorkFor(90*time.Second)(ctx, r)
			ended <- err
			return err
		}, coordtest.Def("job", 0, 1, ""))
		membertest.SleepToMinute(1)
		require.NoError(t, a.Pause(t.Context(), "job"))
		membertest.SleepToMinute(4)
		require.Len(t, a.TakeRuns(), 1)
		assert.NoError(t, <-ended)
		assert.EqualValues(t, 1, g.ReadClaims(a.Incarnation(), "job").Counts.Succeeded)
	})
}
