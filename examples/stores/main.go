// Command stores spreads jobs over two stores by a hash of their names, so that each store has half
// of the commits, and an outage of one store stops only its jobs. It runs a fleet of two instances
// on two stores in memory, lets one store fail, and prints which jobs ran. It needs no server.
//
//	go run ./examples/stores
package main

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
	"github.com/rota-dev/rota/schedule"
)

// storeOf returns the store of a job, from 0 to stores-1. Every process must compute the same, or a
// job runs on two stores, each time once. The store with the highest hash wins, so that with one
// more store a job either stays or moves to the new one. Pause such jobs before, since the new store
// knows nothing of the fires that the old one has claimed.
func storeOf(job string, stores int) int {
	best, highest := 0, uint64(0)
	for i := range stores {
		sum := sha256.Sum256(fmt.Appendf(nil, "%d/%s", i, job))
		if h := binary.BigEndian.Uint64(sum[:]); h >= highest {
			best, highest = i, h
		}
	}
	return best
}

// process is an instance of the fleet: an executor on each store.
type process []*executor.Executor

// start starts an instance. Each executor is a member of a group of its own store, with a session and a
// leader of its own.
func start(ctx context.Context, instance string, stores []registry.Registry, jobs []executor.Job) (process, error) {
	var p process
	for i, reg := range stores {
		ex, err := executor.New(reg, "shop", executor.Options{
			Instance: instance,
			Logger:   slog.New(slog.DiscardHandler), // a service logs
		})
		if err != nil {
			return p, err
		}
		for _, job := range jobs {
			if storeOf(job.Name, len(stores)) != i {
				continue
			}
			if err := ex.Register(job); err != nil {
				return p, err
			}
		}
		if err := ex.Start(ctx); err != nil {
			return p, fmt.Errorf("store %d: %w", i, err)
		}
		p = append(p, ex)
	}
	return p, nil
}

// stop shuts all executors down at the same time: one whose store fails does not delay the others.
func (p process) stop(ctx context.Context) error {
	errs := make([]error, len(p))
	var all sync.WaitGroup
	for i, ex := range p {
		all.Go(func() { errs[i] = ex.Shutdown(ctx) })
	}
	all.Wait()
	return errors.Join(errs...)
}

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// run runs two instances on two stores, one of which fails for a while.
func run(ctx context.Context, out io.Writer) error {
	const jobCount, every = 20, 200 * time.Millisecond
	runs := &counter{byStore: map[int]map[string]int{}}
	jobs := make([]executor.Job, jobCount)
	for i := range jobs {
		jobs[i] = executor.Job{Name: fmt.Sprintf("report-%d", i), Schedule: schedule.Every(every), Handler: runs}
	}
	servers := []*memory.Server{memory.New(), memory.New()}
	for _, instance := range []string{"a", "b"} {
		var stores []registry.Registry
		for _, s := range servers {
			reg := s.Client(instance) // a service has etcd.Open or zookeeper.Open here
			defer reg.Close(context.Background())
			stores = append(stores, reg)
		}
		p, err := start(ctx, instance, stores, jobs)
		defer p.stop(context.Background())
		if err != nil {
			return err
		}
	}
	for i := range servers {
		fmt.Fprintf(out, "store %d: ", i)
		for _, job := range jobs {
			if storeOf(job.Name, len(servers)) == i {
				fmt.Fprintf(out, "%s ", job.Name)
			}
		}
		fmt.Fprintln(out)
	}
	for _, phase := range []string{"both stores answer", "store 1 fails", "both stores answer"} {
		resume := func() {}
		if phase == "store 1 fails" {
			resume = servers[1].Pause()
		}
		time.Sleep(time.Until(time.Now().Truncate(every).Add(every + every/2))) // between two fires
		runs.reset()
		time.Sleep(5 * every)
		fmt.Fprintf(out, "%s:", phase)
		for i := range servers {
			jobs, n := runs.of(i)
			fmt.Fprintf(out, " store %d: %d runs of %d jobs;", i, n, jobs)
		}
		fmt.Fprintln(out)
		resume()
	}
	return nil
}

// counter is a handler that counts runs by the store of their job.
type counter struct {
	mu      sync.Mutex
	byStore map[int]map[string]int
}

// Handle counts a run.
func (c *counter) Handle(_ context.Context, r *executor.Run) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	store := storeOf(r.Job, 2)
	if c.byStore[store] == nil {
		c.byStore[store] = map[string]int{}
	}
	c.byStore[store][r.Job]++
	return nil
}

func (c *counter) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.byStore)
}

// of returns how many jobs of a store ran since the last reset, and their runs.
func (c *counter) of(store int) (jobs, runs int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.byStore[store] {
		runs += n
	}
	return len(c.byStore[store]), runs
}
