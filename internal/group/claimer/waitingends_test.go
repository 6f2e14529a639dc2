package claimer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/claiming"
	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/group/due"
	"github.com/rota-dev/rota/internal/group/feed"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

// regular is a program with regular fires, which counts its calls.
type regular struct {
	interval time.Duration
	calls    *atomic.Int64
}

func (p regular) Due(last, _, now time.Time) due.Due {
	p.calls.Add(1)
	next := last.Truncate(p.interval).Add(p.interval)
	if next.After(now) {
		return due.Due{Wake: next}
	}
	return due.Due{Fire: next}
}

func (p regular) SkipDue(last, until, now time.Time) due.Due { return p.Due(last, until, now) }

// timedWork is a Work whose runs take some time.
type timedWork struct {
	intervals []time.Duration // by job; a job's number is the revision of its definition
	calls     atomic.Int64    // of the programs
	duration  func(Run) time.Duration

	mu     sync.Mutex
	starts map[string][]time.Time // by job
}

func (w *timedWork) Compile(def json.RawMessage) (due.Program, error) {
	job, err := record.ParseJob(def)
	return regular{w.intervals[job.Revision], &w.calls}, err
}

func (w *timedWork) Start(ctx context.Context, r Run, shards iter.Seq[int], done Done) {
	for r.Shard = range shards {
		w.mu.Lock()
		w.starts[r.Job] = append(w.starts[r.Job], time.Now())
		w.mu.Unlock()
		go func() {
			select {
			case <-time.After(w.duration(r)):
			case <-ctx.Done():
			}
			done(r.Shard, nil)
		}()
	}
}

func (w *timedWork) Yield(string, int, error) {}

// claimingFixture is a claimer of jobs of one shard on a registry in memory.
type claimingFixture struct {
	*timedWork
	server *memory.Server
	keys   record.Keys
	skew   atomic.Int64 // of the wall clock, in nanoseconds
}

// everySecond returns the intervals of jobs that fire each second.
func everySecond(jobs int) []time.Duration { return slices.Repeat([]time.Duration{time.Second}, jobs) }

// runClaimer runs a claimer, calls test after 10.5 s, and ends the claimer.
func runClaimer(t *testing.T, intervals []time.Duration, duration func(Run) time.Duration, test func(t *testing.T, f *claimingFixture)) {
	synctest.Test(t, func(t *testing.T) {
		f := &claimingFixture{timedWork: &timedWork{intervals: intervals, duration: duration, starts: map[string][]time.Time{}}, server: memory.New()}
		f.server.Record()
		reg := f.server.Client("me")
		session, err := reg.OpenSession(t.Context(), registry.SessionOptions{TTL: time.Hour})
		require.NoError(t, err)
		f.keys, err = record.NewKeys("test", "default")
		require.NoError(t, err)
		log := slog.New(slog.DiscardHandler)
		plans := feed.New(f.keys.Plans(), log, func(registry.Entry) (*record.Plan, error) { return nil, nil })
		plans.ApplyBatch(registry.Batch{Kind: registry.Snapshot})
		for i := range intervals {
			plan := coordtest.PlanOfOwnShards(t, 1)
			plan.Job = fmt.Sprintf("job-%04d", i)
			epoch, err := record.NewEpoch(1, record.InstantOf(time.Now()), []byte(coordtest.Def(plan.Job, i, 1, "")))
			require.NoError(t, err)
			plan.Epochs = []record.Epoch{epoch}
			rev, err := reg.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Create(f.keys.Plan(plan.Job), nil)}})
			require.NoError(t, err)
			plans.RecordWrite(plan.Job, rev, plan)
		}
		c := New(Config{
			Clock: func() time.Time { return time.Now().Add(time.Duration(f.skew.Load())) }, Keys: f.keys, Reg: reg, Session: session,
			Me: "me", Work: f, Log: log, Blocked: &BlockedShards{},
		}, plans)
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() { assert.ErrorIs(t, c.Run(ctx), context.Canceled) })
		time.Sleep(10*time.Second + 500*time.Millisecond)
		synctest.Wait()
		test(t, f)
		cancel()
		all.Wait()
		require.NoError(t, session.Close(t.Context()))
	})
}

// runningNow reports whether a job's claims record shows a run.
func (f *claimingFixture) runningNow(t *testing.T, job string) bool {
	t.Helper()
	e, err := f.server.Client("observer").Get(t.Context(), f.keys.Claims("me", job), registry.ReadOptions{})
	require.NoError(t, err)
	claims, err := record.DecodeClaims(e.Value)
	require.NoError(t, err)
	return len(claims.Running) > 0
}

func TestScheduleEnd(t *testing.T) {
	fire := coordtest.Fire(1, 1)
	for name, c := range map[string]struct {
		wake          time.Duration // after the end of the run; 0: the job has no next fire
		after         time.Duration // of the end, after the fire
		held, carried int
	}{
		"a short run's end waits for the next claim if that is soon":        {wake: time.Second, held: 0, carried: 1},
		"an end waits for others if the next claim is far":                  {wake: time.Second + 1, held: 1},
		"an end waits for others if the job has no next fire":               {held: 1},
		"an end waits for others if the run was long, whatever claim comes": {wake: time.Second, after: time.Second + 1, held: 1},
	} {
		t.Run(name, func(t *testing.T) {
			l := New(Config{Blocked: &BlockedShards{}}, nil)
			now := fire.Fire.Time().Add(c.after)
			j := &JobState{Segment: "job"}
			j.Claims.Running = coordtest.Runs(shardset.Of(0), fire)
			if c.wake > 0 {
				j.wake = record.InstantOf(now.Add(c.wake))
			}
			l.scheduleEnd(j, &claiming.EndedRun{Shard: 0}, now, now)
			assert.Len(t, l.held.jobs, c.held)
			assert.Len(t, l.carried.jobs, c.carried)
		})
	}
}

func TestWaitingEnds(t *testing.T) {
	const job = "job-0000"
	at := func(d time.Duration) func(Run) time.Duration { return func(Run) time.Duration { return d } }
	t.Run("the end of a short run is recorded by the next claim", func(t *testing.T) {
		runClaimer(t, []time.Duration{time.Second}, at(200*time.Millisecond), func(t *testing.T, f *claimingFixture) {
			assert.True(t, f.runningNow(t, job), "it ended 0.3 s ago")
			f.server.ResetCounts()
			time.Sleep(10 * time.Second)
			synctest.Wait()
			assert.Equal(t, 10, f.server.Counts("").Commits)
		})
	})
	t.Run("it is recorded within a second if the clock is set back, and no claim comes", func(t *testing.T) {
		runClaimer(t, []time.Duration{time.Second}, at(200*time.Millisecond), func(t *testing.T, f *claimingFixture) {
			f.skew.Store(int64(-time.Hour))
			time.Sleep(600 * time.Millisecond)
			assert.True(t, f.runningNow(t, job))
			time.Sleep(200 * time.Millisecond)
			assert.False(t, f.runningNow(t, job))
		})
	})
	t.Run("the end of a run that took longer than a second does not wait for the next claim", func(t *testing.T) {
		runClaimer(t, []time.Duration{5 * time.Second}, at(4300*time.Millisecond), func(t *testing.T, f *claimingFixture) {
			time.Sleep(3750 * time.Millisecond) // 14.25 s
			assert.True(t, f.runningNow(t, job))
			time.Sleep(200 * time.Millisecond) // it ended 150 ms ago
			assert.False(t, f.runningNow(t, job))
		})
	})
	t.Run("the end of another run is recorded within 100 ms while ends wait for a claim", func(t *testing.T) {
		durations := func(r Run) time.Duration {
			switch r.Job {
			case "job-0001":
				return 5300 * time.Millisecond
			case "job-0002":
				return time.Hour
			}
			return 10 * time.Millisecond
		}
		runClaimer(t, []time.Duration{time.Second, time.Minute, time.Second}, durations, func(t *testing.T, f *claimingFixture) {
			time.Sleep(54*time.Second + 750*time.Millisecond) // 65.25 s: the run of 60 s has not ended
			assert.True(t, f.runningNow(t, "job-0000"))
			assert.True(t, f.runningNow(t, "job-0001"))
			time.Sleep(160 * time.Millisecond) // it ended 110 ms ago
			assert.False(t, f.runningNow(t, "job-0001"))
			assert.True(t, f.runningNow(t, "job-0000"), "its end waits for the claim of 66 s")
		})
	})
	t.Run("a due fire starts at once when the run before it ends, beside a run that does not end", func(t *testing.T) {
		slow := func(r Run) time.Duration {
			if r.Job == job {
				return time.Hour
			}
			return 1500 * time.Millisecond
		}
		runClaimer(t, everySecond(2), slow, func(t *testing.T, f *claimingFixture) {
			starts := f.starts["job-0001"]
			require.Greater(t, len(starts), 5)
			for i, s := range starts[1:] {
				assert.Equal(t, 1500*time.Millisecond, s.Sub(starts[i]))
			}
		})
	})
}

// The next fires of other jobs wait for the last end of a fire, not for further ends to share its commit.
func TestClaimer_RecordsTheLastEndOfAFollowedJobAtOnce(t *testing.T) {
	for name, c := range map[string]struct {
		shards int
		fires  *record.Fires
		want   bool
	}{
		"of a job that no other follows": {1, nil, false},
		"of a job that others follow":    {1, &record.Fires{}, true},
		"while another shard runs":       {2, &record.Fires{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			clock := coordtest.At(1).Time()
			l := New(Config{Me: "me", Blocked: &BlockedShards{}, Clock: func() time.Time { return clock }}, nil)
			plan := coordtest.PlanOfOwnShards(t, c.shards)
			plan.Fires = c.fires
			j := &JobState{Segment: "job", Plan: plan, programs: map[int]due.Program{1: coordtest.Minutely{}}}
			run := coordtest.Fire(1, 1)
			all := shardset.Range(0, c.shards)
			j.Claims = record.Claims{Job: "job", Watermarks: record.Watermarks{}.Raise(all, run.Watermark()), Running: coordtest.Runs(all, run)}
			j.Ended = []claiming.EndedRun{{Shard: 0}}
			e := l.decide(j, clock)
			assert.Equal(t, c.want, e != nil)
			assert.Equal(t, !c.want, len(l.held.jobs) > 0)
		})
	}
}

// A batch whose fire came due meanwhile is one batch again, whatever wakes the claimer.
func TestClaimer_RecordsTheEndsOfOneCallTogether(t *testing.T) {
	clock := coordtest.At(1).Time()
	l := New(Config{Me: "me", Blocked: &BlockedShards{}, Clock: func() time.Time { return clock }}, nil)
	j := &JobState{Segment: "job", awaited: true, Plan: coordtest.PlanOfOwnShards(t, 3), programs: map[int]due.Program{1: coordtest.Minutely{}}}
	run, all := coordtest.Fire(1, 1), shardset.Range(0, 3)
	j.Claims = record.Claims{Job: "job", Watermarks: record.Watermarks{}.Raise(all, run.Watermark()), Running: coordtest.Runs(all, run)}
	l.Inbox.addRunning(3)
	failed := errors.New("no table")
	l.TrackRuns(t.Context(), j, all, record.Job{})(0, nil, End{1, failed}, End{2, nil})
	l.DrainInbox()
	require.Len(t, j.Ended, 3)
	for i, want := range []error{nil, failed, nil} {
		assert.Equal(t, i, j.Ended[i].Shard)
		assert.Equal(t, want, j.Ended[i].Err)
		assert.Equal(t, record.InstantOf(clock), j.Ended[i].At)
	}
	assert.Zero(t, l.Running)
	assert.Empty(t, l.Blocked.Running)
}

func TestClaimer_DecidesOncePerClaimOfManyJobs(t *testing.T) {
	for _, jobs := range []int{50, 500} {
		t.Run(fmt.Sprintf("%d jobs", jobs), func(t *testing.T) {
			runClaimer(t, everySecond(jobs), func(Run) time.Duration { return 0 }, func(t *testing.T, f *claimingFixture) {
				f.calls.Store(0)
				time.Sleep(10 * time.Second)
				synctest.Wait()
				assert.LessOrEqual(t, float64(f.calls.Load())/float64(10*jobs), 2.2, "calls of Due per fire: one for the fire, one for the next")
			})
		})
	}
}
