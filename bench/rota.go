package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/internal/registryurl"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
	"github.com/rota-dev/rota/registry/postgres"
	"github.com/rota-dev/rota/schedule"
)

// namespace is that of the jobs.
const namespace = "bench"

// rota runs jobs by package executor.
type rota struct {
	executor *executor.Executor
	runs     *runLog
	jobs     map[string]bool // names
}

func newRota(a assignment, runs *runLog, log *slog.Logger) (library, error) {
	reg, err := openRegistry(context.Background(), a.Store, log)
	if err != nil {
		return nil, err
	}
	e, err := executor.New(reg, namespace, executor.Options{Instance: a.Instance, SessionTTL: a.TTL, MaxClockSkew: a.Skew, Logger: log})
	if err != nil {
		return nil, err
	}
	r := &rota{executor: e, runs: runs, jobs: map[string]bool{}}
	if a.Defined {
		if err := e.RegisterKind(r.kind()); err != nil {
			return nil, err
		}
	}
	return r, r.register(a.Jobs)
}

// openRegistry opens a registry at a URL, or one in memory.
func openRegistry(ctx context.Context, url string, log *slog.Logger) (registry.Registry, error) {
	if url == memoryURL {
		return memory.New().Client("bench"), nil
	}
	return registryurl.Schemes{"postgres": openOnPostgres}.Open(ctx, url, registryurl.Options{Logger: log})
}

func openOnPostgres(ctx context.Context, url string, o registryurl.Options) (registry.Registry, error) {
	p, err := postgres.ParseURL(url)
	if err != nil {
		return nil, err
	}
	p.Logger = o.Logger
	return postgres.Open(ctx, p)
}

func jobName(job int) string { return fmt.Sprintf("job-%05d", job) }

func (r *rota) register(sets []jobSet) error {
	var jobs []executor.Job
	for _, s := range sets {
		for job := s.First; job < s.First+s.Count; job++ {
			j := executor.Job{
				Name: jobName(job), Shards: s.Shards, Revision: s.Revision, MaxRunning: s.MaxRunning, Handler: r.handler(job, s.Takes),
			}
			if s.Every > 0 {
				j.Schedule = schedule.Every(s.interval(job))
			}
			if s.CatchUp {
				j.OnMisfire = executor.RunAll(1 << 20)
			}
			r.jobs[j.Name] = true
			jobs = append(jobs, j)
		}
	}
	return r.executor.Register(jobs...)
}

func (r *rota) handler(job int, takes time.Duration) executor.Handler {
	return executor.HandlerFunc(func(ctx context.Context, x *executor.Run) error {
		entry := r.runs.begin(job, x.Shard, x.Attempt, x.FireTime)
		if takes > 0 {
			if err := pause(ctx, takes); err != nil {
				return err
			}
		}
		entry.finish()
		return nil
	})
}

func (r *rota) start(ctx context.Context) error { return r.executor.Start(ctx) }

func (r *rota) leave(ctx context.Context) error { return r.executor.Shutdown(ctx) }

// readers is the number of concurrent reads of a job's status.
const readers = 16

func (r *rota) skipped(ctx context.Context) (int, error) {
	names := make(chan string, len(r.jobs))
	for name := range r.jobs {
		names <- name
	}
	close(names)
	var total atomic.Int64
	err := runConcurrently(ctx, make([]struct{}, readers), func(ctx context.Context, _ struct{}) error {
		for name := range names {
			st, err := r.executor.Operator().Status(ctx, name)
			if err != nil {
				return err
			}
			total.Add(int64(st.Counts.Skipped))
		}
		return nil
	})
	return int(total.Load()), err
}
