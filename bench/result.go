package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// result is the outcome of a case, as stored in a file.
type result struct {
	Case     string            `json:"case"`
	About    string            `json:"about"`
	When     time.Time         `json:"when"`
	Machine  machine           `json:"machine"`
	Versions map[string]string `json:"versions"`
	Duration time.Duration     `json:"duration"` // of the measurement in each run
	Runs     []measurement     `json:"runs"`
}

// measurement is the outcome of one run of a case.
type measurement struct {
	LoadBefore float64            `json:"load_before"`
	LoadAfter  float64            `json:"load_after"`
	Figures    map[string]float64 `json:"figures"` // by name of the metric
}

// direction is how the values of a metric compare.
type direction int

const (
	neutral direction = iota
	lessIsBetter
	moreIsBetter
)

// metric describes a figure.
type metric struct {
	name, unit string
	better     direction
	digits     int // after the point
}

// peerPrefix begins the names of figures of the other side of a comparison.
const peerPrefix = "peer "

// metrics lists all metrics, in the order of output.
var metrics = []metric{
	{"due", "", neutral, 0},
	{"made", "", moreIsBetter, 0},
	{"missed", "", lessIsBetter, 0},
	{"starved", "", lessIsBetter, 0},
	{"lost", "", lessIsBetter, 0},
	{"doubled", "", lessIsBetter, 0},
	{"reruns", "", neutral, 0},
	{"fires/s", "/s", moreIsBetter, 0},
	{"held", "%", moreIsBetter, 1},
	{"p50", "ms", lessIsBetter, 1},
	{"p99", "ms", lessIsBetter, 1},
	{"max", "ms", lessIsBetter, 1},
	{"client CPU", "us", lessIsBetter, 1},
	{"server CPU", "us", lessIsBetter, 1},
	{"sent", "B", lessIsBetter, 0},
	{"received", "B", lessIsBetter, 0},
	{"transactions", "", lessIsBetter, 4},
	{"start", "ms", lessIsBetter, 0},
	{"stop", "ms", lessIsBetter, 0},
	{"expiry", "ms", neutral, 0},
	{"gap", "ms", lessIsBetter, 0},
	{"others max", "ms", lessIsBetter, 1},
	{"moved", "", neutral, 0},
	{"resume", "ms", lessIsBetter, 0},
	{"catch-up", "ms", lessIsBetter, 0},
	{"fires/s, shard", "/s", moreIsBetter, 0},
	{"memory, instance", "KiB", lessIsBetter, 0},
	{"memory, job", "B", lessIsBetter, 0},
	{"CPU at rest", "%", lessIsBetter, 2},
	{"sent at rest", "B/s", lessIsBetter, 0},
	{"jobs", "ms", lessIsBetter, 0},
	{"jobs max", "ms", lessIsBetter, 0},
	{"jobs CPU", "ms", lessIsBetter, 0},
	{"jobs requests", "", lessIsBetter, 0},
	{"top at rest", "%", lessIsBetter, 2},
	{"top", "%", lessIsBetter, 2},
	{"p99 alone", "ms", lessIsBetter, 1},
	{"p99 beside", "ms", lessIsBetter, 1},
	{"first p99", "ms", lessIsBetter, 1},
	{"stored, job", "B", lessIsBetter, 0},
	{"deletions", "/s", moreIsBetter, 0},
	{"left", "", lessIsBetter, 0},
	{"rate", "/s", moreIsBetter, 0},
	{peerPrefix + "p50", "ms", neutral, 1},
	{peerPrefix + "p99", "ms", neutral, 1},
	{peerPrefix + "rate", "/s", neutral, 0},
}

func metricNamed(name string) metric {
	return metrics[slices.IndexFunc(metrics, func(m metric) bool { return m.name == name })]
}

// summaryOf returns the median and the worst value of a metric over the runs. ok is false if
// no run has it.
func (r result) summaryOf(m metric) (median, worst float64, ok bool) {
	var all []float64
	for _, x := range r.Runs {
		if v, ok := x.Figures[m.name]; ok {
			all = append(all, v)
		}
	}
	if len(all) == 0 {
		return 0, 0, false
	}
	worst = slices.Max(all)
	if m.better == moreIsBetter {
		worst = slices.Min(all)
	}
	return quantile(all, 0.5), worst, true
}

// print writes the medians and worst values for people.
func (r result) print(w io.Writer) {
	var loads []string
	for _, x := range r.Runs {
		loads = append(loads, fmt.Sprintf("%.1f-%.1f", x.LoadBefore, x.LoadAfter))
	}
	fmt.Fprintf(w, "%s: %s\n  rota %s, %d runs of %v, load %s\n", r.Case, r.About, r.Versions["rota"], len(r.Runs), r.Duration, strings.Join(loads, ", "))
	for _, m := range metrics {
		median, worst, ok := r.summaryOf(m)
		if !ok {
			continue
		}
		fmt.Fprintf(w, "  %-14s %12s %-3s", m.name, m.format(median), m.unit)
		if len(r.Runs) > 1 && m.better != neutral {
			fmt.Fprintf(w, " worst %s", m.format(worst))
		}
		fmt.Fprintln(w)
	}
}

func (m metric) format(v float64) string {
	scale := math.Pow10(m.digits)
	return fmt.Sprintf("%.*f", m.digits, math.Round(v*scale)/scale)
}

// save writes the result into dir.
func (r result) save(dir string) error {
	b, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, r.Case+".json"), append(b, '\n'), 0o644)
}

// loadResults reads the results in dir, by case.
func loadResults(dir string) (map[string]result, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	all := map[string]result{}
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		var r result
		if err := json.Unmarshal(b, &r); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		all[r.Case] = r
	}
	return all, nil
}
