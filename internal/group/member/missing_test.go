package member_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/elector"
	"github.com/rota-dev/rota/internal/group/member"
	"github.com/rota-dev/rota/internal/group/membertest"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry"
)

// healing bounds the time in which a fleet recovers from a record edit: the grace, another one if
// the leader is affected as well, and the time to join.
const healing = 3*elector.MissingGrace + membertest.TTL/4

// fourShards is the definition of a job with four shards.
const fourShards = `{"name":"job","shards":4}`

func TestMissing(t *testing.T) {
	startTwo := func(g *membertest.Group) (a, b *membertest.Worker) {
		a, b = g.Start("a", fourShards), g.Start("b", fourShards)
		require.Equal(g.T, a.Incarnation(), g.ReadLeader().Incarnation)
		return a, b
	}
	for what, which := range map[string]func(instance, member registry.Key) []registry.Key{
		"the instance key":  func(i, _ registry.Key) []registry.Key { return []registry.Key{i} },
		"the member record": func(_, m registry.Key) []registry.Key { return []registry.Key{m} },
		"both records":      func(i, m registry.Key) []registry.Key { return []registry.Key{i, m} },
	} {
		for who, of := range map[string]func(a, b *membertest.Worker) []*membertest.Worker{
			"the leader":     func(a, _ *membertest.Worker) []*membertest.Worker { return []*membertest.Worker{a} },
			"another member": func(_, b *membertest.Worker) []*membertest.Worker { return []*membertest.Worker{b} },
			"all members":    func(a, b *membertest.Worker) []*membertest.Worker { return []*membertest.Worker{a, b} },
		} {
			membertest.RunBubble(t, what+" of "+who+" is deleted: the instance joins again within seconds", func(t *testing.T, g *membertest.Group) {
				a, b := startTwo(g)
				var keys []registry.Key
				var before []string
				hit := of(a, b)
				for _, w := range hit {
					instance, member := g.OwnKeys(w)
					keys, before = append(keys, which(instance, member)...), append(before, w.Incarnation())
				}
				g.RemoveRecords(keys...)
				time.Sleep(healing)
				synctest.Wait()
				logged := a.Log.Count("records of a live instance were deleted or damaged") + b.Log.Count("records of a live instance were deleted or damaged") +
					a.Log.Count("another writer changed a record") + b.Log.Count("another writer changed a record")
				assert.Positive(t, logged)
				for i, w := range hit {
					assert.NotEqual(t, before[i], w.Incarnation())
					assert.Positive(t, w.Log.Count("session cannot be used; joining again under a new one"))
				}
				g.RequireHealed(a, b)
			})
		}
	}
	membertest.RunBubble(t, "a member that crashes after the leader's instance key was deleted is failed over", func(t *testing.T, g *membertest.Group) {
		a, b := startTwo(g)
		g.RemoveRecord(g.Keys.Instance("a"))
		g.Server.Partition("b")
		time.Sleep(membertest.TTL + healing)
		synctest.Wait()
		require.Equal(t, 4, g.ReadPlan("job").Owners[a.Incarnation()].Len())
		_ = b
	})
	membertest.RunBubble(t, "an unreadable member record counts as missing, and is deleted after its session has expired", func(t *testing.T, g *membertest.Group) {
		a, b := startTwo(g)
		_, member := g.OwnKeys(b)
		g.SpoilRecord(member)
		time.Sleep(healing)
		synctest.Wait()
		g.RequireHealed(a, b)
		_, ok := g.GetRecord(member)
		assert.False(t, ok)
	})
	membertest.RunBubble(t, "a member that owns nothing and lost both records is found by the next leader", func(t *testing.T, g *membertest.Group) {
		a, b := startTwo(g)
		c := g.Start("c", `{"name":"other","shards":1}`)
		op, _ := g.NewOperator()
		require.NoError(t, op.Disable(t.Context(), operator.Scope{Instances: []string{"c"}}))
		time.Sleep(time.Second)
		instance, member := g.OwnKeys(c)
		before := c.Incarnation()
		a.Shutdown() // so that the commit below is the first of b's term
		g.RemoveRecords(instance, member)
		b.Shutdown()
		time.Sleep(healing)
		synctest.Wait()
		assert.NotEqual(t, before, c.Incarnation())
	})
	membertest.RunBubble(t, "an incarnation whose session has expired is not named", func(t *testing.T, g *membertest.Group) {
		g.Grace = time.Minute // so that its member record stays
		a, b := startTwo(g)
		before := b.Incarnation()
		g.Server.Partition("b")
		time.Sleep(membertest.TTL + healing)
		synctest.Wait()
		_, ok := g.GetRecord(g.Keys.Member(before))
		require.True(t, ok)
		assert.Zero(t, a.Log.Count("were deleted or damaged"))
		e, _ := g.GetRecord(g.Keys.Seat())
		present, err := record.Decode[record.Seat](e.Value)
		require.NoError(t, err)
		assert.Empty(t, present.Incomplete)
	})
	membertest.RunBubble(t, "asks the store about an expired incarnation once", func(t *testing.T, g *membertest.Group) {
		g.Grace = time.Minute
		_, b := startTwo(g)
		before := b.Incarnation()
		g.Server.Partition("b")
		time.Sleep(membertest.TTL + healing)
		synctest.Wait()
		g.Server.Record()
		time.Sleep(10 * elector.MissingGrace)
		for _, c := range g.Server.Log() {
			assert.NotContains(t, c.If, registry.Alive(record.SessionOf(before)))
		}
	})
	membertest.RunBubble(t, "asks nothing about an incarnation that left or was reaped", func(t *testing.T, g *membertest.Group) {
		_, b := startTwo(g)
		c := g.Start("c", fourShards)
		g.Server.Record()
		c.Shutdown()
		g.Server.Partition("b")
		time.Sleep(membertest.TTL + healing)
		_ = b
		for _, e := range g.Server.Log() {
			if e.Client == "a" && len(e.Then) == 0 && e.Opened == "" && e.Ended == "" {
				assert.Empty(t, e.If)
			}
		}
	})
	membertest.RunBubble(t, "a name that another process took meanwhile stays taken", func(t *testing.T, g *membertest.Group) {
		a, b := startTwo(g)
		g.RemoveRecord(g.Keys.Instance("b"))
		b2 := g.NewWorker("b", nil, fourShards)
		b2.Reg.Registry = g.Server.Client("elsewhere")
		g.RunWorker(b2)
		time.Sleep(membertest.TTL*2 + healing)
		synctest.Wait()
		require.Equal(t, 2, g.ReadPlan("job").Owners[b2.Incarnation()].Len())
		require.Equal(t, 2, g.ReadPlan("job").Owners[a.Incarnation()].Len())
		require.ErrorIs(t, b.Err, member.ErrNameTaken)
		b.Err = nil
	})
}

func TestRecordEdits(t *testing.T) {
	membertest.RunBubble(t, "a leader record that names a live member while another holds the seat: the named one leads", func(t *testing.T, g *membertest.Group) {
		a, b := g.Start("a", fourShards), g.Start("b", fourShards)
		before := a.Incarnation()
		g.PutRecord(g.Keys.Leader(), `{"incarnation":"`+b.Incarnation()+`","session":"`+string(b.Session())+`"}`)
		time.Sleep(healing)
		synctest.Wait()
		assert.Equal(t, b.Incarnation(), g.ReadLeader().Incarnation)
		assert.NotEqual(t, before, a.Incarnation())
		assert.Positive(t, a.Log.Count("the leader record names another"))
		g.RequireHealed(a, b)
	})
	membertest.RunBubble(t, "a leader record that names an expired session: a member leads", func(t *testing.T, g *membertest.Group) {
		a, b := g.Start("a", fourShards), g.Start("b", fourShards)
		g.PutRecord(g.Keys.Leader(), `{"incarnation":"c.C","session":"C"}`)
		time.Sleep(healing)
		synctest.Wait()
		assert.Contains(t, []string{a.Incarnation(), b.Incarnation()}, g.ReadLeader().Incarnation)
		g.RequireHealed(a, b)
	})
	membertest.RunBubble(t, "a resignation costs no member its session", func(t *testing.T, g *membertest.Group) {
		a, b := g.StartWorking("a", membertest.WorkFor(time.Hour), fourShards), g.Start("b", fourShards)
		membertest.SleepToMinute(1)
		before := []string{a.Incarnation(), b.Incarnation()}
		require.NoError(t, a.Drain(t.Context()))
		time.Sleep(healing)
		assert.Equal(t, before, []string{a.Incarnation(), b.Incarnation()})
	})
	membertest.RunBubble(t, "an unreadable namespace record is logged, and a process that lost its session waits for its repair", func(t *testing.T, g *membertest.Group) {
		a, b := g.Start("a", fourShards), g.Start("b", fourShards)
		was := g.GetText(g.Keys.Meta())
		g.SpoilRecord(g.Keys.Meta())
		g.Server.Expire("b")
		time.Sleep(time.Minute)
		assert.Equal(t, 1, b.Log.Count("cannot join again: the record of the namespace cannot be read"))
		assert.Contains(t, b.Log.String(), "key="+string(g.Keys.Meta()))
		g.PutRecord(g.Keys.Meta(), was)
		time.Sleep(healing)
		synctest.Wait()
		g.RequireHealed(a, b)
	})
	membertest.RunBubble(t, "a member record of another incarnation counts as missing", func(t *testing.T, g *membertest.Group) {
		a, b := g.Start("a", fourShards), g.Start("b", fourShards)
		_, member := g.OwnKeys(b)
		g.PutRecord(member, `{"name":"x","session":"X","jobs":["",""],"weight":-5}`)
		time.Sleep(healing)
		synctest.Wait()
		g.RequireHealed(a, b)
	})
	membertest.RunBubble(t, "claims of another job are unreadable, and the plan's problem names them", func(t *testing.T, g *membertest.Group) {
		a, b := g.Start("a", fourShards), g.Start("b", fourShards)
		membertest.SleepToMinute(1)
		claims := g.Keys.Claims(b.Incarnation(), "job")
		g.Server.Partition("b")
		g.PutRecord(claims, `{"job":"x"}`)
		time.Sleep(membertest.TTL + time.Second)
		assert.Equal(t, string(claims)+" cannot be read", g.ReadPlan("job").Problem)
		g.RemoveRecord(claims)
		time.Sleep(time.Second * 40)
		assert.Equal(t, 4, g.ReadPlan("job").Owners[a.Incarnation()].Len())
	})
}
