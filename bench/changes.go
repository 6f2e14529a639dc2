package main

import (
	"context"
	"fmt"
	"time"
)

// change alters a fleet of 3 in some orderly way, and returns when the fleet is complete.
type change struct {
	store string
	apply func(ctx context.Context, f *fleet, figures map[string]float64) error
}

func (c change) run(ctx context.Context, o options) (map[string]float64, error) {
	sets := []jobSet{episodeJobs}
	f, err := startFleet(ctx, o, "rota", c.store, 3, sets)
	defer f.stop()
	if err != nil {
		return nil, err
	}
	if err := f.awaitSteady(ctx, sets); err != nil {
		return nil, err
	}
	figures := map[string]float64{}
	before := f.owners()
	began := time.Now()
	if err := c.apply(ctx, f, figures); err != nil {
		return nil, err
	}
	if err := pause(ctx, settleTime); err != nil {
		return nil, err
	}
	w := window{began, time.Now().Add(-settleTime / 2)}
	v := judge(f.runs(), sets, w)
	figures["moved"] = float64(countMoved(before, f.owners()))
	figures["p50"] = milliseconds(quantile(v.lateness, 0.5))
	figures["p99"] = milliseconds(quantile(v.lateness, 0.99))
	figures["max"] = milliseconds(quantile(v.lateness, 1))
	return figures, f.checkPromises(ctx, sets, w, figures)
}

// owners returns the instance that last ran each shard.
func (f *fleet) owners() map[shardKey]string {
	owners, latest := map[shardKey]string{}, map[shardKey]int64{}
	for _, w := range f.workers {
		for _, r := range w.runs.runs(0) {
			if key := (shardKey{r.job, r.shard}); r.start > latest[key] {
				owners[key], latest[key] = w.Instance, r.start
			}
		}
	}
	return owners
}

// ownedBy returns the shards that a worker was the last to run.
func (f *fleet) ownedBy(w *worker) map[shardKey]bool {
	owned := map[shardKey]bool{}
	for key, owner := range f.owners() {
		if owner == w.Instance {
			owned[key] = true
		}
	}
	return owned
}

func countMoved(before, after map[shardKey]string) (n int) {
	for key, owner := range before {
		if after[key] != owner {
			n++
		}
	}
	return n
}

// leaveOne shuts a worker down, and measures from the signal to the last first run of its
// shards elsewhere.
func leaveOne(ctx context.Context, f *fleet, figures map[string]float64) error {
	leaver := f.workers[len(f.workers)-1]
	owned := f.ownedBy(leaver)
	asked := time.Now()
	if err := leaver.leave(f.options.patience); err != nil {
		return err
	}
	if err := f.awaitElsewhere(ctx, owned, leaver, asked); err != nil {
		return err
	}
	delays := delayFigures(f.runsElsewhere(leaver), owned, episodeJobs, asked, asked)
	figures["gap"] = delays["gap"]
	return nil
}

// joinOne starts a worker, and measures from the start of its process to its first run.
func joinOne(ctx context.Context, f *fleet, figures map[string]float64) error {
	began := time.Now()
	w, err := f.add([]jobSet{episodeJobs})
	if err != nil {
		return err
	}
	if err := f.awaitJoined(ctx, []*worker{w}); err != nil {
		return err
	}
	joined := time.Now()
	for len(w.runs.runs(0)) == 0 {
		if time.Since(joined) > f.options.patience {
			return fmt.Errorf("%s has no run", w.Instance)
		}
		if err := pause(ctx, time.Millisecond); err != nil {
			return err
		}
	}
	figures["gap"] = milliseconds(time.Unix(0, w.runs.runs(0)[0].start).Sub(began))
	return nil
}

// restartAll replaces the workers one after another.
func restartAll(ctx context.Context, f *fleet, figures map[string]float64) error {
	worst := 0.0
	for _, old := range f.workers {
		if err := old.leave(f.options.patience); err != nil {
			return err
		}
		part := map[string]float64{}
		if err := joinOne(ctx, f, part); err != nil {
			return err
		}
		worst = max(worst, part["gap"])
		if err := pause(ctx, settleTime/2); err != nil {
			return err
		}
	}
	figures["gap"] = worst
	return nil
}

func changeCases() (cases []benchCase) {
	const jobs = "4 jobs of 25 shards every 50 ms; rota on "
	for _, store := range []string{"etcd", "zookeeper"} {
		cases = append(cases,
			benchCase{"leave-" + store, "one of 3 instances shuts down; " + jobs + store, change{store, leaveOne}.run},
			benchCase{"join-" + store, "an instance joins 3; " + jobs + store, change{store, joinOne}.run},
			benchCase{"restart-" + store, "3 instances are replaced one after another; " + jobs + store, change{store, restartAll}.run},
			benchCase{"reshard-" + store, "a job of 10 shards gets 1,000; 3 instances of rota on " + store, reshard{store, 3}.run},
		)
	}
	return append(cases, benchCase{"reshard-memory", "a job of 10 shards gets 1,000; one instance of rota on memory", reshard{"memory", 1}.run})
}

// reshard changes the number of shards of a job, and measures until all have run.
type reshard struct {
	store   string
	workers int
}

func (c reshard) run(ctx context.Context, o options) (map[string]float64, error) {
	o.skew = 100 * time.Millisecond // a new definition waits for it
	sets := []jobSet{{Count: 1, Every: 50 * time.Millisecond, Shards: 10, Revision: 1}}
	f, err := startFleet(ctx, o, "rota", c.store, c.workers, sets)
	defer f.stop()
	if err != nil {
		return nil, err
	}
	if err := f.awaitSteady(ctx, sets); err != nil {
		return nil, err
	}
	more := []jobSet{{Count: 1, Every: time.Second, Shards: 1000, Revision: 2}}
	began := time.Now()
	for _, w := range f.workers {
		if _, err := w.do(ctx, order{Do: "register", Sets: more}); err != nil {
			return nil, err
		}
	}
	if err := f.awaitEachRan(ctx, more, o.patience); err != nil {
		return nil, err
	}
	return map[string]float64{"gap": milliseconds(time.Since(began))}, nil
}
