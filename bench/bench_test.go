package main

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	runAsWorker()
	os.Exit(m.Run())
}

// Each case that needs no server runs for a second. Its figures mean nothing, but the runs
// must keep the promises of the library.
func TestCases_OnMemory(t *testing.T) {
	for _, c := range cases {
		if !strings.Contains(c.name, "memory") || strings.HasSuffix(c.name, "000") {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			figures, err := c.run(t.Context(), options{duration: time.Second, patience: time.Minute, outage: time.Second})
			if err != nil {
				t.Fatal(err)
			}
			if len(figures) == 0 {
				t.Error("no figures")
			}
			for name := range figures {
				if !slices.ContainsFunc(metrics, func(m metric) bool { return m.name == name }) {
					t.Errorf("figure %q is not in the list of metrics", name)
				}
			}
		})
	}
}

// The comparisons, and the smallest storms, also run on servers.
func TestCases_OnServers(t *testing.T) {
	for _, c := range cases {
		onServer := strings.Contains(c.name, "-etcd") || strings.Contains(c.name, "-zookeeper")
		if !onServer || !hasPrefix("lock-", "leader-", "watch-")(c.name) && c.name != "storm-etcd-100" && c.name != "storm-zookeeper-100" {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			figures, err := c.run(t.Context(), options{duration: time.Second, patience: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			if figures["p50"] <= 0 || hasPrefix("lock-", "watch-", "leader-etcd")(c.name) && figures[peerPrefix+"p50"] <= 0 {
				t.Errorf("figures are %v", figures)
			}
		})
	}
}

func TestCases_HaveDistinctNames(t *testing.T) {
	names := namesOf(cases)
	slices.Sort(names)
	if n := len(slices.Compact(slices.Clone(names))); n != len(names) {
		t.Errorf("%d of %d names are distinct", n, len(names))
	}
}

func TestQuantile(t *testing.T) {
	all := []time.Duration{5, 1, 4, 2, 3}
	for q, want := range map[float64]time.Duration{0: 1, 0.5: 3, 0.99: 5, 1: 5} {
		if got := quantile(all, q); got != want {
			t.Errorf("quantile %v of %v is %v, not %v", q, all, got, want)
		}
	}
}

func TestSummary_IsMedianAndWorst(t *testing.T) {
	r := result{Runs: []measurement{
		{Figures: map[string]float64{"p50": 3, "fires/s": 30}},
		{Figures: map[string]float64{"p50": 1, "fires/s": 10}},
		{Figures: map[string]float64{"p50": 2, "fires/s": 20}},
	}}
	for name, want := range map[string][2]float64{"p50": {2, 3}, "fires/s": {20, 10}} {
		median, worst, ok := r.summaryOf(metricNamed(name))
		if !ok || median != want[0] || worst != want[1] {
			t.Errorf("%s: median %v and worst %v, not %v", name, median, worst, want)
		}
	}
	if _, _, ok := r.summaryOf(metricNamed("max")); ok {
		t.Error("there is a summary of a figure that no run has")
	}
}

func TestJudge(t *testing.T) {
	second := func(n int64) int64 { return n * int64(time.Second) }
	sets := []jobSet{{Count: 2, Every: time.Second, Shards: 1}}
	w := window{time.Unix(1, 0), time.Unix(4, 0)}
	ran := func(job int32, fire int64, attempt int32, late time.Duration) run {
		return run{job: job, fire: second(fire), attempt: attempt, start: second(fire) + int64(late)}
	}
	whole := []run{ran(0, 1, 1, 5), ran(0, 2, 1, 6), ran(0, 3, 1, 7), ran(1, 1, 1, 1), ran(1, 2, 1, 2), ran(1, 3, 1, 3)}
	for name, c := range map[string]struct {
		runs    []run
		skipped int
		broken  string
	}{
		"every fire once":        {whole, 0, ""},
		"a fire twice":           {append(slices.Clone(whole), ran(1, 2, 1, 9)), 0, "1 doubled"},
		"a second attempt":       {append(slices.Clone(whole), ran(1, 2, 2, 9)), 0, ""},
		"a fire without a run":   {slices.Delete(slices.Clone(whole), 1, 2), 0, "1 fires lost"},
		"a fire that is counted": {slices.Delete(slices.Clone(whole), 1, 2), 1, ""},
		"a fire before its time": {append(slices.Clone(whole), ran(1, 4, 1, -1)), 0, "1 early"},
	} {
		t.Run(name, func(t *testing.T) {
			slices.Reverse(c.runs) // as if a later worker had run the first fires
			v := judge([][]run{c.runs}, sets, w)
			if v.due != 6 {
				t.Errorf("%d fires are due, not 6", v.due)
			}
			err := v.check(c.skipped)
			if (err == nil) != (c.broken == "") || err != nil && !strings.Contains(err.Error(), c.broken) {
				t.Errorf("check returns %v, not %q", err, c.broken)
			}
		})
	}
}

func TestReplaceSections(t *testing.T) {
	var text strings.Builder
	for _, s := range sections {
		text.WriteString("before " + s.name + "\n<!-- bench: " + s.name + " -->\nold\n" + endMark)
	}
	all := map[string]result{"storm-etcd-100": {
		Case: "storm-etcd-100", Runs: []measurement{{Figures: map[string]float64{"p50": 1.25}}, {Figures: map[string]float64{"p50": 2}}, {Figures: map[string]float64{"p50": 1}}},
	}}
	texts, err := replaceSections([]string{text.String()}, all)
	if err != nil {
		t.Fatal(err)
	}
	got := texts[0]
	if strings.Contains(got, "old") || !strings.Contains(got, "before storms\n") {
		t.Errorf("sections are not replaced:\n%s", got)
	}
	if !strings.Contains(got, "| `storm-etcd-100` |  |  |  | 1.3 (2.0) |") {
		t.Errorf("the median and the worst value are missing:\n%s", got)
	}
	if _, err := replaceSections([]string{"nothing"}, all); err == nil {
		t.Error("a document without sections is accepted")
	}
}

// Each case has a row in the tables of the page.
func TestSections_ShowEachCase(t *testing.T) {
	all := map[string]result{}
	for _, c := range cases {
		figures := map[string]float64{}
		for _, m := range metrics {
			figures[m.name] = 1234
		}
		all[c.name] = result{Case: c.name, Runs: []measurement{{Figures: figures}}}
	}
	var text strings.Builder
	for _, s := range sections {
		text.WriteString(s.render(all))
	}
	for _, c := range cases {
		if !strings.Contains(text.String(), "| `"+c.name+"` |") {
			t.Errorf("no table has case %s", c.name)
		}
	}
	if row := "| `look-etcd-1` | 1234 | 1234 | 1234 | 1234 | 1234.00 | 1234.00 |"; !strings.Contains(text.String(), row) {
		t.Errorf("there is no row %s", row)
	}
}

func TestPage_ShowsTheResults(t *testing.T) {
	if ok, err := pagesAreCurrent(resultsDir); err != nil || !ok {
		t.Errorf("%v differ from the results (%v); write them by: go run . page", pagePaths, err)
	}
}

func TestLibraries_StateTheirPromises(t *testing.T) {
	for name := range libraries {
		if libraryPromises[name].idiom == "" {
			t.Errorf("%s: no promise", name)
		}
	}
}

// A contender that does not exclude the others is found.
func TestHandOffs_FindsTwoHolders(t *testing.T) {
	run := handOffs(2, time.Millisecond, func(context.Context, *store) (contender, error) { return freeForAll{}, nil })
	if err := run(t.Context(), &store{}, &meter{time: time.Second}); err != errShared {
		t.Errorf("error is %v, not %v", err, errShared)
	}
}

type freeForAll struct{}

func (freeForAll) tenure(_ context.Context, held func()) error { held(); return nil }

func (freeForAll) close() {}
