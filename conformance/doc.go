// Package conformance is the test suite that every implementation of registry.Registry
// passes.
//
// The test of a backend implements two things and calls [Run]; see the example:
//
//   - [Backend] describes the backend: how a case gets an empty store, and the fault controls
//     that the store lacks, which [SingleServer] lists for a store of one server.
//   - [Store] is such a store. Connect returns handles on it. The other functions are its fault
//     controls, which can be written one by one.
//
// Each case runs in a store of its own, as the subtest Group/Code name. Codes are stable, so
// use them to select cases: go test -run 'TestConformance/Keys/K01'. Names state the tested
// promise and may be reworded. The table Contract links each sentence of the documentation of
// package registry to the promises it makes, and each promise to the cases that test it.
//
// # Fault controls
//
// Most promises concern faults: a lost reply, an expired session, a client that is cut off.
// The function fields of [Store], its fault controls, inject such faults. A backend without a
// control declares it in [Lacks] with the reason; the cases that need it are skipped and
// counted. A control that is neither provided nor declared fails the run, and so does a
// declaration that contradicts the Store.
//
// # Safety cases
//
// Cases marked Safety guard against two clients acting on the same thing, and against the
// loss of an acknowledged commit. Neither they nor the fault controls they need may be
// declared as lacking. Controls that disturb single members are the exception: they leave a
// majority at work, so a store with fewer than three members cannot provide them. A backend
// with servers therefore runs the suite on three members at least once.
//
// # Histories
//
// Cases C01 to C06 record the calls of many clients under random faults and search for a
// sequential order that explains every result. Faults and calls are drawn from Backend.Seed.
// A failure names the seed and the file with a visualization of the history.
//
// # Time
//
// Against servers the suite runs in real time, with the session TTL that they grant. A
// backend in plain Go can run in virtual time, see Backend.Bubble. Cases wait for an event at
// most the granted TTL plus 3 seconds, for the sake of busy machines. Where members fail,
// they allow registry.DefaultSessionTTL for the recovery; every store must grant that TTL.
//
// # Tests of the suite
//
// For each promise there is a saboteur, a registry that breaks only this promise. [Try]
// shows that the case meant for it fails.
package conformance
