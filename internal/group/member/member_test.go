package member_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/group/member"
	"github.com/rota-dev/rota/internal/group/membertest"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

func TestMember_Join(t *testing.T) {
	membertest.RunBubble(t, "is repeated if the session expires before the process observes it", func(t *testing.T, g *membertest.Group) {
		a := g.NewWorker("a", nil, coordtest.Def("job", 0, 1, ""))
		a.Reg.BeforeTxn(membertest.OnFirstWrite(membertest.IsBelow(g.Keys.Members()), func() { g.ExpireUnnoticed("a") }))
		g.RunWorker(a)
		require.NoError(t, a.AwaitJoined(t.Context()))
		membertest.SleepToMinute(1)
		assert.Equal(t, membertest.OncePerShard(1), membertest.CountRuns(a.TakeRuns()))
	})
	membertest.RunBubble(t, "waits for the name of a crashed predecessor", func(t *testing.T, g *membertest.Group) {
		g.Start("a", coordtest.Def("job", 0, 1, ""))
		heal := g.Server.Partition("a")
		defer heal()
		began := time.Now()
		g.StartOn("a2", "a", coordtest.Def("job", 0, 1, ""))
		assert.LessOrEqual(t, time.Since(began), membertest.TTL+membertest.TTL/4)
	})
	membertest.RunBubble(t, "waits for the name after a first attempt of unknown outcome", func(t *testing.T, g *membertest.Group) {
		g.Start("a", coordtest.Def("job", 0, 1, ""))
		heal := g.Server.Partition("a")
		defer heal()
		a2 := g.NewWorkerOn("a2", "a", nil, coordtest.Def("job", 0, 1, ""))
		a2.Reg.BeforeTxn(membertest.OnFirstWrite(membertest.IsBelow(g.Keys.Members()), func() { g.Server.LoseRequest("a2", 1) }))
		g.RunWorker(a2)
		require.NoError(t, a2.AwaitJoined(t.Context()))
	})
	membertest.RunBubble(t, "succeeds if a delayed request is applied late", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 1, ""))
		a2 := g.NewWorkerOn("a2", "a", nil, coordtest.Def("job", 0, 1, ""))
		var release func()
		a2.Reg.BeforeTxn(membertest.OnFirstWrite(membertest.IsBelow(g.Keys.Members()), func() { release = g.Server.HoldCommit("a2") }))
		g.RunWorker(a2)
		time.Sleep(time.Second)
		a.Shutdown()
		release()
		require.NoError(t, a2.AwaitJoined(t.Context()))
		assert.Contains(t, a2.Incarnation(), "a.")
	})
	membertest.RunBubble(t, "after a lost session waits as long as the store keeps that session", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 1, ""))
		before := a.Incarnation()
		heal := g.Server.Partition("a")
		for range 2 {
			time.Sleep(3 * membertest.TTL / 4)
			g.Server.Restart() // which renews the session of a
		}
		heal()
		for range 8 {
			time.Sleep(membertest.TTL / 2)
			g.Server.Restart()
		}
		_, kept := g.GetRecord(g.Keys.Member(before))
		require.True(t, kept)
		time.Sleep(2 * membertest.TTL)
		require.NoError(t, a.AwaitJoined(t.Context()))
		assert.NotEqual(t, before, a.Incarnation())
	})
	membertest.RunBubble(t, "fails with ErrNameTaken if a live instance has the name", func(t *testing.T, g *membertest.Group) {
		g.Start("a", coordtest.Def("job", 0, 1, ""))
		a2 := g.NewWorkerOn("a2", "a", nil, coordtest.Def("job", 0, 1, ""))
		began := time.Now()
		g.RunWorker(a2)
		require.ErrorIs(t, a2.AwaitJoined(t.Context()), member.ErrNameTaken)
		assert.Greater(t, time.Since(began), membertest.TTL)
		<-a2.Done
		assert.EqualError(t, a2.Err, fmt.Sprintf("join as a: instance name taken: process %d on host \"host-of-a\" has held it since "+
			"2000-01-01T00:00:00Z, and kept it for 12.5s, longer than the session of a crashed predecessor lasts", os.Getpid()))
		assert.ErrorIs(t, a2.Err, member.ErrNameTaken)
		a2.Err = nil
	})
	membertest.RunBubble(t, "names the key, and what to do, if the record at the key of the instance cannot be read", func(t *testing.T, g *membertest.Group) {
		stranger, err := g.NewEditor().OpenSession(t.Context(), registry.SessionOptions{TTL: membertest.TTL})
		require.NoError(t, err)
		key := g.Keys.Instance("a")
		_, err = g.NewEditor().Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.CreateOwned(key, []byte("spoilt"), stranger.ID())}})
		require.NoError(t, err)
		a := g.RunWorker(g.NewWorker("a", nil, coordtest.Def("job", 0, 1, "")))
		require.ErrorIs(t, a.AwaitJoined(t.Context()), member.ErrNameTaken)
		<-a.Done
		require.ErrorContains(t, a.Err, string(key)+" that cannot be read (delete the key")
		assert.Equal(t, 1, a.Log.Count(`level=ERROR msg="cannot join: the record at the key of this instance cannot be read; delete the key`))
		a.Err = nil

		b := g.RunWorker(g.NewWorker("b", nil, coordtest.Def("job", 0, 1, "")))
		require.NoError(t, b.AwaitJoined(t.Context()))
		op, _ := g.NewOperator()
		st, err := op.Group(t.Context())
		require.NoError(t, err)
		assert.Contains(t, st.Unreadable, key)
		require.NoError(t, stranger.Close(t.Context()))
		a = g.RunWorker(g.NewWorker("a", nil, coordtest.Def("job", 0, 1, "")))
		require.NoError(t, a.AwaitJoined(t.Context()))
	})
	membertest.RunBubble(t, "reports the reason of a failure only", func(t *testing.T, g *membertest.Group) {
		g.PutRecord(g.Keys.Meta(), fmt.Sprintf(`{"format":%d}`, record.Format+1))
		a := g.RunWorker(g.NewWorker("a", nil, coordtest.Def("job", 0, 1, "")))
		err := a.AwaitJoined(t.Context())
		require.ErrorIs(t, err, operator.ErrNewerFormat)
		<-a.Done
		assert.EqualError(t, err, a.Err.Error())
		assert.NotContains(t, err.Error(), "\n")
		a.Err = nil
	})
}

func TestMember_FenceBase(t *testing.T) {
	membertest.RunBubble(t, "is what the first of two simultaneous members wrote", func(t *testing.T, g *membertest.Group) {
		const base = 1 << 40
		a := g.NewWorker("a", nil, coordtest.Def("job", 0, 1, ""))
		a.Reg.BeforeTxn(membertest.OnFirstWrite(membertest.IsKey(g.Keys.Meta()), func() {
			g.PutRecord(g.Keys.Meta(), fmt.Sprintf(`{"format":%d,"fence_base":%d}`, record.Format, base))
		}))
		g.RunWorker(a)
		require.NoError(t, a.AwaitJoined(t.Context()))
		membertest.SleepToMinute(1)
		runs := a.TakeRuns()
		require.Len(t, runs, 1)
		assert.Greater(t, runs[0].Fence, uint64(base))
	})
}

func TestMember_Definitions(t *testing.T) {
	stored := func(g *membertest.Group) string {
		e, ok := g.GetRecord(g.Keys.Job("job"))
		require.True(g.T, ok)
		return string(e.Value)
	}
	membertest.RunBubble(t, "the highest revision wins", func(t *testing.T, g *membertest.Group) {
		g.Start("a", coordtest.Def("job", 1, 2, ""))
		g.Start("b", coordtest.Def("job", 2, 3, ""))
		assert.Equal(t, coordtest.Def("job", 2, 3, ""), stored(g))
		g.Start("c", coordtest.Def("job", 1, 2, ""))
		assert.Equal(t, coordtest.Def("job", 2, 3, ""), stored(g), "an older version changes nothing")
		assert.Equal(t, 3, g.ReadPlan("job").Last().Job().Shards)
	})
	membertest.RunBubble(t, "the first definition of a revision stays, and a process with another one logs it", func(t *testing.T, g *membertest.Group) {
		g.Start("a", coordtest.Def("job", 1, 2, ""))
		b := g.Start("b", coordtest.Def("job", 1, 3, ""))
		assert.Equal(t, coordtest.Def("job", 1, 2, ""), stored(g))
		assert.Equal(t, 1, b.Log.Count("of the same revision differs"))
	})
	membertest.RunBubble(t, "that many members offer at once are stored once", func(t *testing.T, g *membertest.Group) {
		var names []string
		for _, name := range strings.Split("abcdefgh", "") {
			names = append(names, name)
			g.RunWorker(g.NewWorker(name, nil, coordtest.Def("job", 1, 8, "")))
		}
		for _, w := range g.Members {
			require.NoError(t, w.AwaitJoined(t.Context()))
		}
		time.Sleep(time.Second)
		assert.Len(t, g.ReadOwners("job"), len(names))
	})
}

func TestMember_Offer(t *testing.T) {
	membertest.RunBubble(t, "is stored by the next incarnation if the session expires meanwhile", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 1, ""))
		g.ExpireUnnoticed("a")
		a.Offer(membertest.DefinitionsByName(coordtest.Def("other", 0, 1, "")))
		time.Sleep(time.Minute)
		require.NoError(t, a.AwaitJoined(t.Context()))
		time.Sleep(time.Second)
		assert.Equal(t, map[string]string{"a": "0"}, g.ReadOwners("other"))
	})
	membertest.RunBubble(t, "just after the record was written is published", func(t *testing.T, g *membertest.Group) {
		a := g.NewWorker("a", nil, coordtest.Def("job", 0, 1, ""))
		a.Reg.AfterTxn(membertest.OnFirstWrite(membertest.IsBelow(g.Keys.Members()), func() { a.Offer(membertest.DefinitionsByName(coordtest.Def("other", 0, 1, ""))) }))
		g.RunWorker(a)
		require.NoError(t, a.AwaitJoined(t.Context()))
		time.Sleep(time.Second)
		assert.Equal(t, map[string]string{"a": "0"}, g.ReadOwners("other"))
	})
	membertest.RunBubble(t, "is published only after its definition is stored", func(t *testing.T, g *membertest.Group) {
		a := g.NewWorker("a", nil, coordtest.Def("job", 0, 1, ""))
		a.Reg.AfterTxn(membertest.OnFirstWrite(membertest.IsBelow(g.Keys.Jobs()), func() { a.Offer(membertest.DefinitionsByName(coordtest.Def("other", 0, 1, ""))) }))
		g.Server.Record()
		g.RunWorker(a)
		require.NoError(t, a.AwaitJoined(t.Context()))
		_, stored := g.GetRecord(g.Keys.Job("other"))
		assert.True(t, stored)
		stored = false
		for _, c := range g.Server.Log() {
			for _, op := range c.Then {
				stored = stored || op.Key == g.Keys.Job("other")
				if op.Key.Dir() == g.Keys.Members() && strings.Contains(string(op.Value), "other") {
					assert.True(t, stored, "the member record shows an offer that no leader can plan")
				}
			}
		}
	})
	membertest.RunBubble(t, "ends with Withdraw: other members that offer the job get the shards", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 4, ""))
		b := g.Start("b", coordtest.Def("job", 0, 4, ""))
		a.Withdraw("job")
		require.NoError(t, a.AwaitJoined(t.Context()))
		time.Sleep(time.Second)
		assert.Equal(t, map[string]string{"b": "0-3"}, g.ReadOwners("job"))
		membertest.SleepToMinute(1)
		assert.Equal(t, membertest.OncePerShard(4), membertest.CountRuns(b.TakeRuns()))

		lost := a.Incarnation()
		g.ExpireUnnoticed("a")
		time.Sleep(time.Minute)
		require.NotEqual(t, lost, a.Incarnation())
		assert.Equal(t, map[string]string{"b": "0-3"}, g.ReadOwners("job"), "another session does not restore the offer")
		a.Offer(membertest.DefinitionsByName(coordtest.Def("job", 0, 4, "")))
		require.NoError(t, a.AwaitJoined(t.Context()))
		time.Sleep(time.Second)
		assert.Equal(t, map[string]string{"a": "2-3", "b": "0-1"}, g.ReadOwners("job"), "an Offer restores it")
	})
}

func TestMember_Drain(t *testing.T) {
	membertest.RunBubble(t, "moves shards without a lost or duplicate run", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 4, ""))
		b := g.Start("b", coordtest.Def("job", 0, 4, ""))
		membertest.SleepToMinute(1)
		require.Equal(t, map[string]string{"a": "0-1", "b": "2-3"}, g.ReadOwners("job"))
		assert.Equal(t, membertest.OncePerShard(4), membertest.SumRuns(membertest.CountRuns(a.TakeRuns()), membertest.CountRuns(b.TakeRuns())))
		a.Shutdown()
		assert.Equal(t, map[string]string{"b": "0-3"}, g.ReadOwners("job"))
		membertest.SleepToMinute(2)
		assert.Equal(t, membertest.OncePerShard(4), membertest.CountRuns(b.TakeRuns()))
	})
	membertest.RunBubble(t, "resigns before it gives up its shards", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 4, ""))
		b := g.Start("b", coordtest.Def("job", 0, 4, ""))
		drainer := a.Incarnation()
		require.Equal(t, drainer, g.ReadLeader().Incarnation)
		g.Server.Record()
		a.Shutdown()
		var order []string
		for _, c := range g.TakeCommits() {
			for _, op := range c.Then {
				switch op.Key {
				case g.Keys.Leader():
					order = append(order, c.Client+" resigns")
				case g.Keys.Member(drainer):
					order = append(order, c.Client+" drains")
				case g.Keys.Plan("job"):
					order = append(order, c.Client+" plans")
				}
			}
		}
		require.GreaterOrEqual(t, len(order), 3)
		assert.Equal(t, []string{"a resigns", "a drains", "b plans"}, order[:3])
		assert.Equal(t, b.Incarnation(), g.ReadLeader().Incarnation)
	})
	membertest.RunBubble(t, "applies to the next incarnation after a lost session", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 1, ""))
		before := a.Incarnation()
		time.Sleep(58 * time.Second)
		heal := g.Server.PartitionOneWay("a", memory.Replies) // its requests arrive, their replies do not
		defer heal()
		time.Sleep(3 * time.Second) // a claim is in flight
		drained := make(chan error, 1)
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			defer cancel()
			drained <- a.Drain(ctx)
		}()
		time.Sleep(15 * time.Second)
		heal()
		membertest.SleepToMinute(5)
		assert.NotEqual(t, before, a.Incarnation())
		assert.NoError(t, <-drained)
		assert.Empty(t, a.TakeRuns())
		assert.NotContains(t, g.ReadOwners("job"), "a")
	})
	membertest.RunBubble(t, "returns when the member record shows it, not before", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 1, ""))
		key := g.Keys.Member(a.Incarnation())
		drained := make(chan bool, 1)
		offered := membertest.OnFirstWrite(membertest.IsKey(key), func() {
			go func() {
				assert.NoError(t, a.Drain(context.Background()))
				e, ok := g.GetRecord(key)
				drained <- ok && strings.Contains(string(e.Value), `"draining":true`)
			}()
		})
		a.Reg.BeforeTxn(func(txn registry.Txn) {
			offered(txn)
			time.Sleep(time.Second)
		})
		a.Offer(membertest.DefinitionsByName(coordtest.Def("other", 0, 1, "")))
		assert.True(t, <-drained)
	})
	membertest.RunBubble(t, "may be called before joining, twice, and from many goroutines", func(t *testing.T, g *membertest.Group) {
		b := g.Start("b", coordtest.Def("job", 0, 2, ""))
		a := g.NewWorker("a", nil, coordtest.Def("job", 0, 2, ""))
		require.NoError(t, a.Drain(t.Context()))
		g.RunWorker(a)
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() { assert.NoError(t, a.Drain(context.Background())) })
		}
		all.Wait()
		require.NoError(t, a.AwaitJoined(t.Context()))
		membertest.SleepToMinute(1)
		assert.Empty(t, a.TakeRuns())
		assert.Equal(t, membertest.OncePerShard(2), membertest.CountRuns(b.TakeRuns()))
		for range 2 {
			all.Go(func() { assert.NoError(t, a.Leave(context.Background())) })
		}
		all.Wait()
		<-a.Done
		assert.NoError(t, a.Drain(t.Context()), "after the end")
		assert.NoError(t, a.Leave(t.Context()), "after the end")
	})
	membertest.RunBubble(t, "moves the shards of running functions after they have returned", func(t *testing.T, g *membertest.Group) {
		a := g.StartWorking("a", membertest.WorkFor(30*time.Second), coordtest.Def("job", 0, 4, ""))
		b := g.Start("b", coordtest.Def("job", 0, 4, ""))
		membertest.SleepToMinute(1)
		require.NoError(t, a.Drain(t.Context()))
		synctest.Wait()
		assert.Equal(t, map[string]string{"a": "0-1", "b": "2-3"}, g.ReadOwners("job"))
		require.NoError(t, a.Leave(t.Context()))
		assert.Equal(t, 30*time.Second, time.Since(coordtest.BubbleStart().Add(time.Minute)).Truncate(time.Second))
		assert.Equal(t, map[string]string{"b": "0-3"}, g.ReadOwners("job"))
		assert.Empty(t, g.ReadPlan("job").Reruns)
		membertest.SleepToMinute(2)
		assert.Equal(t, map[int]int{0: 1, 1: 1, 2: 2, 3: 2}, membertest.CountRuns(b.TakeRuns()))
	})
	membertest.RunBubble(t, "of the last member leaves the shards without an owner until another joins", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 4, ""))
		membertest.SleepToMinute(1)
		assert.Equal(t, membertest.OncePerShard(4), membertest.CountRuns(a.TakeRuns()))
		a.Shutdown()
		assert.Empty(t, g.ReadOwners("job"))
		b := g.Start("b", coordtest.Def("job", 0, 4, ""))
		assert.Equal(t, map[string]string{"b": "0-3"}, g.ReadOwners("job"))
		assert.Empty(t, b.TakeRuns(), "fires that a has claimed are not claimed again")
		membertest.SleepToMinute(2)
		assert.Equal(t, membertest.OncePerShard(4), membertest.CountRuns(b.TakeRuns()))
	})
}

func TestMember_Leave(t *testing.T) {
	membertest.RunBubble(t, "before Run makes Run return at once", func(t *testing.T, g *membertest.Group) {
		a := g.NewWorker("a", nil, coordtest.Def("job", 0, 1, ""))
		require.NoError(t, a.Leave(t.Context()))
		g.RunWorker(a)
		<-a.Done
		assert.ErrorIs(t, a.AwaitJoined(t.Context()), member.ErrLeft)
	})
	membertest.RunBubble(t, "while the store is unreachable returns when its context ends", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 1, ""))
		heal := g.Server.Partition("a")
		defer heal()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		assert.ErrorIs(t, a.Drain(ctx), context.DeadlineExceeded)
		assert.ErrorIs(t, a.Leave(ctx), context.DeadlineExceeded)
		<-a.Done
	})
	membertest.RunBubble(t, "does not wait for shards of a lost session", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 1, ""))
		heal := g.Server.Partition("a")
		defer heal()
		began := time.Now()
		assert.NoError(t, a.Drain(t.Context()))
		assert.NoError(t, a.Leave(t.Context()))
		<-a.Done
		assert.Less(t, time.Since(began), membertest.TTL+4*time.Second)
	})
}
