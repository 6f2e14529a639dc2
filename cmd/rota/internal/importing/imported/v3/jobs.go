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
	"net/http"
	"time"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/handler"
	"github.com/rota-dev/rota/schedule"
)

// Jobs returns the definitions, for executor.Executor.Register.
func Jobs() []executor.Job {
	return []executor.Job{
		job2ndCleanJob(),
		echoJob(),
		formJob(),
		getJob(),
		onceJob(),
		pollJob(),
		settleJob(),
		streamJob(),
	}
}

// job2ndCleanJob defines the job "2nd-clean".
//
// Notes:
//   - Rota refuses the schedule, and it has not been written: schedule "quartz 0 0 0 31 4 ? in
//     UTC": it never fires: no date matches the fields.
//   - jobShardingStrategyType: SINGLE_SHARDING_BALANCE: not needed, as the leader spreads jobs of
//     one shard over the fleet.
//   - The job is disabled on all servers of Elastic-Job. It starts paused: leave it so unless it is
//     to run.
func job2ndCleanJob() executor.Job {
	return executor.Job{
		Name: "2nd-clean",
		// Schedule: schedule.Quartz("0 0 0 31 4 ?"),
		Revision:    1,
		StartPaused: true,
		// TODO: executor.HandlerFunc(func(ctx context.Context, r *executor.Run) error { ... })
		Handler: unwritten("the Java class com.example.Clean"),
	}
}

// echoJob defines the job "echo".
//
// Notes:
//   - failover: true: no effect, because monitorExecution is false. With the default tracking,
//     crashed runs are made again.
//   - The last argument is the sharding context, as in Elastic-Job. Its taskId is the ID of the
//     attempt at one shard.
func echoJob() executor.Job {
	return executor.Job{
		Name:        "echo",
		Schedule:    schedule.Quartz("0 30 1 L * ?").In("Etc/GMT+5"),
		Shards:      2,
		Param:       `a=1, "b"`,
		Revision:    1,
		Strategy:    "odevity",
		StartPaused: true,
		Tracking:    executor.TrackClaims,
		Handler:     handler.Command("/bin/echo", "one two", `{{"{{"}}.Names}}`, "$HOME", shardingContext),
	}
}

// formJob defines the job "form".
//
// Notes:
//   - shardingTotalCount: 20000: rota refuses more than 10000 shards.
//   - A response with a status of 400 or above fails the run. In Elastic-Job it was a success.
func formJob() executor.Job {
	return executor.Job{
		Name:        "form",
		Schedule:    schedule.Quartz("0 0/10 * * * ?"),
		Shards:      20000,
		Revision:    1,
		StartPaused: true,
		Handler: handler.HTTP(handler.Request{
			Method: http.MethodPut,
			URL:    "http://tenants.internal/form",
			Header: map[string]string{
				"Content-Type":    "application/x-www-form-urlencoded",
				"shardingContext": shardingContext,
			},
			Body:    "a=1&b=2",
			Timeout: 8 * time.Second,
		}),
	}
}

// getJob defines the job "get".
//
// Notes:
//   - A response with a status of 400 or above fails the run. In Elastic-Job it was a success.
func getJob() executor.Job {
	return executor.Job{
		Name:        "get",
		Schedule:    schedule.Quartz("0 0/10 * * * ?"),
		Revision:    1,
		StartPaused: true,
		Handler: handler.HTTP(handler.Request{
			Method: http.MethodGet,
			URL:    "http://tenants.internal/get",
			Header: map[string]string{
				"shardingContext": shardingContext,
			},
			Timeout: 8 * time.Second,
		}),
	}
}

// onceJob defines the job "once".
func onceJob() executor.Job {
	return executor.Job{
		Name:        "once",
		Revision:    1,
		StartPaused: true,
		OnCrash:     executor.CountAsFailed,
		// TODO: executor.HandlerFunc(func(ctx context.Context, r *executor.Run) error { ... })
		Handler: unwritten("the Java class com.example.Once$Inner"),
	}
}

// pollJob defines the job "poll".
//
// Notes:
//   - timeZone: GMT+05:30: no equal, as no zone has this offset all year. The schedule has not been
//     written: name a zone such as Asia/Kolkata.
//   - A response with a status of 400 or above fails the run. In Elastic-Job it was a success.
func pollJob() executor.Job {
	return executor.Job{
		Name: "poll",
		// Schedule: schedule.Quartz("0 0/10 * * * ?"),
		Revision:    1,
		StartPaused: true,
		OnCrash:     executor.CountAsFailed,
		Handler: handler.HTTP(handler.Request{
			Method: http.MethodPost,
			URL:    "http://tenants.internal/poll?all=1",
			Header: map[string]string{
				"Content-Type":    "application/json",
				"shardingContext": shardingContext,
			},
			Body:    `{"a": "{{"{{"}}b}}"}`,
			Timeout: 10500 * time.Millisecond,
		}),
	}
}

// settleJob defines the job "settle".
//
// Notes:
//   - shardingItemParameters: items that do not exist are left out: 7.
//   - Disabled servers in Elastic-Job: 10.0.0.2. A definition disables no host: rota disable settle
//     --host NAME, where NAME is executor.Options.Host.
//   - Disabled items in Elastic-Job: 1. A definition disables no shards: rota disable settle
//     --shards 1.
//   - Items that were running in Elastic-Job at the time of the import: 0.
//   - Items that had missed a fire at the time of the import: 2. Rota makes no run for it: rota
//     trigger settle --shards 2.
//   - Items that were failed over at the time of the import: 2.
//   - Items that waited for a failover at the time of the import: 1. Rota makes no run for them:
//     rota trigger settle --shards 1.
func settleJob() executor.Job {
	return executor.Job{
		Name:        "settle",
		Description: `settles "each" region`,
		Schedule:    schedule.Quartz("0 0 3 * * ?").In("Etc/GMT-8"),
		Shards:      3,
		ShardParams: map[int]string{0: "Beijing", 1: "Shanghai", 2: "Guangzhou"},
		Revision:    1,
		Strategy:    "average",
		StartPaused: true,
		// TODO: executor.HandlerFunc(func(ctx context.Context, r *executor.Run) error { ... })
		Handler: unwritten("the Java class com.example.Settle"),
	}
}

// streamJob defines the job "stream".
//
// Notes:
//   - maxTimeDiffSeconds: 30: no equal for a job, as instances compare their clocks:
//     executor.Options.MaxClockSkew, 5 s by default.
//   - reconcileIntervalMinutes: 5: no equal, because the leader plans after each change.
//   - jobShardingStrategyType: com.example.Spread: no equal, as the strategy is Java code. Write it
//     in Go, pass it in executor.Options.Strategies, and name it.
//   - jobErrorHandlerType: DINGTALK: no equal, because a failed run is logged and counted, and no
//     message is sent: alert on failures, or observe them with executor.Observer.
//   - jobListenerTypes: audit, notify: no equal, because listeners are Java code.
//     executor.Middleware calls Go code before and after each run.
//   - jobExtraConfigurations:
//     org.apache.shardingsphere.elasticjob.tracing.yaml.YamlTracingConfiguration: no equal. Package
//     history records runs in a database.
//   - overwrite: true: no equal, because the definition with the highest revision is in force.
//     Raise the revision with each change.
//   - staticSharding: true: no equal, because the strategy sticky moves a shard only if its owner
//     has expired or has too many.
//   - label: blue: no equal, because it had no effect. Job.RunOn restricts a job to instances with
//     labels.
//   - someday: not known to this import, and left out.
//   - props dingtalk.secret: no equal, because a handler is configured in its code. The values are
//     not shown here.
//   - The job is disabled on all servers of Elastic-Job. It starts paused: leave it so unless it is
//     to run.
func streamJob() executor.Job {
	return executor.Job{
		Name:        "stream",
		Schedule:    schedule.Quartz("0/5 * * * * ?"),
		Shards:      64,
		Revision:    1,
		MaxRunning:  1,
		StartPaused: true,
		OnMisfire:   executor.SkipMissed,
		OnOverlap:   executor.SkipOverlapping,
		OnCrash:     executor.CountAsFailed,
		// TODO: handler.Dataflow[Item]{Fetch: ..., Process: ...}
		Handler: unwritten("the Java data flow com.example.Orders"),
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
