package member_test

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/leader"
	"github.com/rota-dev/rota/internal/group/membertest"
	"github.com/rota-dev/rota/registry"
)

func TestRestore_Plan(t *testing.T) {
	plan := func(g *membertest.Group) registry.Key { return g.Keys.Plan("job") }
	for what, act := range map[string]func(g *membertest.Group, old string){
		"that was deleted":                  func(g *membertest.Group, _ string) { g.RemoveRecord(plan(g)) },
		"that was overwritten with garbage": func(g *membertest.Group, _ string) { g.PutRecord(plan(g), "spoilt") },
		"that was deleted after its definition was deleted and restored": func(g *membertest.Group, _ string) {
			membertest.SleepToMinute(2) // so that there are claims to lose
			g.RemoveRecord(g.Keys.Job("job"))
			time.Sleep(time.Second)
			g.RemoveRecord(plan(g))
		},
		"that was rolled back": func(g *membertest.Group, old string) { g.PutRecord(plan(g), old) },
		"whose owners are absurd": func(g *membertest.Group, old string) {
			g.PutRecord(plan(g), strings.Replace(old, `"owners":{`, `"owners":{"":"5000","x":"",`, 1))
		},
	} {
		membertest.RunBubble(t, what+" is written again by its leader", func(t *testing.T, g *membertest.Group) {
			a := g.Start("a", fourShards)
			old := g.GetText(plan(g))
			b := g.Start("b", fourShards)
			want := g.ReadOwners("job")
			require.Len(t, want, 2)
			act(g, old)
			time.Sleep(time.Second)
			synctest.Wait()
			assert.Equal(t, want, g.ReadOwners("job"))
			assert.Equal(t, 1, a.Log.Count("another writer changed or deleted a plan"))
			assert.Zero(t, b.Log.Count("another writer changed or deleted a plan"), "it does not lead")
			g.RequireEachRuns(a, b)
		})
	}
	membertest.RunBubble(t, "that was deleted stays so while no instance offers the job", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", fourShards)
		a.Withdraw("job")
		time.Sleep(time.Second)
		g.RemoveRecord(plan(g))
		time.Sleep(time.Minute)
		_, ok := g.GetRecord(plan(g))
		assert.False(t, ok)
		assert.Zero(t, a.Log.Count("another writer"))
	})
	membertest.RunBubble(t, "commits of the leader itself do not count as record edits", func(t *testing.T, g *membertest.Group) {
		a, b := g.Start("a", fourShards), g.Start("b", fourShards)
		g.Server.LoseReply("a", 3)
		c := g.Start("c", fourShards)
		time.Sleep(time.Minute)
		for _, w := range []*membertest.Worker{a, b, c} {
			assert.Zero(t, w.Log.Count("another writer"))
		}
	})
	for what, lose := range map[string]func(t *testing.T, g *membertest.Group, leader, other *membertest.Worker){
		"in a newer format that was deleted": func(_ *testing.T, g *membertest.Group, _, _ *membertest.Worker) {
			g.PutRecord(plan(g), `{"format":99,"job":"job"}`)
			time.Sleep(time.Second)
			g.RemoveRecord(plan(g))
		},
		"that was deleted while the office of the term was vacant": func(t *testing.T, g *membertest.Group, leader, _ *membertest.Worker) {
			leader.Reg.BeforeTxn(membertest.OnFirstWrite(membertest.IsKey(g.Keys.Seat()), func() {
				stored, _ := g.GetRecord(plan(g))
				_, err := g.NewEditor().Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Delete(stored.Key, stored.Modified)}})
				assert.NoError(t, err)
				time.Sleep(time.Second) // so that its watch delivers the deletion before it leads
			}))
			g.RemoveRecord(g.Keys.Seat())
			time.Sleep(time.Second)
		},
		"that was deleted, as its definition was spoilt, while nobody led": func(_ *testing.T, g *membertest.Group, leader, other *membertest.Worker) {
			spoil := sync.OnceFunc(func() {
				g.RemoveRecord(plan(g))
				g.PutRecord(g.Keys.Job("job"), "spoilt")
			})
			leader.Reg.BeforeTxn(membertest.OnFirstWrite(membertest.IsKey(g.Keys.Leader()), spoil))
			other.Reg.BeforeTxn(membertest.OnFirstWrite(membertest.IsKey(g.Keys.Leader()), spoil))
			heal := g.Server.Partition("a") // it would restore the plan until its term is over
			g.Server.Expire("a")
			time.Sleep(healing)
			heal()
			g.PutRecord(g.Keys.Job("job"), `{"name":"job","revision":1,"shards":4}`)
		},
	} {
		membertest.RunBubble(t, what+" begins in a later epoch than its claims, although the definition was stored during the term", func(t *testing.T, g *membertest.Group) {
			a, b := g.Start("a", fourShards), g.Start("b", fourShards)
			g.PutRecord(g.Keys.Job("job"), `{"name":"job","revision":1,"shards":4}`)
			membertest.SleepToMinute(2)
			require.Equal(t, 2, g.ReadPlan("job").Last().Number)
			lose(t, g, a, b)
			time.Sleep(time.Second)
			synctest.Wait()
			term, _ := g.GetRecord(g.Keys.Leader())
			definition, _ := g.GetRecord(g.Keys.Job("job"))
			require.Less(t, term.Modified.Seq, definition.Modified.Seq)
			assert.Greater(t, g.ReadPlan("job").Last().Number, 2)
			g.RequireEachRuns(a, b)
		})
	}
	membertest.RunBubble(t, "that was deleted without a leader begins after all claims, and leaves runs in place", func(t *testing.T, g *membertest.Group) {
		a := g.StartWorking("a", membertest.WorkFor(50*time.Second), fourShards)
		b := g.StartWorking("b", membertest.WorkFor(50*time.Second), fourShards)
		g.PutRecord(g.Keys.Job("job"), `{"name":"job","revision":1,"shards":4}`)
		membertest.SleepToMinute(2)
		require.Equal(t, 2, g.ReadPlan("job").Last().Number)
		running := g.ReadClaims(b.Incarnation(), "job").Running.Shards()
		require.Equal(t, 2, running.Len())
		deleting := membertest.OnFirstWrite(membertest.IsKey(g.Keys.Leader()), func() {
			e, _ := g.GetRecord(plan(g))
			_, err := g.NewEditor().Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Delete(e.Key, e.Modified)}})
			assert.NoError(t, err)
			time.Sleep(time.Millisecond) // until it is observed: a leader that learns of it in its term restores the plan as it was
		})
		a.Reg.BeforeTxn(deleting)
		b.Reg.BeforeTxn(deleting)
		heal := g.Server.Partition("a") // it would restore the plan until its term is over
		g.Server.Expire("a")
		time.Sleep(time.Second)
		synctest.Wait()
		heal()
		p := g.ReadPlan("job")
		assert.Greater(t, p.Last().Number, 2)
		assert.True(t, running.Minus(p.Owners[b.Incarnation()]).IsZero(), "%v runs %s and owns %s", b, running, p.Owners[b.Incarnation()])
		time.Sleep(3 * time.Minute)
		g.RequireEachRuns(a, b)
	})
}

func TestRestore_Definition(t *testing.T) {
	key := func(g *membertest.Group) registry.Key { return g.Keys.Job("job") }
	newer := `{"name":"job","revision":2,"shards":4}`
	for what, act := range map[string]func(g *membertest.Group, old string){
		"that was deleted":     func(g *membertest.Group, _ string) { g.RemoveRecord(key(g)) },
		"that was rolled back": func(g *membertest.Group, old string) { g.PutRecord(key(g), old) },
	} {
		membertest.RunBubble(t, what+" is stored again", func(t *testing.T, g *membertest.Group) {
			a := g.Start("a", fourShards)
			old := g.GetText(key(g))
			g.Start("b", newer)
			time.Sleep(time.Minute)
			require.Equal(t, newer, g.GetText(key(g)))
			act(g, old)
			time.Sleep(time.Second)
			assert.Equal(t, newer, g.GetText(key(g)))
			assert.Equal(t, 1, a.Log.Count("restored the one in force"))
			assert.Equal(t, 2, g.ReadPlan("job").Last().Number)
		})
	}
	membertest.RunBubble(t, "that was deleted stays so while no instance offers the job", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", fourShards)
		a.Withdraw("job")
		time.Sleep(time.Second)
		g.RemoveRecord(key(g))
		time.Sleep(time.Minute)
		_, ok := g.GetRecord(key(g))
		assert.False(t, ok)
	})
	membertest.RunBubble(t, "that cannot be read stays, as the plan's problem, and the one in force stays in force", func(t *testing.T, g *membertest.Group) {
		a, b := g.Start("a", fourShards), g.Start("b", fourShards)
		was := g.GetText(key(g))
		g.SpoilRecord(key(g))
		time.Sleep(time.Second)
		assert.Equal(t, string(key(g))+" cannot be read", g.ReadPlan("job").Problem)
		g.RequireEachRuns(a, b)
		g.PutRecord(key(g), was)
		time.Sleep(time.Second)
		assert.Empty(t, g.ReadPlan("job").Problem)
	})
	membertest.RunBubble(t, "an unreadable control record is the plan's problem", func(t *testing.T, g *membertest.Group) {
		g.Start("a", fourShards)
		g.PutRecord(g.Keys.Control("job"), "spoilt")
		time.Sleep(time.Second)
		assert.Equal(t, string(g.Keys.Control("job"))+" cannot be read", g.ReadPlan("job").Problem)
	})
}

func TestOperator_TriggersRunAfterTheirCounterWasDeleted(t *testing.T) {
	membertest.RunBubble(t, "job", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", fourShards)
		o, _ := g.NewOperator()
		for range 3 {
			_, err := o.Trigger(t.Context(), "job", "", nil)
			require.NoError(t, err)
			time.Sleep(time.Second)
		}
		time.Sleep(2 * leader.RegularCheck) // the triggers are cleared
		g.RemoveRecord(g.Keys.Control("job"))
		a.TakeRuns()
		_, err := o.Trigger(t.Context(), "job", "again", nil)
		require.NoError(t, err)
		time.Sleep(time.Second)
		n := 0
		for _, r := range a.TakeRuns() {
			if r.Param == "again" {
				n++
			}
		}
		assert.Equal(t, 4, n)
	})
}
