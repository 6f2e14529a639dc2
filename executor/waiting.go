package executor

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/rota-dev/rota/executor/internal/pool"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/operator"
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
type Waiting = operator.Waiting

// Waiting returns the claimed runs that have not begun in this process, by job: they wait for a
// worker, or for their instants of Schedule.Spread. Runs that have waited for a worker for more than
// 10 s also appear in Status, on any instance.
func (e *Executor) Waiting() map[string]Waiting {
	out := map[string]Waiting{}
	for job, d := range e.pool.DelayedByJob() {
		out[job] = waitingOf(d)
	}
	for job, waits := range e.pool.WaitingByJob() {
		w := waitingOf(waits)
		if d, ok := out[job]; ok {
			w.Shards = append(w.Shards, d.Shards...)
			w.Behind += "; " + d.Behind
			if d.Since.Before(w.Since) {
				w.Since = d.Since
			}
		}
		out[job] = w
	}
	for _, w := range out {
		slices.Sort(w.Shards)
	}
	return out
}

func waitingOf(w pool.Waits) Waiting {
	return Waiting{Shards: w.Shards, Since: w.Since, Behind: w.Behind}
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
func (r *waitReport) changes(waits map[string]pool.Waits, now time.Time) waitChanges {
	if r.open == nil {
		r.warned, r.open = map[string]time.Time{}, map[string]bool{}
	}
	news := waitChanges{publish: map[string]Waiting{}, again: longWait}
	maps.DeleteFunc(r.warned, func(_ string, at time.Time) bool { return now.Sub(at) >= warnAgain })
	soonest := longWait
	for job, w := range waits {
		left := longWait - now.Sub(w.Added)
		if left > 0 {
			soonest = min(soonest, left)
			continue
		}
		news.publish[job] = waitingOf(w)
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
		return cmp.Or(waits[a].Added.Compare(waits[b].Added), cmp.Compare(a, b))
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
	waits := e.pool.WaitingByJob()
	news := e.waited.changes(waits, time.Now())
	logFirstJobs(news.began, func(job string) {
		w := waits[job]
		remedy := "raise Workers, or start more instances"
		switch {
		case w.Own && w.Kind != "":
			remedy = "raise MaxRunning of the kind, or start more instances"
		case w.Own:
			remedy = "raise the job's MaxRunning, or start more instances"
		}
		e.log.Warn("runs wait for a worker", "job", job, "waiting", len(w.Shards), "since", w.Since, "behind", w.Behind, "remedy", remedy)
	}, func(more int) { e.log.Warn("runs of more jobs wait for a worker", "jobs", more) })
	logFirstJobs(news.over, func(job string) {
		e.log.Info("runs no longer wait for a worker", "job", job)
	}, func(more int) { e.log.Info("runs of more jobs no longer wait for a worker", "jobs", more) })
	e.member.SetWaiting(waitingRecords(news.publish))
	e.pool.WatchAgain(news.again, len(news.publish) > 0)
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
