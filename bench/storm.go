package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"
)

// storm is jobs that fire together every second, with a handler that returns at once.
type storm struct {
	library, store string
	workers        int
	jobs           jobSet
}

func (s storm) run(ctx context.Context, o options) (map[string]float64, error) {
	sets := []jobSet{s.jobs}
	began := time.Now()
	f, err := startFleet(ctx, o, s.library, s.store, s.workers, sets)
	defer f.stop()
	if err != nil {
		return nil, err
	}
	late := f.awaitEachRan(ctx, sets, startTime) // an overloaded fleet may leave shards out
	if s.library == "rota" && late == nil {
		late = f.awaitBalanced(ctx, s.jobs, 0.98) // else the figures include the moves to the later instance
	}
	if ctx.Err() != nil {
		return nil, late
	}
	started := time.Since(began)
	w, used, err := f.measureWindow(ctx)
	if err != nil {
		return nil, err
	}
	if err := f.awaitMade(ctx, sets, w); err != nil {
		return nil, err
	}
	v := judge(f.runs(), sets, w)
	skipped := 0
	if v.gaps > 0 {
		if skipped, err = f.countSkipped(ctx); err != nil {
			return nil, err
		}
		v = judge(f.runs(), sets, w) // the workers have ended, so the counts are final
	}
	figures := v.figures(skipped, w)
	addUsage(figures, used, v.begun)
	if late == nil {
		figures["start"] = milliseconds(started)
	}
	return figures, libraryPromises[s.library].check(v, skipped)
}

// startTime is how long the first runs of all shards are awaited.
const startTime = 20 * time.Second

// settleTime is the time between the first runs of all jobs and the measurement.
const settleTime = 2 * time.Second

// measureWindow waits for a window of whole seconds and returns the usage of the fleet in it.
func (f *fleet) measureWindow(ctx context.Context) (window, usage, error) {
	const before = 100 * time.Millisecond // the readings are apart from the fires
	from := time.Now().Add(settleTime).Truncate(time.Second).Add(time.Second)
	w := window{from, from.Add(f.options.duration)}
	if err := pause(ctx, time.Until(w.from.Add(-before))); err != nil {
		return w, usage{}, err
	}
	if err := f.startProfiles(ctx); err != nil {
		return w, usage{}, err
	}
	first, err := f.usage(ctx)
	if err != nil {
		return w, usage{}, err
	}
	if err := pause(ctx, time.Until(w.to.Add(-before))); err != nil {
		return w, usage{}, err
	}
	last, err := f.usage(ctx)
	return w, last.since(first), err
}

// startProfiles profiles each worker for the duration of the measurement, if requested.
func (f *fleet) startProfiles(ctx context.Context) error {
	if f.options.cpuProfile == "" {
		return nil
	}
	for _, w := range f.workers {
		path, err := filepath.Abs(filepath.Join(f.options.cpuProfile, f.options.name+"-"+w.Instance+".pprof"))
		if err != nil {
			return err
		}
		if _, err := w.do(ctx, order{Do: "profile", Profile: path, For: f.options.duration}); err != nil {
			return err
		}
	}
	return nil
}

// lateTime is how long after the window a late fire of it is awaited.
const lateTime = 3 * time.Second

// awaitMade waits until all fires of the window are made, or for lateTime.
func (f *fleet) awaitMade(ctx context.Context, sets []jobSet, w window) error {
	due := countDue(sets, w)
	for time.Since(w.to) < lateTime {
		made := 0
		for _, runs := range f.runs() {
			for _, r := range runs {
				if w.contains(r.fire) {
					made++
				}
			}
		}
		if made >= due {
			return nil
		}
		if err := pause(ctx, 200*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

func (v verdict) figures(skipped int, w window) map[string]float64 {
	return map[string]float64{
		"due":     float64(v.due),
		"made":    float64(v.made),
		"missed":  float64(v.due - v.made),
		"lost":    float64(max(v.gaps-skipped, 0)),
		"doubled": float64(v.doubled),
		"reruns":  float64(v.reruns),
		"fires/s": float64(v.begun) / w.length().Seconds(),
		"starved": float64(v.starved),
		"held":    100 * float64(v.made) / float64(v.due),
		"p50":     milliseconds(quantile(v.lateness, 0.5)),
		"p99":     milliseconds(quantile(v.lateness, 0.99)),
		"max":     milliseconds(quantile(v.lateness, 1)),
	}
}

// addUsage adds the usage per run, for n runs.
func addUsage(figures map[string]float64, u usage, n int) {
	per := func(v float64) float64 { return v / float64(max(n, 1)) }
	figures["client CPU"] = per(float64(u.clientCPU) / 1e3)
	figures["server CPU"] = per(float64(u.serverCPU) / 1e3)
	figures["sent"] = per(float64(u.sent))
	figures["received"] = per(u.bytes)
	figures["transactions"] = per(u.transactions)
}

func milliseconds(d time.Duration) float64 { return float64(d) / 1e6 }

// stormCases returns the storms of a library on a store.
func stormCases(library, store string, workers int, counts ...int) (cases []benchCase) {
	on := store
	if library != "rota" {
		on = library
	}
	for _, n := range counts {
		cases = append(cases, benchCase{
			name:  fmt.Sprintf("storm-%s-%d", on, n),
			about: fmt.Sprintf("%d jobs of one shard fire together each second; %s on %s, %d processes", n, library, store, workers),
			run:   storm{library, store, workers, jobSet{Count: n, Every: time.Second, Shards: 1}}.run,
		})
	}
	return cases
}

// rotaStorms are further storms of rota on a store.
func rotaStorms(store string, workers int) []benchCase {
	return []benchCase{
		{
			name:  "spread-" + store + "-2000",
			about: fmt.Sprintf("2,000 jobs of one shard with intervals of 0.9 to 1.1 s; rota on %s, %d processes", store, workers),
			run:   storm{"rota", store, workers, jobSet{Count: 2000, Every: time.Second, Spread: true, Shards: 1}}.run,
		},
		{
			name:  "storm-" + store + "-100x100",
			about: fmt.Sprintf("100 jobs of 100 shards fire together each second; rota on %s, %d processes", store, workers),
			run:   storm{"rota", store, workers, jobSet{Count: 100, Every: time.Second, Shards: 100}}.run,
		},
	}
}
