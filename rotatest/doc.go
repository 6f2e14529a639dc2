// Package rotatest runs a fleet of instances in a test, on a registry in memory and in virtual
// time: a night of fires, a crash and the failover take milliseconds. See the example of [Run].
//
// # Time
//
// A test runs in a bubble of testing/synctest. The clock of the bubble begins at midnight UTC
// on 2000-01-01 and advances only while all goroutines wait. So a handler takes exactly the
// time that it sleeps, by time.Sleep, a timer or a context. A goroutine that waits for
// something outside the bubble, such as a socket, stops the clock. If that lasts for 20 s of
// real time, Run panics and names the goroutine.
//
// # Handlers with connections
//
// A call over a socket takes no virtual time, and is harmless if it leaves no goroutine behind.
// A goroutine that reads from an idle pooled connection, or a server that accepts connections
// in the bubble, stops the clock. Three ways work:
//
//   - Give the handler a fake, such as an http.RoundTripper or an interface of your own instead
//     of a client. It is the fastest way, and the fake can sleep and fail.
//   - Serve in the bubble over net.Pipe, with a net.Listener whose Accept returns one end and
//     a DialContext that returns the other. Such connections may be kept and idle. Close
//     client and server before the function of the test returns.
//   - Start the server before Run, outside the bubble, and keep no connection between calls:
//     DisableKeepAlives of an http.Transport, SetMaxIdleConns(0) of an sql.DB. Make client or
//     pool in the bubble, one for each test; http.DefaultTransport keeps connections.
//
// The tests TestConnections of this package show each of them.
//
// Call the methods of a Fleet from the goroutine that runs the test. Only Runs and Server may
// be called from other goroutines.
//
// # Checks
//
// In addition to the checks of the test itself, Run fails the test if
//
//   - two handlers of a shard ran at once, unless the context of the earlier one had ended (a
//     handler that ignores this is a zombie);
//   - a fire of a shard was lost: neither claimed, nor counted as skipped, nor still due for a
//     lasting reason, such as a pause, a long run or a fleet without instances. A run that a
//     crash ended must be claimed again or counted;
//   - a run was claimed twice, unless the job was reset in between;
//   - a goroutine is left when the fleet has stopped.
//
// The checks are part of this package rather than shared with rota's own tests, since they run
// within the user's test, commit by commit, and report only violations that its handlers and
// fires show.
//
// # Differences from production
//
// The registry answers at once. All instances have the same time, unless SetClock changes a
// clock. Fleet.Server has fault controls, such as delays and lost replies. Instances share the
// memory of the test, so a handler can read data that another process would not have.
package rotatest
