package rotaprom

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
	"github.com/rota-dev/rota/schedule"
)

// update writes the series of healthy daemons anew.
var update = flag.Bool("update", false, "write testdata/healthy-daemons.txt")

// instance is an executor with its metrics.
type instance struct {
	*executor.Executor
	*prometheus.Registry
	client *memory.Client
}

// start starts an instance with jobs.
func start(t *testing.T, server *memory.Server, name string, o executor.Options, jobs ...executor.Job) *instance {
	t.Helper()
	i := &instance{Registry: prometheus.NewPedanticRegistry(), client: server.Client(name)}
	o.Instance = name
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	var err error
	i.Executor, err = executor.New(i.client, "billing", o)
	require.NoError(t, err)
	require.NoError(t, i.Executor.Register(jobs...))
	require.NoError(t, i.Registry.Register(Collector(i.Executor)))
	require.NoError(t, i.Start(t.Context()))
	return i
}

// value returns the value of a metric, such as rota_runs_total{job_name="a",outcome="ok"}; the labels
// that all metrics have are left out, and others are in order. It is -1 if there is none.
func (i *instance) value(t *testing.T, series string) float64 {
	t.Helper()
	families, err := i.Gather()
	require.NoError(t, err)
	for _, f := range families {
		for _, m := range f.Metric {
			if seriesName(f, m) == series {
				return valueOf(m)
			}
		}
	}
	return -1
}

func seriesName(f *dto.MetricFamily, m *dto.Metric) string {
	var labels []string
	for _, l := range m.Label {
		if l.GetName() != "rota_namespace" && l.GetName() != "rota_group" {
			labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
		}
	}
	if labels == nil {
		return f.GetName()
	}
	return f.GetName() + "{" + strings.Join(labels, ",") + "}"
}

func valueOf(m *dto.Metric) float64 {
	switch {
	case m.Counter != nil:
		return m.Counter.GetValue()
	case m.Histogram != nil:
		return float64(m.Histogram.GetSampleCount())
	}
	return m.Gauge.GetValue()
}

func inBubble(t *testing.T, name string, f func(t *testing.T, server *memory.Server)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { f(t, memory.New()) })
	})
}

func job(name string, shards int, handle executor.HandlerFunc) executor.Job {
	return executor.Job{Name: name, Schedule: schedule.Every(time.Minute), Shards: shards, Handler: handle, Timeout: 10 * time.Second}
}

func succeed(context.Context, *executor.Run) error { return nil }

func TestCollector(t *testing.T) {
	inBubble(t, "counts runs by outcome, and measures them", func(t *testing.T, server *memory.Server) {
		i := start(t, server, "a", executor.Options{}, job("mixed", 5, func(ctx context.Context, r *executor.Run) error {
			switch r.Shard {
			case 0, 1:
				time.Sleep(2 * time.Second)
				return nil
			case 2:
				return errors.New("broken")
			case 3:
				panic("at once")
			}
			<-ctx.Done()
			return context.Cause(ctx)
		}))
		time.Sleep(10 * time.Second)
		assert.Zero(t, i.value(t, `rota_runs_total{job_name="mixed",outcome="failed"}`), "before the first run")
		assert.InDelta(t, time.Now().Truncate(time.Minute).Add(time.Minute).Unix(), i.value(t, `rota_job_next_fire_timestamp_seconds{job_name="mixed"}`), 0.001)
		time.Sleep(55 * time.Second)
		assert.Equal(t, 1.0, i.value(t, `rota_runs_active{job_name="mixed"}`))
		assert.Equal(t, 1.0, i.value(t, `rota_workers_busy`))
		assert.Zero(t, i.value(t, `rota_workers_queued`))
		time.Sleep(20 * time.Second)
		for outcome, want := range map[string]float64{"ok": 2, "failed": 1, "panic": 1, "timeout": 1, "drained": -1} {
			assert.Equal(t, want, i.value(t, fmt.Sprintf(`rota_runs_total{job_name="mixed",outcome=%q}`, outcome)), outcome)
		}
		assert.Equal(t, 5.0, i.value(t, `rota_run_duration_seconds{job_name="mixed"}`))
		assert.Equal(t, 5.0, i.value(t, `rota_fire_lateness_seconds`))
		assert.InDelta(t, 946684862, i.value(t, `rota_job_last_end_timestamp_seconds{job_name="mixed",outcome="ok"}`), 0.1)
		assert.Equal(t, 5.0, i.value(t, `rota_shards_owned{job_name="mixed"}`))
		assert.Equal(t, 5.0, i.value(t, `rota_shard_moves_total{kind="gained"}`))
		assert.Equal(t, 1.0, i.value(t, `rota_leader`))
		assert.Positive(t, i.value(t, `rota_session_remaining_seconds`))
		require.NoError(t, i.Shutdown(t.Context()))
	})
	inBubble(t, "reports overdue fires, shards without an owner and paused jobs", func(t *testing.T, server *memory.Server) {
		gpu := job("gpu", 2, succeed)
		gpu.RunOn = map[string]string{"gpu": "yes"}
		a := start(t, server, "a", executor.Options{}, gpu, job("other", 1, succeed))
		time.Sleep(time.Second)
		b := start(t, server, "b", executor.Options{}, gpu, job("other", 1, succeed))
		time.Sleep(10*time.Minute - time.Second)
		assert.InDelta(t, 540, a.value(t, `rota_job_overdue_seconds{job_name="gpu"}`), 1)
		assert.Equal(t, -1.0, b.value(t, `rota_job_overdue_seconds{job_name="gpu"}`), "only the leader knows")
		assert.Equal(t, 2.0, a.value(t, `rota_shards_unowned{job_name="gpu"}`))
		assert.Zero(t, a.value(t, `rota_job_paused{job_name="gpu"}`))
		require.NoError(t, a.Operator().Pause(t.Context(), "gpu"))
		time.Sleep(time.Second)
		assert.Equal(t, 1.0, a.value(t, `rota_job_paused{job_name="gpu"}`))
		assert.Zero(t, a.value(t, `rota_job_overdue_seconds{job_name="gpu"}`))
		require.NoError(t, b.Shutdown(t.Context()))
		require.NoError(t, a.Shutdown(t.Context()))
	})
	inBubble(t, "counts lost sessions, re-runs and lost runs", func(t *testing.T, server *memory.Server) {
		wait := func(ctx context.Context, r *executor.Run) error {
			if r.Attempt == 1 {
				<-ctx.Done()
			}
			return context.Cause(ctx)
		}
		count := job("counted", 2, wait)
		count.OnCrash = executor.CountAsFailed
		a := start(t, server, "a", executor.Options{}, job("only-a", 1, succeed))
		time.Sleep(time.Second)
		rerun := job("rerun", 2, wait)
		count.Timeout, rerun.Timeout = 0, 0
		crashing := start(t, server, "b", executor.Options{}, rerun, count)
		time.Sleep(2*time.Minute + time.Second)
		heal := server.Partition("b")
		time.Sleep(30 * time.Second)
		heal()
		time.Sleep(30 * time.Second)
		assert.Equal(t, 1.0, crashing.value(t, `rota_sessions_lost_total`))
		assert.Equal(t, 2.0, crashing.value(t, `rota_runs_total{job_name="rerun",outcome="session_lost"}`))
		assert.Equal(t, 2.0, crashing.value(t, `rota_reruns_total{job_name="rerun"}`))
		assert.Equal(t, 2.0, a.value(t, `rota_runs_lost_total{job_name="counted"}`))
		assert.LessOrEqual(t, a.value(t, `rota_runs_lost_total{job_name="rerun"}`), 0.0, "a crashed run that is made again is not lost")
		require.NoError(t, crashing.Shutdown(t.Context()))
		require.NoError(t, a.Shutdown(t.Context()))
	})
	inBubble(t, "counts skipped fires by reason", func(t *testing.T, server *memory.Server) {
		i := start(t, server, "a", executor.Options{}, job("slow", 2, func(context.Context, *executor.Run) error {
			time.Sleep(150 * time.Second)
			return nil
		}))
		time.Sleep(4 * time.Minute)
		assert.Equal(t, 2.0, i.value(t, `rota_fires_skipped_total{job_name="slow",reason="misfire"}`))
		require.NoError(t, i.Operator().Disable(t.Context(), operator.Scope{Job: "slow", Shards: []int{0}}))
		time.Sleep(10*time.Minute + time.Second)
		assert.Positive(t, i.value(t, `rota_fires_skipped_total{job_name="slow",reason="disabled"}`))
		require.Error(t, i.Shutdown(t.Context()))
		time.Sleep(5 * time.Minute)
	})
	inBubble(t, "counts fires of followed jobs by outcome, once in the fleet", func(t *testing.T, server *memory.Server) {
		fails := func(_ context.Context, r *executor.Run) error {
			if r.Shard == 1 && r.FireTime.Minute()%2 == 0 {
				return errors.New("broken")
			}
			return nil
		}
		child := job("child", 1, succeed)
		child.Schedule = schedule.AfterJob("parent")
		a := start(t, server, "a", executor.Options{}, job("parent", 2, fails), child)
		time.Sleep(time.Second)
		b := start(t, server, "b", executor.Options{}, job("parent", 2, fails), child)
		time.Sleep(4*time.Minute + 30*time.Second)
		assert.Equal(t, 2.0, a.value(t, `rota_fires_total{job_name="parent",outcome="ok"}`))
		assert.Equal(t, 2.0, a.value(t, `rota_fires_total{job_name="parent",outcome="failed"}`))
		assert.Zero(t, a.value(t, `rota_fires_total{job_name="parent",outcome="skipped"}`))
		assert.Equal(t, -1.0, a.value(t, `rota_fires_total{job_name="child",outcome="ok"}`), "no job follows child")
		assert.Equal(t, -1.0, b.value(t, `rota_fires_total{job_name="parent",outcome="ok"}`), "a leads")
		require.NoError(t, a.Shutdown(t.Context()))
		time.Sleep(10 * time.Second)
		assert.Zero(t, b.value(t, `rota_fires_total{job_name="parent",outcome="failed"}`), "the fire that b repeats is counted by a")
		time.Sleep(time.Minute)
		assert.Equal(t, 1.0, b.value(t, `rota_fires_total{job_name="parent",outcome="ok"}`))
		require.NoError(t, b.Shutdown(t.Context()))
	})
	inBubble(t, "counts claims that the store refuses, by cause", func(t *testing.T, server *memory.Server) {
		i := start(t, server, "a", executor.Options{}, job("parent", 2, succeed))
		time.Sleep(30 * time.Second)
		for _, cause := range []string{"plan", "session", "record", "store"} {
			assert.Zero(t, i.value(t, fmt.Sprintf(`rota_claims_refused_total{cause=%q}`, cause)), cause)
		}
		free := server.Fill()
		time.Sleep(time.Minute)
		assert.Positive(t, i.value(t, `rota_claims_refused_total{cause="store"}`))
		free()
		time.Sleep(5 * time.Second)
		assert.Equal(t, 2.0, i.value(t, `rota_runs_total{job_name="parent",outcome="ok"}`))
		require.NoError(t, i.Shutdown(t.Context()))
	})
	inBubble(t, "gives series to a thousand jobs, and one to the others", func(t *testing.T, server *memory.Server) {
		jobs := make([]executor.Job, 0, 1200)
		for n := range 1200 {
			jobs = append(jobs, job(fmt.Sprintf("job-%04d", n), 2, succeed))
		}
		i := start(t, server, "a", executor.Options{}, jobs...)
		time.Sleep(70 * time.Second)
		assert.Equal(t, 400.0, i.value(t, `rota_shards_owned{job_name="_other"}`))
		assert.Equal(t, 400.0, i.value(t, `rota_runs_total{job_name="_other",outcome="ok"}`))
		n, err := testutil.GatherAndCount(i, "rota_job_overdue_seconds")
		require.NoError(t, err)
		assert.Equal(t, 1001, n)
		require.NoError(t, i.Shutdown(t.Context()))
	})
}

func TestCollector_HasOneJobNameForAKind(t *testing.T) {
	inBubble(t, "whose figures are those of all its jobs", func(t *testing.T, server *memory.Server) {
		i := start(t, server, "a", executor.Options{})
		require.NoError(t, i.RegisterKind(executor.Kind{Name: "mail", MaxRunning: 100, Handler: executor.HandlerFunc(func(_ context.Context, r *executor.Run) error {
			time.Sleep(10 * time.Second)
			if r.Job == "job-7" {
				return errors.New("broken")
			}
			return nil
		})}))
		time.Sleep(time.Second) // the instant of a definition may be a fire of it
		const jobs = 30
		for n := range jobs {
			define(t, server, fmt.Sprint("job-", n), "mail")
		}
		time.Sleep(time.Minute + 4*time.Second)
		assert.Equal(t, 30.0, i.value(t, `rota_runs_active{job_name="kind:mail"}`))
		time.Sleep(10 * time.Second)
		assert.Equal(t, 29.0, i.value(t, `rota_runs_total{job_name="kind:mail",outcome="ok"}`))
		assert.Equal(t, 1.0, i.value(t, `rota_runs_total{job_name="kind:mail",outcome="failed"}`))
		assert.Equal(t, 30.0, i.value(t, `rota_run_duration_seconds{job_name="kind:mail"}`))
		assert.Equal(t, 30.0, i.value(t, `rota_shards_owned{job_name="kind:mail"}`))
		families, err := i.Gather()
		require.NoError(t, err)
		for _, f := range families {
			for _, m := range f.Metric {
				assert.NotContains(t, seriesName(f, m), "job-")
			}
		}
		require.NoError(t, i.Shutdown(t.Context()))
	})
}

// define stores a defined job that is awake, and fires each minute.
func define(t *testing.T, server *memory.Server, job, kind string) {
	t.Helper()
	keys, err := record.NewKeys("billing", "default")
	require.NoError(t, err)
	def := fmt.Appendf(nil, `{"created":"x7","kind":%q,"max_attempts":3,"name":%q,"on_crash":"rerun elsewhere","on_misfire":"run once","revision":1,`+
		`"schedule":"every 1m","shards":1,"strategy":"sticky"}`, kind, job)
	segment, now := record.Segment(job), record.InstantOf(time.Now())
	defined, err := record.Encode(&record.Defined{Job: job, Created: "x7", Revision: 1, Definition: def, At: now, By: record.Act{At: now, What: "define"}})
	require.NoError(t, err)
	ops := []registry.Op{registry.Create(keys.Defined(segment), defined), registry.Create(keys.Job(segment), def)}
	if _, err := server.Client("console").Get(t.Context(), keys.KindCounts(), registry.ReadOptions{Fresh: true}); err != nil {
		ops = append(ops, registry.Create(keys.KindCounts(), []byte("{}")))
	}
	_, err = server.Client("console").Txn(t.Context(), registry.Txn{Then: ops})
	require.NoError(t, err)
}

func TestCollector_CountsDaemonsAsHealthy(t *testing.T) {
	inBubble(t, "while they run, and when their instance crashes again and again", func(t *testing.T, server *memory.Server) {
		daemon := job("daemon", 1, func(ctx context.Context, _ *executor.Run) error {
			<-ctx.Done()
			return context.Cause(ctx)
		})
		daemon.Schedule, daemon.Timeout = schedule.Always(), 0
		a := start(t, server, "a", executor.Options{}, job("other", 1, succeed))
		time.Sleep(time.Second)
		b := start(t, server, "b", executor.Options{}, daemon)
		for range 5 {
			for range 30 {
				time.Sleep(time.Minute)
				require.LessOrEqual(t, max(a.value(t, `rota_job_overdue_seconds{job_name="daemon"}`), b.value(t, `rota_job_overdue_seconds{job_name="daemon"}`)), 0.0)
			}
			require.Equal(t, 1.0, b.value(t, `rota_runs_active{job_name="daemon"}`))
			heal := server.Partition("b")
			time.Sleep(30 * time.Second)
			heal()
			time.Sleep(30 * time.Second)
		}
		assert.Equal(t, 5.0, b.value(t, `rota_sessions_lost_total`))
		assert.Equal(t, 5.0, b.value(t, `rota_reruns_total{job_name="daemon"}`))
		assert.LessOrEqual(t, max(a.value(t, `rota_runs_lost_total{job_name="daemon"}`), b.value(t, `rota_runs_lost_total{job_name="daemon"}`)), 0.0)
		require.NoError(t, b.Shutdown(t.Context()))
		require.NoError(t, a.Shutdown(t.Context()))
	})
}

// TestCollector_WritesTheSeriesOfHealthyDaemons keeps the series of two hours of healthy jobs that count from the ends of
// runs, for those metrics on which alerts.yaml rests. Package alertstest evaluates the rules with them.
func TestCollector_WritesTheSeriesOfHealthyDaemons(t *testing.T) {
	const page = "testdata/healthy-daemons.txt"
	rules, err := os.ReadFile("alerts.yaml")
	require.NoError(t, err)
	of := map[string]bool{}
	for _, name := range regexp.MustCompile(`\brota_[a-z_]+`).FindAllString(string(rules), -1) {
		of[name] = name != "rota_namespace" && name != "rota_group"
	}
	inBubble(t, "minute by minute", func(t *testing.T, server *memory.Server) {
		daemon := job("daemon", 2, func(ctx context.Context, _ *executor.Run) error {
			<-ctx.Done()
			return context.Cause(ctx)
		})
		daemon.Schedule, daemon.Timeout = schedule.Always(), 0
		long := job("slow", 1, func(ctx context.Context, _ *executor.Run) error {
			select {
			case <-time.After(25 * time.Minute):
			case <-ctx.Done():
			}
			return context.Cause(ctx)
		})
		long.Schedule, long.Timeout = schedule.FixedDelay(10*time.Minute), 0
		i := start(t, server, "a", executor.Options{}, daemon, long)
		time.Sleep(time.Second)
		values := map[string][]string{}
		for minute := range 121 {
			families, err := i.Gather()
			require.NoError(t, err)
			for _, f := range families {
				for _, m := range f.Metric {
					if !of[f.GetName()] || m.Histogram != nil || f.GetName() == "rota_build_info" {
						continue
					}
					name := seriesName(f, m)
					for len(values[name]) < minute {
						values[name] = append(values[name], "_")
					}
					values[name] = append(values[name], fmt.Sprint(valueOf(m)))
				}
			}
			time.Sleep(time.Minute)
		}
		var lines []string
		for name, v := range values {
			bare, labels, _ := strings.Cut(strings.TrimSuffix(name, "}"), "{")
			all := strings.Trim(`rota_namespace="billing",rota_group="default",instance="a",`+labels, ",")
			lines = append(lines, bare+"{"+all+"} "+strings.Join(v, " "))
		}
		slices.Sort(lines)
		got := strings.Join(lines, "\n") + "\n"
		if *update {
			require.NoError(t, os.WriteFile(page, []byte(got), 0o600))
		}
		want, err := os.ReadFile(page)
		require.NoError(t, err)
		assert.Equal(t, string(want), got, "go test -run HealthyDaemons -update writes it anew")
		require.NoError(t, i.Shutdown(t.Context()))
	})
}

func TestCollector_HasFewSeriesOfAHealthyJob(t *testing.T) {
	inBubble(t, "the outcomes that alerts compare begin at zero, others with their first run", func(t *testing.T, server *memory.Server) {
		i := start(t, server, "a", executor.Options{}, job("healthy", 1, succeed))
		time.Sleep(time.Second)
		for _, outcome := range []string{"ok", "failed", "timeout", "panic"} {
			assert.Equal(t, 0.0, i.value(t, `rota_runs_total{job_name="healthy",outcome="`+outcome+`"}`), outcome)
		}
		time.Sleep(5 * time.Minute)
		n, err := testutil.GatherAndCount(i, "rota_runs_total")
		require.NoError(t, err)
		assert.Equal(t, 4, n)
		require.NoError(t, i.Shutdown(t.Context()))
	})
}

func TestCountFire_CountsAFireByItsWorstShards(t *testing.T) {
	for name, c := range map[string]struct {
		ended executor.FireEnded
		want  string
	}{
		"all shards succeeded":          {executor.FireEnded{Shards: 3}, "ok"},
		"shards were skipped":           {executor.FireEnded{Shards: 3, Skipped: 1}, "skipped"},
		"shards failed":                 {executor.FireEnded{Shards: 3, Failed: 1}, "failed"},
		"shards failed and are skipped": {executor.FireEnded{Shards: 3, Failed: 1, Skipped: 2}, "failed"},
	} {
		t.Run(name, func(t *testing.T) {
			ex, err := executor.New(memory.New().Client("a"), "billing", executor.Options{Instance: "a"})
			require.NoError(t, err)
			col := Collector(ex).(*collector)
			c.ended.Job = "job"
			col.countFire(c.ended)
			for _, outcome := range []string{"ok", "failed", "skipped"} {
				want := 0.0
				if outcome == c.want {
					want = 1
				}
				assert.Equal(t, want, testutil.ToFloat64(col.fires.WithLabelValues("job", outcome)), outcome)
			}
		})
	}
}

func TestMerge_TakesTheFirstNextFireOfAnyJob(t *testing.T) {
	none, early, late := executor.JobStats{}, executor.JobStats{NextFire: time.Unix(60, 0)}, executor.JobStats{NextFire: time.Unix(120, 0)}
	for _, c := range []struct{ a, b, want executor.JobStats }{
		{none, early, early}, {early, none, early}, {early, late, early}, {late, early, early}, {none, none, none},
	} {
		assert.Equal(t, c.want, merge(c.a, c.b))
	}
}

// allMetrics returns the families of an instance that has had every event.
func allMetrics(t *testing.T) []*dto.MetricFamily {
	t.Helper()
	ex, err := executor.New(memory.New().Client("a"), "billing", executor.Options{Instance: "a"})
	require.NoError(t, err)
	c := Collector(ex).(*collector)
	o, run := c.observer(), executor.RunInfo{Job: "job"}
	o.RunClaimed(executor.RunClaimed{Run: run})
	o.RunClaimed(executor.RunClaimed{Run: executor.RunInfo{Job: "job", Reason: executor.Failover}})
	for _, outcome := range endsOfRuns(t) {
		assert.Contains(t, outcomes, outcome)
		o.RunEnded(executor.RunEnded{Run: run, Started: time.Now(), Ended: time.Now(), Outcome: outcome})
	}
	o.RunRetried(executor.RunRetried{Run: run})
	o.RunCrashed(executor.RunCrashed{Run: run})
	o.FiresSkipped(executor.FiresSkipped{Job: "job", Reason: executor.SkipMisfire, Shards: []int{1}, Count: 1})
	o.FireEnded(executor.FireEnded{Job: "job"})
	o.ShardsChanged(executor.ShardsChanged{Job: "job", Gained: []int{1}})
	o.ClockChanged(executor.ClockChanged{Skewed: true, Ahead: time.Minute})
	r := prometheus.NewPedanticRegistry()
	require.NoError(t, r.Register(c))
	require.NoError(t, r.Register(NewRegistry(memory.New().Client("a"))))
	families, err := r.Gather()
	require.NoError(t, err)
	return families
}

// endsOfRuns returns the outcomes that a RunEnded may have, as executor declares them.
func endsOfRuns(t *testing.T) (all []executor.Outcome) {
	t.Helper()
	source, err := os.ReadFile("../executor/observer.go")
	require.NoError(t, err)
	for _, m := range regexp.MustCompile(`(?m)^\t\w+ +Outcome = "(.+)"$`).FindAllStringSubmatch(string(source), -1) {
		if o := executor.Outcome(m[1]); o != executor.Crashed {
			all = append(all, o)
		}
	}
	require.Contains(t, all, executor.Cancelled)
	return all
}

func TestMetrics_AreNamedByTheRulesOfPrometheus(t *testing.T) {
	r := prometheus.NewPedanticRegistry()
	ex, err := executor.New(memory.New().Client("a"), "billing", executor.Options{Instance: "a"})
	require.NoError(t, err)
	require.NoError(t, r.Register(Collector(ex)))
	problems, err := testutil.GatherAndLint(r)
	require.NoError(t, err)
	assert.Empty(t, problems)
	problems, err = testutil.GatherAndLint(prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) { return allMetrics(t), nil }))
	require.NoError(t, err)
	assert.Empty(t, problems)
}

// The page and the alerts name metrics that exist, and the page names all.
func TestMetrics_AreThoseOfThePageAndTheAlerts(t *testing.T) {
	ex, err := executor.New(memory.New().Client("a"), "billing", executor.Options{Instance: "a"})
	require.NoError(t, err)
	descs := make(chan *prometheus.Desc, 100)
	Collector(ex).Describe(descs)
	NewRegistry(memory.New().Client("a")).Describe(descs)
	close(descs)
	var metrics []string
	for d := range descs {
		metrics = append(metrics, regexp.MustCompile(`fqName: "([a-z_]+)"`).FindStringSubmatch(d.String())[1])
	}
	slices.Sort(metrics)
	named := func(file string) []string {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		var names []string
		for _, name := range regexp.MustCompile(`\brota_[a-z_]+\b`).FindAllString(string(text), -1) {
			if name != "rota_namespace" && name != "rota_group" {
				names = append(names, strings.TrimSuffix(name, "_bucket"))
			}
		}
		slices.Sort(names)
		return slices.Compact(names)
	}
	assert.Equal(t, metrics, named("../docs/operating/alerts.md"))
	assert.Subset(t, metrics, named("alerts.yaml"))
}
