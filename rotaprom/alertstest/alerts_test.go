package alertstest

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
)

// firing returns the alerts that fire at some minutes, as "3: Alert job summary" or "3: Alert summary".
// Series are the labels and values of series, one value a minute.
func firing(t *testing.T, series string, minutes ...int) (out []string) {
	t.Helper()
	load := "load 1m\n"
	for line := range strings.Lines(series) {
		if line = strings.TrimSpace(line); line != "" {
			load += "  " + line + "\n"
		}
	}
	store := promqltest.LoadedStorage(t, load)
	t.Cleanup(func() { store.Close() })
	engine := promqltest.NewTestEngine(t, false, 0, 1_000_000)
	m := rules.NewManager(&rules.ManagerOptions{
		QueryFunc: rules.EngineQueryFunc(engine, store), AppendableV2: store, Context: t.Context(), Queryable: store,
		NotifyFunc: func(context.Context, string, ...*rules.Alert) {}, Logger: slog.New(slog.DiscardHandler),
		ExternalURL: &url.URL{}, NameValidationScheme: model.UTF8Validation, Parser: parser.NewParser(parser.Options{}),
	})
	groups, errs := m.LoadGroups(time.Minute, labels.EmptyLabels(), "", nil, false, "../alerts.yaml")
	if errs != nil {
		t.Fatal(errs)
	}
	for minute := range slices.Max(minutes) + 1 {
		for _, g := range groups {
			g.Eval(t.Context(), time.Unix(int64(60*minute), 0))
			for _, r := range g.AlertingRules() {
				if err := r.LastError(); err != nil {
					t.Fatal(r.Name(), err)
				}
				for _, a := range r.ActiveAlerts() {
					if a.State == rules.StateFiring && slices.Contains(minutes, minute) {
						out = append(out, fmt.Sprintf("%d: %s: %s", minute, r.Name(), a.Annotations.Get("summary")))
					}
				}
			}
		}
	}
	return out
}

// alive is an instance that leads and has nothing to report.
const alive = `
	rota_build_info{rota_namespace="billing",rota_group="default",instance="a"} 1x100
	rota_leader{rota_namespace="billing",rota_group="default",instance="a"} 1x100
`

const (
	job      = `{rota_namespace="billing",rota_group="default",job_name="settle",instance="a"}`
	jobOther = `{rota_namespace="billing",rota_group="default",job_name="settle",instance="b"}`
	instance = `{rota_namespace="billing",rota_group="default",instance="a"}`
)

func outcome(text string) string { return strings.Replace(job, "}", `,outcome="`+text+`"}`, 1) }

func refused(cause string) string { return strings.Replace(instance, "}", `,cause="`+cause+`"}`, 1) }

func TestAlerts(t *testing.T) {
	for name, c := range map[string]struct {
		series  string
		minutes []int
		want    []string
	}{
		"none": {
			alive + "rota_job_overdue_seconds" + job + " 0x100\nrota_shards_unowned" + job + " 0x100\nrota_clock_offset_seconds" + instance + " 0x100\n" +
				"rota_sessions_lost_total" + instance + " 3x100\nrota_events_dropped_total" + instance + " 5x100\nrota_runs_total" + outcome("ok") + " 0+1x100\n" +
				"rota_runs_total" + outcome("failed") + " 7x100\nrota_runs_lost_total" + job + " 2x100",
			[]int{1, 10, 90},
			nil,
		},
		"Overdue, by the instance for which it is longest": {
			alive + "rota_job_overdue_seconds" + job + " 0+60x60\nrota_job_overdue_seconds" + jobOther + " 0x60",
			[]int{5, 6, 7, 8},
			[]string{"7: RotaJobOverdue: Job settle of billing has a due fire that no instance has claimed for 7m 0s.", "8: RotaJobOverdue: Job settle of billing has a due fire that no instance has claimed for 8m 0s."},
		},
		"NoLeader, not during a change of the leader": {
			`rota_build_info{rota_namespace="billing",rota_group="default",instance="a"} 1x100
			 rota_leader{rota_namespace="billing",rota_group="default",instance="a"} 1 0 0 0 0 0 0
			 rota_leader{rota_namespace="billing",rota_group="default",instance="b"} 0 0 1 0 0 0 0`,
			[]int{1, 2, 3, 4},
			[]string{"4: RotaNoLeader: Group default of billing has no leader: no shard fails over."},
		},
		"NoInstance, once no instance is scraped": {
			"rota_build_info" + instance + " 1 1 stale",
			[]int{1, 2, 3},
			[]string{"3: RotaNoInstance: No instance of rota is scraped."},
		},
		"Unowned, after five minutes": {
			alive + "rota_shards_unowned" + job + " 0 2x20",
			[]int{5, 6},
			[]string{"6: RotaShardsUnowned: 2 shards of job settle of billing have no owner."},
		},
		"Failing, without a success in the hour": {
			alive + "rota_runs_total" + outcome("failed") + " 0 0 1x70\nrota_runs_total" + outcome("ok") + " 0x72",
			[]int{1, 2, 71},
			[]string{"2: RotaJobFailing: Runs of job settle of billing fail, and none has succeeded for an hour."},
		},
		"not Failing, with a success in the hour": {
			alive + "rota_runs_total" + outcome("timeout") + " 0+1x70\nrota_runs_total" + outcome("ok") + " 0 1x70", []int{1, 30}, nil,
		},
		"ClockSkewed, ahead or behind": {
			alive + "rota_clock_offset_seconds" + instance + " 0 -7 -7 -7 0",
			[]int{1, 2, 3, 4},
			[]string{"2: RotaClockSkewed: The clock of a is -7 s from the median of its fleet: it claims nothing.", "3: RotaClockSkewed: The clock of a is -7 s from the median of its fleet: it claims nothing."},
		},
		"SessionsLost, for the second in a quarter of an hour": {
			alive + "rota_sessions_lost_total" + instance + " 0 0 1 1 1 1 1 1 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2",
			[]int{4, 8, 9, 26},
			[]string{
				"8: RotaSessionsLost: a loses its sessions: look at the store, the network, and processes that are suspended.",
				"9: RotaSessionsLost: a loses its sessions: look at the store, the network, and processes that are suspended.",
			},
		},
		"RunsLost": {
			alive + "rota_runs_lost_total" + job + " 0 0 1x60",
			[]int{1, 3},
			[]string{"3: RotaRunsLost: Runs of job settle of billing crashed and are not made again."},
		},
		"FireFailed": {
			alive + "rota_fires_total" + outcome("failed") + " 0 0 1x60\nrota_fires_total" + outcome("skipped") + " 0+1x62",
			[]int{1, 3, 30},
			[]string{"3: RotaFireFailed: A fire of job settle of billing ended with failed shards: jobs that follow its success skip it."},
		},
		"ClaimsRefused, by the store only": {
			alive + "rota_claims_refused_total" + refused("plan") + " 0+1x60\nrota_claims_refused_total" + refused("store") + " 0 0 1x60",
			[]int{1, 3, 10},
			[]string{"3: RotaClaimsRefused: The store refuses the claims of a, whose jobs do not run: it is full, or a permission is missing."},
		},
		"RegistryFailing, once it lasts": {
			alive + `rota_registry_requests_total{instance="a",op="txn",result="error"} 0+2x20
			rota_registry_requests_total{instance="a",op="txn",result="conflict"} 0+100x20
			rota_registry_requests_total{instance="b",op="get",result="error"} 0 0 3x20`,
			[]int{5, 10},
			[]string{"10: RotaRegistryFailing: Operations of a on the registry fail: look at the store and the network."},
		},
		"RegistrySlow, by transactions": {
			alive + `rota_registry_request_duration_seconds_bucket{instance="a",op="txn",le="1"} 0+8x20
			rota_registry_request_duration_seconds_bucket{instance="a",op="txn",le="3"} 0+10x20
			rota_registry_request_duration_seconds_bucket{instance="a",op="txn",le="+Inf"} 0+10x20
			rota_registry_request_duration_seconds_bucket{instance="b",op="txn",le="1"} 0+10x20
			rota_registry_request_duration_seconds_bucket{instance="b",op="txn",le="3"} 0+10x20
			rota_registry_request_duration_seconds_bucket{instance="b",op="txn",le="+Inf"} 0+10x20`,
			[]int{3, 10},
			[]string{"10: RotaRegistrySlow: One in ten transactions of a takes over a second: sessions may expire, and runs begin late."},
		},
		"EventsDropped": {
			alive + "rota_events_dropped_total" + instance + " 0 0 10x60",
			[]int{1, 3, 30},
			[]string{"3: RotaEventsDropped: a drops events: counters of runs are too low."},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := firing(t, c.series, c.minutes...); !slices.Equal(got, c.want) {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
		})
	}
}

// TestAlerts_OfHealthyDaemons has the series that package rotaprom collects from jobs that count from the ends of runs: a
// daemon that runs all the time, and runs that take longer than the limit of RotaJobOverdue.
func TestAlerts_OfHealthyDaemons(t *testing.T) {
	series, err := os.ReadFile("../testdata/healthy-daemons.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, metric := range []string{"rota_job_overdue_seconds", "rota_shards_unowned", "rota_runs_lost_total", "rota_runs_total"} {
		for _, job := range []string{"daemon", "slow"} {
			if !regexp.MustCompile(metric + "{.*job_name=\"" + job + "\"").Match(series) {
				t.Errorf("the series have no %s of job %s", metric, job)
			}
		}
	}
	minutes := make([]int, 120)
	for i := range minutes {
		minutes[i] = i + 1
	}
	build := "rota_build_info" + instance + " 1x125\n"
	if got := firing(t, build+string(series), minutes...); len(got) > 0 {
		t.Errorf("alerts of healthy jobs: %q", got)
	}
}
