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
	Own    bool      // they wait for MaxRunning of the job or of its kind, not for Workers
	Kind   string    // of the job, if it is a defined one
}

// waitingByJob returns the tasks that wait, by job, except those whose session has ended.
func (q *queue) waitingByJob() map[string]Waits {
	out := map[string]Waits{}
	if q.waiting == 0 {
		return out
	}
	busy := sync.OnceValue(func() string { return fmt.Sprintf("Workers %d, busy with %s", q.bound, q.busiest()) })
	for _, l := range q.lanes {
		of := map[string]Waits{}
		for t := range l.waiting.all() {
			if t.Ctx.Err() != nil {
				continue
			}
			w := of[t.Job]
			w.Shards = append(w.Shards, t.Shard)
			if w.Added.IsZero() || t.Added.Before(w.Added) {
				w.Added, w.Since = t.Added, t.Since.UTC()
			}
			of[t.Job] = w
		}
		for job, w := range of {
			slices.Sort(w.Shards)
			if l.IsKind {
				w.Kind = l.Name
			}
			switch w.Own = !l.ready(); {
			case !w.Own:
				w.Behind = busy()
			case l.IsKind:
				w.Behind = fmt.Sprintf("MaxRunning %d of kind %s", l.bound, l.Name)
			default:
				w.Behind = fmt.Sprintf("MaxRunning %d of this job", l.bound)
			}
			out[job] = w
		}
	}
	return out
}

// busiest names the jobs, or kinds of jobs, that have the most running tasks.
func (q *queue) busiest() string {
	const most = 3
	lanes := slices.DeleteFunc(slices.Collect(maps.Values(q.lanes)), func(l *laneQueue) bool { return l.running == 0 })
	slices.SortFunc(lanes, func(a, b *laneQueue) int {
		return cmp.Or(cmp.Compare(b.running, a.running), cmp.Compare(a.String(), b.String()))
	})
	var names []string
	for _, l := range lanes[:min(most, len(lanes))] {
		names = append(names, fmt.Sprintf("%s (%d)", l, l.running))
	}
	text := strings.Join(names, ", ")
	if more := len(lanes) - most; more > 0 {
		text += " and " + count.Of(more, "more job")
	}
	return text
}
