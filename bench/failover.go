package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry"
)

// failover kills a worker and measures when the others run its shards.
type failover struct {
	library, store string
	workers        int
	jobs           jobSet
	ttl            time.Duration
	leader         bool // kill the leader of rota; else an instance that does not lead
}

func (c failover) run(ctx context.Context, o options) (map[string]float64, error) {
	sets := []jobSet{c.jobs}
	o.ttl = c.ttl
	f, err := startFleet(ctx, o, c.library, c.store, c.workers, sets)
	defer f.stop()
	if err != nil {
		return nil, err
	}
	if err := f.awaitSteady(ctx, sets); err != nil {
		return nil, err
	}
	fair := 0.75 // dcron hashes
	if c.library == "rota" {
		fair = 0.98 // else shards of others move beside the failover
	}
	if err := f.awaitBalanced(ctx, c.jobs, fair); err != nil {
		return nil, err
	}
	if err := pause(ctx, 2*c.jobs.Every); err != nil { // each shard has run where it is now: ownedBy knows it
		return nil, err
	}
	victim, err := f.victim(ctx, c)
	if err != nil {
		return nil, err
	}
	expired, err := f.watchExpiry(ctx, c.library)
	if err != nil {
		return nil, err
	}
	owned := f.ownedBy(victim)
	killed := time.Now()
	victim.proc.Kill()
	if err := f.awaitElsewhere(ctx, owned, victim, killed); err != nil {
		return nil, err
	}
	if err := pause(ctx, settleTime); err != nil {
		return nil, err
	}
	expiry := killed
	if c.library == "rota" {
		expiry = <-expired
	}
	figures := delayFigures(f.runsElsewhere(victim), owned, c.jobs, killed, expiry)
	if c.library == "rota" {
		figures["expiry"] = milliseconds(expiry.Sub(killed))
	}
	w := window{killed, time.Now().Add(-settleTime / 2)}
	others := judge(without(f.runs(), owned), sets, w)
	figures["others max"] = milliseconds(quantile(others.lateness, 1))
	return figures, f.checkPromises(ctx, sets, w, figures)
}

// victim chooses the worker that is killed.
func (f *fleet) victim(ctx context.Context, c failover) (*worker, error) {
	if c.library != "rota" {
		return f.workers[len(f.workers)-1], nil
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
	st, err := op.Status(ctx, jobName(0))
	if err != nil {
		return nil, err
	}
	for _, w := range slices.Backward(f.workers) {
		if (w.Instance == st.Leader.Instance) == c.leader {
			return w, nil
		}
	}
	return nil, fmt.Errorf("none of %d workers is the leader, %q", len(f.workers), st.Leader.Instance)
}

// awaitSteady waits until every shard has run, and some time more.
func (f *fleet) awaitSteady(ctx context.Context, sets []jobSet) error {
	if err := f.awaitEachRan(ctx, sets, f.options.patience); err != nil {
		return err
	}
	return pause(ctx, settleTime)
}

// awaitBalanced waits until each worker runs a fraction of its fair part of the shards.
func (f *fleet) awaitBalanced(ctx context.Context, jobs jobSet, fraction float64) error {
	ctx, cancel := context.WithTimeout(ctx, f.options.patience)
	defer cancel()
	enough := int(fraction * float64(jobs.Count*jobs.Shards/len(f.workers)))
	for {
		fewest := jobs.Count * jobs.Shards
		for _, w := range f.workers {
			fewest = min(fewest, len(shardsOf(w.runs.runs(0), time.Now().Add(-2*jobs.Every))))
		}
		if fewest >= enough {
			return nil
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return fmt.Errorf("an instance runs %d shards, not %d: %w", fewest, enough, err)
		}
	}
}

// checkPromises adds the counts of the whole time to figures and checks them.
func (f *fleet) checkPromises(ctx context.Context, sets []jobSet, w window, figures map[string]float64) error {
	v := judge(f.runs(), sets, w)
	skipped := 0
	if v.gaps > 0 {
		var err error
		if skipped, err = f.countSkipped(ctx); err != nil {
			return err
		}
		v = judge(f.runs(), sets, w)
	}
	figures["missed"] = float64(v.gaps)
	figures["lost"] = float64(max(v.gaps-skipped, 0))
	figures["doubled"] = float64(v.doubled)
	figures["reruns"] = float64(v.reruns)
	return libraryPromises[f.library].check(v, skipped)
}

// watchExpiry returns a channel that receives the time at which the next session of a member
// is observed to have ended.
func (f *fleet) watchExpiry(ctx context.Context, library string) (<-chan time.Time, error) {
	expired := make(chan time.Time, 1)
	if library != "rota" {
		return expired, nil
	}
	reg, err := f.store.open(ctx)
	if err != nil {
		return nil, err
	}
	f.cleanup = append(f.cleanup, func() { closeRegistry(reg) })
	keys, err := record.NewKeys(namespace, "default")
	if err != nil {
		return nil, err
	}
	known := map[registry.Key]bool{}
	ready := make(chan struct{})
	go registry.Follow(ctx, reg, keys.Instances(), func(b registry.Batch) error {
		if b.Kind == registry.Snapshot {
			for _, e := range b.Puts {
				known[e.Key] = true
			}
			if len(known) == len(f.workers) {
				close(ready)
			}
			return nil
		}
		for _, key := range b.Deletes {
			if known[key] {
				select {
				case expired <- time.Now():
				default:
				}
			}
		}
		return nil
	})
	select {
	case <-ready:
		return expired, nil
	case <-time.After(5 * time.Second):
		return nil, fmt.Errorf("%s does not list the %d instances", keys.Instances(), len(f.workers))
	}
}

// shardsOf returns the shards that ran since an instant.
func shardsOf(runs []run, since time.Time) map[shardKey]bool {
	owned := map[shardKey]bool{}
	for _, r := range runs {
		if r.start >= since.UnixNano() {
			owned[shardKey{r.job, r.shard}] = true
		}
	}
	return owned
}

// awaitElsewhere waits until other workers have run all given shards after an instant.
func (f *fleet) awaitElsewhere(ctx context.Context, owned map[shardKey]bool, from *worker, after time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, f.options.patience)
	defer cancel()
	left := map[shardKey]bool{}
	for key := range owned {
		left[key] = true
	}
	read := make([]int64, len(f.workers))
	for len(left) > 0 {
		for i, w := range f.workers {
			runs := w.runs.runs(read[i])
			read[i] += int64(len(runs))
			for _, r := range runs {
				if w != from && r.start >= after.UnixNano() {
					delete(left, shardKey{r.job, r.shard})
				}
			}
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return fmt.Errorf("%d of %d shards do not run elsewhere: %w", len(left), len(owned), err)
		}
	}
	return nil
}

func (f *fleet) runsElsewhere(from *worker) []run {
	var all []run
	for _, w := range f.workers {
		if w != from {
			all = append(all, w.runs.runs(0)...)
		}
	}
	return all
}

// without returns the runs of other shards.
func without(all [][]run, excluded map[shardKey]bool) [][]run {
	var rest [][]run
	for _, runs := range all {
		rest = append(rest, slices.DeleteFunc(slices.Clone(runs), func(r run) bool {
			return excluded[shardKey{r.job, r.shard}]
		}))
	}
	return rest
}

// delayFigures describes when owned shards first ran elsewhere: after the kill, and after
// the instant at which that was due at the earliest, the expiry or a later fire.
func delayFigures(elsewhere []run, owned map[shardKey]bool, jobs jobSet, killed, expiry time.Time) map[string]float64 {
	first := map[shardKey]int64{}
	for _, r := range elsewhere {
		key := shardKey{r.job, r.shard}
		if owned[key] && r.start >= killed.UnixNano() && (first[key] == 0 || r.start < first[key]) {
			first[key] = r.start
		}
	}
	var gaps, delays []time.Duration
	for key, start := range first {
		every := jobs.interval(int(key.job)).Nanoseconds()
		due := (killed.UnixNano()/every + 1) * every
		gaps = append(gaps, time.Duration(start-killed.UnixNano()))
		delays = append(delays, time.Duration(start-max(due, expiry.UnixNano())))
	}
	return map[string]float64{
		"moved": float64(len(first)),
		"gap":   milliseconds(quantile(gaps, 1)),
		"p50":   milliseconds(quantile(delays, 0.5)),
		"p99":   milliseconds(quantile(delays, 0.99)),
		"max":   milliseconds(quantile(delays, 1)),
	}
}

// episodeJobs are the jobs of the cases that change the fleet.
var episodeJobs = jobSet{Count: 4, Every: 50 * time.Millisecond, Shards: 25}

// manyJobs are the jobs of the cases of 15,000 jobs.
var manyJobs = jobSet{Count: 15000, Every: 10 * time.Second, Spread: true, Shards: 1}

func failoverCases() (cases []benchCase) {
	for _, store := range []string{"etcd", "zookeeper", "postgres"} {
		cases = append(cases,
			benchCase{
				name:  "crash-" + store,
				about: "kill one of 3 instances, not the leader; 4 jobs of 25 shards every 50 ms, session TTL 2 s; rota on " + store,
				run:   failover{"rota", store, 3, episodeJobs, 2 * time.Second, false}.run,
			},
			benchCase{
				name:  "crash-" + store + "-15000",
				about: "kill one of 3 instances, not the leader, with 5,000 of 15,000 jobs of one shard, each about every 10 s, session TTL 2 s; rota on " + store,
				run:   failover{"rota", store, 3, manyJobs, 2 * time.Second, false}.run,
			},
			benchCase{
				name:  "crash-leader-" + store + "-15000",
				about: "as crash-" + store + "-15000, but kill the leader",
				run:   failover{"rota", store, 3, manyJobs, 2 * time.Second, true}.run,
			})
	}
	return cases
}
