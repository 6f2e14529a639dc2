// Package registry defines the contract between the coordination algorithms and the store
// they run on, and the tools that are built once on that contract.
//
// A Registry is a small, strongly ordered key-value store. It reads keys and
// directories, changes them by transactions, follows directories, and grants sessions:
// leases whose owned (ephemeral) keys vanish with them. Packages memory, etcd and
// zookeeper implement it; package conformance checks that they keep its promises.
//
// Built on it, and hence the same for every store, are Apply, which determines the outcome
// of a transaction whose reply was lost; KeepSession, which opens a new session when one is
// lost; Prefix, a registry below a directory of another; and package lock, a fair lock with a
// fencing token.
//
// # Not promised
//
// The end of a session does not stop its owner's writes: a process that was paused for a
// minute still sends its next write. Only a condition stops that write. Guard the writes
// of a session, lock or leader with Alive, or with At on the record that names it, and
// pass the commit number (Rev.Seq) to stores of other kinds, to be compared there.
//
// Clocks of different machines may differ by any amount; only their rates are assumed
// to agree within a few per cent.
package registry
