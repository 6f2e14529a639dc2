package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
)

// riverPeer uses River's periodic jobs.
type riverPeer struct {
	peer
	client *river.Client[pgx.Tx]
	pool   *pgxpool.Pool
}

// riverArgs are the arguments of a River job.
type riverArgs struct {
	Job int `json:"job"`
}

func (riverArgs) Kind() string { return "fire" }

type riverWorker struct {
	river.WorkerDefaults[riverArgs]
	peer
}

// Work records the instant for which River scheduled the run.
func (w *riverWorker) Work(_ context.Context, j *river.Job[riverArgs]) error {
	w.runs.begin(j.Args.Job, 0, 1, j.ScheduledAt.Truncate(time.Second)).finish()
	return nil
}

// eachSecond is the schedule of whole seconds; River's interval counts from its start.
type eachSecond struct{}

func (eachSecond) Next(t time.Time) time.Time { return t.Truncate(time.Second).Add(time.Second) }

func newRiver(a assignment, runs *runLog, log *slog.Logger) (library, error) {
	pool, err := pgxpool.New(context.Background(), a.Store)
	if err != nil {
		return nil, err
	}
	p := &riverPeer{peer: peer{a, runs}, pool: pool}
	workers := river.NewWorkers()
	river.AddWorker(workers, &riverWorker{peer: p.peer})
	var jobs []*river.PeriodicJob
	_ = p.eachJob(func(job int, name string, _ func()) error { // cannot fail
		jobs = append(jobs, river.NewPeriodicJob(eachSecond{}, func() (river.JobArgs, *river.InsertOpts) {
			return riverArgs{job}, nil
		}, &river.PeriodicJobOpts{ID: name}))
		return nil
	})
	p.client, err = river.NewClient(riverpgxv5.New(pool), &river.Config{
		Queues:       map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 100}}, // as in River's guide
		Workers:      workers,
		PeriodicJobs: jobs,
		Logger:       log,
	})
	return p, err
}

func (p *riverPeer) start(context.Context) error { return p.client.Start(context.Background()) }

func (p *riverPeer) leave(ctx context.Context) error {
	defer p.pool.Close()
	return p.client.Stop(ctx)
}
