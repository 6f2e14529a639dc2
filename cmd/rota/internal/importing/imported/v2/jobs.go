// Package jobs has the definitions of jobs.
//
// Written by rota import elasticjob from the namespace billing.
//
// Each job starts paused. Disable it in Elastic-Job and wait for its running items; then rota
// resume JOB starts it here.
//
// Notes on all jobs:
//   - Jobs without timeZone used the time zone of their JVMs. Their schedules are in UTC here: name
//     the zone, or import again with --timezone.
package jobs

import (
	"context"
	"fmt"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/handler"
	"github.com/rota-dev/rota/schedule"
)

// Jobs returns the definitions, for executor.Executor.Register.
func Jobs() []executor.Job {
	return []executor.Job{
		oldJob(),
		ordersJob(),
		scriptJob(),
		settleJob(),
	}
}

// oldJob defines the job "old".
//
// Notes:
//   - processCountIntervalSeconds: 300: handler.Dataflow.LogEvery is its equal.
//   - fetchDataCount: 50: handler.Dataflow.PageSize is its equal.
//   - concurrentDataProcessThreadCount: 4: handler.Dataflow.Workers is its equal.
//   - Paused servers in Elastic-Job: 10.0.0.1: no equal, because rota pauses a job everywhere: rota
//     pause old, or disable the hosts.
//   - Items that were running in Elastic-Job at the time of the import: 1.
func oldJob() executor.Job {
	return executor.Job{
		Name:        "old",
		Description: "of 1.x",
		Schedule:    schedule.Quartz("0 0 4 * * ?"),
		Shards:      2,
		ShardParams: map[int]string{0: "a", 1: "b"},
		Revision:    1,
		StartPaused: true,
		// TODO: executor.HandlerFunc(func(ctx context.Context, r *executor.Run) error { ... })
		Handler: unwritten("the Java class com.example.Old"),
	}
}

// ordersJob defines the job "orders".
//
// Notes:
//   - job_exception_handler: com.example.Handler: no equal, because a failed run is logged and
//     counted, and no message is sent: alert on failures, or observe them with executor.Observer.
//   - Offsets of items: 0="1200", 1="900". A definition holds none: have Fetch begin there if
//     handler.Page.Offset is empty.
func ordersJob() executor.Job {
	return executor.Job{
		Name:        "orders",
		Description: "orders",
		Schedule:    schedule.Quartz("0/5 * * * * ?"),
		Shards:      2,
		Param:       "limit=10",
		Revision:    1,
		StartPaused: true,
		OnCrash:     executor.CountAsFailed,
		// TODO: handler.Dataflow[Item]{Fetch: ..., Process: ...}
		Handler: unwritten("the Java data flow com.example.Orders"),
	}
}

// scriptJob defines the job "script".
//
// Notes:
//   - The last argument is the sharding context, as in Elastic-Job. Its taskId is the ID of the
//     attempt at one shard.
//   - The job is disabled on all servers of Elastic-Job. It starts paused: leave it so unless it is
//     to run.
func scriptJob() executor.Job {
	return executor.Job{
		Name:        "script",
		Schedule:    schedule.Quartz("0 0 * * * ?"),
		Revision:    1,
		StartPaused: true,
		OnMisfire:   executor.SkipMissed,
		OnOverlap:   executor.SkipOverlapping,
		OnCrash:     executor.CountAsFailed,
		Handler:     handler.Command("/bin/sh", "-c", "echo $0", shardingContext),
	}
}

// settleJob defines the job "settle".
//
// Notes:
//   - monitorPort: 9888: no equal, because rota job and rota dump read the store.
//   - executor_service_handler: com.example.Pool: no equal, as the pool is Java code.
//     Job.MaxRunning bounds the runs of a job in each process.
//   - Disabled servers in Elastic-Job: 10.0.0.2. A definition disables no host: rota disable settle
//     --host NAME, where NAME is executor.Options.Host.
//   - Disabled items in Elastic-Job: 1. A definition disables no shards: rota disable settle
//     --shards 1.
//   - Items that were running in Elastic-Job at the time of the import: 0.
func settleJob() executor.Job {
	return executor.Job{
		Name:        "settle",
		Schedule:    schedule.Quartz("0 0 3 * * ?"),
		Shards:      3,
		ShardParams: map[int]string{0: "Beijing", 1: "Shanghai"},
		Revision:    1,
		Strategy:    "odevity",
		StartPaused: true,
		// TODO: executor.HandlerFunc(func(ctx context.Context, r *executor.Run) error { ... })
		Handler: unwritten("the Java class com.example.Settle"),
	}
}

// shardingContext is a template of the JSON that Elastic-Job passed to scripts and HTTP servers.
const shardingContext = `{"jobName":{{json .Job}},"taskId":{{json .ID}},"shardingTotalCount":{{.Shards}},"jobParameter":{{json .Param}},"shardingItem":{{.Shard}},"shardingParameter":{{json .ShardParam}}}`

// unwritten is the handler of a job whose work was done in Java, by the code that it names. Register
// refuses the job.
type unwritten string

// Check implements executor.Checker.
func (u unwritten) Check() error {
	return fmt.Errorf("write the handler that does the work of %s", string(u))
}

// Handle implements executor.Handler.
func (u unwritten) Handle(context.Context, *executor.Run) error { return executor.Permanent(u.Check()) }
