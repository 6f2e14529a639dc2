// Package memory is a registry in one process: a server with many clients, and levers
// that make them suffer what clients of a real store suffer.
//
// It is a full backend, and strict where the contract leaves room: reads are always fresh,
// unless Isolate or Lag is at work, listings atomic, the changes of a commit come in one
// batch, and what is within its Limits is within those of every backend. It is meant for
// the tests of what is built on a registry:
//
//	s := memory.New()
//	a, b := s.Client("a"), s.Client("b")
//	heal := s.Partition("a") // a is cut off; its sessions are lost, then expire
//
// A name stands for a machine: levers take it, and act on all its handles, those to come
// included. Those that go on for a while return a function that undoes them; it may be
// called twice. Fill and Revoke have the server refuse what it could do, so that ErrQuota
// and ErrPermission can be tested for. What came of it is told by Counts, by the log that
// Record turns on, and by Dump, which sees what is stored past all faults.
//
// # Time
//
// All time comes from package time. In a testing/synctest bubble, where a Server has to be
// made if it is used there, an hour of sessions passes in milliseconds. A Server keeps no
// goroutine and needs no closing. While nothing happens to a session but renewals that get
// through in a steady time, these are only reckoned, and there is no timer either; a lever
// that changes this makes them happen, one by one, for as long as it takes.
//
// # Sessions
//
// A client renews a session every third of its TTL, and does not wait for the answer to
// the renewal before. Counted from when the last confirmed renewal was sent, the session
// is Suspended after 0.85 TTL, when two have gone unanswered, or at once when the
// connection breaks; it is Lost after 0.9 TTL. The server ends it one TTL after the last
// renewal that it received.
package memory
