package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

// having returns the lines that have all of some texts.
func (b *logbook) having(texts ...string) (out []string) {
	for line := range strings.Lines(b.String()) {
		all := true
		for _, text := range texts {
			all = all && strings.Contains(line, text)
		}
		if all {
			out = append(out, strings.TrimSpace(line))
		}
	}
	return out
}

// above returns the lines at INFO and above.
func (b *logbook) above() (out []string) {
	for _, line := range b.having() {
		if !strings.Contains(line, "level=DEBUG") {
			out = append(out, line)
		}
	}
	return out
}

func TestLog_Member(t *testing.T) {
	bubble(t, "that joins and leaves logs both once, with its jobs and its shards", func(t *testing.T, g *group) {
		a := g.start("a", def("poll", 0, 4, ""), def("settle", 0, 8, ""))
		b := g.start("b", def("poll", 0, 4, ""), def("settle", 0, 8, ""))
		joined := b.log.having("level=INFO", `msg="joined the fleet"`)
		require.Len(t, joined, 1)
		assert.Contains(t, joined[0], "namespace=test group=default instance=b session="+string(b.session()))
		assert.Contains(t, joined[0], `jobs=2 names="poll; settle"`)
		gained := b.log.having("level=INFO", `msg="shards changed"`)
		require.Len(t, gained, 1, "once for all jobs")
		assert.Contains(t, gained[0], `gained=6 lost=0 owned=6 gained_shards="poll `)
		assert.Contains(t, gained[0], "; settle ")
		require.Len(t, a.log.having("level=INFO", `msg="shards changed"`), 2)
		assert.Len(t, a.log.having(`msg="shards changed"`, "gained=0 lost=6 owned=6 lost_shards="), 1)
		until(5)
		assert.Len(t, a.log.above(), 6, "nothing in steady state: %s", strings.Join(a.log.above(), "\n"))
		assert.Len(t, b.log.above(), 2, "nothing in steady state: %s", strings.Join(b.log.above(), "\n"))
		b.goes()
		assert.Len(t, b.log.having("level=INFO", `msg="left the fleet"`), 1)
		assert.Len(t, b.log.having(`msg="shards changed"`, "gained=0 lost=6 owned=0"), 1)
	})
	bubble(t, "logs once why it leads, and why no more", func(t *testing.T, g *group) {
		a := g.start("a", def("job", 0, 2, ""))
		b := g.start("b", def("job", 0, 2, ""))
		c := g.start("c", def("job", 0, 2, ""))
		assert.Len(t, a.log.having("level=INFO", "msg=leading", "term=", `why="there was no leader"`), 1)
		a.goes()
		time.Sleep(time.Second)
		assert.Len(t, a.log.having("level=INFO", `msg="no longer leading"`, "term=", `why="the office was handed to b"`), 1)
		assert.Len(t, b.log.having("level=INFO", "msg=leading", `why="the leader before handed the office over"`), 1)
		g.server.Partition("b")
		time.Sleep(30 * time.Second)
		assert.Len(t, b.log.having("level=INFO", `msg="no longer leading"`, "session lost"), 1)
		assert.Len(t, c.log.having("level=INFO", "msg=leading", `why="the leader before is gone: b"`), 1)
		for _, w := range []*worker{a, b, c} {
			assert.LessOrEqual(t, len(w.log.having("leading")), 2)
		}
	})
	bubble(t, "that cannot reach the store logs it, what it lost, and that it is back", func(t *testing.T, g *group) {
		g.start("a", def("job", 0, 2, ""))
		b := g.startWorking("b", takes(50*time.Second), def("job", 0, 4, ""), def("other", 0, 2, ""))
		until(1)
		heal := g.server.Partition("b")
		cut := time.Now()
		time.Sleep(45 * time.Second)
		heal()
		time.Sleep(5 * time.Second)
		unreachable := b.log.having("level=WARN", `msg="store unreachable"`)
		require.Len(t, unreachable, 1)
		assert.Contains(t, unreachable[0], "since=2000-01-01T00:01:")
		assert.Contains(t, unreachable[0], "safe_until=2000-01-01T00:01:")
		lost := b.log.having("level=WARN", `msg="session lost"`)
		require.Len(t, lost, 1)
		assert.Contains(t, lost[0], "runs=3 shards=3")
		again := b.log.having("level=INFO", `msg="joined again"`)
		require.Len(t, again, 1)
		assert.Contains(t, again[0], "jobs=2")
		_, rest, _ := strings.Cut(again[0], "away=")
		away, err := time.ParseDuration(strings.Fields(rest)[0])
		require.NoError(t, err)
		assert.InDelta(t, 45*time.Second-10*time.Second, away, float64(2*time.Second))
		assert.Less(t, away, time.Since(cut))
		assert.Len(t, b.log.having("level=INFO", `msg="joined the fleet"`), 1)
		assert.LessOrEqual(t, len(b.log.above()), 8, strings.Join(b.log.above(), "\n"))
	})
	bubble(t, "that reaches the store again in time logs for how long it did not", func(t *testing.T, g *group) {
		a := g.start("a", def("job", 0, 2, ""))
		until(1)
		heal := g.server.Partition("a")
		for a.log.count("store unreachable") == 0 {
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(200 * time.Millisecond)
		heal()
		time.Sleep(time.Second)
		assert.Len(t, a.log.having("level=WARN", `msg="store unreachable"`), 1)
		assert.Len(t, a.log.having("level=INFO", `msg="store reachable again"`, "after=2"), 1)
		assert.Empty(t, a.log.having("session lost"))
	})
	bubble(t, "that cannot join logs after a while what it waits for", func(t *testing.T, g *group) {
		heal := g.server.Partition("a")
		a := g.begin(g.worker("a", nil, def("job", 0, 2, "")))
		time.Sleep(4 * time.Second)
		assert.Empty(t, a.log.above())
		time.Sleep(time.Minute)
		assert.Len(t, a.log.having("level=WARN", `msg="joining takes long"`, `waits_for="the store to open a session"`), 1)
		heal()
		time.Sleep(time.Second)
		assert.Len(t, a.log.having(`msg="joined the fleet"`), 1)
	})
}

func TestLog_Plans(t *testing.T) {
	bubble(t, "of 300 jobs are one line at each process when an instance joins or dies", func(t *testing.T, g *group) {
		var defs []string
		for i := range 300 {
			defs = append(defs, def(fmt.Sprintf("job-%03d", i), 0, 3, ""))
		}
		before := map[*worker]int{}
		counted := func(what string, most int) {
			t.Helper()
			for _, w := range g.members {
				lines := w.log.above()
				assert.LessOrEqual(t, len(lines)-before[w], most, "%s at %s: %s", what, w.Instance(), strings.Join(lines[before[w]:], "\n"))
				assert.Greater(t, len(lines), before[w], "%s at %s", what, w.Instance())
				before[w] = len(lines)
				for _, line := range lines {
					assert.Less(t, len(line), 1500)
				}
			}
		}
		g.start("a", defs...)
		time.Sleep(5 * time.Second)
		counted("the first", 4) // leading, joined, planned, shards changed
		g.start("b", defs...)
		time.Sleep(5 * time.Second)
		counted("a second joins", 3)
		until(1)
		c := g.start("c", defs...)
		time.Sleep(5 * time.Second)
		counted("a third joins", 3)
		require.Len(t, c.log.having(`msg="shards changed"`, "gained=300 lost=0 owned=300", `jobs more"`), 1)
		a := g.members[0]
		assert.Len(t, a.log.having("level=INFO", "msg=planned", "jobs=300"), 3)
		assert.Contains(t, a.log.having("level=INFO", "msg=planned", "jobs=300")[0], "job-000 (give 0-2 to a, create); job-001 (")
		assert.GreaterOrEqual(t, len(a.log.having("level=DEBUG", `msg="planned a job"`)), 900, "each job's is at DEBUG")
		assert.NotContains(t, strings.Join(a.log.having("level=INFO", "msg=planned"), ""), string(c.session()), "names, not sessions")
		g.server.Expire("c")
		time.Sleep(5 * time.Second)
		counted("the third is lost and joins again", 6)
	})
	bubble(t, "that cannot be read are logged by who leads and who owns, and when they can be again", func(t *testing.T, g *group) {
		a := g.start("a", def("bad", 0, 4, ""), def("good", 0, 4, ""))
		b := g.start("b", def("bad", 0, 4, ""), def("good", 0, 4, ""))
		c := g.start("c", def("good", 0, 4, ""))
		key := g.keys.Plan("bad")
		readable := g.text(key)
		g.put(key, fmt.Sprintf(`{"format":%d}`, record.Format+1)) // which no leader of this version writes over
		until(3)
		assert.Len(t, a.log.having("level=ERROR", `msg="unreadable record left alone"`, string(key), "remedy="), 1)
		for _, w := range []*worker{a, b} {
			lines := w.log.having("level=ERROR", `msg="plan cannot be read: the job's shards stand still here"`)
			require.Len(t, lines, 1, w.Instance())
			assert.Contains(t, lines[0], "job=bad shards=")
			assert.Contains(t, lines[0], "key="+string(key))
			assert.Contains(t, lines[0], "delete the key")
		}
		assert.Len(t, b.log.having("level=ERROR"), 1)
		assert.Empty(t, c.log.having("level=ERROR"))
		g.put(key, readable)
		time.Sleep(time.Second)
		for _, w := range []*worker{a, b} {
			assert.Len(t, w.log.having("level=INFO", `msg="plan can be read again"`, "job=bad"), 1, w.Instance())
		}
		g.put(key, fmt.Sprintf(`{"format":%d}`, record.Format+2))
		time.Sleep(time.Second)
		g.remove(key)
		time.Sleep(time.Second)
		for _, w := range []*worker{a, b} {
			assert.Len(t, w.log.having("level=ERROR", "stand still here"), 2, w.Instance())
		}
		until(4)
		assert.Equal(t, once(4), onlyOf("bad", 4, a, b))
		assert.Len(t, a.log.having("level=INFO", `msg="plan can be read again"`), 2)
	})
	bubble(t, "that are deleted by hand are logged by who owns shards of them", func(t *testing.T, g *group) {
		a := g.start("a", def("job", 0, 4, ""))
		b := g.start("b", def("job", 0, 4, ""))
		g.server.Delay("a", 0, 2*time.Second) // it writes the plan again, a little later
		g.remove(g.keys.Plan("job"))
		time.Sleep(10 * time.Second)
		lines := b.log.having("level=ERROR", "stand still here", "job=job shards=")
		require.Len(t, lines, 1)
		assert.Contains(t, lines[0], registry.ErrNotFound.Error())
		assert.Len(t, b.log.having(`msg="plan can be read again"`), 1)
		assert.Len(t, a.log.having("msg=planned", "write again a plan that another hand changed"), 1)
	})
	bubble(t, "that always conflict are logged once, and when they no longer do", func(t *testing.T, g *group) {
		a := g.start("a", def("job", 0, 4, ""))
		a.reg.instead(func(txn registry.Txn) error {
			if len(txn.Then) > 0 && below(g.keys.Plans())(txn.Then[0].Key) {
				return &registry.ConflictError{Index: 1}
			}
			return nil
		})
		a.Offer(offering(def("more", 0, 1, "")))
		time.Sleep(4 * time.Second)
		assert.Empty(t, a.log.having("level=WARN"))
		time.Sleep(time.Minute)
		conflicts := a.log.having("level=WARN", `msg="plan conflicts again and again"`)
		require.Len(t, conflicts, 1)
		assert.Contains(t, conflicts[0], "job=more key="+string(g.keys.Plan("more")))
		a.reg.instead(nil)
		time.Sleep(2 * time.Second)
		assert.Len(t, a.log.having("level=INFO", `msg="plan is written again"`, "job=more"), 1)
	})
}

// onlyOf returns how often each shard of a job was begun for the n-th minute.
func onlyOf(job string, n int, all ...*worker) map[int]int {
	var runs []Run
	for _, w := range all {
		runs = append(runs, onlyFire(of(job, w.began()), n)...)
	}
	return shards(runs)
}

func TestLog_Problems(t *testing.T) {
	bubble(t, "of jobs are logged once for all jobs that have the same, and when they are over", func(t *testing.T, g *group) {
		a := g.start("a", def("one", 0, 2, ""), def("two", 0, 2, ""), def("fine", 0, 2, ""))
		require.NoError(t, a.Disable(t.Context(), Scope{Job: "one", Instances: []string{"a"}}))
		require.NoError(t, a.Disable(t.Context(), Scope{Job: "two", Instances: []string{"a"}}))
		until(2)
		problems := a.log.having("level=WARN", `msg="jobs have a problem"`)
		require.Len(t, problems, 1)
		assert.Contains(t, problems[0], `jobs=2 names="one; two" problem="every instance that is there and offers the job is disabled"`)
		require.NoError(t, a.Enable(t.Context(), Scope{Job: "one", Instances: []string{"a"}}))
		time.Sleep(time.Second)
		assert.Len(t, a.log.having("level=INFO", `msg="jobs have no problem any more"`, "jobs=1 names=one"), 1)
		assert.Len(t, a.log.having("level=WARN"), 1)
	})
	bubble(t, "with claims that cannot be read are logged once for each version of the record", func(t *testing.T, g *group) {
		a := g.start("a", def("job", 0, 2, ""), def("other", 0, 2, ""))
		b := g.start("b", def("job", 0, 2, ""), def("other", 0, 2, ""))
		until(1)
		key := g.keys.Claims(b.incarnation(), "job")
		g.server.Partition("b")
		g.spoil(key)
		until(5)
		assert.Len(t, a.log.having("level=ERROR", `msg="unreadable record left alone"`, string(key)), 1)
		assert.Len(t, a.log.having("level=WARN", `msg="jobs have a problem"`, "names=job", string(key)), 1)
	})
}

func TestLog_Shutdown(t *testing.T) {
	bubble(t, "that waits for the store is logged, with the step", func(t *testing.T, g *group) {
		a := g.start("a", def("job", 0, 2, ""))
		resume := g.server.Pause()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		drained := make(chan error, 1)
		go func() { drained <- a.Drain(ctx) }()
		time.Sleep(900 * time.Millisecond)
		assert.Empty(t, a.log.having("shutdown"))
		require.ErrorIs(t, <-drained, context.DeadlineExceeded)
		assert.Len(t, a.log.having("level=WARN", `msg="shutdown waits for the store"`, `waits_for="the record that this instance drains"`), 1)
		a.leave()
		time.Sleep(2 * time.Second)
		assert.Len(t, a.log.having("level=WARN", `msg="shutdown waits for the store"`, `waits_for="the end of the session"`), 1)
		resume()
		<-a.done
	})
	bubble(t, "that waits for runs elsewhere is logged at INFO", func(t *testing.T, g *group) {
		a := g.start("a", def("job", 0, 2, ""))
		b := g.start("b", def("job", 0, 2, ""))
		a.reg.instead(func(txn registry.Txn) error {
			if len(txn.Then) > 0 && below(g.keys.Plans())(txn.Then[0].Key) {
				return &registry.ConflictError{Index: 1}
			}
			return nil
		})
		require.NoError(t, b.Drain(t.Context()))
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		assert.ErrorIs(t, b.Leave(ctx), context.DeadlineExceeded)
		assert.Len(t, b.log.having("level=INFO", `msg="shutdown waits for other instances"`), 1)
		assert.Empty(t, b.log.having("level=WARN"))
	})
	bubble(t, "that takes no time logs nothing of it", func(t *testing.T, g *group) {
		g.start("a", def("job", 0, 2, ""))
		b := g.start("b", def("job", 0, 2, ""))
		b.goes()
		time.Sleep(10 * time.Second)
		assert.Empty(t, b.log.having("shutdown"))
	})
}

func TestOwnership(t *testing.T) {
	bubbled := func(name string, f func(t *testing.T, o *ownership, reg *undecodable, log *logbook)) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := &logbook{}
				reg := &undecodable{Registry: memory.New().Client("a")}
				f(t, newOwnership(reg, slog.New(slog.NewTextHandler(log, nil))), reg, log)
			})
		})
	}
	bubbled("is logged when changes have paused, two seconds after the first at the latest", func(t *testing.T, o *ownership, reg *undecodable, log *logbook) {
		for i := range 30 {
			o.set(fmt.Sprintf("job-%d", i), shardset.Of(i))
			time.Sleep(110 * time.Millisecond)
		}
		time.Sleep(time.Second)
		assert.Len(t, log.having(`msg="shards changed"`), 2)
		assert.Len(t, log.having("gained=19 "), 1)
		assert.Len(t, log.having("owned=30 "), 1)
	})
	bubbled("of many shards is cut", func(t *testing.T, o *ownership, reg *undecodable, log *logbook) {
		var odd shardset.Set
		for i := range 5000 {
			odd.Add(2*i + 1)
		}
		o.set("job", odd)
		o.set("other", odd)
		o.close()
		require.Len(t, log.having("gained=10000", "job 1,3,5", `...; and 1 jobs more"`), 1)
		assert.Less(t, len(log.String()), 700)
	})
	bubbled("that comes and goes is not logged", func(t *testing.T, o *ownership, reg *undecodable, log *logbook) {
		o.set("job", shardset.Of(1, 2))
		o.set("job", shardset.Set{})
		o.close()
		assert.Empty(t, log.having())
	})
	bubbled("is logged at the end at once", func(t *testing.T, o *ownership, reg *undecodable, log *logbook) {
		o.set("job", shardset.Of(1, 2))
		o.close()
		assert.Len(t, log.having(`gained_shards="job 1-2"`), 1)
		time.Sleep(time.Second)
		assert.Len(t, log.having(), 1)
	})
	bubbled("that ends with a plan of another's making names the key and the reason", func(t *testing.T, o *ownership, reg *undecodable, log *logbook) {
		o.set("job", shardset.Of(1, 2))
		o.lose(t.Context(), "job", "plans/job", nil)
		o.lose(t.Context(), "job", "plans/job", nil)
		o.lose(t.Context(), "another", "plans/another", errors.New("not owned"))
		synctest.Wait()
		lines := log.having("level=ERROR")
		require.Len(t, lines, 1)
		assert.Contains(t, lines[0], "stand still here")
		assert.Contains(t, lines[0], "key=plans/job")
		assert.Contains(t, lines[0], registry.ErrForeign.Error())
		o.close()
	})
	bubbled("that ends with a plan which is there again by then is a warning", func(t *testing.T, o *ownership, reg *undecodable, log *logbook) {
		_, err := registry.Apply(t.Context(), reg, registry.Txn{Then: []registry.Op{registry.Create("plans/job", nil)}})
		require.NoError(t, err)
		o.set("job", shardset.Of(1, 2))
		o.lose(t.Context(), "job", "plans/job", nil)
		synctest.Wait()
		assert.Len(t, log.having("level=WARN", "deleted by another hand", "job=job shards=1-2"), 1)
		o.set("job", shardset.Of(1, 2))
		assert.Len(t, log.having(`msg="plan can be read again"`), 1)
		o.close()
	})
}

// undecodable is a registry that can decode no value, until a transaction has been applied.
type undecodable struct {
	registry.Registry
	applied bool
}

func (u *undecodable) Txn(ctx context.Context, t registry.Txn) (registry.Rev, error) {
	u.applied = true
	return u.Registry.Txn(ctx, t)
}

func (u *undecodable) Get(ctx context.Context, key registry.Key, o registry.ReadOptions) (registry.Entry, error) {
	if u.applied {
		return u.Registry.Get(ctx, key, o)
	}
	return registry.Entry{}, fmt.Errorf("get %s: %w", key, registry.ErrForeign)
}
