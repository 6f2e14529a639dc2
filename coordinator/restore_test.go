package coordinator

import (
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/registry"
)

func TestRestore_Plan(t *testing.T) {
	plan := func(g *group) registry.Key { return g.keys.Plan("job") }
	for what, act := range map[string]func(g *group, old string){
		"that was deleted":                  func(g *group, _ string) { g.remove(plan(g)) },
		"that was overwritten with garbage": func(g *group, _ string) { g.put(plan(g), "spoilt") },
		"that was rolled back":              func(g *group, old string) { g.put(plan(g), old) },
		"whose owners are absurd": func(g *group, old string) {
			g.put(plan(g), strings.Replace(old, `"owners":{`, `"owners":{"":"5000","x":"",`, 1))
		},
	} {
		bubble(t, what+" is written again by its leader", func(t *testing.T, g *group) {
			a := g.start("a", fourShards)
			old := g.text(plan(g))
			b := g.start("b", fourShards)
			want := g.owners("job")
			require.Len(t, want, 2)
			act(g, old)
			time.Sleep(time.Second)
			synctest.Wait()
			assert.Equal(t, want, g.owners("job"))
			assert.Equal(t, 1, a.log.count("another hand changed or deleted a plan"))
			assert.Zero(t, b.log.count("another hand changed or deleted a plan"), "it does not lead")
			g.requireRuns(a, b)
		})
	}
	bubble(t, "that was deleted stays so while no instance offers the job", func(t *testing.T, g *group) {
		a := g.start("a", fourShards)
		a.Withdraw("job")
		time.Sleep(time.Second)
		g.remove(plan(g))
		time.Sleep(time.Minute)
		_, ok := g.get(plan(g))
		assert.False(t, ok)
		assert.Zero(t, a.log.count("another hand"))
	})
	bubble(t, "commits of the leader itself are not taken for another hand's", func(t *testing.T, g *group) {
		a, b := g.start("a", fourShards), g.start("b", fourShards)
		g.server.LoseReply("a", 3)
		c := g.start("c", fourShards)
		time.Sleep(time.Minute)
		for _, w := range []*worker{a, b, c} {
			assert.Zero(t, w.log.count("another hand"))
		}
	})
	for what, lose := range map[string]func(t *testing.T, g *group, leader, other *worker){
		"in a newer format that was deleted": func(_ *testing.T, g *group, _, _ *worker) {
			g.put(plan(g), `{"format":99,"job":"job"}`)
			time.Sleep(time.Second)
			g.remove(plan(g))
		},
		"that was deleted while the office of the term was vacant": func(t *testing.T, g *group, leader, _ *worker) {
			leader.reg.before(writing(is(g.keys.Present()), func() {
				stored, _ := g.get(plan(g))
				_, err := g.client().Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Delete(stored.Key, stored.Modified)}})
				assert.NoError(t, err)
				time.Sleep(time.Second) // its watch delivers the deletion before it leads
			}))
			g.remove(g.keys.Present())
			time.Sleep(time.Second)
		},
		"that was deleted, as its definition was spoilt, while nobody led": func(_ *testing.T, g *group, leader, other *worker) {
			spoil := sync.OnceFunc(func() {
				g.remove(plan(g))
				g.put(g.keys.Job("job"), "spoilt")
			})
			leader.reg.before(writing(is(g.keys.Leader()), spoil))
			other.reg.before(writing(is(g.keys.Leader()), spoil))
			heal := g.server.Partition("a") // until its term is over, it would write the plan again
			g.server.Expire("a")
			time.Sleep(healing)
			heal()
			g.put(g.keys.Job("job"), `{"name":"job","revision":1,"shards":4}`)
		},
	} {
		bubble(t, what+" begins in a later generation than its claims, though the definition was stored during the term", func(t *testing.T, g *group) {
			a, b := g.start("a", fourShards), g.start("b", fourShards)
			g.put(g.keys.Job("job"), `{"name":"job","revision":1,"shards":4}`)
			until(2)
			require.Equal(t, 2, g.plan("job").Last().Gen)
			lose(t, g, a, b)
			time.Sleep(time.Second)
			synctest.Wait()
			term, _ := g.get(g.keys.Leader())
			definition, _ := g.get(g.keys.Job("job"))
			require.Less(t, term.Modified.Seq, definition.Modified.Seq)
			assert.Greater(t, g.plan("job").Last().Gen, 2)
			g.requireRuns(a, b)
		})
	}
	bubble(t, "that was deleted while nobody led begins after all that was claimed, and leaves runs where they are", func(t *testing.T, g *group) {
		a := g.startWorking("a", takes(50*time.Second), fourShards)
		b := g.startWorking("b", takes(50*time.Second), fourShards)
		g.put(g.keys.Job("job"), `{"name":"job","revision":1,"shards":4}`)
		until(2)
		require.Equal(t, 2, g.plan("job").Last().Gen)
		running := g.claims(b.incarnation(), "job").Running.Shards()
		require.Equal(t, 2, running.Len())
		deleting := writing(is(g.keys.Leader()), func() {
			e, _ := g.get(plan(g))
			_, err := g.client().Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Delete(e.Key, e.Modified)}})
			assert.NoError(t, err)
		})
		a.reg.before(deleting)
		b.reg.before(deleting)
		heal := g.server.Partition("a") // until its term is over, it would write the plan again
		g.server.Expire("a")
		time.Sleep(time.Second)
		synctest.Wait()
		heal()
		p := g.plan("job")
		assert.Greater(t, p.Last().Gen, 2)
		assert.True(t, running.Minus(p.Owners[b.incarnation()]).IsZero(), "%v runs %s and owns %s", b, running, p.Owners[b.incarnation()])
		time.Sleep(3 * time.Minute)
		g.requireRuns(a, b)
	})
}

// requireRuns requires that each of four shards runs once a minute.
func (g *group) requireRuns(a, b *worker) {
	g.t.Helper()
	a.began()
	b.began()
	time.Sleep(time.Minute)
	synctest.Wait()
	require.Equal(g.t, once(4), merged(shards(a.began()), shards(b.began())))
}

func TestRestore_Definition(t *testing.T) {
	key := func(g *group) registry.Key { return g.keys.Job("job") }
	newer := `{"name":"job","revision":2,"shards":4}`
	for what, act := range map[string]func(g *group, old string){
		"that was deleted":     func(g *group, _ string) { g.remove(key(g)) },
		"that was rolled back": func(g *group, old string) { g.put(key(g), old) },
	} {
		bubble(t, what+" is stored again", func(t *testing.T, g *group) {
			a := g.start("a", fourShards)
			old := g.text(key(g))
			g.start("b", newer)
			time.Sleep(time.Minute)
			require.Equal(t, newer, g.text(key(g)))
			act(g, old)
			time.Sleep(time.Second)
			assert.Equal(t, newer, g.text(key(g)))
			assert.Equal(t, 1, a.log.count("the one in force is stored again"))
			assert.Equal(t, 2, g.plan("job").Last().Gen)
		})
	}
	bubble(t, "that was deleted stays so while no instance offers the job", func(t *testing.T, g *group) {
		a := g.start("a", fourShards)
		a.Withdraw("job")
		time.Sleep(time.Second)
		g.remove(key(g))
		time.Sleep(time.Minute)
		_, ok := g.get(key(g))
		assert.False(t, ok)
	})
	bubble(t, "that cannot be read stays, is the plan's problem, and the one in force goes on", func(t *testing.T, g *group) {
		a, b := g.start("a", fourShards), g.start("b", fourShards)
		was := g.text(key(g))
		g.spoil(key(g))
		time.Sleep(time.Second)
		assert.Equal(t, string(key(g))+" cannot be read", g.plan("job").Problem)
		g.requireRuns(a, b)
		g.put(key(g), was)
		time.Sleep(time.Second)
		assert.Empty(t, g.plan("job").Problem)
	})
	bubble(t, "an intent that cannot be read is the plan's problem", func(t *testing.T, g *group) {
		g.start("a", fourShards)
		g.put(g.keys.Control("job"), "spoilt")
		time.Sleep(time.Second)
		assert.Equal(t, string(g.keys.Control("job"))+" cannot be read", g.plan("job").Problem)
	})
}

func TestPlan_RunsOfUnknownGenerationsAreCountedAsLost(t *testing.T) {
	w := newWorld(t)
	a := w.member("a", "job")
	w.define("job", 1, 0, "")
	w.settle()
	w.running(a, "job", w.v.plans["job"].Owners[a], record.Ref{Gen: 7, Fire: start, Attempt: 1})
	w.kill(a)
	w.member("b", "job")
	w.settle()
	p := w.v.plans["job"]
	assert.Empty(t, p.Reruns)
	assert.EqualValues(t, 1, p.Counts.Lost)
}

func TestPlan_WithoutAPlanMembersKeepTheShardsThatTheyRun(t *testing.T) {
	w := newWorld(t)
	a, b := w.member("a", "job"), w.member("b", "job")
	w.define("job", 2, 0, "")
	w.v.term = w.rev() // later than the definition: there may have been a plan
	both := shardset.Range(0, 2)
	w.running(a, "job", both, record.Ref{Gen: 7, Fire: start, Attempt: 1})
	w.round()
	p := w.plan("job")
	assert.Equal(t, both.String(), p.Owners[a].String())
	assert.True(t, p.Owners[b].IsZero())
	assert.Equal(t, 8, p.Last().Gen)
}

func TestLeader_TakesNoChangeOfItsOwnForAnotherHands(t *testing.T) {
	known := &record.Plan{Job: "job"}
	offering := memberItem{Member: record.Member{Jobs: []string{"job"}}}
	l := &leader{m: &Member{}, log: slog.New(slog.DiscardHandler), whole: true, restoring: newRestoring(), view: view{
		term: registry.Rev{Seq: 10}, plans: map[string]planItem{"job": {rev: registry.Rev{Seq: 20}, Plan: known}}, restore: map[string]bool{},
		live: map[registry.SessionID]bool{"A": true}, members: map[string]memberItem{"a.A": offering},
	}}
	written := func(seq uint64) news[*record.Plan] {
		return news[*record.Plan]{name: "job", rev: registry.Rev{Seq: seq}, value: &record.Plan{Job: "job"}}
	}
	assert.False(t, l.defend(written(9)), "by an earlier leader")
	l.unsure["job"] = true
	assert.False(t, l.defend(written(21)), "perhaps by a transaction whose outcome is unknown")
	assert.True(t, l.defend(written(22)), "which happens once")
	assert.Same(t, known, l.view.plans["job"].Plan)
	assert.EqualValues(t, 22, l.view.plans["job"].rev.Seq)
	l.keepPlan(change{segment: "job", plan: known}, registry.Rev{Seq: 30})
	assert.Empty(t, l.view.restore)
	assert.False(t, l.defend(written(30)))
	assert.True(t, l.defend(news[*record.Plan]{name: "job", gone: true}))
	l.view.live = nil
	assert.False(t, l.defend(news[*record.Plan]{name: "job", gone: true}), "no live instance offers the job")
}

func TestRestore_Guards(t *testing.T) {
	// restoring returns a leader to which its watches showed no definition, or an old one, of a job in force.
	restoring := func(t *testing.T) (l *leader, reg registry.Registry, key registry.Key) {
		o := inOffice(t)
		key = o.m.keys.Job("job")
		e, err := record.NewEpoch(1, 0, []byte(`{"name":"job","revision":2,"shards":4}`))
		require.NoError(t, err)
		l = &leader{m: o.m, office: o, log: slog.New(slog.DiscardHandler), progress: &progress{}, restoring: newRestoring(), view: view{
			term: o.office.leaderRev, jobs: map[string]jobItem{},
			plans:   map[string]planItem{"job": {Plan: &record.Plan{Job: "job", Epochs: []record.Epoch{e}}}},
			live:    map[registry.SessionID]bool{"A": true},
			members: map[string]memberItem{"a.A": {Member: record.Member{Jobs: []string{"job"}}}},
		}}
		l.jobs = newFeed[jobItem](o.m.keys.Jobs(), l.log, nil).reader(func() {})
		return l, o.m.reg, key
	}
	t.Run("the term", func(t *testing.T) {
		l, reg, key := restoring(t)
		_, err := reg.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Set(l.m.keys.Leader(), l.view.term, []byte("{}"))}})
		require.NoError(t, err)
		require.ErrorIs(t, l.restoreDefinitions(t.Context()), errTermOver)
		_, err = reg.Get(t.Context(), key, registry.ReadOptions{})
		assert.ErrorIs(t, err, registry.ErrNotFound)
	})
	t.Run("a definition that is there", func(t *testing.T) {
		l, reg, key := restoring(t)
		first, err := reg.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Create(key, []byte(`old`))}})
		require.NoError(t, err)
		newest, err := reg.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Set(key, first, []byte(`newest`))}})
		require.NoError(t, err)
		require.NoError(t, l.restoreDefinitions(t.Context()), "that it does not know")
		l.view.jobs["job"] = jobItem{rev: first, Job: record.Job{Revision: 1}}
		require.NoError(t, l.restoreDefinitions(t.Context()), "that it knows an older one of")
		stays, err := reg.Get(t.Context(), key, registry.ReadOptions{})
		require.NoError(t, err)
		assert.Equal(t, newest, stays.Modified)
		l.view.jobs["job"] = jobItem{rev: newest, Job: record.Job{Revision: 1}}
		require.NoError(t, l.restoreDefinitions(t.Context()))
		stored, err := reg.Get(t.Context(), key, registry.ReadOptions{})
		require.NoError(t, err)
		assert.Contains(t, string(stored.Value), `"revision":2`)
	})
}

func TestOperator_TriggersRunAfterTheirCounterWasDeleted(t *testing.T) {
	bubble(t, "job", func(t *testing.T, g *group) {
		a := g.start("a", fourShards)
		o, _ := g.operator()
		for range 3 {
			_, err := o.Trigger(t.Context(), "job", "", nil)
			require.NoError(t, err)
			time.Sleep(time.Second)
		}
		time.Sleep(2 * selfDiagnosis) // the triggers are cleared
		g.remove(g.keys.Control("job"))
		a.began()
		_, err := o.Trigger(t.Context(), "job", "again", nil)
		require.NoError(t, err)
		time.Sleep(time.Second)
		n := 0
		for _, r := range a.began() {
			if r.Param == "again" {
				n++
			}
		}
		assert.Equal(t, 4, n)
	})
}
