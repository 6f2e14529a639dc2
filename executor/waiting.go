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
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

const (
	// longWait is how long runs may wait for a worker before that is reported, and the least
	// time between two reports.
	longWait = 10 * time.Second
	// warnAgain is how long no further line is logged about a job's waiting runs: those of a
	// job that fires each minute may wait each minute.
	warnAgain = 10 * time.Minute
	// maxWaitLines bounds the lines of one report.
	maxWaitLines = 10
)

// Waiting is runs of a job that have been claimed and wait for a worker.
type Waiting = coordinator.Waiting

// Waiting returns the runs that wait for a worker in this process now, by job. Runs that
// have waited for longer than 10 s are also published to the fleet, where
// coordinator.Operator.Status shows them.
func (e *Executor) Waiting() map[string]Waiting {
	waits := e.pool.waits()
	out := make(map[string]Waiting, len(waits))
	for job, w := range waits {
		out[job] = w.Waiting
	}
	return out
}

// jobWaits is the tasks of a job that wait.
type jobWaits struct {
	Waiting
	added time.Time // the oldest was
	own   bool      // they wait for the job's own bound
}

// waits returns the tasks that wait, by job, except those whose session has ended.
func (q *queue) waits() map[string]jobWaits {
	out := map[string]jobWaits{}
	if q.waiting == 0 {
		return out
	}
	busy := sync.OnceValue(func() string { return fmt.Sprintf("Workers %d, busy with %s", q.bound, q.busiest()) })
	for _, j := range q.jobs {
		var w jobWaits
		for _, t := range j.waiting {
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
		text += fmt.Sprintf(" and %d more jobs", more)
	}
	return text
}

// waitReport is what has been reported of runs that wait for a worker.
type waitReport struct {
	warned map[string]time.Time // by job: when a line was last logged that its runs wait
	open   map[string]bool      // jobs whose runs wait for long, as reported last; true: a line was logged
}

// waitNews is what there is to report.
type waitNews struct {
	publish map[string]Waiting // all that has waited for long
	began   []string           // jobs to log, by how long their runs have waited
	over    []string           // jobs logged before whose runs no longer wait for long, by name
	again   time.Duration      // when to look again
}

// update returns what there is to report, and takes it for reported.
func (r *waitReport) update(waits map[string]jobWaits, now time.Time) waitNews {
	if r.open == nil {
		r.warned, r.open = map[string]time.Time{}, map[string]bool{}
	}
	news := waitNews{publish: map[string]Waiting{}, again: longWait}
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

// reportWaiting logs and publishes which runs have waited long for a worker, and which no
// longer do. The pool calls it while tasks wait.
func (e *Executor) reportWaiting() {
	waits := e.pool.waits()
	news := e.waited.update(waits, time.Now())
	logJobs(news.began, func(job string) {
		w := waits[job]
		remedy := "raise Workers, or start more instances"
		if w.own {
			remedy = "raise the job's MaxRunning, or start more instances"
		}
		e.log.Warn("runs wait for a worker", "job", job, "waiting", len(w.Shards), "since", w.Since, "behind", w.Behind, "remedy", remedy)
	}, func(more int) { e.log.Warn("runs of more jobs wait for a worker", "jobs", more) })
	logJobs(news.over, func(job string) {
		e.log.Info("runs no longer wait for a worker", "job", job)
	}, func(more int) { e.log.Info("runs of more jobs no longer wait for a worker", "jobs", more) })
	e.member.SetWaiting(waitingRecords(news.publish))
	e.pool.watchAgain(news.again, len(news.publish) > 0)
}

// logJobs calls one for each of the first jobs, and rest with the number of the others.
func logJobs(jobs []string, one func(job string), rest func(more int)) {
	few := jobs[:min(len(jobs), maxWaitLines)]
	for _, job := range few {
		one(job)
	}
	if more := len(jobs) - len(few); more > 0 {
		rest(more)
	}
}

// waitingRecords returns the form in which runs that wait are published.
func waitingRecords(waiting map[string]Waiting) map[string]record.Waiting {
	out := make(map[string]record.Waiting, len(waiting))
	for job, w := range waiting {
		out[job] = record.Waiting{Shards: shardset.Of(w.Shards...), More: w.More, Since: record.InstantOf(w.Since), Behind: w.Behind}
	}
	return out
}
