package executor

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestQueue_Waits(t *testing.T) {
	live, over := t.Context(), func() context.Context {
		ctx, end := context.WithCancel(context.Background())
		end()
		return ctx
	}()
	waiting := func(job string, shard, since int) *task {
		return &task{job: job, shard: shard, fire: at(since), added: at(since), since: at(since).UTC(), ctx: live}
	}
	t.Run("names nothing if nothing waits", func(t *testing.T) {
		q := queue{bound: 2}
		q.adds(waiting("a", 0, 1), waiting("b", 0, 1))
		q.drain()
		assert.Empty(t, q.waitingByJob())
	})
	t.Run("names the job's own bound, or the bound over all and who is behind it", func(t *testing.T) {
		q := queue{bound: 3}
		q.setBound("own", 1)
		q.adds(waiting("own", 0, 1), waiting("settle", 0, 1), waiting("settle", 1, 1))
		q.drain()
		q.adds(waiting("own", 7, 4), waiting("own", 3, 3), waiting("own", 5, 5), waiting("poll", 2, 6))
		q.drain()
		assert.Equal(t, map[string]jobWaits{
			"own":  {Waiting{Shards: []int{3, 5, 7}, Since: at(3).UTC(), Behind: "MaxRunning 1 of this job"}, at(3), true},
			"poll": {Waiting{Shards: []int{2}, Since: at(6).UTC(), Behind: "Workers 3, busy with settle (2), own (1)"}, at(6), false},
		}, q.waitingByJob())
	})
	t.Run("names few of many jobs that are running", func(t *testing.T) {
		q := queue{bound: 5}
		for i := range 5 {
			q.add(waiting(fmt.Sprint("job-", i), 0, 1))
		}
		q.drain()
		q.add(waiting("late", 0, 2))
		assert.Equal(t, "Workers 5, busy with job-0 (1), job-1 (1), job-2 (1) and 2 more jobs", q.waitingByJob()["late"].Behind)
		delete(q.jobs, "job-4")
		assert.Equal(t, "job-0 (1), job-1 (1), job-2 (1) and 1 more job", q.busiest())
	})
	t.Run("leaves out runs whose session has ended, which are over", func(t *testing.T) {
		q := queue{bound: 1}
		q.adds(waiting("a", 0, 1))
		q.drain()
		gone, also := waiting("a", 1, 2), waiting("b", 1, 2)
		gone.ctx, also.ctx = over, over
		q.adds(gone, also, waiting("a", 1, 3))
		waits := q.waitingByJob()
		assert.Len(t, waits, 1)
		assert.Equal(t, []int{1}, waits["a"].Shards)
		assert.Equal(t, at(3).UTC(), waits["a"].Since)
	})
}

func TestWaitReport(t *testing.T) {
	since := func(second int) jobWaits { return jobWaits{Waiting: Waiting{Shards: []int{0}}, added: at(second)} }
	published := func(n waitChanges) []string {
		var jobs []string
		for _, job := range []string{"a", "b", "c"} {
			if _, ok := n.publish[job]; ok {
				jobs = append(jobs, job)
			}
		}
		return jobs
	}
	t.Run("is of nothing before runs have waited for 10 s, and looks when they have", func(t *testing.T) {
		var r waitReport
		n := r.changes(map[string]jobWaits{"a": since(0), "b": since(3)}, at(8))
		assert.Empty(t, n.publish)
		assert.Empty(t, n.began)
		assert.Equal(t, 2*time.Second, n.again)
		n = r.changes(map[string]jobWaits{"b": since(3)}, at(10))
		assert.Empty(t, n.publish)
		assert.Equal(t, 3*time.Second, n.again)
		assert.Equal(t, longWait, r.changes(nil, at(13)).again)
	})
	t.Run("is published each 10 s at most, and logged once per job", func(t *testing.T) {
		var r waitReport
		n := r.changes(map[string]jobWaits{"b": since(1), "a": since(1), "c": since(9)}, at(11))
		assert.Equal(t, []string{"a", "b"}, published(n))
		assert.Equal(t, []string{"a", "b"}, n.began)
		assert.Equal(t, longWait, n.again, "though c has waited for 10 s sooner")
		n = r.changes(map[string]jobWaits{"b": since(1), "a": since(1), "c": since(9)}, at(21))
		assert.Equal(t, []string{"a", "b", "c"}, published(n))
		assert.Equal(t, []string{"c"}, n.began)
	})
	t.Run("ends with the wait", func(t *testing.T) {
		var r waitReport
		r.changes(map[string]jobWaits{"a": since(0), "b": since(0)}, at(10))
		n := r.changes(map[string]jobWaits{"b": since(0), "a": since(15)}, at(20))
		assert.Equal(t, []string{"b"}, published(n))
		assert.Equal(t, []string{"a"}, n.over)
		n = r.changes(nil, at(30))
		assert.Empty(t, n.publish)
		assert.Equal(t, []string{"b"}, n.over)
		n = r.changes(nil, at(40))
		assert.Empty(t, n.over)
	})
	t.Run("of a job that waits again and again is logged each 10 minutes at most, and published each time", func(t *testing.T) {
		var r waitReport
		began, over := 0, 0
		for second := 0; second < 1800; second += 20 {
			n := r.changes(map[string]jobWaits{"a": since(second)}, at(second+10))
			assert.Equal(t, []string{"a"}, published(n))
			began += len(n.began)
			over += len(r.changes(nil, at(second+20)).over)
		}
		assert.Equal(t, 3, began)
		assert.Equal(t, 3, over)
	})
	t.Run("has the jobs that have waited longest first", func(t *testing.T) {
		var r waitReport
		assert.Equal(t, []string{"c", "a", "b"}, r.changes(map[string]jobWaits{"a": since(3), "b": since(4), "c": since(2)}, at(100)).began)
	})
}

func TestLogJobs_CountsThoseBeyondTheFirst(t *testing.T) {
	var jobs []string
	for i := range 25 {
		jobs = append(jobs, fmt.Sprint(i))
	}
	var one []string
	more := 0
	logFirstJobs(jobs, func(job string) { one = append(one, job) }, func(n int) { more += n })
	assert.Equal(t, jobs[:10], one)
	assert.Equal(t, 15, more)
	logFirstJobs(jobs[:10], func(string) {}, func(int) { t.Error("there are no more") })
}
