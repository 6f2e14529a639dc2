// Package faults wraps the handles of any registry.Registry, so that tests can inject the
// faults that clients of a real store suffer: lost requests and replies, late transactions,
// delays, broken connections and old reads. It is meant for tests of code that uses a
// registry. Package memory has such controls built in; this package adds them to a real store
// and to a backend of your own, and draws faults from a seed.
//
// An Injector wraps handles, each with the name of a client. A Rule describes one fault and
// the calls that it affects: by client, operation, key, count, time and chance.
//
//	in := faults.New(seed)
//	reg := in.Wrap("web-1", handle)
//	lost := in.Add(faults.Rule{Fault: faults.LoseReply, Ops: faults.Txn, Times: 1})
//
// # Seeds
//
// Whether a rule with a chance affects a call depends on the seed, the place of the rule in
// the order of Add, the name of the client, and how many calls of that client have matched the
// rule before. It does not depend on other clients, so a change of their calls does not change
// the faults of this one. Injector.String returns the seed and the rules as a text that Parse
// accepts: log it when a test fails, and parse it to inject the same faults again.
//
// # The contract
//
// A wrapped registry keeps the whole contract of package registry under every fault: it passes
// package conformance. An error that a fault causes is one that the contract allows for it, is
// true, and wraps ErrInjected.
//
//   - A Txn whose request or reply was lost, which is held, or which a cut reaches, returns
//     ErrUnknownOutcome. It has been applied only if its request arrived.
//   - Other calls then return ErrUnavailable. A session that was opened although its reply was
//     lost is not renewed, and expires.
//   - During a cut, sessions are suspended, and lost at the safe-until that they had when the cut
//     began. The store then ends them. After the cut, a session that is not lost is connected
//     again. Watchers pause and lose no change; their next batch after the cut is a Snapshot.
//   - A stale read returns the previous answer to the same read of the same handle, unless the
//     handle has observed something newer since, by another read, a commit or a batch. So time
//     never goes back on a handle, and a handle sees its own writes.
//
// Keys, transactions and contexts are checked before a fault applies to a call. Renewals of
// sessions are the backend's own: of the faults, only cuts affect them.
//
// # Time
//
// All time comes from package time. In a testing/synctest bubble, create the Injector in the
// bubble. An Injector has no goroutine and needs no closing.
package faults
