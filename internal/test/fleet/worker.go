package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/internal/registryurl"
	"github.com/rota-dev/rota/internal/test/judge"
	"github.com/rota-dev/rota/schedule"
)

// assignment configures a worker process.
type assignment struct {
	Registry  string // a URL
	Namespace string
	Instance  string
	Client    string // unique name of the process
	Jobs      int
	Shards    int
	Every     time.Duration
	Takes     time.Duration // the longest that a run takes; all take an eighth of it at least
	Often     time.Duration // between fires of the job that is resized; 0: there is none
	Resized   size          // its first total
	Small     int           // jobs of one shard that fire each second
	Chains    int           // of three jobs, of which the first fires each second
	Pooled    bool          // further jobs have a pool
	Defines   int           // names that programs define; the process has the kind of these jobs
	Program   string        // the part of a program that defines jobs; empty: the process is a worker
	TTL       time.Duration
	Drain     time.Duration
	Grace     time.Duration
}

// assignmentVariable holds a worker's assignment as JSON.
const assignmentVariable = "ROTA_FLEET_WORKER"

// Main runs a worker and does not return if this process was started as one. A program that starts fleets must
// call it first. schemes are those of its registries that package registryurl does not know.
func Main(schemes registryurl.Schemes) {
	text := os.Getenv(assignmentVariable)
	if text == "" {
		return
	}
	var a assignment
	err := json.Unmarshal([]byte(text), &a)
	switch {
	case err != nil:
	case a.Program != "":
		err = runProgram(a, schemes, os.Stdout)
	default:
		err = runWorker(a, schemes, os.Stdin, os.Stdout, os.Stderr)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// size is an order to a worker, as one line of JSON on its input: the new total of the resized job.
type size struct {
	Revision, Shards int
}

// resizedJob is the job whose total changes.
const resizedJob = "resized"

// maxSkew is the MaxClockSkew of a fleet whose processes share a clock. A new total waits for it.
const maxSkew = 100 * time.Millisecond

// line is a worker's report of a run, or that it joins, as one line of JSON on its output.
type line struct {
	judge.Call
	Number        int // counts the runs of the process
	End, Canceled time.Time
	Joins         time.Time // when it began to join; without a run then
	Deleted       *deleted  // of a program; without a run
}

// runWorker runs an executor until a signal.
func runWorker(a assignment, schemes registryurl.Schemes, in io.Reader, out, log io.Writer) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	logger := slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	reg, err := schemes.Open(ctx, a.Registry, registryurl.Options{Logger: logger})
	if err != nil {
		return err
	}
	defer reg.Close(context.Background())
	e, err := executor.New(reg, a.Namespace, executor.Options{
		Instance: a.Instance, SessionTTL: a.TTL, DrainTimeout: a.Drain, RestartGrace: a.Grace,
		Workers: 64, MaxClockSkew: maxSkew, Logger: logger,
	})
	if err != nil {
		return err
	}
	t := &reporter{assignment: a, out: json.NewEncoder(out)}
	for i := range a.Jobs {
		err := e.Register(executor.Job{
			Name: jobName(i), Schedule: schedule.Every(a.Every), Shards: a.Shards,
			Handler: executor.HandlerFunc(t.handle),
		})
		if err != nil {
			return err
		}
	}
	if err := e.Register(slices.Concat(t.smallJobs(), t.chains(), t.pooledJobs())...); err != nil {
		return err
	}
	if a.Defines > 0 {
		if err := e.RegisterKind(executor.Kind{Name: definedKind, Handler: executor.HandlerFunc(t.handle), MaxRunning: 64}); err != nil {
			return err
		}
	}
	if a.Often > 0 {
		if err := e.Register(t.resized(a.Resized)); err != nil {
			return err
		}
		go followOrders(in, logger, func(s size) error { return e.Register(t.resized(s)) })
	}
	t.report(line{Joins: time.Now()})
	return errors.Join(e.Run(ctx), t.err())
}

// followOrders carries out orders until the input ends.
func followOrders(in io.Reader, log *slog.Logger, register func(size) error) {
	for orders := json.NewDecoder(in); ; {
		var s size
		if err := orders.Decode(&s); err != nil {
			log.Debug("no more orders", "error", err)
			return
		}
		if err := register(s); err != nil {
			log.Error("carry out an order", "error", err)
		}
	}
}

// reporter is the handler of all jobs. It reports each begin and end.
type reporter struct {
	assignment

	mu     sync.Mutex
	out    *json.Encoder
	number int
	failed error
}

// smallJobPrefix begins the names of the small jobs.
const smallJobPrefix = "small-"

// smallJobs returns the small jobs. A third of them fails at times and is retried, another third fires a
// second after its last run.
func (t *reporter) smallJobs() []executor.Job {
	jobs := make([]executor.Job, t.Small)
	for i := range jobs {
		jobs[i] = executor.Job{
			Name: fmt.Sprintf("%s%04d", smallJobPrefix, i), Schedule: schedule.Every(time.Second), Handler: executor.HandlerFunc(t.handle),
		}
		switch i % 3 {
		case 1:
			jobs[i].Retry = executor.Retry{Max: 2, Initial: 100 * time.Millisecond}
			jobs[i].Handler = executor.HandlerFunc(t.handleOrFail)
		case 2:
			jobs[i].Schedule = schedule.FixedDelay(time.Second)
		}
	}
	return jobs
}

// chainPrefix begins the names of the jobs of chains.
const chainPrefix = "chain-"

// chainJobs is how many jobs a chain has.
const chainJobs = 3

// chainShards is how many shards the jobs of a chain have together.
const chainShards = 2 + 3 + 1

// chains returns the jobs of all chains. The first job of a chain fails at times, and is retried in every other chain. The
// second one follows fires that succeed, the third one each fire of the second.
func (t *reporter) chains() []executor.Job {
	var jobs []executor.Job
	for i := range t.Chains {
		name := fmt.Sprintf("%s%02d-", chainPrefix, i)
		first := executor.Job{
			Name: name + "1", Schedule: schedule.Every(time.Second), Shards: 2, Handler: executor.HandlerFunc(t.handleOrFail),
		}
		if i%2 == 0 {
			first.Retry = executor.Retry{Max: 2, Initial: 100 * time.Millisecond}
		}
		jobs = append(jobs, first,
			executor.Job{Name: name + "2", Schedule: schedule.AfterJob(first.Name), Shards: 3, Handler: executor.HandlerFunc(t.handle)},
			executor.Job{Name: name + "3", Schedule: schedule.AfterJob(name + "2").OnEnd(), Handler: executor.HandlerFunc(t.handle)},
		)
	}
	return jobs
}

// The jobs with a pool. All their runs at an instant take longer than a second if the pool is small.
const (
	poolName     = "pool"
	pooledPrefix = "pooled-"
	pooledJobs   = 3
	pooledShards = 8 // of each
)

// pooledJobs returns the jobs with a pool, which fire at the same instants.
func (t *reporter) pooledJobs() []executor.Job {
	if !t.Pooled {
		return nil
	}
	jobs := make([]executor.Job, pooledJobs)
	for i := range jobs {
		jobs[i] = executor.Job{
			Name: fmt.Sprintf("%s%d", pooledPrefix, i), Schedule: schedule.Every(2 * time.Second), Shards: pooledShards, Pool: poolName,
			Handler: executor.HandlerFunc(t.handle), // without retries, as a fleet is not whole while one waits for a slot
		}
	}
	return jobs
}

// handleOrFail is handle for a job of which one attempt in eight fails.
func (t *reporter) handleOrFail(ctx context.Context, r *executor.Run) error {
	h := fnv.New32a()
	fmt.Fprint(h, r.Job, r.Shard, r.FireTime.UnixNano(), r.Trigger, r.Attempt)
	err := t.handle(ctx, r)
	if err == nil && h.Sum32()>>8%8 == 0 {
		err = errors.New("one attempt in eight fails")
	}
	return err
}

func (t *reporter) resized(s size) executor.Job {
	return executor.Job{
		Name: resizedJob, Revision: s.Revision, Shards: s.Shards, Schedule: schedule.Every(t.Often),
		Handler: executor.HandlerFunc(t.handle),
	}
}

func (t *reporter) handle(ctx context.Context, r *executor.Run) error {
	l := line{Call: judge.Call{
		Job: r.Job, Shard: r.Shard, Shards: r.Shards, Fire: r.FireTime, Trigger: r.Trigger, Attempt: r.Attempt,
		Fence: r.Fence, Key: r.Key, Instance: r.Instance, Client: t.Client, Start: time.Now(),
	}}
	t.mu.Lock()
	t.number++
	l.Number = t.number
	t.mu.Unlock()
	t.report(l)
	timer := time.NewTimer(t.takes(r.Job, r.ID))
	defer timer.Stop()
	var err error
	select {
	case <-timer.C:
	case <-ctx.Done():
		l.Canceled, err = time.Now(), context.Cause(ctx)
	}
	l.End = time.Now()
	t.report(l)
	return err
}

// takes returns how long a run takes. It depends only on the run's id.
func (t *reporter) takes(job, id string) time.Duration {
	longest := t.Takes
	switch {
	case job == resizedJob:
		longest = t.Often / 2
	case strings.HasPrefix(job, pooledPrefix):
		longest = 400 * time.Millisecond
	case strings.HasPrefix(job, smallJobPrefix), strings.HasPrefix(job, chainPrefix):
		longest = min(t.Takes, 40*time.Millisecond)
	}
	h := fnv.New32a()
	h.Write([]byte(id))
	return longest/8 + time.Duration(h.Sum32()%1000)*(longest-longest/8)/1000
}

func (t *reporter) report(l line) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failed = errors.Join(t.failed, t.out.Encode(l))
}

func (t *reporter) err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failed
}
