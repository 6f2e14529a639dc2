package executor

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Instances of different versions must compute the same offsets: these values never change.
func TestSpread_OffsetsArePinned(t *testing.T) {
	for _, c := range []struct {
		job    string
		shard  int
		spread time.Duration
		want   time.Duration
	}{
		{"job", 0, time.Minute, 41_160_017_958},
		{"job", 1, time.Minute, 35_832_889_255},
		{"job", 9999, time.Minute, 17_803_034_204},
		{"settle/结算", 0, time.Millisecond, 909_522},
		{"settle/结算", 7, 24 * time.Hour, 2_356_430_306_752},
		{"", 0, time.Second, 369_897_212},
	} {
		assert.Equal(t, c.want, Cron("0 0 * * *").Spread(c.spread).Offset(c.job, c.shard), "%q %d %v", c.job, c.shard, c.spread)
	}
	assert.Zero(t, Every(time.Minute).Offset("job", 1))
	assert.Zero(t, Every(time.Minute).Spread(25*time.Hour).Offset("job", 1), "invalid")
}

// A shard whose run waits is busy: with a spread that is longer than the time to the next fire, it would miss fires.
func TestSpread_IsAtMostTheShortestTimeBetweenFires(t *testing.T) {
	day := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		s   Schedule
		gap time.Duration
	}{
		{Cron("* * * * *"), time.Minute},
		{Cron("* * * * * *"), time.Second},
		{Cron("0,50 * * * *"), 10 * time.Minute},
		{Cron("0 3 * * *"), 24 * time.Hour},
		{Cron("0 1,23 * * *"), 2 * time.Hour},
		{Cron("0 1,23 * * 1"), 22 * time.Hour},
		{Cron("0 1,23 1,31 * *"), 2 * time.Hour},
		{Cron("0 1,23 29 2 *"), 22 * time.Hour},
		{Cron("0 1,23 28,29 2 *"), 2 * time.Hour},
		{Quartz("0 0 1,23 1 1 ? 2027"), 22 * time.Hour},
		{Quartz("0 0 1,23 31 12 ? 2026"), 22 * time.Hour},
		{Every(90 * time.Second), 90 * time.Second},
		{At(day), 24 * time.Hour},
		{At(day, day.Add(time.Hour)), time.Hour},
	} {
		assert.NoError(t, c.s.Spread(c.gap).check(), "%v", c.s)
		if c.gap < maxSpread {
			assert.ErrorContains(t, c.s.Spread(c.gap+1).check(), "longer than "+durationText(c.gap)+", the shortest time between two fires", "%v", c.s)
		}
	}
}

// Shards of one job, and first shards of many jobs, are spread evenly.
func TestSpread_OffsetsAreEven(t *testing.T) {
	const n, parts = 10_000, 20
	for name, offset := range map[string]func(i int) time.Duration{
		"shards":        func(i int) time.Duration { return spreadOffset("job", i, parts*time.Second) },
		"jobs":          func(i int) time.Duration { return spreadOffset(fmt.Sprint("tenant-", i), 0, parts*time.Second) },
		"milliseconds":  func(i int) time.Duration { return spreadOffset(fmt.Sprint(i), i, time.Millisecond) * parts * 1000 },
		"shards of day": func(i int) time.Duration { return spreadOffset("job", i, 24*time.Hour) / (24 * 3600 / parts) },
	} {
		var counts [parts]int
		for i := range n {
			counts[offset(i)/time.Second]++ // panics beyond the spread
		}
		assert.Greater(t, slices.Min(counts[:]), n/parts*8/10, "%s: %v", name, counts)
		assert.Less(t, slices.Max(counts[:]), n/parts*12/10, "%s: %v", name, counts)
	}
}

func TestPool_Delays(t *testing.T) {
	type ended struct {
		shard int
		err   error
	}
	// delayed is a pool with tasks of which the one of shard n is delayed by n seconds.
	type delayed struct {
		pool
		mu   sync.Mutex
		ends []ended
	}
	add := func(ctx context.Context, p *delayed, shard int, handsBack bool) {
		end := func(err error) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.ends = append(p.ends, ended{shard, err})
		}
		p.addDelayed(&task{
			job: "job", shard: shard, fire: at(1), ctx: ctx, end: end, handsBack: handsBack,
			do: func() { time.Sleep(100 * time.Millisecond); end(nil) }, delay: time.Duration(shard) * time.Second,
		})
	}
	bubbled := func(name string, f func(t *testing.T, p *delayed)) {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { f(t, &delayed{}) }) })
	}
	bubbled("run tasks in the order of their instants, without goroutines meanwhile", func(t *testing.T, p *delayed) {
		for _, shard := range []int{3, 1, 2, 5, 4} {
			add(t.Context(), p, shard, true)
		}
		stacks := make([]byte, 1<<20)
		assert.NotContains(t, string(stacks[:runtime.Stack(stacks, true)]), "(*pool)")
		began := time.Now()
		<-p.idle()
		assert.Equal(t, 5100*time.Millisecond, time.Since(began))
		assert.Equal(t, []ended{{1, nil}, {2, nil}, {3, nil}, {4, nil}, {5, nil}}, p.ends)
	})
	bubbled("have tasks wait for a worker from their instants on, not from their claims", func(t *testing.T, p *delayed) {
		claimed := time.Now()
		waits := &task{job: "job", ctx: t.Context(), since: claimed, do: func() {}, end: func(error) {}, delay: time.Hour}
		p.addDelayed(waits)
		assert.Equal(t, claimed.UTC(), p.delayedByJob()["job"].Since)
		time.Sleep(time.Hour)
		synctest.Wait()
		p.pool.mu.Lock()
		assert.Equal(t, claimed.Add(time.Hour), waits.since)
		p.pool.mu.Unlock()
		<-p.idle()
	})
	bubbled("end one run, if it may be handed back", func(t *testing.T, p *delayed) {
		add(t.Context(), p, 1, true)
		add(t.Context(), p, 2, false)
		for _, shard := range []int{1, 2, 3} {
			p.handBackDelayed("job", shard)
			p.handBackDelayed("other", shard)
		}
		assert.Equal(t, []ended{{1, errNotBegun}}, p.ends)
		began := time.Now()
		<-p.idle()
		assert.Equal(t, []ended{{1, errNotBegun}, {2, nil}}, p.ends)
		assert.Equal(t, 2100*time.Millisecond, time.Since(began), "the other one waits for its instant")
		p.handBackDelayed("job", 2)
	})
	bubbled("end with a drain, and are idle then", func(t *testing.T, p *delayed) {
		add(t.Context(), p, 1000, true)
		add(t.Context(), p, 2000, false)
		idle := p.idle()
		began := time.Now()
		p.drainDelayed()
		<-idle
		assert.Equal(t, 100*time.Millisecond, time.Since(began))
		assert.Equal(t, []ended{{1000, errNotBegun}, {2000, nil}}, p.ends)
		add(t.Context(), p, 3000, true) // claimed before, and started late
		add(t.Context(), p, 4000, false)
		<-p.idle()
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
		<-p.idle()
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
		<-p.idle()
		assert.Contains(t, p.ends, ended{1, nil})
	})
}
