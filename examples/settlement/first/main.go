// Command first runs a job of four shards every ten seconds, as one process of a fleet on PostgreSQL:
//
//	rota dev postgres        # prints the address of a server
//	ROTA_REGISTRY="postgres://127.0.0.1:5432/postgres?user=rota" go run ./first
package main

import (
	"context"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/registry/postgres"
	"github.com/rota-dev/rota/schedule"
)

// A document shows from here:

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)                                  // a second signal ends the process at once
	options, err := postgres.ParseURL(os.Getenv("ROTA_REGISTRY")) // the password is in PGPASSWORD or ~/.pgpass
	if err != nil {
		return err
	}
	reg, err := postgres.Open(ctx, options)
	if err != nil {
		return err
	}
	defer reg.Close(context.Background())

	ex, err := executor.New(reg, "shop", executor.Options{})
	if err != nil {
		return err
	}
	if err := ex.Register(pollJob); err != nil {
		return err
	}
	return ex.Run(ctx)
}

// To here.

var pollJob = executor.Job{Name: "poll", Schedule: schedule.Every(10 * time.Second), Shards: 4, Handler: executor.HandlerFunc(poll)}

func poll(ctx context.Context, r *executor.Run) error {
	log.Printf("poll the tenants whose id %% %d is %d, for %s, fence %d", r.Shards, r.Shard, r.FireTime, r.Fence)
	return nil
}

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}
