package executor

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/rota-dev/rota/executor/internal/pool"
)

func at(second int) time.Time { return time.Unix(int64(second), 0) }

func TestWaitReport(t *testing.T) {
	since := func(second int) pool.Waits { return pool.Waits{Shards: []int{0}, Added: at(second)} }
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
		n := r.changes(map[string]pool.Waits{"a": since(0), "b": since(3)}, at(8))
		assert.Empty(t, n.publish)
		assert.Empty(t, n.began)
		assert.Equal(t, 2*time.Second, n.again)
		n = r.changes(map[string]pool.Waits{"b": since(3)}, at(10))
		assert.Empty(t, n.publish)
		assert.Equal(t, 3*time.Second, n.again)
		assert.Equal(t, longWait, r.changes(nil, at(13)).again)
	})
	t.Run("is published each 10 s at most, and logged once per job", func(t *testing.T) {
		var r waitReport
		n := r.changes(map[string]pool.Waits{"b": since(1), "a": since(1), "c": since(9)}, at(11))
		assert.Equal(t, []string{"a", "b"}, published(n))
		assert.Equal(t, []string{"a", "b"}, n.began)
		assert.Equal(t, longWait, n.again, "though c has waited for 10 s sooner")
		n = r.changes(map[string]pool.Waits{"b": since(1), "a": since(1), "c": since(9)}, at(21))
		assert.Equal(t, []string{"a", "b", "c"}, published(n))
		assert.Equal(t, []string{"c"}, n.began)
	})
	t.Run("ends with the wait", func(t *testing.T) {
		var r waitReport
		r.changes(map[string]pool.Waits{"a": since(0), "b": since(0)}, at(10))
		n := r.changes(map[string]pool.Waits{"b": since(0), "a": since(15)}, at(20))
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
			n := r.changes(map[string]pool.Waits{"a": since(second)}, at(second+10))
			assert.Equal(t, []string{"a"}, published(n))
			began += len(n.began)
			over += len(r.changes(nil, at(second+20)).over)
		}
		assert.Equal(t, 3, began)
		assert.Equal(t, 3, over)
	})
	t.Run("has the jobs that have waited longest first", func(t *testing.T) {
		var r waitReport
		assert.Equal(t, []string{"c", "a", "b"}, r.changes(map[string]pool.Waits{"a": since(3), "b": since(4), "c": since(2)}, at(100)).began)
	})
}

func TestLogFirstJobs_CountsThoseBeyondTheFirst(t *testing.T) {
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
