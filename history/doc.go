// Package history keeps records of runs that have ended: in memory, as lines of JSON, or in a database.
//
// The registry holds running and pending work. A Recorder observes the ends of runs in one process, and writes two
// kinds of records to a Sink:
//
//   - a Fire sums up the runs of one fire of a job on one instance: counts, first start, last end, lateness, durations;
//   - a Run describes a single run with its error and the tail of its output. By default only notable runs are kept:
//     those that failed, crashed or were repeated, and the slowest of each fire. See Keep.
//
// Recording never blocks a run. Records wait in a bounded queue, and one goroutine writes them in batches. While the
// sink fails, the goroutine retries with growing pauses. When the queue is full, the Recorder drops successful runs
// first, whose counts remain in their Fire, then the oldest fires, and failed runs last. Each dropped record is counted
// in Stats, and a log line reports them once a minute.
//
// A Sink that is a LogSink also gets the logs of runs, in pieces while they go on; see LogOptions.
//
// Sinks are insert only and idempotent: each record has a key, so a batch whose outcome is unknown is written again
// without counting twice. History is a report, not a guarantee: a process that crashes loses the records of its last
// seconds, and no decision of the library depends on history.
//
// SQL stores history in PostgreSQL, MySQL, MariaDB or SQLite through database/sql with a driver of your choice.
package history
