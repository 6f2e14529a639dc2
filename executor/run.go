package executor

import (
	"fmt"
	"log/slog"
	"strconv"
	"time"
)

// Run is one shard of a job, executed for one fire. It is plain data: a test of a handler
// writes &executor.Run{Shard: 2, Shards: 3}.
type Run struct {
	// ID identifies the attempt: job/shard/fire/attempt, with the fire as RFC 3339 in UTC. For
	// a triggered run, the fire is replaced by the number of the trigger, such as "#7". Only
	// the name of the job may contain further slashes.
	ID string
	// Key is ID without the attempt, so it is the same for all attempts. Use it as an
	// idempotency key, such as in a unique column. It has at most 140 bytes.
	Key string
	// Namespace is that of the executor. Job is the name of the job. Instance is the name of this
	// process.
	Namespace, Job, Instance string
	// Shard is from 0 to Shards-1. Shards is the same for all shards of a fire.
	Shard, Shards int
	// Param is the parameter of the job or trigger, ShardParam that of the shard.
	Param, ShardParam string
	// FireTime is the scheduled instant in UTC, equal on every instance. For a triggered run it
	// is the time of the trigger, or the fire that an operator retries or backfills. It is not the time at which the run started.
	FireTime time.Time
	// Attempt is the number of the attempt, from 1. Retries is how many of the attempts before
	// it failed; see Job.Retry. The others crashed or were handed back.
	Attempt, Retries int
	// Reason is the reason why this run was started.
	Reason Reason
	// Trigger is the number of the trigger of this run. It is zero for a scheduled fire.
	Trigger uint64
	// Fence is a fencing token: it is greater than that of any earlier run of this shard, and
	// below 1<<63. A database that refuses smaller fences refuses the late writes of runs
	// that have ended.
	Fence uint64

	gate   *gate        // nil for a literal
	signal *yieldSignal // nil for a literal
	log    *slog.Logger // nil for a literal
	saved  []byte       // the checkpoint of a literal
}

// String describes the run in one line, for logs and test messages: ID, reason, instance,
// shard and fence. The format is not stable.
func (r Run) String() string {
	shard := fmt.Sprintf("shard %d of %d", r.Shard, r.Shards)
	if r.ID == "" {
		return fmt.Sprintf("run by hand (%s)", shard)
	}
	return fmt.Sprintf("%s (%v on %s, %s, fence %d)", r.ID, r.Reason, r.Instance, shard, r.Fence)
}

// runID returns Run.ID and Run.Key. The trigger is 0 for a scheduled fire.
func runID(job string, shard int, fire time.Time, trigger uint64, attempt int) (id, key string) {
	var room [128]byte
	b := append(room[:0], job...)
	b = append(b, '/')
	b = strconv.AppendInt(b, int64(shard), 10)
	b = append(b, '/')
	if trigger > 0 {
		b = append(b, '#')
		b = strconv.AppendUint(b, trigger, 10)
	} else {
		b = fire.UTC().AppendFormat(b, time.RFC3339Nano)
	}
	n := len(b)
	b = append(b, '/')
	b = strconv.AppendInt(b, int64(attempt), 10)
	id = string(b)
	return id, id[:n]
}

// Reason is the reason why a run was started.
type Reason int

const (
	// Scheduled means that the fire was claimed on time. It is the zero value.
	Scheduled Reason = iota
	// Misfire means that the shard could not run when the fire came due. See MisfirePolicy.
	Misfire
	// Failover means that an earlier attempt crashed or was handed back. That attempt was of a
	// scheduled fire or, if Run.Trigger is not zero, of a trigger.
	Failover
	// Triggered means that this is the first attempt for a trigger.
	Triggered
	// Queued means that the fire was claimed on time, and the run then waited for a worker for
	// more than a second. See Job.MaxRunning and Options.Workers.
	Queued
	// Retried means that the attempt before this one failed (Job.Retry), or that an operator retries the fire
	// (coordinator.Operator.Retry).
	Retried
	// Backfill means that this is the first attempt at a fire of the past, for an operator's Backfill.
	Backfill
)

// String returns the reason as a word.
func (r Reason) String() string {
	switch r {
	case Scheduled:
		return "scheduled"
	case Misfire:
		return "misfire"
	case Failover:
		return "failover"
	case Triggered:
		return "triggered"
	case Queued:
		return "queued"
	case Retried:
		return "retried"
	case Backfill:
		return "backfill"
	}
	return "unknown"
}
