package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/schedule"
)

// defining is many jobs that are defined as data while others fire each second: they are defined, some run once, and all are deleted.
type defining struct {
	store   string
	workers int
	idle    int // jobs without a fire soon
	rate    int // of the definitions, a second
	once    int // jobs that fire once, within onceWithin
}

const (
	probeEvery   = 250 * time.Millisecond
	probeAhead   = 500 * time.Millisecond // of the fire, from the definition
	defineChunks = 4                      // calls of DefineAll a second
	deleteChunk  = 1000
	forgetWithin = record.TombstoneTime + 2*time.Minute
)

// Numbers of jobs in the logs of runs. The jobs that fire each second are below them.
const (
	firstProbe = 1_000_000
	firstOnce  = 2_000_000
	firstIdle  = 3_000_000
)

// definedKind is the kind of all defined jobs. Their parameters are their numbers.
const definedKind = "reminder"

func (r *rota) kind() executor.Kind {
	return executor.Kind{
		Name: definedKind, MaxRunning: 1000,
		Handler: executor.HandlerFunc(func(_ context.Context, x *executor.Run) error {
			job, err := strconv.Atoi(x.Param)
			if err != nil {
				return err
			}
			r.runs.begin(job, x.Shard, x.Attempt, x.FireTime).finish()
			return nil
		}),
	}
}

func definedName(job int) string { return fmt.Sprintf("tenant-%07d", job) }

func definitionOf(job int, at time.Time) operator.Definition {
	return operator.Definition{
		Name: definedName(job), Kind: definedKind, Param: strconv.Itoa(job), Schedule: schedule.At(at), DeleteAfter: time.Second,
	}
}

// definingRun is a measurement of defining.
type definingRun struct {
	defining
	fleet   *fleet
	beside  jobSet
	reg     registry.Registry
	op      *operator.Operator
	keys    record.Keys
	figures map[string]float64
	jobs    []string // all that are defined and have no fire soon
}

func (c defining) run(ctx context.Context, o options) (map[string]float64, error) {
	o.defined = true
	beside := jobSet{Count: 2000, Every: time.Second, Shards: 1}
	f, err := startFleet(ctx, o, "rota", c.store, c.workers, []jobSet{beside})
	defer f.stop()
	if err != nil {
		return nil, err
	}
	reg, err := f.store.open(ctx)
	if err != nil {
		return nil, err
	}
	defer closeRegistry(reg)
	op, err := operator.New(reg, namespace, "")
	if err != nil {
		return nil, err
	}
	keys, err := record.NewKeys(namespace, "default")
	if err != nil {
		return nil, err
	}
	r := &definingRun{c, f, beside, reg, op.WithCompiler(executor.Compile), keys, map[string]float64{}, nil}
	if err := f.awaitEachRan(ctx, []jobSet{beside}, o.patience); err != nil {
		return nil, err
	}
	if err := f.awaitBalanced(ctx, beside, 0.9); err != nil {
		return nil, err
	}
	for _, step := range []func(context.Context) error{r.measureAlone, r.defineIdle, r.deleteHalf, r.runOnce, r.deleteRest} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	return r.figures, r.check()
}

// measureAlone measures the jobs that fire each second, before others are defined.
func (r *definingRun) measureAlone(ctx context.Context) error {
	w, _, err := r.fleet.measureWindow(ctx)
	if err != nil {
		return err
	}
	r.figures["p99 alone"] = r.latenessBeside(w)
	return nil
}

// latenessBeside returns p99 of the jobs that fire each second.
func (r *definingRun) latenessBeside(w window) float64 {
	v := judge(runsOf(r.fleet, r.beside.First, r.beside.Count), []jobSet{r.beside}, w)
	return milliseconds(quantile(v.lateness, 0.99))
}

// defineIdle defines the jobs without a fire soon, while others are defined that fire at once.
func (r *definingRun) defineIdle(ctx context.Context) error {
	resident, err := r.resident()
	if err != nil {
		return err
	}
	began := time.Now()
	probing, stop := context.WithCancel(ctx)
	probed := make(chan error, 1)
	var probes atomic.Int64
	go func() { probed <- r.probe(probing, &probes) }()
	err = r.defineAtRate(ctx)
	took := time.Since(began)
	stop()
	if err := <-probed; err != nil {
		return fmt.Errorf("define a job that fires at once: %w", err)
	}
	if err != nil {
		return err
	}
	if err := pause(ctx, lateTime); err != nil {
		return err
	}
	r.figures["rate"] = float64(r.idle) / took.Seconds()
	r.figures["p99 beside"] = r.latenessBeside(window{began, began.Add(took)})
	v := judgeOnce(runsOf(r.fleet, firstProbe, int(probes.Load())), firstProbe, int(probes.Load()))
	r.figures["first p99"] = milliseconds(quantile(v.lateness, 0.99) + probeAhead)
	r.figures["lost"], r.figures["doubled"] = float64(v.lost), float64(v.doubled)
	after, err := r.resident()
	if err != nil {
		return err
	}
	r.figures["memory, job"] = (after - resident) / float64(r.idle)
	stored, records, err := r.readDefined(ctx)
	r.figures["stored, job"] = float64(stored) / float64(max(records, 1))
	return err
}

// defineAtRate defines the jobs without a fire soon.
func (r *definingRun) defineAtRate(ctx context.Context) error {
	tick := time.NewTicker(time.Second / defineChunks)
	defer tick.Stop()
	tomorrow := time.Now().Add(24 * time.Hour)
	for len(r.jobs) < r.idle {
		<-tick.C
		var defs []operator.Definition
		for range min(r.rate/defineChunks, r.idle-len(r.jobs)) {
			d := definitionOf(firstIdle+len(r.jobs), tomorrow)
			r.jobs, defs = append(r.jobs, d.Name), append(defs, d)
		}
		if _, err := r.op.DefineAll(ctx, defs); err != nil {
			return err
		}
	}
	return nil
}

// probe defines jobs that fire at once, until ctx ends.
func (r *definingRun) probe(ctx context.Context, defined *atomic.Int64) error {
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		d := definitionOf(firstProbe+int(defined.Load()), time.Now().Add(probeAhead))
		if _, err := r.op.Define(context.WithoutCancel(ctx), d); err != nil {
			return err
		}
		defined.Add(1)
	}
}

// resident returns the most memory of an instance.
func (r *definingRun) resident() (most float64, err error) {
	for _, w := range r.fleet.workers {
		n, err := residentBytes(w.proc.Pid())
		if err != nil {
			return 0, err
		}
		most = max(most, float64(n))
	}
	return most, nil
}

// runOnce defines jobs that fire once, at instants spread over onceWithin.
func (r *definingRun) runOnce(ctx context.Context) error {
	v, err := r.fleet.measureOnce(ctx, r.once, func(at []time.Time) error { return defineOnce(ctx, r.op, at) })
	if err != nil {
		return err
	}
	v.addTo(r.figures)
	return nil
}

// deleteHalf deletes half of the jobs without a fire soon.
func (r *definingRun) deleteHalf(ctx context.Context) error {
	half := len(r.jobs) / 2
	began := time.Now()
	if err := r.deleteJobs(ctx, r.jobs[:half]); err != nil {
		return err
	}
	r.figures["deletions"] = float64(half) / time.Since(began).Seconds()
	r.jobs = r.jobs[half:]
	return nil
}

func (r *definingRun) deleteJobs(ctx context.Context, jobs []string) error {
	for chunk := range slices.Chunk(jobs, deleteChunk) {
		if err := r.op.DeleteAll(ctx, chunk); err != nil {
			return err
		}
	}
	return nil
}

// deleteRest deletes the rest, and waits until nothing of any defined job is left in the store.
func (r *definingRun) deleteRest(ctx context.Context) error {
	if err := r.deleteJobs(ctx, r.jobs); err != nil {
		return err
	}
	for began := time.Now(); ; {
		left, err := r.countLeft(ctx)
		if err != nil {
			return err
		}
		r.figures["left"] = float64(left)
		if left == 0 || time.Since(began) > forgetWithin {
			return nil
		}
		if err := pause(ctx, time.Second); err != nil {
			return err
		}
	}
}

// readDefined counts the records that there are of defined jobs at rest, and their bytes with their keys.
func (r *definingRun) readDefined(ctx context.Context) (bytes, records int, err error) {
	for bucket := range record.Buckets {
		l, err := r.reg.List(ctx, r.keys.DefinedIn(bucket), registry.ReadOptions{Fresh: true})
		if err != nil {
			return 0, 0, err
		}
		for _, e := range l.Entries {
			bytes += len(e.Key) + len(e.Value)
		}
		records += len(l.Entries)
	}
	return bytes, records, nil
}

// countLeft counts all records of defined jobs.
func (r *definingRun) countLeft(ctx context.Context) (left int, err error) {
	if _, left, err = r.readDefined(ctx); err != nil {
		return 0, err
	}
	for _, dir := range []registry.Key{r.keys.Jobs(), r.keys.Plans(), r.keys.Controls()} {
		l, err := r.reg.List(ctx, dir, registry.ReadOptions{Fresh: true})
		if err != nil {
			return 0, err
		}
		for _, e := range l.Entries {
			if len(e.Key.Name()) == len(record.Segment(definedName(0))) {
				left++
			}
		}
	}
	return left, nil
}

// check returns an error if a fire was lost or made twice.
func (r *definingRun) check() error {
	if r.figures["lost"] > 0 || r.figures["doubled"] > 0 {
		return fmt.Errorf("%.0f fires lost, %.0f doubled", r.figures["lost"], r.figures["doubled"])
	}
	return nil
}

func definingCases() (cases []benchCase) {
	for _, store := range []string{"etcd", "zookeeper"} {
		for _, n := range []int{10_000, 99_000} { // 100,000 is the limit
			c := defining{store: store, workers: 3, idle: n, rate: 600, once: min(10_000, n/2)}
			cases = append(cases, benchCase{
				fmt.Sprintf("define-%s-%d", store, n),
				fmt.Sprintf("%d jobs are defined, 600 a second, beside 2,000 that fire each second, %d more fire once within a minute, and all are deleted; 3 instances of rota on %s", n, c.once, store),
				c.run,
			})
		}
	}
	return cases
}
