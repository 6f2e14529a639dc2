package pool

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var errNotBegun = errors.New("not begun")

func TestPool_Delays(t *testing.T) {
	type ended struct {
		shard int
		err   error
	}
	// delayed is a pool with tasks of which the one of shard n is delayed by n seconds.
	type delayed struct {
		Pool
		mu   sync.Mutex
		ends []ended
	}
	add := func(ctx context.Context, p *delayed, shard int, handsBack bool) {
		end := func(err error) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.ends = append(p.ends, ended{shard, err})
		}
		p.AddDelayed(&Task{
			Job: "job", Shard: shard, Fire: at(1), Ctx: ctx, End: end, HandsBack: handsBack,
			Do: func() { time.Sleep(100 * time.Millisecond); end(nil) }, Delay: time.Duration(shard) * time.Second,
		})
	}
	bubbled := func(name string, f func(t *testing.T, p *delayed)) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { f(t, &delayed{Pool: Pool{Options: Options{NotBegun: errNotBegun}}}) })
		})
	}
	bubbled("run tasks in the order of their instants, without goroutines meanwhile", func(t *testing.T, p *delayed) {
		for _, shard := range []int{3, 1, 2, 5, 4} {
			add(t.Context(), p, shard, true)
		}
		stacks := make([]byte, 1<<20)
		assert.NotContains(t, string(stacks[:runtime.Stack(stacks, true)]), "(*Pool)")
		began := time.Now()
		<-p.Idle()
		assert.Equal(t, 5100*time.Millisecond, time.Since(began))
		assert.Equal(t, []ended{{1, nil}, {2, nil}, {3, nil}, {4, nil}, {5, nil}}, p.ends)
	})
	bubbled("have tasks wait for a worker from their instants on, not from their claims", func(t *testing.T, p *delayed) {
		claimed := time.Now()
		waits := &Task{Job: "job", Ctx: t.Context(), Since: claimed, Do: func() {}, End: func(error) {}, Delay: time.Hour}
		p.AddDelayed(waits)
		assert.Equal(t, claimed.UTC(), p.DelayedByJob()["job"].Since)
		time.Sleep(time.Hour)
		synctest.Wait()
		p.Pool.mu.Lock()
		assert.Equal(t, claimed.Add(time.Hour), waits.Since)
		p.Pool.mu.Unlock()
		<-p.Idle()
	})
	bubbled("end one run, if it may be handed back", func(t *testing.T, p *delayed) {
		add(t.Context(), p, 1, true)
		add(t.Context(), p, 2, false)
		for _, shard := range []int{1, 2, 3} {
			p.HandBackDelayed("job", shard)
			p.HandBackDelayed("other", shard)
		}
		assert.Equal(t, []ended{{1, errNotBegun}}, p.ends)
		began := time.Now()
		<-p.Idle()
		assert.Equal(t, []ended{{1, errNotBegun}, {2, nil}}, p.ends)
		assert.Equal(t, 2100*time.Millisecond, time.Since(began), "the other one waits for its instant")
		p.HandBackDelayed("job", 2)
	})
	bubbled("end with a drain, and are idle then", func(t *testing.T, p *delayed) {
		add(t.Context(), p, 1000, true)
		add(t.Context(), p, 2000, false)
		idle := p.Idle()
		began := time.Now()
		p.DrainDelayed()
		<-idle
		assert.Equal(t, 100*time.Millisecond, time.Since(began))
		assert.Equal(t, []ended{{1000, errNotBegun}, {2000, nil}}, p.ends)
		add(t.Context(), p, 3000, true) // claimed before, and started late
		add(t.Context(), p, 4000, false)
		<-p.Idle()
		assert.Equal(t, 200*time.Millisecond, time.Since(began))
		assert.Equal(t, []ended{{3000, errNotBegun}, {4000, nil}}, p.ends[2:])
	})
	bubbled("end with their session", func(t *testing.T, p *delayed) {
		lost := errors.New("lost")
		session, end := context.WithCancelCause(t.Context())
		add(session, p, 1000, true)
		add(session, p, 1001, false)
		end(lost)
		synctest.Wait()
		assert.ElementsMatch(t, []ended{{1000, lost}, {1001, lost}}, p.ends)
		add(session, p, 1002, true)
		assert.Equal(t, ended{1002, lost}, p.ends[2])
		next, end := context.WithCancelCause(t.Context())
		add(next, p, 1, true)
		<-p.Idle()
		require.Len(t, p.ends, 4)
		assert.Equal(t, ended{1, nil}, p.ends[3])
		end(nil)
	})
	bubbled("end with each session of several", func(t *testing.T, p *delayed) {
		for n := range 3 {
			session, end := context.WithCancelCause(t.Context())
			lost := fmt.Errorf("lost %d", n)
			add(session, p, 1000+n, true)
			end(lost)
			synctest.Wait()
			require.Len(t, p.ends, n+1)
			assert.Equal(t, ended{1000 + n, lost}, p.ends[n])
		}
	})
	bubbled("stay when another session ends", func(t *testing.T, p *delayed) {
		session, end := context.WithCancelCause(t.Context())
		add(session, p, 1000, true)
		add(t.Context(), p, 1, true)
		end(errors.New("lost"))
		<-p.Idle()
		assert.Contains(t, p.ends, ended{1, nil})
	})
}
