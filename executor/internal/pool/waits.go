package pool

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rota-dev/rota/internal/count"
)

// Waits describes the tasks of a job that wait.
type Waits struct {
	Shards []int
	Since  time.Time // when the oldest was added, by the clock of this instance
	Behind string    // the bound for which they wait, with the jobs that fill it
	Added  time.Time // when the oldest was added
	Own    bool      // they wait for MaxRunning of the job, not for Workers
}

// waitingByJob returns the tasks that wait, by job, except those whose session has ended.
func (q *queue) waitingByJob() map[string]Waits {
	out := map[string]Waits{}
	if q.waiting == 0 {
		return out
	}
	busy := sync.OnceValue(func() string { return fmt.Sprintf("Workers %d, busy with %s", q.bound, q.busiest()) })
	for _, j := range q.jobs {
		var w Waits
		for t := range j.waiting.all() {
			if t.Ctx.Err() != nil {
				continue
			}
			w.Shards = append(w.Shards, t.Shard)
			if w.Added.IsZero() || t.Added.Before(w.Added) {
				w.Added, w.Since = t.Added, t.Since.UTC()
			}
		}
		if len(w.Shards) == 0 {
			continue
		}
		slices.Sort(w.Shards)
		if w.Own = !j.ready(); w.Own {
			w.Behind = fmt.Sprintf("MaxRunning %d of this job", j.bound)
		} else {
			w.Behind = busy()
		}
		out[j.name] = w
	}
	return out
}

// busiest names the jobs that have the most running tasks.
func (q *queue) busiest() string {
	const most = 3
	jobs := slices.DeleteFunc(slices.Collect(maps.Values(q.jobs)), func(j *jobQueue) bool { return j.running == 0 })
	slices.SortFunc(jobs, func(a, b *jobQueue) int {
		return cmp.Or(cmp.Compare(b.running, a.running), cmp.Compare(a.name, b.name))
	})
	var names []string
	for _, j := range jobs[:min(most, len(jobs))] {
		names = append(names, fmt.Sprintf("%s (%d)", j.name, j.running))
	}
	text := strings.Join(names, ", ")
	if more := len(jobs) - most; more > 0 {
		text += " and " + count.Of(more, "more job")
	}
	return text
}
