package executor

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/rota-dev/rota/registry"
)

// Run is one shard of a job, executed for one fire. It is plain data: a test of a handler
// writes &executor.Run{Shard: 2, Shards: 3}.
type Run struct {
	// ID names the attempt: job/shard/fire/attempt, the fire as in RFC 3339, in UTC. For a
	// triggered run the number of the trigger takes the place of the fire: "#7". The job's
	// name may hold slashes; nothing after it does.
	ID string
	// Key is ID without the attempt: the same for every attempt at this piece of work, for
	// a column that keeps it from being done twice. It has at most 140 bytes.
	Key string
	// Job is the name of the job, Instance that of the process.
	Job, Instance string
	// Shard counts from 0 and is below Shards, which is the same for all shards of a fire.
	Shard, Shards int
	// Param is that of the job or of the trigger, ShardParam that of the shard.
	Param, ShardParam string
	// FireTime is the scheduled instant, equal on every instance and in UTC. It is not the
	// time of the start.
	FireTime time.Time
	// Attempt is 1 for the first.
	Attempt int
	// Reason is why this run was begun.
	Reason Reason
	// Trigger is the number of the trigger that asked for the run, in later attempts as well. It
	// is zero for a scheduled fire.
	Trigger uint64
	// Fence is a fencing token: greater than that of any earlier run of this shard, and
	// below 1<<63. A store that refuses smaller ones is safe from runs that do not know
	// that they are over.
	Fence uint64

	commit func(context.Context, []registry.Op) (registry.Rev, error)
}

// Commit applies ops in one transaction, on the condition that the session of this run is
// alive. It fails with ErrRunOver, and changes nothing, once the run or its session has
// ended. If ctx or the run ends first, the error wraps registry.ErrUnknownOutcome; the shard
// does not run again before the outcome is known or the session is over, so that whoever
// runs it next finds what was written.
//
// On a Run written by hand it writes nothing and returns nil.
func (r *Run) Commit(ctx context.Context, ops ...registry.Op) (registry.Rev, error) {
	if r.commit == nil {
		return registry.Rev{}, nil
	}
	return r.commit(ctx, ops)
}

// String returns the run in one line, for logs and the messages of tests: its ID, and why,
// where and with which fence it runs. It is for people; parse nothing out of it.
func (r Run) String() string {
	shard := fmt.Sprintf("shard %d of %d", r.Shard, r.Shards)
	if r.ID == "" {
		return fmt.Sprintf("run by hand (%s)", shard)
	}
	return fmt.Sprintf("%s (%v on %s, %s, fence %d)", r.ID, r.Reason, r.Instance, shard, r.Fence)
}

// runID returns Run.ID and Run.Key. A trigger of 0 is none.
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

// Reason is why a run was begun.
type Reason int

const (
	// Scheduled: its fire came, and the shard was free. It is the zero value.
	Scheduled Reason = iota
	// Misfire: its fire came while the shard could not run. See MisfirePolicy.
	Misfire
	// Failover: the instance of an earlier attempt is gone. That attempt was of a scheduled fire
	// or of a trigger; Run.Trigger tells which.
	Failover
	// Triggered: a trigger asked for it, and this is the first attempt.
	Triggered
	// Queued: its fire came and was claimed in time, and the run then waited for a worker
	// longer than the second by which a fire may be late without being a Misfire. See
	// Job.MaxRunning and Options.Workers.
	Queued
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
	}
	return "unknown"
}
