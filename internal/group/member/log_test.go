package member_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/claimer"
	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/group/membertest"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry"
)

func TestLog_Member(t *testing.T) {
	membertest.RunBubble(t, "that joins and leaves logs each once, with jobs and shards", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("poll", 0, 4, ""), coordtest.Def("settle", 0, 8, ""))
		b := g.Start("b", coordtest.Def("poll", 0, 4, ""), coordtest.Def("settle", 0, 8, ""))
		joined := b.Log.LinesWith("level=INFO", `msg="joined the fleet"`)
		require.Len(t, joined, 1)
		assert.Contains(t, joined[0], "namespace=test group=default instance=b session="+string(b.Session()))
		assert.Contains(t, joined[0], `jobs=2 names="poll; settle"`)
		gained := b.Log.LinesWith("level=INFO", `msg="shards changed"`)
		require.Len(t, gained, 1, "once for all jobs")
		assert.Contains(t, gained[0], `gained=6 lost=0 owned=6 gained_shards="poll `)
		assert.Contains(t, gained[0], "; settle ")
		require.Len(t, a.Log.LinesWith("level=INFO", `msg="shards changed"`), 2)
		assert.Len(t, a.Log.LinesWith(`msg="shards changed"`, "gained=0 lost=6 owned=6 lost_shards="), 1)
		membertest.SleepToMinute(5)
		assert.Len(t, a.Log.InfoLines(), 6, "nothing in steady state: %s", strings.Join(a.Log.InfoLines(), "\n"))
		assert.Len(t, b.Log.InfoLines(), 2, "nothing in steady state: %s", strings.Join(b.Log.InfoLines(), "\n"))
		b.Shutdown()
		assert.Len(t, b.Log.LinesWith("level=INFO", `msg="left the fleet"`), 1)
		assert.Len(t, b.Log.LinesWith(`msg="shards changed"`, "gained=0 lost=6 owned=0"), 1)
	})
	membertest.RunBubble(t, "logs once why it leads, and why it no longer does", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 2, ""))
		b := g.Start("b", coordtest.Def("job", 0, 2, ""))
		c := g.Start("c", coordtest.Def("job", 0, 2, ""))
		assert.Len(t, a.Log.LinesWith("level=INFO", "msg=leading", "term=", `why="there was no leader"`), 1)
		a.Shutdown()
		time.Sleep(time.Second)
		assert.Len(t, a.Log.LinesWith("level=INFO", `msg="no longer leading"`, "term=", `why="handed over to b"`), 1)
		assert.Len(t, b.Log.LinesWith("level=INFO", "msg=leading", `why="the previous leader resigned and named this instance"`), 1)
		g.Server.Partition("b")
		time.Sleep(30 * time.Second)
		assert.Len(t, b.Log.LinesWith("level=INFO", `msg="no longer leading"`, "session lost"), 1)
		assert.Len(t, c.Log.LinesWith("level=INFO", "msg=leading", `why="the session of the previous leader expired or was closed: b"`), 1)
		for _, w := range []*membertest.Worker{a, b, c} {
			assert.LessOrEqual(t, len(w.Log.LinesWith("leading")), 2)
		}
	})
	membertest.RunBubble(t, "that cannot reach the store logs the outage, the lost session, and the return", func(t *testing.T, g *membertest.Group) {
		g.Start("a", coordtest.Def("job", 0, 2, ""))
		b := g.StartWorking("b", membertest.WorkFor(50*time.Second), coordtest.Def("job", 0, 4, ""), coordtest.Def("other", 0, 2, ""))
		membertest.SleepToMinute(1)
		heal := g.Server.Partition("b")
		cut := time.Now()
		time.Sleep(45 * time.Second)
		heal()
		time.Sleep(5 * time.Second)
		unreachable := b.Log.LinesWith("level=WARN", `msg="store unreachable"`)
		require.Len(t, unreachable, 1)
		assert.Contains(t, unreachable[0], "since=2000-01-01T00:01:")
		assert.Contains(t, unreachable[0], "safe_until=2000-01-01T00:01:")
		lost := b.Log.LinesWith("level=WARN", `msg="session lost"`)
		require.Len(t, lost, 1)
		assert.Contains(t, lost[0], "runs=3 shards=3")
		again := b.Log.LinesWith("level=INFO", `msg="joined again"`)
		require.Len(t, again, 1)
		assert.Contains(t, again[0], "jobs=2")
		_, rest, _ := strings.Cut(again[0], "away=")
		away, err := time.ParseDuration(strings.Fields(rest)[0])
		require.NoError(t, err)
		assert.InDelta(t, 45*time.Second-10*time.Second, away, float64(2*time.Second))
		assert.Less(t, away, time.Since(cut))
		assert.Len(t, b.Log.LinesWith("level=INFO", `msg="joined the fleet"`), 1)
		assert.LessOrEqual(t, len(b.Log.InfoLines()), 8, strings.Join(b.Log.InfoLines(), "\n"))
	})
	membertest.RunBubble(t, "that reaches the store again in time logs the duration of the outage", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 2, ""))
		membertest.SleepToMinute(1)
		heal := g.Server.Partition("a")
		for a.Log.Count("store unreachable") == 0 {
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(200 * time.Millisecond)
		heal()
		time.Sleep(time.Second)
		assert.Len(t, a.Log.LinesWith("level=WARN", `msg="store unreachable"`), 1)
		assert.Len(t, a.Log.LinesWith("level=INFO", `msg="store reachable again"`, "after=2"), 1)
		assert.Empty(t, a.Log.LinesWith("session lost"))
	})
	membertest.RunBubble(t, "that cannot join logs the step that it waits for", func(t *testing.T, g *membertest.Group) {
		heal := g.Server.Partition("a")
		a := g.RunWorker(g.NewWorker("a", nil, coordtest.Def("job", 0, 2, "")))
		time.Sleep(4 * time.Second)
		assert.Empty(t, a.Log.InfoLines())
		time.Sleep(time.Minute)
		assert.Len(t, a.Log.LinesWith("level=WARN", `msg="joining takes long"`, `waits_for="the store to open a session"`), 1)
		heal()
		time.Sleep(time.Second)
		assert.Len(t, a.Log.LinesWith(`msg="joined the fleet"`), 1)
	})
}

func TestLog_Plans(t *testing.T) {
	membertest.RunBubble(t, "of 300 jobs are one line of each process when an instance joins or crashes", func(t *testing.T, g *membertest.Group) {
		var defs []string
		for i := range 300 {
			defs = append(defs, coordtest.Def(fmt.Sprintf("job-%03d", i), 0, 3, ""))
		}
		before := map[*membertest.Worker]int{}
		counted := func(what string, most int) {
			t.Helper()
			for _, w := range g.Members {
				lines := w.Log.InfoLines()
				assert.LessOrEqual(t, len(lines)-before[w], most, "%s at %s: %s", what, w.Instance(), strings.Join(lines[before[w]:], "\n"))
				assert.Greater(t, len(lines), before[w], "%s at %s", what, w.Instance())
				before[w] = len(lines)
				for _, line := range lines {
					assert.Less(t, len(line), 1500)
				}
			}
		}
		g.Start("a", defs...)
		time.Sleep(5 * time.Second)
		counted("the first", 4) // leading, joined, planned, shards changed
		g.Start("b", defs...)
		time.Sleep(5 * time.Second)
		counted("a second joins", 3)
		membertest.SleepToMinute(1)
		c := g.Start("c", defs...)
		time.Sleep(5 * time.Second)
		counted("a third joins", 3)
		require.Len(t, c.Log.LinesWith(`msg="shards changed"`, "gained=300 lost=0 owned=300", `jobs more"`), 1)
		a := g.Members[0]
		assert.Len(t, a.Log.LinesWith("level=INFO", "msg=\"plans changed\"", "jobs=300"), 3)
		assert.Contains(t, a.Log.LinesWith("level=INFO", "msg=\"plans changed\"", "jobs=300")[0], "job-000 (assign 0-2 to a, create); job-001 (")
		assert.GreaterOrEqual(t, len(a.Log.LinesWith("level=DEBUG", `msg="plan written"`)), 900, "each job's line is at DEBUG")
		assert.NotContains(t, strings.Join(a.Log.LinesWith("level=INFO", "msg=\"plans changed\""), ""), string(c.Session()), "names, not sessions")
		g.Server.Expire("c")
		time.Sleep(5 * time.Second)
		counted("the third is lost and joins again", 6)
	})
	membertest.RunBubble(t, "that cannot be read are logged by leader and owners, as is their repair", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("bad", 0, 4, ""), coordtest.Def("good", 0, 4, ""))
		b := g.Start("b", coordtest.Def("bad", 0, 4, ""), coordtest.Def("good", 0, 4, ""))
		c := g.Start("c", coordtest.Def("good", 0, 4, ""))
		key := g.Keys.Plan("bad")
		readable := g.GetText(key)
		g.PutRecord(key, fmt.Sprintf(`{"format":%d}`, record.Format+1)) // no leader of this version overwrites it
		membertest.SleepToMinute(3)
		assert.Len(t, a.Log.LinesWith("level=ERROR", `msg="record cannot be read; rota leaves it as it is"`, string(key), "remedy="), 1)
		for _, w := range []*membertest.Worker{a, b} {
			lines := w.Log.LinesWith("level=ERROR", `msg="plan cannot be read; this instance claims none of the job's shards"`)
			require.Len(t, lines, 1, w.Instance())
			assert.Contains(t, lines[0], "job=bad shards=")
			assert.Contains(t, lines[0], "key="+string(key))
			assert.Contains(t, lines[0], "delete the key")
		}
		assert.Len(t, b.Log.LinesWith("level=ERROR"), 1)
		assert.Empty(t, c.Log.LinesWith("level=ERROR"))
		g.PutRecord(key, readable)
		time.Sleep(time.Second)
		for _, w := range []*membertest.Worker{a, b} {
			assert.Len(t, w.Log.LinesWith("level=INFO", `msg="plan can be read again"`, "job=bad"), 1, w.Instance())
		}
		g.PutRecord(key, fmt.Sprintf(`{"format":%d}`, record.Format+2))
		time.Sleep(time.Second)
		g.RemoveRecord(key)
		time.Sleep(time.Second)
		for _, w := range []*membertest.Worker{a, b} {
			assert.Len(t, w.Log.LinesWith("level=ERROR", "claims none of the job's shards"), 2, w.Instance())
		}
		membertest.SleepToMinute(4)
		assert.Equal(t, membertest.OncePerShard(4), countRunsOfMinute("bad", 4, a, b))
		assert.Len(t, a.Log.LinesWith("level=INFO", `msg="plan can be read again"`), 2)
	})
	membertest.RunBubble(t, "that are deleted are no ERROR of the owners of their shards, and a WARN of the leader that restores them", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 4, ""))
		b := g.Start("b", coordtest.Def("job", 0, 4, ""))
		g.Server.Delay("a", 0, 2*time.Second) // so that the leader restores the plan later
		g.RemoveRecord(g.Keys.Plan("job"))
		time.Sleep(10 * time.Second)
		assert.Len(t, b.Log.LinesWith("level=INFO", `msg="plan was deleted; this instance claims none of the job's shards"`, "job=job shards="), 1)
		assert.Empty(t, b.Log.LinesWith("level=ERROR"))
		assert.Len(t, a.Log.LinesWith("level=WARN", "another writer changed or deleted a plan; restoring it"), 1)
		assert.Len(t, b.Log.LinesWith(`msg="plan can be read again"`), 1)
		assert.Len(t, a.Log.LinesWith("msg=\"plans changed\"", "restore the plan, which another writer changed"), 1)
	})
	membertest.RunBubble(t, "that always conflict are logged once, as is the end of the conflicts", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 4, ""))
		a.Reg.ReplaceTxn(func(txn registry.Txn) error {
			if len(txn.Then) > 0 && membertest.IsBelow(g.Keys.Plans())(txn.Then[0].Key) {
				return &registry.ConflictError{Index: 1}
			}
			return nil
		})
		a.Offer(membertest.DefinitionsByName(coordtest.Def("more", 0, 1, "")))
		time.Sleep(4 * time.Second)
		assert.Empty(t, a.Log.LinesWith("level=WARN"))
		time.Sleep(time.Minute)
		conflicts := a.Log.LinesWith("level=WARN", `msg="every write of a plan conflicts"`)
		require.Len(t, conflicts, 1)
		assert.Contains(t, conflicts[0], "job=more key="+string(g.Keys.Plan("more")))
		a.Reg.ReplaceTxn(nil)
		time.Sleep(2 * time.Second)
		assert.Len(t, a.Log.LinesWith("level=INFO", `msg="plan can be written again"`, "job=more"), 1)
	})
}

// countRunsOfMinute returns the runs of a job for the fire at the n-th minute, by shard.
func countRunsOfMinute(job string, n int, all ...*membertest.Worker) map[int]int {
	var runs []claimer.Run
	for _, w := range all {
		runs = append(runs, selectFire(selectJob(job, w.TakeRuns()), n)...)
	}
	return membertest.CountRuns(runs)
}

func TestLog_Problems(t *testing.T) {
	membertest.RunBubble(t, "are logged once for all jobs that have the same one, and when they are over", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("one", 0, 2, ""), coordtest.Def("two", 0, 2, ""), coordtest.Def("fine", 0, 2, ""))
		require.NoError(t, a.Disable(t.Context(), operator.Scope{Job: "one", Instances: []string{"a"}}))
		require.NoError(t, a.Disable(t.Context(), operator.Scope{Job: "two", Instances: []string{"a"}}))
		membertest.SleepToMinute(2)
		problems := a.Log.LinesWith("level=WARN", `msg="jobs have a problem"`)
		require.Len(t, problems, 1)
		assert.Contains(t, problems[0], `jobs=2 names="one; two" problem="every live instance that offers the job is disabled"`)
		require.NoError(t, a.Enable(t.Context(), operator.Scope{Job: "one", Instances: []string{"a"}}))
		time.Sleep(time.Second)
		assert.Len(t, a.Log.LinesWith("level=INFO", `msg="problem of jobs is over"`, "jobs=1 names=one"), 1)
		assert.Len(t, a.Log.LinesWith("level=WARN"), 1)
	})
	membertest.RunBubble(t, "of unreadable claims are logged once for each version of the record", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 2, ""), coordtest.Def("other", 0, 2, ""))
		b := g.Start("b", coordtest.Def("job", 0, 2, ""), coordtest.Def("other", 0, 2, ""))
		membertest.SleepToMinute(1)
		key := g.Keys.Claims(b.Incarnation(), "job")
		g.Server.Partition("b")
		g.SpoilRecord(key)
		membertest.SleepToMinute(5)
		assert.Len(t, a.Log.LinesWith("level=ERROR", `msg="record cannot be read; rota leaves it as it is"`, string(key)), 1)
		assert.Len(t, a.Log.LinesWith("level=WARN", `msg="jobs have a problem"`, "names=job", string(key)), 1)
	})
}

func TestLog_Shutdown(t *testing.T) {
	membertest.RunBubble(t, "that waits for the store is logged with the step", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 2, ""))
		resume := g.Server.Pause()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		drained := make(chan error, 1)
		go func() { drained <- a.Drain(ctx) }()
		time.Sleep(900 * time.Millisecond)
		assert.Empty(t, a.Log.LinesWith("shutdown"))
		require.ErrorIs(t, <-drained, context.DeadlineExceeded)
		assert.Len(t, a.Log.LinesWith("level=WARN", `msg="shutdown waits for the store"`, `waits_for="the record that this instance drains"`), 1)
		a.Abandon()
		time.Sleep(2 * time.Second)
		assert.Len(t, a.Log.LinesWith("level=WARN", `msg="shutdown waits for the store"`, `waits_for="the end of the session"`), 1)
		resume()
		<-a.Done
	})
	membertest.RunBubble(t, "that waits for runs of other instances is logged at INFO", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 2, ""))
		b := g.Start("b", coordtest.Def("job", 0, 2, ""))
		a.Reg.ReplaceTxn(func(txn registry.Txn) error {
			if len(txn.Then) > 0 && membertest.IsBelow(g.Keys.Plans())(txn.Then[0].Key) {
				return &registry.ConflictError{Index: 1}
			}
			return nil
		})
		require.NoError(t, b.Drain(t.Context()))
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		assert.ErrorIs(t, b.Leave(ctx), context.DeadlineExceeded)
		assert.Len(t, b.Log.LinesWith("level=INFO", `msg="shutdown waits for other instances"`), 1)
		assert.Empty(t, b.Log.LinesWith("level=WARN"))
	})
	membertest.RunBubble(t, "that takes no time is not logged", func(t *testing.T, g *membertest.Group) {
		g.Start("a", coordtest.Def("job", 0, 2, ""))
		b := g.Start("b", coordtest.Def("job", 0, 2, ""))
		b.Shutdown()
		time.Sleep(10 * time.Second)
		assert.Empty(t, b.Log.LinesWith("shutdown"))
	})
}
