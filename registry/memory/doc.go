// Package memory is a registry in one process: a Server with many Clients, and fault controls
// that cause what clients of a real store suffer. It is meant for tests of code that uses a
// registry.
//
// It is a full backend, and strict where the contract leaves room: all reads are fresh unless
// Isolate or Lag is in force, listings are atomic, the changes of a commit arrive in one
// batch, and a transaction within its Limits is within those of every backend.
//
// # Faults
//
// The name of a client stands for a machine. A fault control takes that name, and affects all
// handles of the machine, also those that Server.Client returns later. A control with a
// lasting effect returns a function that ends it, which may be called twice:
//
//   - Partition, PartitionOneWay and Delay act on the connection, Starve and HoldWatch on
//     renewals and events.
//   - LoseRequest, LoseReply and HoldCommit make the outcome of a transaction unknown.
//   - Isolate and Lag act on the member of the store that the machine is connected to.
//   - Fill and Revoke make the server refuse requests, with ErrQuota and ErrPermission.
//   - Expire and ExpireSession end sessions. Pause and Restart act on the whole server.
//
// Counts, the log that Record starts, and Dump show the effect. No fault affects them.
//
// # Time
//
// All time comes from package time. In a testing/synctest bubble an hour of sessions passes in
// milliseconds; the Server must be created in that bubble. A Server has no goroutine and needs
// no closing. While every renewal of a session succeeds after the same time, renewals are
// computed, not executed, and no timer runs. While a fault changes that, they are executed one
// by one.
//
// # Sessions
//
// A client renews a session every third of its TTL, without waiting for the answer to the
// previous renewal. Counted from when the last confirmed renewal was sent, the session is
// Suspended after 0.85 TTL, when two renewals have gone unanswered, or at once when the
// connection breaks. It is Lost after 0.9 TTL. The server ends it one TTL after the last
// renewal that it received.
package memory
