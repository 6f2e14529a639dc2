// Command fromcron was written for robfig/cron. By other lines of registration its jobs run
// once per fire in a fleet, instead of once in each process. Ctrl-C ends it.
package main

import (
	"context"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/handler"
	"github.com/rota-dev/rota/registry/memory"
	"github.com/rota-dev/rota/schedule"
)

// Each process runs all jobs.
func registerInOneProcess(c *cron.Cron) error {
	if _, err := c.AddJob("0 3 * * *", report{}); err != nil {
		return err
	}
	_, err := c.AddFunc("@every 1m", sweep)
	return err
}

// The fleet runs each fire once.
func registerInFleet(ex *executor.Executor) error {
	return ex.Register(
		executor.Job{Name: "report", Schedule: schedule.Cron("0 3 * * *"), Handler: handler.Cron(report{})},
		executor.Job{Name: "sweep", Schedule: schedule.Every(time.Minute), Handler: handler.Func(sweep)},
	)
}

// report is a cron.Job.
type report struct{}

func (report) Run() { log.Print("report") }

func sweep() { log.Print("sweep") }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)          // a second signal ends the process at once
	reg := memory.New().Client("my-host") // a fleet has etcd.Open or zookeeper.Open here
	ex, err := executor.New(reg, "shop", executor.Options{})
	if err == nil {
		err = registerInFleet(ex)
	}
	if err == nil {
		err = ex.Run(ctx)
	}
	if err != nil {
		log.Fatal(err)
	}
}
