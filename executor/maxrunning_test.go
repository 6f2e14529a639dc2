package executor_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry/memory"
	"github.com/rota-dev/rota/schedule"
)

// busyProcess is one process with jobs whose runs take long.
type busyProcess struct {
	*executor.Executor
	t      *testing.T
	server *memory.Server

	mu   sync.Mutex
	runs map[string][]executor.Run // by job, in the order of their beginning
	late map[string]time.Duration  // by job: the longest time from a fire to its run
	busy map[string]int            // by job: handlers that have not returned
	most map[string]int            // by job: the most at once
	log  bytes.Buffer
}

// busyTest runs a test of a process with options, and stops the process.
func busyTest(t *testing.T, name string, o executor.Options, f func(t *testing.T, p *busyProcess)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := &busyProcess{
				t: t, server: memory.New(), runs: map[string][]executor.Run{}, late: map[string]time.Duration{},
				busy: map[string]int{}, most: map[string]int{},
			}
			p.server.Record()
			o.Instance, o.Logger = "a", slog.New(slog.NewTextHandler(p, nil))
			var err error
			p.Executor, err = executor.New(p.server.Client("a"), "test", o)
			require.NoError(t, err)
			require.NoError(t, p.Start(t.Context()))
			defer func() {
				ended, cancel := context.WithCancel(context.Background())
				cancel()
				p.Shutdown(ended)
			}()
			f(t, p)
		})
	})
}

// Write is for the log.
func (p *busyProcess) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.Write(b)
}

// logged returns the lines of the log that hold a text.
func (p *busyProcess) logged(text string) (lines []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for line := range strings.Lines(p.log.String()) {
		if strings.Contains(line, text) {
			lines = append(lines, line)
		}
	}
	return lines
}

// offer registers a job whose runs take so long, and are recorded.
func (p *busyProcess) offer(j executor.Job, runs time.Duration) {
	p.t.Helper()
	j.Handler = executor.HandlerFunc(func(ctx context.Context, r *executor.Run) error {
		p.mu.Lock()
		p.runs[r.Job] = append(p.runs[r.Job], *r)
		p.late[r.Job] = max(p.late[r.Job], time.Since(r.FireTime))
		p.busy[r.Job]++
		p.most[r.Job] = max(p.most[r.Job], p.busy[r.Job])
		p.mu.Unlock()
		defer func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.busy[r.Job]--
		}()
		return takes(runs)(ctx, r)
	})
	require.NoError(p.t, p.Register(j))
}

func (p *busyProcess) ran(job string) []executor.Run {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.runs[job]
}

// mostAtOnce returns the most runs of a job that there have been at once.
func (p *busyProcess) mostAtOnce(job string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.most[job]
}

// shown returns the runs of a job that wait for a worker of the process, as the fleet sees it.
func (p *busyProcess) shown(job string) executor.Waiting {
	p.t.Helper()
	synctest.Wait()
	o, err := operator.New(p.server.Client("console"), "test", "")
	require.NoError(p.t, err)
	st, err := o.Status(p.t.Context(), job)
	require.NoError(p.t, err)
	require.Len(p.t, st.Members, 1)
	return st.Members[0].Waiting
}

// memberCommits returns how often the process has written its member record since the last call.
func (p *busyProcess) memberCommits() (n int) {
	for _, c := range p.server.Log() {
		for _, op := range c.Then {
			if c.Err == nil && strings.Contains(string(op.Key), "/members/") {
				n++
			}
		}
	}
	return n
}

var (
	nightly = executor.Job{Name: "settle", Schedule: schedule.Every(time.Hour), Shards: 8}
	often   = executor.Job{Name: "poll", Schedule: schedule.Every(10 * time.Second)}
)

func defaultMaxRunning() int { return max(16, 4*runtime.GOMAXPROCS(0)) }

func TestMaxRunning(t *testing.T) {
	busyTest(t, "by default lets no job hold up another, however many long runs that has", executor.Options{}, func(t *testing.T, p *busyProcess) {
		long := nightly
		long.Shards = 2*defaultMaxRunning() + 8*runtime.NumCPU()
		p.offer(long, 10*time.Minute)
		p.offer(often, time.Second)
		until(59)
		before := len(p.ran("poll"))
		until(99)
		fires := p.ran("poll")[before:]
		assert.Len(t, fires, 40*6)
		for _, r := range fires {
			assert.Equal(t, executor.Scheduled, r.Reason)
		}
		assert.Less(t, p.late["poll"], time.Second)
	})
	busyTest(t, "by default bounds the runs of a job of 10,000 shards", executor.Options{}, func(t *testing.T, p *busyProcess) {
		wide := nightly
		wide.Shards = 10_000
		p.offer(wide, time.Second)
		until(61)
		assert.Equal(t, defaultMaxRunning(), p.mostAtOnce("settle"))
		assert.InDelta(t, 60*defaultMaxRunning(), len(p.ran("settle")), float64(2*defaultMaxRunning()))
		w := p.Waiting()["settle"]
		assert.Equal(t, 10_000, len(w.Shards)+len(p.ran("settle")))
		assert.Equal(t, fmt.Sprintf("MaxRunning %d of this job", defaultMaxRunning()), w.Behind)
		assert.WithinDuration(t, minute(60), w.Since, time.Second)
	})
	busyTest(t, "bounds each job on its own", executor.Options{}, func(t *testing.T, p *busyProcess) {
		a, b := nightly, nightly
		a.Name, a.MaxRunning, b.Name, b.MaxRunning = "a", 2, "b", 5
		p.offer(a, time.Minute)
		p.offer(b, time.Minute)
		until(70)
		assert.Equal(t, []int{2, 5}, []int{p.mostAtOnce("a"), p.mostAtOnce("b")})
		assert.Equal(t, []int{8, 8}, []int{len(p.ran("a")), len(p.ran("b"))})
	})
	busyTest(t, "takes effect with the runs that begin after Register, without a higher Revision", executor.Options{}, func(t *testing.T, p *busyProcess) {
		j := nightly
		j.MaxRunning = 2
		p.offer(j, 10*time.Minute)
		until(61)
		require.Len(t, p.ran("settle"), 2)
		j.MaxRunning = 5
		p.offer(j, 10*time.Minute)
		synctest.Wait()
		assert.Len(t, p.ran("settle"), 5)
		j.MaxRunning = 0
		p.offer(j, 10*time.Minute)
		synctest.Wait()
		assert.Len(t, p.ran("settle"), 8, "the default again")
		for _, e := range p.server.Dump() {
			assert.NotContains(t, strings.ToLower(string(e.Value)), "running\":5", "it is not stored")
			assert.NotContains(t, strings.ToLower(string(e.Value)), "max_running")
		}
	})
}

func TestWorkers(t *testing.T) {
	busyTest(t, "gives a worker that gets free to the job with the fewest running", executor.Options{Workers: 2}, func(t *testing.T, p *busyProcess) {
		p.offer(nightly, 10*time.Minute)
		p.offer(often, time.Second)
		until(101)
		assert.Less(t, p.late["poll"], 10*time.Minute+10*time.Second, "it waits for one long run, not for all eight")
		assert.Len(t, p.ran("settle"), 8)
	})
	busyTest(t, "delays no job if those with long runs have a MaxRunning below it", executor.Options{Workers: 2}, func(t *testing.T, p *busyProcess) {
		long := nightly
		long.MaxRunning = 1
		p.offer(long, 10*time.Minute)
		p.offer(often, time.Second)
		until(59)
		before := len(p.ran("poll"))
		until(99)
		assert.Len(t, p.ran("poll")[before:], 40*6)
		assert.Less(t, p.late["poll"], time.Second)
	})
	busyTest(t, "bounds the runs of all jobs together", executor.Options{Workers: 3}, func(t *testing.T, p *busyProcess) {
		a, b := nightly, nightly
		a.Name, b.Name = "a", "b"
		p.offer(a, 10*time.Minute)
		p.offer(b, 10*time.Minute)
		until(61)
		assert.Equal(t, 3, len(p.ran("a"))+len(p.ran("b")))
	})
}

func TestReason_Queued(t *testing.T) {
	reasons := func(p *busyProcess, job string) (out []executor.Reason) {
		for _, r := range p.ran(job) {
			out = append(out, r.Reason)
		}
		return out
	}
	one := func(o executor.Job) executor.Job {
		o.Shards, o.MaxRunning = 3, 1
		return o
	}
	busyTest(t, "is that of a run whose fire came in time and which waited for a worker for more than a second", executor.Options{}, func(t *testing.T, p *busyProcess) {
		p.offer(one(nightly), 700*time.Millisecond)
		until(61)
		assert.Equal(t, []executor.Reason{executor.Scheduled, executor.Scheduled, executor.Queued}, reasons(p, "settle"),
			"the second waited for 0.7 s, the third for 1.4 s")
		assert.Equal(t, "queued", p.ran("settle")[2].Reason.String())
	})
	busyTest(t, "is not that of a triggered run", executor.Options{}, func(t *testing.T, p *busyProcess) {
		j := one(nightly)
		j.Schedule = schedule.OnTrigger()
		p.offer(j, time.Minute)
		until(1)
		_, err := p.Trigger(t.Context(), "settle", executor.Trigger{})
		require.NoError(t, err)
		until(10)
		assert.Equal(t, []executor.Reason{executor.Triggered, executor.Triggered, executor.Triggered}, reasons(p, "settle"))
	})
	busyTest(t, "is not that of a misfire", executor.Options{}, func(t *testing.T, p *busyProcess) {
		j := one(nightly)
		j.Schedule = schedule.Every(time.Minute)
		p.offer(j, 50*time.Second)
		until(7)
		reason := map[string]executor.Reason{}
		for _, r := range p.ran("settle") {
			reason[fmt.Sprintf("%d/%d", r.Shard, r.FireTime.Minute())] = r.Reason
		}
		require.Equal(t, executor.Queued, reason["1/1"], "it ends at 2:40")
		assert.Equal(t, executor.Misfire, reason["1/2"], "it was claimed 40 s late, and then waited")
	})
}

func TestWaiting(t *testing.T) {
	busyTest(t, "is shown by the process at once, by the fleet after 10 s, and logged once", executor.Options{Workers: 2}, func(t *testing.T, p *busyProcess) {
		p.offer(nightly, 10*time.Minute)
		p.offer(often, time.Second)
		until(60)
		time.Sleep(10 * time.Second) // the fire of 01:00:10 at the latest waits
		p.memberCommits()
		local := p.Waiting()
		require.Contains(t, local, "poll")
		assert.Equal(t, []int{0}, local["poll"].Shards)
		assert.Equal(t, "Workers 2, busy with settle (2)", local["poll"].Behind)
		assert.Len(t, local["settle"].Shards, 6)

		time.Sleep(20 * time.Second)
		shown := p.shown("poll")
		assert.Equal(t, []int{0}, shown.Shards)
		assert.Equal(t, "Workers 2, busy with settle (2)", shown.Behind)
		assert.Equal(t, local["poll"].Since, shown.Since)
		assert.Len(t, p.shown("settle").Shards, 6)
		time.Sleep(8 * time.Minute)
		assert.LessOrEqual(t, p.memberCommits(), 2, "nothing has changed since")

		lines := p.logged("runs wait for a worker")
		require.Len(t, lines, 2, "one for each job")
		all := strings.Join(lines, "")
		assert.Contains(t, all, "level=WARN")
		assert.Regexp(t, `job=poll waiting=1 since=\S+ behind="Workers 2, busy with settle \(2\)" remedy="raise Workers, or start more instances"`, all)
		assert.Regexp(t, `job=settle waiting=6 `, all)

		until(105)
		assert.Zero(t, p.shown("poll"))
		assert.Zero(t, p.shown("settle"))
		assert.Empty(t, p.Waiting())
		assert.NotEmpty(t, p.logged("level=INFO msg=\"runs no longer wait for a worker\""))
		late := false
		for _, r := range p.ran("poll") {
			late = late || r.Reason == executor.Queued
		}
		assert.True(t, late, "the run that waited has the reason")

		until(121)
		assert.NotEmpty(t, p.shown("settle").Shards, "it waits again")
		assert.Greater(t, len(p.logged("runs wait for a worker")), 2)
	})
	busyTest(t, "costs no commit and no line if runs wait for less than 10 s", executor.Options{}, func(t *testing.T, p *busyProcess) {
		j := nightly
		j.Schedule, j.MaxRunning = schedule.Every(10*time.Second), 2
		p.offer(j, 2*time.Second)
		until(1)
		require.NotZero(t, p.memberCommits())
		until(60)
		assert.Greater(t, len(p.ran("settle")), 8*350)
		assert.Zero(t, p.memberCommits())
		assert.Empty(t, p.logged("worker"))
	})
	busyTest(t, "says that a run waits for the job's own bound", executor.Options{}, func(t *testing.T, p *busyProcess) {
		j := nightly
		j.MaxRunning = 3
		p.offer(j, 10*time.Minute)
		until(61)
		w := p.shown("settle")
		assert.Len(t, w.Shards, 5)
		assert.Equal(t, "MaxRunning 3 of this job", w.Behind)
		assert.WithinDuration(t, minute(60), w.Since, time.Second)
		require.Len(t, p.logged("runs wait for a worker"), 1)
		assert.Contains(t, p.logged("runs wait for a worker")[0], "remedy=\"raise the job's MaxRunning, or start more instances\"")
	})
}
