// Command settle settles three regions every night at three, Shanghai time. Ctrl-C or
// SIGTERM ends it when its runs have finished.
package main

import (
	"context"
	"log"
	"os/signal"
	"syscall"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/registry/etcd"
	"github.com/rota-dev/rota/schedule"
)

// A document shows from here:

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	reg, err := etcd.Open(ctx, etcd.Options{Endpoints: []string{"127.0.0.1:2379"}})
	if err != nil {
		return err
	}
	defer reg.Close(context.Background())

	ex, err := executor.New(reg, "billing", executor.Options{})
	if err != nil {
		return err
	}
	if err := ex.Register(settleJob(settle)); err != nil {
		return err
	}
	return ex.Run(ctx) // SIGTERM: lets runs finish for 20 s, hands the others back, leaves
}

func settleJob(h executor.HandlerFunc) executor.Job {
	return executor.Job{
		Name:        "settle",
		Schedule:    schedule.Cron("0 3 * * *").In("Asia/Shanghai"),
		Shards:      3,
		ShardParams: map[int]string{0: "Beijing", 1: "Shanghai", 2: "Guangzhou"},
		Handler:     h,
	}
}

func settle(ctx context.Context, r *executor.Run) error {
	log.Printf("settle %s for %s, fence %d", r.ShardParam, r.FireTime, r.Fence)
	return nil // or the error of the work, which should end soon after ctx does
}

// To here.
