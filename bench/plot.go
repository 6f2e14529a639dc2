package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
)

// chart plots a metric of the storms over the number of jobs.
type chart struct {
	file, title, metric string
	series              []string // prefixes of cases
}

var (
	rotaSeries = []string{"storm-memory-", "storm-etcd-", "storm-zookeeper-", "storm-postgres-"}
	peerSeries = []string{"storm-etcd-", "storm-etcd-txn-", "storm-etcd-election-", "storm-gocron-", "storm-dcron-", "storm-asynq-", "storm-river-"}
)

var charts = []chart{
	{"lateness.svg", "Lateness of aligned jobs, 99th percentile", "p99", rotaSeries},
	{"cpu.svg", "Processor time of the instances per fire", "client CPU", rotaSeries},
	{"peers-lateness.svg", "Lateness beside other libraries, 99th percentile", "p99", peerSeries},
	{"peers-cpu.svg", "Processor time per fire beside other libraries", "client CPU", peerSeries},
}

// writePlots writes the charts that have data into dir.
func writePlots(dir string, all map[string]result) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, c := range charts {
		if err := c.write(filepath.Join(dir, c.file), all); err != nil {
			return fmt.Errorf("plot %s: %w", c.file, err)
		}
	}
	return nil
}

func (c chart) write(path string, all map[string]result) error {
	p := plot.New()
	p.Title.Text = c.title
	m := metricNamed(c.metric)
	p.X.Label.Text, p.Y.Label.Text = "jobs", m.unit
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.X.Tick.Marker, p.Y.Tick.Marker = plot.LogTicks{}, plot.LogTicks{}
	p.Legend.Top, p.Legend.Left = true, true
	var lines []any
	for _, prefix := range c.series {
		if points := pointsOf(all, prefix, m); len(points) > 0 {
			lines = append(lines, seriesName(prefix), points)
		}
	}
	if len(lines) == 0 {
		return nil
	}
	if err := plotutil.AddLinePoints(p, lines...); err != nil {
		return err
	}
	p.Y.Max *= 10 // room for the legend
	return p.Save(16*vg.Centimeter, 10*vg.Centimeter, path)
}

// seriesName returns the store or library of cases.
func seriesName(prefix string) string {
	name := strings.Trim(strings.TrimPrefix(prefix, "storm-"), "-")
	if _, ok := storeKinds[name]; ok {
		return "rota, " + name
	}
	return name
}

// pointsOf returns the medians of the cases with a prefix and a number.
func pointsOf(all map[string]result, prefix string, m metric) (points plotter.XYs) {
	for _, c := range cases {
		number, ok := strings.CutPrefix(c.name, prefix)
		var jobs int
		if _, err := fmt.Sscanf(number+" ", "%d ", &jobs); !ok || err != nil || fmt.Sprint(jobs) != number {
			continue
		}
		if median, _, ok := all[c.name].summaryOf(m); ok && median > 0 {
			points = append(points, plotter.XY{X: float64(jobs), Y: median})
		}
	}
	return points
}
