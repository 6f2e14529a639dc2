// Package rotaprom exports metrics of an executor to Prometheus:
//
//	ex, err := executor.New(reg, "billing", executor.Options{})
//	...
//	prometheus.MustRegister(rotaprom.Collector(ex))
//	err = ex.Run(ctx)
//
// NewRegistry measures the operations of a registry. All other metrics have the labels rota_namespace and rota_group. Those of a job have the label job_name,
// for the first 1,000 jobs that an instance observes; further jobs share the job_name _other. All defined jobs of a kind
// share the job_name kind:KIND, so that a hundred thousand of them are one job_name: counters and counts are their sums,
// times the worst of them. Those of a pool have the label pool, for the first 256 pools, and _other. No metric has a label for a shard, a fire or an error. docs/operating/alerts.md lists the metrics, and
// alerts.yaml has rules for alerts on them.
package rotaprom

import (
	"maps"
	"math"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rota-dev/rota/executor"
)

const (
	// maxJobs bounds the jobs and kinds with series of their own.
	maxJobs = 1000
	// maxPools bounds the pools with series of their own. A group has no more with a size, but jobs can name any pool.
	maxPools = 256
	// others is the job_name of further jobs, and the pool of further pools.
	others = "_other"
)

// Collector returns a collector of the metrics of ex. It adds an observer to ex: call it before
// Start, so that it observes all events. A registry accepts one collector for each namespace and
// group.
func Collector(ex *executor.Executor) prometheus.Collector {
	s := ex.Stats()
	c := &collector{ex: ex, jobs: bounded{max: maxJobs}, pools: bounded{max: maxPools}, metrics: newMetrics(prometheus.Labels{"rota_namespace": s.Namespace, "rota_group": s.Group})}
	ex.Observe(c.observer())
	return c
}

// collector is the collector of one executor. Its events set counters; its gauges are read from
// Executor.Stats when metrics are collected.
type collector struct {
	ex *executor.Executor
	metrics

	jobs, pools bounded
}

// bounded are the values of a label: the first ones, and others.
type bounded struct {
	max  int
	mu   sync.Mutex
	used map[string]bool
}

// value returns the value for a name.
func (b *bounded) value(name string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.used[name]:
		return name
	case len(b.used) >= b.max:
		return others
	case b.used == nil:
		b.used = map[string]bool{}
	}
	b.used[name] = true
	return name
}

// job returns the job_name of a job, or of the kind of a defined job.
func (c *collector) job(name, kind string) string {
	if kind != "" {
		name = "kind:" + kind
	}
	return c.jobs.value(name)
}

// observer returns the observer that counts events.
func (c *collector) observer() executor.Observer {
	return executor.Observer{
		RunClaimed: func(e executor.RunClaimed) {
			switch e.Run.Reason {
			case executor.Failover:
				c.reruns.WithLabelValues(c.job(e.Run.Job, e.Run.Kind)).Inc()
			case executor.Scheduled, executor.Misfire:
				c.lateness.Observe(max(e.At.Sub(e.Run.FireTime), 0).Seconds())
			}
		},
		RunEnded: func(e executor.RunEnded) {
			job, outcome := c.job(e.Run.Job, e.Run.Kind), outcomes[e.Outcome]
			c.runs.WithLabelValues(job, outcome).Inc()
			c.lastEnd.WithLabelValues(job, outcome).Set(seconds(e.Ended))
			if !e.Started.IsZero() {
				c.duration.WithLabelValues(job).Observe(e.Ended.Sub(e.Started).Seconds())
			}
		},
		RunRetried: func(e executor.RunRetried) { c.retries.WithLabelValues(c.job(e.Run.Job, e.Run.Kind)).Inc() },
		RunCrashed: func(e executor.RunCrashed) {
			if !e.Rerun {
				c.lost.WithLabelValues(c.job(e.Run.Job, e.Run.Kind)).Inc()
			}
		},
		FiresSkipped: func(e executor.FiresSkipped) {
			c.skipped.WithLabelValues(c.job(e.Job, e.Kind), e.Reason.String()).Add(float64(e.Count * len(e.Shards)))
		},
		FireEnded: c.countFire,
		ShardsChanged: func(e executor.ShardsChanged) {
			if len(e.Gained) > 0 {
				c.addSeries(c.job(e.Job, e.Kind))
			}
			c.moves.WithLabelValues("gained").Add(float64(len(e.Gained)))
			c.moves.WithLabelValues("lost").Add(float64(len(e.Lost)))
		},
		SessionChanged: func(e executor.SessionChanged) {
			if e.State == executor.SessionLost {
				c.sessionsLost.Inc()
			}
		},
		ClockChanged: func(e executor.ClockChanged) { c.clockOffset.Set(e.Ahead.Seconds()) },
	}
}

// countFire counts a fire unless an earlier leader may have counted it. The counters of its job begin at zero, as
// in addSeries; jobs that no other job follows have none.
func (c *collector) countFire(e executor.FireEnded) {
	job, outcome := c.job(e.Job, e.Kind), "ok"
	switch {
	case e.Failed > 0:
		outcome = "failed"
	case e.Skipped > 0:
		outcome = "skipped"
	}
	for _, o := range []string{"ok", "failed", "skipped"} {
		c.fires.WithLabelValues(job, o)
	}
	if !e.Repeated {
		c.fires.WithLabelValues(job, outcome).Inc()
	}
}

// addSeries adds counters of a job at zero, since increase() does not count the first increment of a series that
// appears with it. Outcomes on which no alert rests have a series from their first run on.
func (c *collector) addSeries(job string) {
	for _, o := range []executor.Outcome{executor.Succeeded, executor.Failed, executor.TimedOut, executor.Panicked} {
		c.runs.WithLabelValues(job, outcomes[o])
	}
	for _, v := range []*prometheus.CounterVec{c.reruns, c.retries, c.lost} {
		v.WithLabelValues(job)
	}
}

// outcomes are the values of the label outcome.
var outcomes = map[executor.Outcome]string{
	executor.Succeeded: "ok", executor.Failed: "failed", executor.TimedOut: "timeout", executor.Panicked: "panic",
	executor.HandedBack: "drained", executor.LostSession: "session_lost", executor.Abandoned: "abandoned",
	executor.Cancelled: "cancelled",
}

// Describe sends the descriptors of all metrics.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range c.counted() {
		m.Describe(ch)
	}
	for _, d := range c.snapshot() {
		ch <- d
	}
}

// Collect sends all metrics.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	for _, m := range c.counted() {
		m.Collect(ch)
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	ch <- prometheus.MustNewConstMetric(c.eventsDropped, prometheus.CounterValue, float64(c.ex.DroppedEvents()))
	gauge(c.buildInfo, 1, version())
	s := c.ex.Stats()
	for cause, n := range map[string]uint64{
		"plan": s.RefusedClaims.Plan, "session": s.RefusedClaims.Session, "record": s.RefusedClaims.Record, "store": s.RefusedClaims.Store,
	} {
		ch <- prometheus.MustNewConstMetric(c.claimsRefused, prometheus.CounterValue, float64(n), cause)
	}
	gauge(c.leader, number(s.Leading))
	gauge(c.sessionRemaining, remaining(s.SafeUntil))
	gauge(c.workersBusy, float64(s.Running))
	gauge(c.workersQueued, float64(s.Waiting))
	jobs := map[string]executor.JobStats{}
	for _, name := range slices.Sorted(maps.Keys(s.Jobs)) {
		label := c.job(name, s.Jobs[name].Kind)
		jobs[label] = merge(jobs[label], s.Jobs[name])
	}
	for job, j := range jobs {
		gauge(c.runsActive, float64(j.Running), job)
		gauge(c.shardsOwned, float64(j.Owned), job)
		gauge(c.shardsBlocked, float64(j.Blocked), job)
		gauge(c.overdue, max(j.Overdue, j.UnownedOverdue).Seconds(), job)
		if !j.NextFire.IsZero() {
			gauge(c.nextFire, seconds(j.NextFire), job)
		}
		if s.Leading {
			gauge(c.shardsUnowned, float64(j.Unowned), job)
			gauge(c.paused, number(j.Paused), job)
		}
	}
	pools := map[string]executor.PoolStats{}
	for _, name := range slices.Sorted(maps.Keys(s.Pools)) {
		label, p := c.pools.value(name), s.Pools[name]
		sum := pools[label]
		pools[label] = executor.PoolStats{
			Slots: sum.Slots + p.Slots, Running: sum.Running + p.Running, Waiting: sum.Waiting + p.Waiting, Size: sum.Size + p.Size, Sized: sum.Sized || p.Sized,
		}
	}
	for pool, p := range pools {
		gauge(c.poolSlots, float64(p.Slots), pool)
		gauge(c.poolRuns, float64(p.Running), pool)
		gauge(c.poolWaiting, float64(p.Waiting), pool)
		if p.Sized {
			gauge(c.poolSize, float64(p.Size), pool)
		}
	}
}

// merge returns the stats of several jobs that share a job_name.
func merge(a, b executor.JobStats) executor.JobStats {
	next := a.NextFire
	if next.IsZero() || !b.NextFire.IsZero() && b.NextFire.Before(next) {
		next = b.NextFire
	}
	return executor.JobStats{
		Owned: a.Owned + b.Owned, Blocked: a.Blocked + b.Blocked, Running: a.Running + b.Running, Waiting: a.Waiting + b.Waiting,
		Overdue: max(a.Overdue, b.Overdue), NextFire: next,
		Unowned: a.Unowned + b.Unowned, UnownedOverdue: max(a.UnownedOverdue, b.UnownedOverdue), Paused: a.Paused || b.Paused,
	}
}

// remaining returns the seconds until a session is lost unless the store answers before.
func remaining(until time.Time) float64 {
	if until.IsZero() {
		return 0
	}
	return max(time.Until(until).Seconds(), 0)
}

// seconds returns an instant as a Unix time.
func seconds(t time.Time) float64 { return math.Round(float64(t.UnixNano())/1e6) / 1e3 }

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// version returns the version of rota in this binary.
var version = sync.OnceValue(func() string {
	library := strings.TrimSuffix(reflect.TypeFor[executor.Executor]().PkgPath(), "/executor")
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path == library && m.Version != "" {
			return m.Version
		}
	}
	return "unknown"
})
