package coordinator

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

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

func TestMember_Join(t *testing.T) {
	bubble(t, "whose session ends at the store before the process knows is made again", func(t *testing.T, g *group) {
		a := g.worker("a", nil, def("job", 0, 1, ""))
		a.reg.before(writing(below(g.keys.Members()), func() { g.expireUntold("a") }))
		g.begin(a)
		require.NoError(t, a.AwaitJoined(t.Context()))
		until(1)
		assert.Equal(t, once(1), shards(a.began()))
	})
	bubble(t, "waits for the name of a predecessor that crashed", func(t *testing.T, g *group) {
		g.start("a", def("job", 0, 1, ""))
		heal := g.server.Partition("a")
		defer heal()
		began := time.Now()
		g.startOn("a2", "a", def("job", 0, 1, ""))
		assert.LessOrEqual(t, time.Since(began), ttl+ttl/4)
	})
	bubble(t, "waits for it though the fate of the first try is unknown", func(t *testing.T, g *group) {
		g.start("a", def("job", 0, 1, ""))
		heal := g.server.Partition("a")
		defer heal()
		a2 := g.workerOn("a2", "a", nil, def("job", 0, 1, ""))
		a2.reg.before(writing(below(g.keys.Members()), func() { g.server.LoseRequest("a2", 1) }))
		g.begin(a2)
		require.NoError(t, a2.AwaitJoined(t.Context()))
	})
	bubble(t, "that was held up counts when it comes", func(t *testing.T, g *group) {
		a := g.start("a", def("job", 0, 1, ""))
		a2 := g.workerOn("a2", "a", nil, def("job", 0, 1, ""))
		var release func()
		a2.reg.before(writing(below(g.keys.Members()), func() { release = g.server.HoldCommit("a2") }))
		g.begin(a2)
		time.Sleep(time.Second)
		a.goes()
		release()
		require.NoError(t, a2.AwaitJoined(t.Context()))
		assert.Contains(t, a2.incarnation(), "a.")
	})
	bubble(t, "of one that lost its session waits for as long as the store keeps that", func(t *testing.T, g *group) {
		a := g.start("a", def("job", 0, 1, ""))
		before := a.incarnation()
		heal := g.server.Partition("a")
		for range 2 {
			time.Sleep(3 * ttl / 4)
			g.server.Restart() // its session has its full TTL again
		}
		heal()
		for range 8 {
			time.Sleep(ttl / 2)
			g.server.Restart()
		}
		_, kept := g.get(g.keys.Member(before))
		require.True(t, kept)
		time.Sleep(2 * ttl)
		require.NoError(t, a.AwaitJoined(t.Context()))
		assert.NotEqual(t, before, a.incarnation())
	})
	bubble(t, "fails with ErrNameTaken when the name belongs to the living", func(t *testing.T, g *group) {
		g.start("a", def("job", 0, 1, ""))
		a2 := g.workerOn("a2", "a", nil, def("job", 0, 1, ""))
		began := time.Now()
		g.begin(a2)
		require.ErrorIs(t, a2.AwaitJoined(t.Context()), ErrNameTaken)
		assert.Greater(t, time.Since(began), ttl)
		<-a2.done
		assert.EqualError(t, a2.err, fmt.Sprintf("join as a: instance name taken: process %d on host \"host-of-a\" has had it since "+
			"2000-01-01T00:00:00Z, and kept it for 12.5s, longer than the session of a crashed predecessor lasts", os.Getpid()))
		assert.ErrorIs(t, a2.err, ErrNameTaken)
		a2.err = nil
	})
	bubble(t, "that fails reports the reason alone", func(t *testing.T, g *group) {
		g.put(g.keys.Meta(), fmt.Sprintf(`{"format":%d}`, record.Format+1))
		a := g.begin(g.worker("a", nil, def("job", 0, 1, "")))
		err := a.AwaitJoined(t.Context())
		require.ErrorIs(t, err, ErrNewerFormat)
		<-a.done
		assert.EqualError(t, err, a.err.Error())
		assert.NotContains(t, err.Error(), "\n")
		a.err = nil
	})
}

func TestMember_FenceBase(t *testing.T) {
	bubble(t, "is what was written down first, though two begin at once", func(t *testing.T, g *group) {
		const base = 1 << 40
		a := g.worker("a", nil, def("job", 0, 1, ""))
		a.reg.before(writing(is(g.keys.Meta()), func() {
			g.put(g.keys.Meta(), fmt.Sprintf(`{"format":%d,"fence_base":%d}`, record.Format, base))
		}))
		g.begin(a)
		require.NoError(t, a.AwaitJoined(t.Context()))
		until(1)
		runs := a.began()
		require.Len(t, runs, 1)
		assert.Greater(t, runs[0].Fence, uint64(base))
	})
}

func TestMember_Definitions(t *testing.T) {
	stored := func(g *group) string {
		e, ok := g.get(g.keys.Job("job"))
		require.True(g.t, ok)
		return string(e.Value)
	}
	bubble(t, "the highest revision wins", func(t *testing.T, g *group) {
		g.start("a", def("job", 1, 2, ""))
		g.start("b", def("job", 2, 3, ""))
		assert.Equal(t, def("job", 2, 3, ""), stored(g))
		g.start("c", def("job", 1, 2, ""))
		assert.Equal(t, def("job", 2, 3, ""), stored(g), "an old binary undoes nothing")
		assert.Equal(t, 3, g.plan("job").Last().Job().Shards)
	})
	bubble(t, "of two texts of one revision the first stays, and the other process says so", func(t *testing.T, g *group) {
		g.start("a", def("job", 1, 2, ""))
		b := g.start("b", def("job", 1, 3, ""))
		assert.Equal(t, def("job", 1, 2, ""), stored(g))
		assert.Equal(t, 1, b.log.count("definition differs"))
	})
	bubble(t, "that are offered at once by many are stored once", func(t *testing.T, g *group) {
		var names []string
		for _, name := range strings.Split("abcdefgh", "") {
			names = append(names, name)
			g.begin(g.worker(name, nil, def("job", 1, 8, "")))
		}
		for _, w := range g.members {
			require.NoError(t, w.AwaitJoined(t.Context()))
		}
		time.Sleep(time.Second)
		assert.Len(t, g.owners("job"), len(names))
	})
}

func TestMember_Offer(t *testing.T) {
	bubble(t, "by a process whose session ends before it knows reaches the registry by the next one", func(t *testing.T, g *group) {
		a := g.start("a", def("job", 0, 1, ""))
		g.expireUntold("a")
		a.Offer(offering(def("other", 0, 1, "")))
		time.Sleep(time.Minute)
		require.NoError(t, a.AwaitJoined(t.Context()))
		time.Sleep(time.Second)
		assert.Equal(t, map[string]string{"a": "0"}, g.owners("other"))
	})
	bubble(t, "that comes just after the record was written reaches the registry", func(t *testing.T, g *group) {
		a := g.worker("a", nil, def("job", 0, 1, ""))
		a.reg.after(writing(below(g.keys.Members()), func() { a.Offer(offering(def("other", 0, 1, ""))) }))
		g.begin(a)
		require.NoError(t, a.AwaitJoined(t.Context()))
		time.Sleep(time.Second)
		assert.Equal(t, map[string]string{"a": "0"}, g.owners("other"))
	})
	bubble(t, "is not told of before its definition is stored", func(t *testing.T, g *group) {
		a := g.worker("a", nil, def("job", 0, 1, ""))
		a.reg.after(writing(below(g.keys.Jobs()), func() { a.Offer(offering(def("other", 0, 1, ""))) }))
		g.server.Record()
		g.begin(a)
		require.NoError(t, a.AwaitJoined(t.Context()))
		_, stored := g.get(g.keys.Job("other"))
		assert.True(t, stored)
		stored = false
		for _, c := range g.server.Log() {
			for _, op := range c.Then {
				stored = stored || op.Key == g.keys.Job("other")
				if op.Key.Dir() == g.keys.Members() && strings.Contains(string(op.Value), "other") {
					assert.True(t, stored, "the member says that it offers what nobody can plan")
				}
			}
		}
	})
	bubble(t, "ends with Withdraw: the shards move to those who still offer the job", func(t *testing.T, g *group) {
		a := g.start("a", def("job", 0, 4, ""))
		b := g.start("b", def("job", 0, 4, ""))
		a.Withdraw("job")
		require.NoError(t, a.AwaitJoined(t.Context()))
		time.Sleep(time.Second)
		assert.Equal(t, map[string]string{"b": "0-3"}, g.owners("job"))
		until(1)
		assert.Equal(t, once(4), shards(b.began()))

		lost := a.incarnation()
		g.expireUntold("a")
		time.Sleep(time.Minute)
		require.NotEqual(t, lost, a.incarnation())
		assert.Equal(t, map[string]string{"b": "0-3"}, g.owners("job"), "another session does not bring it back")
		a.Offer(offering(def("job", 0, 4, "")))
		require.NoError(t, a.AwaitJoined(t.Context()))
		time.Sleep(time.Second)
		assert.Equal(t, map[string]string{"a": "2-3", "b": "0-1"}, g.owners("job"), "an Offer does")
	})
}

func TestMember_Drain(t *testing.T) {
	bubble(t, "hands over with nothing lost or doubled", func(t *testing.T, g *group) {
		a := g.start("a", def("job", 0, 4, ""))
		b := g.start("b", def("job", 0, 4, ""))
		until(1)
		require.Equal(t, map[string]string{"a": "0-1", "b": "2-3"}, g.owners("job"))
		assert.Equal(t, once(4), merged(shards(a.began()), shards(b.began())))
		a.goes()
		assert.Equal(t, map[string]string{"b": "0-3"}, g.owners("job"))
		until(2)
		assert.Equal(t, once(4), shards(b.began()))
	})
	bubble(t, "resigns first, then lets its shards go", func(t *testing.T, g *group) {
		a := g.start("a", def("job", 0, 4, ""))
		b := g.start("b", def("job", 0, 4, ""))
		drainer := a.incarnation()
		require.Equal(t, drainer, g.leader().Incarnation)
		g.server.Record()
		a.goes()
		var order []string
		for _, c := range g.commits() {
			for _, op := range c.Then {
				switch op.Key {
				case g.keys.Leader():
					order = append(order, c.Client+" resigns")
				case g.keys.Member(drainer):
					order = append(order, c.Client+" drains")
				case g.keys.Plan("job"):
					order = append(order, c.Client+" plans")
				}
			}
		}
		require.GreaterOrEqual(t, len(order), 3)
		assert.Equal(t, []string{"a resigns", "a drains", "b plans"}, order[:3])
		assert.Equal(t, b.incarnation(), g.leader().Incarnation)
	})
	bubble(t, "holds for the next incarnation when the session is lost meanwhile", func(t *testing.T, g *group) {
		a := g.start("a", def("job", 0, 1, ""))
		before := a.incarnation()
		time.Sleep(58 * time.Second)
		heal := g.server.PartitionOneWay("a", memory.Replies) // nobody is told
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
		until(5)
		assert.NotEqual(t, before, a.incarnation())
		assert.NoError(t, <-drained)
		assert.Empty(t, a.began())
		assert.NotContains(t, g.owners("job"), "a")
	})
	bubble(t, "returns when the registry knows, not before", func(t *testing.T, g *group) {
		a := g.start("a", def("job", 0, 1, ""))
		key := g.keys.Member(a.incarnation())
		drained := make(chan bool, 1)
		offered := writing(is(key), func() {
			go func() {
				assert.NoError(t, a.Drain(context.Background()))
				e, ok := g.get(key)
				drained <- ok && strings.Contains(string(e.Value), `"draining":true`)
			}()
		})
		a.reg.before(func(txn registry.Txn) {
			offered(txn)
			time.Sleep(time.Second)
		})
		a.Offer(offering(def("other", 0, 1, "")))
		assert.True(t, <-drained)
	})
	bubble(t, "before it has joined, twice and from many goroutines is one drain", func(t *testing.T, g *group) {
		b := g.start("b", def("job", 0, 2, ""))
		a := g.worker("a", nil, def("job", 0, 2, ""))
		require.NoError(t, a.Drain(t.Context()))
		g.begin(a)
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() { assert.NoError(t, a.Drain(context.Background())) })
		}
		all.Wait()
		require.NoError(t, a.AwaitJoined(t.Context()))
		until(1)
		assert.Empty(t, a.began())
		assert.Equal(t, once(2), shards(b.began()))
		for range 2 {
			all.Go(func() { assert.NoError(t, a.Leave(context.Background())) })
		}
		all.Wait()
		<-a.done
		assert.NoError(t, a.Drain(t.Context()), "after the end")
		assert.NoError(t, a.Leave(t.Context()), "after the end")
	})
	bubble(t, "lets runs end, and their shards move when they have", func(t *testing.T, g *group) {
		a := g.startWorking("a", takes(30*time.Second), def("job", 0, 4, ""))
		b := g.start("b", def("job", 0, 4, ""))
		until(1)
		require.NoError(t, a.Drain(t.Context()))
		synctest.Wait()
		assert.Equal(t, map[string]string{"a": "0-1", "b": "2-3"}, g.owners("job"))
		require.NoError(t, a.Leave(t.Context()))
		assert.Equal(t, 30*time.Second, time.Since(bubbleBegan().Add(time.Minute)).Truncate(time.Second))
		assert.Equal(t, map[string]string{"b": "0-3"}, g.owners("job"))
		assert.Empty(t, g.plan("job").Reruns)
		until(2)
		assert.Equal(t, map[int]int{0: 1, 1: 1, 2: 2, 3: 2}, shards(b.began()))
	})
	bubble(t, "of the last one leaves the shards to nobody, for the next to come", func(t *testing.T, g *group) {
		a := g.start("a", def("job", 0, 4, ""))
		until(1)
		assert.Equal(t, once(4), shards(a.began()))
		a.goes()
		assert.Empty(t, g.owners("job"))
		b := g.start("b", def("job", 0, 4, ""))
		assert.Equal(t, map[string]string{"b": "0-3"}, g.owners("job"))
		assert.Empty(t, b.began(), "what a had claimed is not claimed again")
		until(2)
		assert.Equal(t, once(4), shards(b.began()))
	})
}

func TestMember_Leave(t *testing.T) {
	bubble(t, "before Run makes it return at once", func(t *testing.T, g *group) {
		a := g.worker("a", nil, def("job", 0, 1, ""))
		require.NoError(t, a.Leave(t.Context()))
		g.begin(a)
		<-a.done
		assert.ErrorIs(t, a.AwaitJoined(t.Context()), errLeft)
	})
	bubble(t, "while the registry cannot be reached ends no later than its context", func(t *testing.T, g *group) {
		a := g.start("a", def("job", 0, 1, ""))
		heal := g.server.Partition("a")
		defer heal()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		assert.ErrorIs(t, a.Drain(ctx), context.DeadlineExceeded)
		assert.ErrorIs(t, a.Leave(ctx), context.DeadlineExceeded)
		<-a.done
	})
	bubble(t, "does not wait for shards of a session that is lost", func(t *testing.T, g *group) {
		a := g.start("a", def("job", 0, 1, ""))
		heal := g.server.Partition("a")
		defer heal()
		began := time.Now()
		assert.NoError(t, a.Drain(t.Context()))
		assert.NoError(t, a.Leave(t.Context()))
		<-a.done
		assert.Less(t, time.Since(began), ttl+4*time.Second)
	})
}
