// Command first runs a job of four shards every two seconds, in one process and without a
// server. Ctrl-C ends it.
package main

import (
	"context"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/registry/memory"
	"github.com/rota-dev/rota/schedule"
)

// A document shows from here:

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)          // a second signal ends the process at once
	reg := memory.New().Client("my-host") // a fleet has Open of etcd, postgres or zookeeper here
	ex, err := executor.New(reg, "shop", executor.Options{})
	if err == nil {
		err = ex.Register(pollJob)
	}
	if err == nil {
		err = ex.Run(ctx)
	}
	if err != nil {
		log.Fatal(err)
	}
}

var pollJob = executor.Job{Name: "poll", Schedule: schedule.Every(2 * time.Second), Shards: 4, Handler: executor.HandlerFunc(poll)}

func poll(ctx context.Context, r *executor.Run) error {
	log.Printf("poll the tenants whose id %% %d is %d, for %s", r.Shards, r.Shard, r.FireTime)
	return nil
}

// To here.
