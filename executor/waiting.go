package executor

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rota-dev/rota/coordinator"
	"github.com/rota-dev/rota/internal/count"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

const (
	// longWait is the wait for a worker after which it is reported, and the minimum time
	// between two reports.
	longWait = 10 * time.Second
	// warnAgain is the minimum time between two warnings for one job, as the runs of a job
	// that fires each minute may wait each minute.
	warnAgain = 10 * time.Minute
	// maxWaitLines bounds the lines of one report.
	maxWaitLines = 10
)

// Waiting describes claimed runs of a job that wait for a worker.
type Waiting = coordinator.Waiting

// Waiting returns the claimed runs that have not begun in this process, by job: they wait for a
// worker, or for their instants of Schedule.Spread. Runs that have waited for a worker for more than
// 10 s also appear in Status, on any instance.
func (e *Executor) Waiting() map[string]Waiting {
	out := e.pool.delayedByJob()
	for job, w := range e.pool.waitingByJob() {
		if d, ok := out[job]; ok {
			w.Shards = append(w.Shards, d.Shards...)
			w.Behind += "; " + d.Behind
			if d.Since.Before(w.Since) {
				w.Since = d.Since
			}
		}
		out[job] = w.Waiting
	}
	for _, w := range out {
		slices.Sort(w.Shards)
	}
	return out
}

// jobWaits describes the waiting tasks of a job.
type jobWaits struct {
	Waiting
	added time.Time // when the oldest was added
	own   bool      // they wait for MaxRunning of the job, not for Workers
}

// waitingByJob returns the tasks that wait, by job, except those whose session has ended.
func (q *queue) waitingByJob() map[string]jobWaits {
	out := map[string]jobWaits{}
	if q.waiting == 0 {
		return out
	}
	busy := sync.OnceValue(func() string { return fmt.Sprintf("Workers %d, busy with %s", q.bound, q.busiest()) })
	for _, j := range q.jobs {
		var w jobWaits
		for t := range j.waiting.all() {
			if t.ctx.Err() != nil {
				continue
			}
			w.Shards = append(w.Shards, t.shard)
			if w.added.IsZero() || t.added.Before(w.added) {
				w.added, w.Since = t.added, t.since.UTC()
			}
		}
		if len(w.Shards) == 0 {
			continue
		}
		slices.Sort(w.Shards)
		if w.own = !j.ready(); w.own {
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

// waitReport is the state of the reports about runs that wait for a worker.
type waitReport struct {
	warned map[string]time.Time // by job: the time of the last warning
	open   map[string]bool      // by job with long waits at the last report: whether it was logged
}

// waitChanges is a report.
type waitChanges struct {
	publish map[string]Waiting // all jobs with long waits
	began   []string           // jobs to warn about, longest wait first
	over    []string           // jobs with a warning that no longer have long waits, sorted
	again   time.Duration      // the time until the next report
}

// changes returns the next report, and records it as made.
func (r *waitReport) changes(waits map[string]jobWaits, now time.Time) waitChanges {
	if r.open == nil {
		r.warned, r.open = map[string]time.Time{}, map[string]bool{}
	}
	news := waitChanges{publish: map[string]Waiting{}, again: longWait}
	maps.DeleteFunc(r.warned, func(_ string, at time.Time) bool { return now.Sub(at) >= warnAgain })
	soonest := longWait
	for job, w := range waits {
		left := longWait - now.Sub(w.added)
		if left > 0 {
			soonest = min(soonest, left)
			continue
		}
		news.publish[job] = w.Waiting
		if _, known := r.open[job]; known {
			continue
		}
		_, recent := r.warned[job]
		if r.open[job] = !recent; !recent {
			r.warned[job] = now
			news.began = append(news.began, job)
		}
	}
	slices.SortFunc(news.began, func(a, b string) int {
		return cmp.Or(waits[a].added.Compare(waits[b].added), cmp.Compare(a, b))
	})
	for job, logged := range r.open {
		if _, waits := news.publish[job]; waits {
			continue
		}
		if delete(r.open, job); logged {
			news.over = append(news.over, job)
		}
	}
	slices.Sort(news.over)
	if len(news.publish) == 0 && len(news.over) == 0 {
		news.again = soonest
	}
	return news
}

// reportWaiting logs and publishes the jobs with runs that have waited long for a worker, and logs
// the end of such waits. The pool calls it while tasks wait.
func (e *Executor) reportWaiting() {
	waits := e.pool.waitingByJob()
	news := e.waited.changes(waits, time.Now())
	logFirstJobs(news.began, func(job string) {
		w := waits[job]
		remedy := "raise Workers, or start more instances"
		if w.own {
			remedy = "raise the job's MaxRunning, or start more instances"
		}
		e.log.Warn("runs wait for a worker", "job", job, "waiting", len(w.Shards), "since", w.Since, "behind", w.Behind, "remedy", remedy)
	}, func(more int) { e.log.Warn("runs of more jobs wait for a worker", "jobs", more) })
	logFirstJobs(news.over, func(job string) {
		e.log.Info("runs no longer wait for a worker", "job", job)
	}, func(more int) { e.log.Info("runs of more jobs no longer wait for a worker", "jobs", more) })
	e.member.SetWaiting(waitingRecords(news.publish))
	e.pool.watchAgain(news.again, len(news.publish) > 0)
}

// logFirstJobs calls one for each of the first jobs, and rest with the number of the others.
func logFirstJobs(jobs []string, one func(job string), rest func(more int)) {
	few := jobs[:min(len(jobs), maxWaitLines)]
	for _, job := range few {
		one(job)
	}
	if more := len(jobs) - len(few); more > 0 {
		rest(more)
	}
}

// waitingRecords converts waiting runs to their form in the member record.
func waitingRecords(waiting map[string]Waiting) map[string]record.Waiting {
	out := make(map[string]record.Waiting, len(waiting))
	for job, w := range waiting {
		out[job] = record.Waiting{Shards: shardset.Of(w.Shards...), More: w.More, Since: record.InstantOf(w.Since), Behind: w.Behind}
	}
	return out
}
