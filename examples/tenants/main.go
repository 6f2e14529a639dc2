// Command tenants makes a report for each tenant of a table, by the tenant's own schedule. While it runs, one tenant leaves, another one
// comes, and a third changes its schedule, without a deployment. Ctrl-C ends it.
package main

import (
	"context"
	"errors"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry/memory"
	"github.com/rota-dev/rota/schedule"
)

// tenant is a row of the table. The cron text may have seconds, and is in the zone.
type tenant struct{ name, cron, zone string }

// prefix begins the names of the jobs that this program defines.
const prefix = "report/"

func reportKind(report executor.HandlerFunc) executor.Kind {
	return executor.Kind{Name: "report", Handler: report, MaxRunning: 10, Defaults: executor.Job{Timeout: time.Minute}}
}

// follow defines a job for each tenant of the table, and deletes those of tenants that are gone. It may be called at any time, by any
// process, and again after any error.
func follow(ctx context.Context, op *operator.Operator, table []tenant) error {
	var defs []operator.Definition
	named := map[string]bool{}
	for _, t := range table {
		named[prefix+t.name] = true
		defs = append(defs, operator.Definition{Name: prefix + t.name, Kind: "report", Schedule: schedule.Cron(t.cron).In(t.zone), Param: t.name})
	}
	var gone []string
	for job, err := range op.Definitions(ctx, operator.WithPrefix(prefix)) {
		if err != nil {
			return err
		}
		if !named[job.Name] {
			gone = append(gone, job.Name)
		}
	}
	_, err := op.DefineAll(ctx, defs)
	return errors.Join(err, op.DeleteAll(ctx, gone))
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	ex, err := executor.New(memory.New().Client("my-host"), "shop", executor.Options{})
	if err == nil {
		err = ex.RegisterKind(reportKind(func(_ context.Context, r *executor.Run) error {
			log.Printf("the report of %s for %s", r.Param, r.FireTime)
			return nil
		}))
	}
	if err == nil {
		go followTable(ctx, ex.Operator())
		err = ex.Run(ctx)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// followTable follows a table that changes once.
func followTable(ctx context.Context, op *operator.Operator) {
	table := []tenant{{"acme", "*/2 * * * * *", "UTC"}, {"beta", "*/3 * * * * *", "UTC"}}
	for began := time.Now(); ctx.Err() == nil; time.Sleep(time.Second) {
		if time.Since(began) > 10*time.Second {
			table = []tenant{{"acme", "*/5 * * * * *", "UTC"}, {"gamma", "*/2 * * * * *", "UTC"}}
		}
		if err := follow(ctx, op, table); err != nil {
			log.Print(err) // the next second tries again
		}
	}
}
