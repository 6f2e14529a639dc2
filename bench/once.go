package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/hibiken/asynq"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/operator"
)

// once is many jobs that fire once each, at instants spread over onceWithin.
type once struct {
	library, store string
	workers, count int
}

const (
	onceWithin = time.Minute
	onceLead   = 45 * time.Second // before the first of them, in which all are stored
)

func (c once) run(ctx context.Context, o options) (map[string]float64, error) {
	o.defined = true
	f, err := startFleet(ctx, o, c.library, c.store, c.workers, nil)
	defer f.stop()
	if err != nil {
		return nil, err
	}
	store := func(at []time.Time) error { return enqueueOnce(f.store.url, at) }
	if c.library == "rota" {
		store = func(at []time.Time) error {
			reg, err := f.store.open(ctx)
			if err != nil {
				return err
			}
			defer closeRegistry(reg)
			op, err := operator.New(reg, namespace, "")
			if err != nil {
				return err
			}
			return defineOnce(ctx, op.WithCompiler(executor.Compile), at)
		}
	}
	before, err := f.usage(ctx)
	if err != nil {
		return nil, err
	}
	v, err := f.measureOnce(ctx, c.count, store)
	if err != nil {
		return nil, err
	}
	after, err := f.usage(ctx)
	if err != nil {
		return nil, err
	}
	figures := map[string]float64{"max": milliseconds(quantile(v.lateness, 1))}
	v.addTo(figures)
	addUsage(figures, after.since(before), c.count)
	return figures, nil
}

// defineOnce defines a job for each instant.
func defineOnce(ctx context.Context, op *operator.Operator, at []time.Time) error {
	defs := make([]operator.Definition, len(at))
	for i, t := range at {
		defs[i] = definitionOf(firstOnce+i, t)
	}
	for chunk := range slices.Chunk(defs, deleteChunk) {
		if _, err := op.DefineAll(ctx, chunk); err != nil {
			return fmt.Errorf("define jobs that fire once: %w", err)
		}
	}
	return nil
}

// enqueueOnce stores a task of asynq for each instant, which the task has as its payload, after its number.
func enqueueOnce(redis string, at []time.Time) error {
	client := asynq.NewClient(asynq.RedisClientOpt{Addr: redis})
	defer client.Close()
	for i, t := range at {
		payload := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(nil, uint32(firstOnce+i)), uint64(t.UnixNano()))
		if _, err := client.Enqueue(asynq.NewTask(asynqOnce, payload), asynq.ProcessAt(t)); err != nil {
			return err
		}
	}
	return nil
}

// measureOnce judges n jobs that fire once, which store stores.
func (f *fleet) measureOnce(ctx context.Context, n int, store func(at []time.Time) error) (v onceVerdict, err error) {
	first := time.Now().Add(onceLead).Truncate(time.Second)
	at := make([]time.Time, n)
	for i := range at {
		at[i] = first.Add(onceWithin * time.Duration(i) / time.Duration(n)).Truncate(time.Millisecond)
	}
	if err := store(at); err != nil {
		return v, err
	}
	if time.Now().After(first) {
		return v, fmt.Errorf("%d jobs that fire once were not stored within %v", n, onceLead)
	}
	if err := pause(ctx, time.Until(first.Add(onceWithin+lateTime))); err != nil {
		return v, err
	}
	v = judgeOnce(runsOf(f, firstOnce, n), firstOnce, n)
	for began := time.Now(); v.lost > 0 && time.Since(began) < f.options.patience; { // late is not lost
		if err := pause(ctx, time.Second); err != nil {
			return v, err
		}
		v = judgeOnce(runsOf(f, firstOnce, n), firstOnce, n)
	}
	return v, nil
}

// runsOf returns the runs of some jobs.
func runsOf(f *fleet, first, count int) [][]run {
	all := f.runs()
	for i, runs := range all {
		all[i] = slices.DeleteFunc(slices.Clone(runs), func(x run) bool { return int(x.job) < first || int(x.job) >= first+count })
	}
	return all
}

// onceVerdict counts the runs of jobs that fire once.
type onceVerdict struct {
	lost, doubled int
	lateness      []time.Duration
}

// addTo adds the counts and the lateness of one measurement to figures.
func (v onceVerdict) addTo(figures map[string]float64) {
	figures["due"], figures["made"] = float64(len(v.lateness)+v.lost), float64(len(v.lateness))
	figures["p50"], figures["p99"] = milliseconds(quantile(v.lateness, 0.5)), milliseconds(quantile(v.lateness, 0.99))
	figures["lost"] += float64(v.lost)
	figures["doubled"] += float64(v.doubled)
}

func judgeOnce(all [][]run, first, count int) (v onceVerdict) {
	seen := make([]bool, count)
	for _, x := range inOrder(all) {
		switch i := int(x.job) - first; {
		case !seen[i]:
			seen[i] = true
			v.lateness = append(v.lateness, time.Duration(x.start-x.fire))
		case x.attempt == 1:
			v.doubled++
		}
	}
	v.lost = count - len(v.lateness)
	return v
}

func onceCases() (cases []benchCase) {
	for _, c := range []once{
		{library: "rota", store: "etcd", workers: 3, count: 10_000},
		{library: "rota", store: "zookeeper", workers: 3, count: 10_000},
		{library: "asynq", store: "redis", workers: 3, count: 10_000},
	} {
		name := fmt.Sprintf("once-%s-%d", c.library, c.count)
		if c.library == "rota" {
			name = fmt.Sprintf("once-%s-%d", c.store, c.count)
		}
		about := fmt.Sprintf("%d jobs fire once each within a minute; %d instances of %s on %s", c.count, c.workers, c.library, c.store)
		cases = append(cases, benchCase{name, about, c.run})
	}
	return cases
}
