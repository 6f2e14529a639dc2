// Command onpostgres is settlement on PostgreSQL: registry and accounts are in one database, and the payments of a region commit together with
// the end of their run. So it needs neither a table of payments nor one of fences. Each process is one of a fleet; kill them as you like:
//
//	rota dev postgres        # prints the address of a server
//	go run ./examples/settlement/onpostgres "postgres://127.0.0.1:5432/postgres?user=rota"
package main

import (
	"context"
	"errors"
	"log"
	"net/url"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/registry/postgres"
	"github.com/rota-dev/rota/schedule"
)

// bank is the database.
type bank struct{ pool *pgxpool.Pool }

// A document shows from here:

// settle pays the orders of a day to the shops of a region.
func (b *bank) settle(ctx context.Context, r *executor.Run) error {
	tx, err := b.pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(context.WithoutCancel(ctx)) // does nothing after a Commit
	_, err = tx.Exec(ctx, `
		INSERT INTO accounts SELECT shop, sum(amount) FROM orders WHERE region = $1 AND day = $2 GROUP BY shop
		ON CONFLICT (shop) DO UPDATE SET balance = accounts.balance + excluded.balance`, r.ShardParam, dayBefore(r.FireTime))
	if err != nil {
		return err
	}
	if err := postgres.CompleteTx(ctx, tx, r); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

// To here.

var shanghai = time.FixedZone("Asia/Shanghai", 8*60*60)

// dayBefore returns the day that a run at fire settles.
func dayBefore(fire time.Time) string {
	return fire.In(shanghai).AddDate(0, 0, -1).Format(time.DateOnly)
}

var regions = map[int]string{0: "Beijing", 1: "Shanghai", 2: "Guangzhou", 3: "Chengdu"}

const (
	namespace = "settlement"
	jobName   = "settle"
)

func (b *bank) job() executor.Job {
	return executor.Job{
		Name: jobName, Schedule: schedule.Cron("0 3 * * *").In("Asia/Shanghai"),
		Shards: len(regions), ShardParams: regions,
		Handler: executor.HandlerFunc(b.settle),
		Retry:   executor.Retry{Max: 5, Initial: time.Second},
	}
}

// openBank opens the database of a registry, and creates the tables.
func openBank(ctx context.Context, o postgres.Options) (*bank, error) {
	u := url.URL{Scheme: "postgres", User: url.User(o.Username), Host: o.Endpoints[0], Path: o.Database, RawQuery: "sslmode=disable"}
	pool, err := pgxpool.New(ctx, u.String())
	if err != nil {
		return nil, err
	}
	_, err = pool.Exec(ctx, `
		SELECT pg_advisory_lock(1); -- processes that start together create them one after the other
		CREATE TABLE IF NOT EXISTS orders (day text, region text, shop integer, amount integer);
		CREATE TABLE IF NOT EXISTS accounts (shop integer PRIMARY KEY, balance integer);
		SELECT pg_advisory_unlock(1)`)
	if err != nil {
		pool.Close()
		return nil, err
	}
	return &bank{pool}, nil
}

// serve is a process of a fleet.
func serve(ctx context.Context, address string, middleware ...executor.Middleware) error {
	o, err := postgres.ParseURL(address)
	if err != nil {
		return err
	}
	if err := postgres.Migrate(ctx, o); err != nil { // in production: once, by a role that owns the tables
		return err
	}
	b, err := openBank(ctx, o)
	if err != nil {
		return err
	}
	defer b.pool.Close()
	reg, err := postgres.Open(ctx, o)
	if err != nil {
		return err
	}
	defer reg.Close(context.Background())
	ex, err := executor.New(reg, namespace, executor.Options{
		SessionTTL: 2 * time.Second, Middleware: middleware, // so that others go on soon after a crash
	})
	if err != nil {
		return err
	}
	if err := ex.Register(b.job()); err != nil {
		return err
	}
	return ex.Run(ctx)
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	if len(os.Args) != 2 {
		return errors.New("usage: onpostgres address")
	}
	return serve(ctx, os.Args[1])
}
