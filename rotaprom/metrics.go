package rotaprom

import "github.com/prometheus/client_golang/prometheus"

// metrics are the metrics of one executor.
type metrics struct {
	// Set by events.
	runs, reruns, retries, lost, skipped, fires, moves *prometheus.CounterVec
	duration                                           *prometheus.HistogramVec
	lateness                                           prometheus.Histogram
	lastEnd                                            *prometheus.GaugeVec
	sessionsLost                                       prometheus.Counter
	clockOffset                                        prometheus.Gauge

	// Read when metrics are collected.
	poolSize, poolSlots, poolRuns, poolWaiting                                                    *prometheus.Desc // of pools
	runsActive, shardsOwned, shardsBlocked, overdue, nextFire, shardsUnowned, paused              *prometheus.Desc // of jobs
	leader, sessionRemaining, workersBusy, workersQueued, buildInfo, eventsDropped, claimsRefused *prometheus.Desc
}

// buckets are those of durations, in seconds: from 10 ms to an hour.
var buckets = []float64{0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000, 3600}

func newMetrics(labels prometheus.Labels) metrics {
	counter := func(name, help string, variable ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help, ConstLabels: labels}, variable)
	}
	desc := func(name, help string, variable ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, variable, labels)
	}
	const job, pool = "job_name", "pool"
	return metrics{
		runs:    counter("rota_runs_total", "Runs that have ended, by outcome.", job, "outcome"),
		reruns:  counter("rota_reruns_total", "Runs that were claimed again after a crash or a hand-back.", job),
		retries: counter("rota_retries_total", "Failed runs that are made again by the retry policy.", job),
		lost:    counter("rota_runs_lost_total", "Crashed runs that are not made again, as counted by the leader.", job),
		skipped: counter("rota_fires_skipped_total", "Fires of shards that came due and will not run, by reason.", job, "reason"),
		fires:   counter("rota_fires_total", "Fires of jobs that others follow and of which all runs have ended, by outcome, as counted by the leader.", job, "outcome"),
		moves:   counter("rota_shard_moves_total", "Shards that this instance gained or lost, by kind.", "kind"),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "rota_run_duration_seconds", Help: "Time from the call of the handler to its return.", Buckets: buckets, ConstLabels: labels,
		}, []string{job}),
		lateness: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "rota_fire_lateness_seconds", Help: "Time from the instant of a fire to its claim.", Buckets: buckets, ConstLabels: labels,
		}),
		lastEnd: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "rota_job_last_end_timestamp_seconds", Help: "When a run of the job last ended here, by outcome.", ConstLabels: labels,
		}, []string{job, "outcome"}),
		sessionsLost: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "rota_sessions_lost_total", Help: "Sessions that this instance has lost.", ConstLabels: labels,
		}),
		clockOffset: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "rota_clock_offset_seconds", Help: "How far the clock is ahead of the fleet's median, once it is beyond MaxClockSkew; otherwise 0.", ConstLabels: labels,
		}),

		runsActive:    desc("rota_runs_active", "Runs whose handler has not returned.", job),
		shardsOwned:   desc("rota_shards_owned", "Shards that this instance owns.", job),
		shardsBlocked: desc("rota_shards_blocked", "Shards that this instance may not run until a handler of its earlier session returns.", job),
		overdue:       desc("rota_job_overdue_seconds", "Time since the oldest fire came due that is not claimed; 0 if there is none. By owners, and by the leader for shards without an owner.", job),
		nextFire:      desc("rota_job_next_fire_timestamp_seconds", "The next fire of a job of which this instance owns shards.", job),
		shardsUnowned: desc("rota_shards_unowned", "Shards that no instance owns. On the leader only.", job),
		paused:        desc("rota_job_paused", "Whether the job is paused. On the leader only.", job),

		poolSize:    desc("rota_pool_size", "How many runs of the pool may run at once in the group. On the leader only; missing for a pool without a size.", pool),
		poolSlots:   desc("rota_pool_slots", "Slots of the pool that this instance has.", pool),
		poolRuns:    desc("rota_pool_runs", "Slots of the pool that runs of this instance use.", pool),
		poolWaiting: desc("rota_pool_waiting", "Due runs of this instance that wait for a slot of the pool.", pool),

		leader:           desc("rota_leader", "Whether this instance leads its group."),
		sessionRemaining: desc("rota_session_remaining_seconds", "Time until the session is lost unless the store answers; 0 without a session."),
		workersBusy:      desc("rota_workers_busy", "Runs that have a worker."),
		workersQueued:    desc("rota_workers_queued", "Claimed runs that wait for a worker."),
		buildInfo:        desc("rota_build_info", "The version of rota. Always 1.", "version"),
		claimsRefused:    desc("rota_claims_refused_total", "Transactions with claims that the store refused, by cause.", "cause"),
		eventsDropped:    desc("rota_events_dropped_total", "Events that were dropped because callbacks of observers were too slow."),
	}
}

// counted returns the metrics that events set.
func (m *metrics) counted() []prometheus.Collector {
	return []prometheus.Collector{
		m.runs, m.reruns, m.retries, m.lost, m.skipped, m.fires, m.moves, m.duration, m.lateness, m.lastEnd, m.sessionsLost, m.clockOffset,
	}
}

// snapshot returns the descriptors of the metrics that are read when metrics are collected.
func (m *metrics) snapshot() []*prometheus.Desc {
	return []*prometheus.Desc{
		m.runsActive, m.shardsOwned, m.shardsBlocked, m.overdue, m.nextFire, m.shardsUnowned, m.paused,
		m.poolSize, m.poolSlots, m.poolRuns, m.poolWaiting,
		m.leader, m.sessionRemaining, m.workersBusy, m.workersQueued, m.buildInfo, m.eventsDropped, m.claimsRefused,
	}
}
