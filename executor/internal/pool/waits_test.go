package pool

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestQueue_Waits(t *testing.T) {
	live, over := t.Context(), func() context.Context {
		ctx, end := context.WithCancel(context.Background())
		end()
		return ctx
	}()
	waiting := func(job string, shard, since int) *Task {
		return &Task{Job: job, Shard: shard, Fire: at(since), Added: at(since), Since: at(since).UTC(), Ctx: live}
	}
	t.Run("names nothing if nothing waits", func(t *testing.T) {
		q := queue{bound: 2}
		q.adds(waiting("a", 0, 1), waiting("b", 0, 1))
		q.drain()
		assert.Empty(t, q.waitingByJob())
	})
	t.Run("names the job's own bound, or the bound over all and who is behind it", func(t *testing.T) {
		q := queue{bound: 3}
		q.setBound(Lane{Name: "own"}, 1)
		q.adds(waiting("own", 0, 1), waiting("settle", 0, 1), waiting("settle", 1, 1))
		q.drain()
		q.adds(waiting("own", 7, 4), waiting("own", 3, 3), waiting("own", 5, 5), waiting("poll", 2, 6))
		q.drain()
		assert.Equal(t, map[string]Waits{
			"own":  {[]int{3, 5, 7}, at(3).UTC(), "MaxRunning 1 of this job", at(3), true, ""},
			"poll": {[]int{2}, at(6).UTC(), "Workers 3, busy with settle (2), own (1)", at(6), false, ""},
		}, q.waitingByJob())
	})
	t.Run("names the bound of a kind for each of its jobs that waits, and the kind among those that are busy", func(t *testing.T) {
		q := queue{bound: 2}
		q.setBound(Lane{"mail", true}, 1)
		mail := func(job string, shard, since int) *Task {
			task := waiting(job, shard, since)
			task.Kind = "mail"
			return task
		}
		q.adds(mail("x", 0, 1), waiting("poll", 0, 1))
		q.drain()
		q.adds(mail("y", 1, 2), mail("z", 2, 3), mail("y", 0, 3), waiting("poll", 2, 6))
		q.drain()
		assert.Equal(t, map[string]Waits{
			"y":    {[]int{0, 1}, at(2).UTC(), "MaxRunning 1 of kind mail", at(2), true, "mail"},
			"z":    {[]int{2}, at(3).UTC(), "MaxRunning 1 of kind mail", at(3), true, "mail"},
			"poll": {[]int{2}, at(6).UTC(), "Workers 2, busy with kind mail (1), poll (1)", at(6), false, ""},
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
		delete(q.lanes, Lane{Name: "job-4"})
		assert.Equal(t, "job-0 (1), job-1 (1), job-2 (1) and 1 more job", q.busiest())
	})
	t.Run("leaves out runs whose session has ended, which are over", func(t *testing.T) {
		q := queue{bound: 1}
		q.adds(waiting("a", 0, 1))
		q.drain()
		gone, also := waiting("a", 1, 2), waiting("b", 1, 2)
		gone.Ctx, also.Ctx = over, over
		q.adds(gone, also, waiting("a", 1, 3))
		waits := q.waitingByJob()
		assert.Len(t, waits, 1)
		assert.Equal(t, []int{1}, waits["a"].Shards)
		assert.Equal(t, at(3).UTC(), waits["a"].Since)
	})
}
