package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// crashFloor makes the reads and commits of rota after a crash on etcd, without rota: one client, as the leader, reads the
// claims records of the dead instance, and commits a plan for each of its jobs; two others, as the instances that live, watch
// the plans, and commit a claim of each job that is due. All are in one process, which is cheaper than three.
type crashFloor struct {
	moved int           // jobs of the dead instance
	every time.Duration // the interval of each; their fires are spread over it
	dead  time.Duration // from the crash to the expiry
}

// As rota sends them: the plans in a transaction, and the sizes of records.
const (
	crashFloorPlans  = 62
	crashFloorFlight = 8
)

var crashFloorPlan = strings.Repeat("x", 460)

func (c crashFloor) run(ctx context.Context, _ options) (map[string]float64, error) {
	s, err := startEtcd(ctx)
	if err != nil {
		return nil, err
	}
	defer s.stop()
	var clients [3]*clientv3.Client
	for i := range clients {
		clients[i], err = clientv3.New(clientv3.Config{Endpoints: []string{s.addr}, Logger: zap.NewNop()})
		if err != nil {
			return nil, err
		}
		defer clients[i].Close()
	}
	leader := clients[0]
	due := map[string]time.Duration{} // by job, after the expiry
	jobs := make([]int, c.moved)
	for i := range jobs {
		jobs[i] = i
		due[jobName(i)] = rand.N(c.every) - c.dead
	}
	slices.SortFunc(jobs, func(a, b int) int { return cmp.Compare(due[jobName(a)], due[jobName(b)]) })
	for job := range slices.Chunk(jobs, crashFloorPlans) {
		var puts []clientv3.Op
		for _, j := range job {
			puts = append(puts, clientv3.OpPut(floorKey("plans", j), crashFloorPlan), clientv3.OpPut(floorKey("claims", j), string(floorRecord)))
		}
		if _, err := leader.Txn(ctx).Then(puts...).Commit(); err != nil {
			return nil, err
		}
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	delays := make(chan time.Duration)
	var expiry time.Time
	started := make(chan struct{})
	for i := range 2 {
		watch := clients[1+i].Watch(running, strings.TrimSuffix(floorKey("plans", 0), jobName(0)), clientv3.WithPrefix())
		go c.claimMoved(running, clients[1+i], i, watch, func(job string, at time.Time) {
			<-started
			delays <- at.Sub(expiry) - max(due[job], 0)
		}, func(job string) time.Time { <-started; return expiry.Add(due[job]) })
	}
	expiry = time.Now()
	close(started)
	if _, err := leader.Get(ctx, strings.TrimSuffix(floorKey("claims", 0), jobName(0)), clientv3.WithPrefix()); err != nil {
		return nil, err
	}
	if err := c.commitPlans(ctx, leader, jobs); err != nil {
		return nil, err
	}
	planned := time.Since(expiry)
	var all []time.Duration
	for range c.moved {
		select {
		case d := <-delays:
			all = append(all, d)
		case <-time.After(2 * c.every):
			return nil, fmt.Errorf("%d of %d jobs are claimed", len(all), c.moved)
		}
	}
	return map[string]float64{
		"gap": milliseconds(planned), "moved": float64(len(all)), // the gap is the time to the last plan
		"p50": milliseconds(quantile(all, 0.5)), "p99": milliseconds(quantile(all, 0.99)), "max": milliseconds(quantile(all, 1)),
	}, nil
}

// commitPlans replaces the plans of the jobs and deletes their claims records.
func (c crashFloor) commitPlans(ctx context.Context, leader *clientv3.Client, jobs []int) error {
	work := make(chan []int)
	errs := make([]error, crashFloorFlight)
	var flights sync.WaitGroup
	for i := range crashFloorFlight {
		flights.Go(func() {
			for part := range work {
				var conds []clientv3.Cmp
				var ops []clientv3.Op
				for _, j := range part {
					conds = append(conds, clientv3.Compare(clientv3.Version(floorKey("plans", j)), "=", 1), clientv3.Compare(clientv3.Version(floorKey("claims", j)), "=", 1))
					ops = append(ops, clientv3.OpPut(floorKey("plans", j), crashFloorPlan), clientv3.OpDelete(floorKey("claims", j)))
				}
				answer, err := leader.Txn(ctx).If(conds...).Then(ops...).Commit()
				if err == nil && !answer.Succeeded {
					err = errors.New("a condition failed")
				}
				errs[i] = errors.Join(errs[i], err)
			}
		})
	}
	for part := range slices.Chunk(jobs, crashFloorPlans) {
		work <- part
	}
	close(work)
	flights.Wait()
	return errors.Join(errs...)
}

// claimMoved claims every second job whose plan was replaced, when it is due, with those that are due at the same time.
func (c crashFloor) claimMoved(ctx context.Context, client *clientv3.Client, mine int, watch clientv3.WatchChan, claimed func(string, time.Time), dueAt func(string) time.Time) {
	ready := make(chan string, c.moved)
	for range crashFloorFlight {
		go func() {
			for job := range ready {
				batch := []string{job}
				for more := true; more && len(batch) < floorJobs; {
					select {
					case job := <-ready:
						batch = append(batch, job)
					default:
						more = false
					}
				}
				var conds []clientv3.Cmp
				var ops []clientv3.Op
				for _, job := range batch {
					plan := floorKey("plans", 0)
					conds = append(conds, clientv3.Compare(clientv3.Version(strings.TrimSuffix(plan, jobName(0))+job), "=", 2))
					ops = append(ops, clientv3.OpPut(fmt.Sprintf("/bench/claims/%d/%s", mine, job), string(floorRecord)))
				}
				answer, err := client.Txn(ctx).If(conds...).Then(ops...).Commit()
				if err != nil || !answer.Succeeded {
					return // the case then reports that claims are missing
				}
				for _, job := range batch {
					claimed(job, time.Now())
				}
			}
		}()
	}
	n := 0
	for events := range watch {
		for _, e := range events.Events {
			if n++; n%2 == mine {
				job := string(e.Kv.Key[strings.LastIndexByte(string(e.Kv.Key), '/')+1:])
				time.AfterFunc(time.Until(dueAt(job)), func() { ready <- job })
			}
		}
	}
}

func crashFloorCases() []benchCase {
	return []benchCase{{
		name:  "floor-crash-etcd-15000",
		about: fmt.Sprintf("the reads and commits of crash-etcd-15000 alone, for the 5,000 jobs that move: %d plans in each transaction, %d transactions in flight, one process", crashFloorPlans, crashFloorFlight),
		run:   crashFloor{moved: 5000, every: 10 * time.Second, dead: 2 * time.Second}.run,
	}}
}
