// Package rotatest runs a fleet of processes in a test, on a registry in memory and in
// virtual time: a night of fires, a crash and the failover take milliseconds. The example of
// Run is such a test.
//
// # Time
//
// A test runs in a bubble of testing/synctest. Its clock begins at midnight UTC on
// 2000-01-01 and stands still while anything runs, so a handler takes as long as it
// sleeps, by time.Sleep, a timer or a context, and no longer. A goroutine that waits for the
// world outside the bubble, such as for a socket, stops the clock. If that lasts for 20 s of
// real time, Run panics and names the goroutine.
//
// # Handlers with connections
//
// A call over a socket takes no time of the bubble, and is harmless if nothing is left of it
// when it has returned. A goroutine that reads from an idle connection of a pool, and a
// server that accepts connections in the bubble, stop the clock. Three ways work:
//
//   - Give the handler a fake: an http.RoundTripper or an interface of your own instead of a
//     client. It is the fastest, and can sleep and fail as the test wants.
//   - Serve in the bubble over net.Pipe, with a net.Listener whose Accept returns one end and
//     a DialContext that returns the other. Such connections may be kept and idle. Close
//     client and server before the function of the test returns.
//   - Start the server before Run, outside the bubble, and keep no connection between calls:
//     DisableKeepAlives of an http.Transport, SetMaxIdleConns(0) of an sql.DB. Make client or
//     pool in the bubble, one for each test; http.DefaultTransport keeps connections.
//
// The tests TestConnections of this package show each of them.
//
// The methods of a Fleet are for the goroutine that runs the test, one at a time. Runs
// and Server may be called from anywhere.
//
// # Checks
//
// Besides the checks of the test itself, Run fails the test if
//
//   - two handlers of a shard ran at once, unless the context of the earlier one had ended:
//     a handler that ignores this is called a zombie. The records never show two runs of a
//     shard at once;
//   - a fire of a shard was lost: not claimed, not counted as skipped by the job's policy or
//     because the shard is disabled, and not due for a reason that lasts, such as a pause,
//     a long run or a fleet without processes. A run that a crash ended has to be claimed
//     again, or counted;
//   - a run was claimed twice, unless the job was reset in between;
//   - a goroutine is left when the fleet has stopped.
//
// # Differences from production
//
// The registry answers at once, and the clocks of all processes agree unless SetClock changes
// one. Fleet.Server has controls for delays, lost replies and other faults. Processes share the
// memory of the test, so a handler can read data that another process would not have.
package rotatest
