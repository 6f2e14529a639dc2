// Package memory is a registry in one process: a server with many clients, and levers
// that make them suffer what clients of a real store suffer.
//
// It is a full backend, and strict where the contract leaves room: reads are always
// fresh, listings atomic, and what passes its Limits passes on every backend. It is used
// in the tests of what is built on a registry:
//
//	s := memory.New()
//	a, b := s.Client("a"), s.Client("b")
//	heal := s.Partition("a") // a is cut off; its sessions are lost, then expire
//
// # Time
//
// All time comes from package time, so in a testing/synctest bubble an hour of sessions
// passes in milliseconds. A Server keeps no goroutine. While the machine of a session is
// undisturbed its renewals are only reckoned, and there is no timer either; a lever that
// disturbs it makes them happen, one by one.
//
// # Sessions
//
// A client renews a session every third of its TTL, without waiting for the answer to
// the renewal before. Counted from the sending of the last confirmed renewal, the session
// is Suspended after 0.85 TTL, when two have gone unanswered, or at once when the
// connection breaks; it is Lost after 0.9 TTL. The server ends it one TTL after the last
// renewal that it received.
package memory
