package main

import (
	"context"
	"fmt"
	"time"
)

// longRuns is job 1, whose runs last longer than any measurement, one in each worker.
func longRuns(workers int) jobSet {
	return jobSet{First: 1, Count: 1, Every: time.Second, Shards: workers, Takes: time.Hour}
}

// cadence is a job of every 20 ms beside a run of an hour in each process.
type cadence struct {
	store   string
	workers int
}

func (c cadence) run(ctx context.Context, o options) (map[string]float64, error) {
	often := []jobSet{{Count: 1, Every: 20 * time.Millisecond, Shards: 1}}
	sets := append(often, longRuns(c.workers))
	f, err := startFleet(ctx, o, "rota", c.store, c.workers, sets)
	defer f.stop()
	if err != nil {
		return nil, err
	}
	if err := f.awaitSteady(ctx, sets); err != nil {
		return nil, err
	}
	w, used, err := f.measureWindow(ctx)
	if err != nil {
		return nil, err
	}
	if err := f.awaitMade(ctx, often, w); err != nil {
		return nil, err
	}
	v := judge(f.runs(), often, w)
	figures := v.figures(v.gaps, w)
	addUsage(figures, used, v.begun)
	return figures, libraryPromises["rota"].check(v, v.gaps) // the long run prevents a shutdown, and so the counts of skipped fires
}

// catchUp pauses the store, and measures how fast shards run the fires that they missed.
type catchUp struct {
	store  string
	beside bool // a run of an hour in each worker
}

const catchUpWorkers = 2

func (c catchUp) run(ctx context.Context, o options) (map[string]float64, error) {
	jobs := jobSet{Count: 1, Every: 200 * time.Millisecond, Shards: 10, CatchUp: true}
	sets := []jobSet{jobs}
	if c.beside {
		sets = append(sets, longRuns(catchUpWorkers))
	}
	f, err := startFleet(ctx, o, "rota", c.store, catchUpWorkers, sets)
	defer f.stop()
	if err != nil {
		return nil, err
	}
	if err := f.awaitSteady(ctx, sets); err != nil {
		return nil, err
	}
	if err := f.store.server.Pause(); err != nil {
		return nil, err
	}
	if err := pause(ctx, o.outage); err != nil {
		return nil, err
	}
	resumed := time.Now()
	if err := f.store.server.Resume(); err != nil {
		return nil, err
	}
	caught, err := f.awaitCaughtUp(ctx, jobs, resumed)
	if ctx.Err() != nil {
		return nil, err
	}
	began := firstStart(f.runs(), resumed)
	v := judge(f.runs(), []jobSet{jobs}, window{began, caught})
	figures := map[string]float64{
		"resume":         milliseconds(began.Sub(resumed)),
		"fires/s, shard": float64(v.begun) / float64(jobs.Shards) / caught.Sub(began).Seconds(),
	}
	if err == nil { // else the shards are slower than the schedule
		figures["catch-up"] = milliseconds(caught.Sub(resumed))
	}
	figures["lost"], figures["doubled"], figures["reruns"] = float64(v.gaps), float64(v.doubled), float64(v.reruns)
	return figures, libraryPromises["rota"].check(v, 0)
}

// awaitCaughtUp waits until every shard has run a fire that was due after an instant less
// than an interval late, and returns the start of the last of these runs. It returns the
// present time and an error if the shards have not caught up in time.
func (f *fleet) awaitCaughtUp(ctx context.Context, jobs jobSet, after time.Time) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, f.options.patience)
	defer cancel()
	for {
		onTime := map[int32]int64{}
		for _, runs := range f.runs() {
			for _, r := range runs {
				if int(r.job) == jobs.First && r.fire >= after.UnixNano() && r.start-r.fire < int64(jobs.Every) &&
					(onTime[r.shard] == 0 || r.start < onTime[r.shard]) {
					onTime[r.shard] = r.start
				}
			}
		}
		if len(onTime) == jobs.Shards {
			last := int64(0)
			for _, start := range onTime {
				last = max(last, start)
			}
			return time.Unix(0, last), nil
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return time.Now(), fmt.Errorf("%d of %d shards have caught up: %w", len(onTime), jobs.Shards, err)
		}
	}
}

// firstStart returns the first start of a run after an instant.
func firstStart(all [][]run, after time.Time) time.Time {
	first := time.Now().UnixNano()
	for _, runs := range all {
		for _, r := range runs {
			if r.start >= after.UnixNano() {
				first = min(first, r.start)
			}
		}
	}
	return time.Unix(0, first)
}

func outageCases() (cases []benchCase) {
	for _, store := range []string{"memory", "etcd", "zookeeper"} {
		workers := 2
		if store == "memory" {
			workers = 1
		}
		cases = append(cases, benchCase{
			"cadence-" + store, "a job every 20 ms beside a run of an hour in each process; rota on " + store, cadence{store, workers}.run,
		})
	}
	for _, store := range []string{"etcd", "zookeeper"} {
		const about = "a job of 10 shards every 200 ms runs all fires that it missed without a store"
		cases = append(cases,
			benchCase{"catchup-" + store, about + "; rota on " + store, catchUp{store, false}.run},
			benchCase{"catchup-" + store + "-beside", about + ", beside a run of an hour; rota on " + store, catchUp{store, true}.run})
	}
	return cases
}
