package ledger

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/postgres"
	"github.com/rota-dev/rota/schedule"
)

// assignment configures a worker process.
type assignment struct {
	Addr     string // of the server
	Instance string
	HoldAt   string // the key of a run whose first attempt holds its transaction open; empty: none
}

const assignmentVariable = "ROTA_LEDGER_WORKER"

const (
	database  = "postgres"
	namespace = "ledger"
	jobName   = "pay"
	shards    = 4
	sessionT  = 3 * time.Second
)

// createLedger creates the table of the users. No column is unique.
const createLedger = `
CREATE TABLE ledger (key text, shard integer, fire timestamptz, attempt integer, instance text, at timestamptz DEFAULT clock_timestamp());
CREATE TABLE holding (key text, instance text)`

func optionsOf(addr string) postgres.Options {
	return postgres.Options{
		Endpoints: []string{addr}, Database: database, Username: "rota", CallTimeout: 20 * time.Second, Logger: slog.New(slog.DiscardHandler),
	}
}

// runWorker runs a process of the fleet until its input ends.
func runWorker(text string) error {
	var a assignment
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	reg, err := openPatiently(ctx, a.Addr)
	if err != nil {
		return err
	}
	defer reg.Close(context.Background())
	ex, err := executor.New(reg, namespace, executor.Options{
		Instance: a.Instance, SessionTTL: sessionT, Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		return err
	}
	if err := ex.Register(job(a)); err != nil {
		return err
	}
	return ex.Run(ctx)
}

func openPatiently(ctx context.Context, addr string) (registry.Registry, error) {
	for {
		reg, err := postgres.Open(ctx, optionsOf(addr))
		if err == nil {
			return reg, nil
		}
		fmt.Fprintln(os.Stderr, err)
		if wait(ctx, 500*time.Millisecond); ctx.Err() != nil { // the server restarts
			return nil, err
		}
	}
}

func job(a assignment) executor.Job {
	return executor.Job{
		Name: jobName, Schedule: schedule.Every(2 * time.Second), Shards: shards, OnMisfire: executor.RunAll(1000), MaxAttempts: 1000,
		Retry:   executor.Retry{Max: -1, Initial: 200 * time.Millisecond, MaxInterval: time.Second},
		Handler: executor.HandlerFunc(func(ctx context.Context, r *executor.Run) error { return pay(ctx, a, r) }),
	}
}

// pay writes a row in a transaction that ends the run, with pauses in which faults can hit.
func pay(ctx context.Context, a assignment, r *executor.Run) error {
	if err := enter(ctx); err != nil {
		return err
	}
	defer inside.Add(-1)
	c, err := pgx.Connect(ctx, fmt.Sprintf("postgres://rota@%s/%s?sslmode=disable", a.Addr, database))
	if err != nil {
		return err
	}
	defer c.Close(context.WithoutCancel(ctx))
	tx, err := c.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(context.WithoutCancel(ctx))
	_, err = tx.Exec(ctx, "INSERT INTO ledger (key, shard, fire, attempt, instance) VALUES ($1, $2, $3, $4, $5)", r.Key, r.Shard, r.FireTime, r.Attempt, r.Instance)
	if err != nil {
		return err
	}
	linger(ctx, 200*time.Millisecond)
	if err := postgres.CompleteTx(ctx, tx, r); err != nil {
		return err
	}
	if err := a.hold(ctx, r); err != nil {
		return err
	}
	linger(ctx, 400*time.Millisecond)
	if err := tx.Commit(ctx); err != nil {
		return err
	}
	linger(ctx, 200*time.Millisecond)
	return nil
}

// inside counts the runs of this process that may have a transaction open. While holding is set, none enters: a process that is
// stopped keeps one transaction open, that of shard 0.
var (
	inside  atomic.Int64
	holding atomic.Bool
)

func enter(ctx context.Context) error {
	for {
		if inside.Add(1); !holding.Load() {
			return nil
		}
		inside.Add(-1)
		if wait(ctx, 10*time.Millisecond); ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

func linger(ctx context.Context, most time.Duration) { wait(ctx, rand.N(most)) }

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// hold reports that the transaction is open, and gives the test the time to stop the process.
func (a assignment) hold(ctx context.Context, r *executor.Run) error {
	if a.HoldAt == "" || r.Shard != 0 {
		return nil
	}
	holding.Store(true)
	defer holding.Store(false)
	for inside.Load() > 1 && ctx.Err() == nil {
		wait(ctx, 10*time.Millisecond)
	}
	c, err := pgx.Connect(ctx, fmt.Sprintf("postgres://rota@%s/%s?sslmode=disable", a.Addr, database))
	if err != nil {
		return err
	}
	defer c.Close(ctx)
	tag, err := c.Exec(ctx, "INSERT INTO holding SELECT $1, $2 WHERE NOT EXISTS (SELECT FROM holding)", r.Key, r.Instance)
	if err == nil && tag.RowsAffected() == 1 {
		wait(ctx, 2*time.Second)
	}
	return err
}
