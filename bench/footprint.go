package main

import (
	"context"
	"fmt"
	"time"
)

// footprint is a process with jobs that do not fire: its start, its rest and its stop.
type footprint struct {
	store string
	jobs  int
}

func (c footprint) run(ctx context.Context, o options) (map[string]float64, error) {
	few, err := c.measure(ctx, o, 10)
	if err != nil {
		return nil, err
	}
	many, err := c.measure(ctx, o, c.jobs)
	if err != nil {
		return nil, err
	}
	many["memory, instance"] = few["memory"]
	many["memory, job"] = (many["memory"] - few["memory"]) * 1024 / float64(c.jobs-10)
	delete(many, "memory")
	return many, nil
}

func (c footprint) measure(ctx context.Context, o options, jobs int) (map[string]float64, error) {
	began := time.Now()
	f, err := startFleet(ctx, o, "rota", c.store, 1, []jobSet{{Count: jobs, Every: 1000 * time.Hour, Shards: 1}})
	defer f.stop()
	if err != nil {
		return nil, err
	}
	figures := map[string]float64{"start": milliseconds(time.Since(began))}
	first, err := f.awaitRest(ctx)
	if err != nil {
		return nil, err
	}
	if err := pause(ctx, o.duration); err != nil {
		return nil, err
	}
	last, err := f.usage(ctx)
	if err != nil {
		return nil, err
	}
	rest := last.since(first)
	figures["CPU at rest"] = 100 * float64(rest.clientCPU) / float64(o.duration)
	figures["sent at rest"] = float64(rest.sent) / o.duration.Seconds()
	w := f.workers[0]
	resident, err := residentBytes(w.proc.Pid())
	if err != nil {
		return nil, err
	}
	figures["memory"] = float64(resident) / 1024
	asked := time.Now()
	if err := w.leave(o.patience); err != nil {
		return nil, err
	}
	figures["stop"] = milliseconds(time.Since(asked))
	return figures, nil
}

// restShare is the share of a core below which a fleet is at rest.
const restShare = 0.05

// awaitRest waits until the leader has planned, and returns the usage so far.
func (f *fleet) awaitRest(ctx context.Context) (usage, error) {
	ctx, cancel := context.WithTimeout(ctx, f.options.patience)
	defer cancel()
	last, err := f.usage(ctx)
	for err == nil {
		if err := pause(ctx, time.Second); err != nil {
			return last, fmt.Errorf("the fleet does not come to rest: %w", err)
		}
		before := last
		last, err = f.usage(ctx)
		if last.clientCPU-before.clientCPU < time.Duration(restShare*float64(time.Second)) {
			break
		}
	}
	return last, err
}

func footprintCases() (cases []benchCase) {
	for _, store := range []string{"memory", "etcd", "zookeeper"} {
		counts := []int{1000, 10000}
		if store == "memory" {
			counts = append(counts, 50000)
		}
		for _, n := range counts {
			cases = append(cases, benchCase{
				name:  fmt.Sprintf("footprint-%s-%d", store, n),
				about: fmt.Sprintf("start, rest and stop of a process with %d jobs that do not fire; rota on %s", n, store),
				run:   footprint{store, n}.run,
			})
		}
	}
	return cases
}

// shardCases are jobs of few to many shards, fired each second.
func shardCases() (cases []benchCase) {
	for _, s := range []struct {
		store   string
		workers int
	}{{"memory", 1}, {"etcd", 2}, {"zookeeper", 2}} {
		for _, n := range []int{10, 100, 1000, 10000} {
			cases = append(cases, benchCase{
				name:  fmt.Sprintf("shards-%s-%d", s.store, n),
				about: fmt.Sprintf("one job of %d shards each second; rota on %s, %d processes", n, s.store, s.workers),
				run:   storm{"rota", s.store, s.workers, jobSet{Count: 1, Every: time.Second, Shards: n}}.run,
			})
		}
	}
	return cases
}
