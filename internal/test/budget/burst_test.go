package budget_test

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/internal/onecpu"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/schedule"
)

// perCommit is how many records of small jobs a commit of a bulk change writes at least, on average.
const perCommit = 50

// Each job of one shard has run before it moves, so its claims move, too.
func TestBudget_StartAndStopWithTenThousandJobs(t *testing.T) {
	defer onecpu.Hold()()
	const all = 10_000
	synctest.Test(t, func(t *testing.T) {
		p := &phases{t: t}
		defer p.log()
		f := newFleet(t, newMemory())
		defer f.stop()
		const every = time.Minute
		job := idle(1)
		job.Schedule = schedule.Every(every)

		sleepUntilHalf(every)
		f.start("a", jobs(all, job)...)
		p.check("the first instance starts", f.countUntilAssigned(all),
			atMost{2*all/perCommit + 10, 700 * all, 10, 2*all + 10})

		sleepUntilHalf(every)
		f.countPhase()
		f.start("b", jobs(all, job)...)
		p.check("a second instance joins", f.countUntilAssigned(all),
			atMost{all/perCommit + 10, 700 * all, 10, all + 2*all + 10})
		assert.Equal(t, all, totalKeys("/plan/", f.log), "two plans for each of the jobs that move")

		sleepUntilHalf(every)
		f.countPhase()
		f.leave("b")
		p.check("the second instance leaves", f.countUntilAssigned(all),
			atMost{all/2/perCommit + 10, 1024 * all / 2, 10, all + 10})

		sleepUntilHalf(every)
		f.countPhase()
		f.leave("a")
		p.check("the last instance leaves", f.countPhase(),
			atMost{all/perCommit + 10, 1024 * all, 10, all + 10})
	})
}

// A commit takes 2 ms. Fires of jobs that neither move nor pause stay on time, some of which come all the time.
func TestBudget_DisableAndPauseOfFiveThousandJobs(t *testing.T) {
	defer onecpu.Hold()()
	const all, half, dense = 10_000, 5_000, 20
	synctest.Test(t, func(t *testing.T) {
		p := &phases{t: t}
		defer p.log()
		s := newMemory()
		s.delay = time.Millisecond
		f := newFleet(t, s)
		defer f.stop()
		runs := &runsByJob{}
		const every = 10 * time.Second
		offered := jobs(all, executor.Job{Name: "job", Shards: 1, Schedule: schedule.Every(every), Handler: runs})
		for i := range dense {
			offered[half+i*half/dense].Schedule = schedule.Every(100 * time.Millisecond)
		}
		const denseTxns = 2 * 2 * 2500 / 100 // of two instances, in the time of a change
		f.start("a", offered...)
		f.start("b", offered...)
		f.awaitAssigned(all)
		sleepUntilHalf(every)
		op, err := operator.New(s.open(t, "operator"), "test", "default")
		require.NoError(t, err)

		// change counts a change between two fires, and returns the runs by job of the next fire.
		change := func(what string, most atMost, do func()) map[string]int {
			runs.reset()
			sleepUntilHalf(every)
			before := runs.lastInstances()
			f.countPhase()
			runs.reset()
			do()
			time.Sleep(time.Until(time.Now().Truncate(every).Add(every * 3 / 4)))
			p.check(what, f.countPhase(), most)
			stayed, late := 0, time.Duration(0)
			for job, instance := range runs.lastInstances() {
				if before[job] == instance {
					stayed++
					late = max(late, runs.latestOf(job))
				}
			}
			t.Logf("%s: %d jobs went on without a move, at most %v late", what, stayed, late)
			assert.GreaterOrEqual(t, stayed, dense/4)
			assert.LessOrEqual(t, late, 20*time.Millisecond)
			runs.reset()
			time.Sleep(every / 2)
			assert.LessOrEqual(t, f.countPhase().reads, 1, "reads of the fire, and of a leader that completes the change")
			assert.LessOrEqual(t, runs.latest(), 100*time.Millisecond)
			return runs.byJob()
		}
		b := operator.Scope{Instances: []string{"b"}}
		byJob := change("an instance with 5,000 jobs is disabled",
			atMost{all/perCommit + half/perCommit + denseTxns, 1600 * half, 10, 5 * half},
			func() { require.NoError(t, op.Disable(t.Context(), b)) })
		assert.Equal(t, all, len(byJob))
		assert.Zero(t, runs.byInstance()["b"])

		byJob = change("it is enabled",
			atMost{all/perCommit + half/perCommit + denseTxns, 1800 * half, 10, 7 * half},
			func() { require.NoError(t, op.Enable(t.Context(), b)) })
		assert.Equal(t, all, len(byJob))
		assert.Positive(t, runs.byInstance()["b"])

		// The operator commits once for each job and reads before; the fleet's part is small.
		byJob = change("5,000 jobs are paused by a call each",
			atMost{half + 2*half/perCommit + denseTxns, 1300 * half, 6*half + 10, 3*half + 10},
			func() { forEachJob(offered[:half], func(job string) { assert.NoError(t, op.Pause(t.Context(), job)) }) })
		assert.Equal(t, half, len(byJob))
		assert.Zero(t, byJob[offered[0].Name])

		byJob = change("they are resumed",
			atMost{half + 2*half/perCommit + denseTxns, 1500 * half, 4 * half, 3*half + 10}, // 100 of them are the two acts on record
			func() {
				forEachJob(offered[:half], func(job string) { assert.NoError(t, op.Resume(t.Context(), job)) })
			})
		assert.Equal(t, all, len(byJob))
	})
}

// forEachJob calls do for each job, in so many goroutines that leaders make few decisions meanwhile: those take
// no virtual time.
func forEachJob(jobs []executor.Job, do func(job string)) {
	const parallel = 1000
	var all sync.WaitGroup
	for part := range slices.Chunk(jobs, (len(jobs)+parallel-1)/parallel) {
		all.Go(func() {
			for _, j := range part {
				do(j.Name)
			}
		})
	}
	all.Wait()
}

// A commit takes 2 ms. Each of the crashed instance's jobs has a due fire when the session ends, and
// some jobs fire all the time.
func TestBudget_FailoverOfFiveThousandJobs(t *testing.T) {
	defer onecpu.Hold()()
	const all, share, dense = 15_000, 5_000, 30
	synctest.Test(t, func(t *testing.T) {
		p := &phases{t: t}
		defer p.log()
		s := newMemory()
		s.delay = time.Millisecond
		f := newFleet(t, s)
		defer f.stop()
		runs := &runsByJob{}
		const every = 10 * time.Second
		offered := jobs(all, executor.Job{Name: "job", Shards: 1, Schedule: schedule.Every(every), Handler: runs})
		for i := range dense {
			offered[i*all/dense].Schedule = schedule.Every(50 * time.Millisecond)
		}
		for _, name := range []string{"a", "b", "c"} {
			f.start(name, offered...)
		}
		f.awaitAssigned(all)
		sleepUntilHalf(every)
		f.countPhase()

		crashed := "a"
		if f.leader == crashed {
			crashed = "b"
		}
		heal := s.silence(crashed)
		defer heal()
		runs.reset()
		for s.ended[crashed].IsZero() {
			time.Sleep(time.Millisecond)
			f.applyCommits(s.follow())
		}
		others := runs.byJob()
		assert.Equal(t, all-share, len(others))
		assert.LessOrEqual(t, runs.latest(), 100*time.Millisecond)
		f.countPhase()

		runs.reset()
		time.Sleep(time.Second)
		last, late, moved := time.Duration(0), time.Duration(0), 0
		for job, at := range runs.firstStarts() {
			if others[job] == 0 {
				moved++
				last = max(last, at.Sub(s.ended[crashed]))
			} else {
				late = max(late, runs.latestOf(job))
			}
		}
		p.check("an instance with 5,000 of 15,000 jobs expires", f.countPhase(),
			atMost{share / 4, 1700 * share, 10, 3 * share})
		t.Logf("the last due fire was claimed elsewhere %v after the session expired; others were at most %v late", last, late)
		assert.Equal(t, share, moved)
		assert.LessOrEqual(t, last, time.Second)
		assert.LessOrEqual(t, late, 100*time.Millisecond)
	})
}

// runsByJob is a handler that records the runs of each job.
type runsByJob struct {
	mu       sync.Mutex
	count    map[string]int
	instance map[string]int
	last     map[string]string // by job: the instance of its last run
	first    map[string]time.Time
	late     map[string]time.Duration
}

func (r *runsByJob) Handle(_ context.Context, run *executor.Run) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.count == nil {
		r.count, r.instance, r.first, r.late = map[string]int{}, map[string]int{}, map[string]time.Time{}, map[string]time.Duration{}
		r.last = map[string]string{}
	}
	r.count[run.Job]++
	r.instance[run.Instance]++
	r.last[run.Job] = run.Instance
	if r.first[run.Job].IsZero() {
		r.first[run.Job] = time.Now()
	}
	r.late[run.Job] = max(r.late[run.Job], time.Since(run.FireTime))
	return nil
}

func (r *runsByJob) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count, r.instance, r.last, r.first, r.late = nil, nil, nil, nil, nil
}

// byJob returns the runs of each job since the last reset.
func (r *runsByJob) byJob() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.count)
}

// byInstance returns the runs of each instance since the last reset.
func (r *runsByJob) byInstance() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.instance)
}

// lastInstances returns the instance of each job's last run since the last reset.
func (r *runsByJob) lastInstances() map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.last)
}

// firstStarts returns when the first run of each job since the last reset began.
func (r *runsByJob) firstStarts() map[string]time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.first)
}

// latest returns the greatest lateness of a run since the last reset.
func (r *runsByJob) latest() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	late := time.Duration(0)
	for _, d := range r.late {
		late = max(late, d)
	}
	return late
}

// latestOf returns the greatest lateness of a job's runs since the last reset.
func (r *runsByJob) latestOf(job string) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.late[job]
}
