// Package conformance is the contract of package registry as a test: one suite that
// every backend passes, and the table that ties each sentence of the contract to the
// cases that hold a backend to it.
//
// A backend's test describes the backend and runs the suite:
//
//	func TestConformance(t *testing.T) {
//		conformance.Run(t, conformance.Backend{
//			Open:  openStore, // fresh and empty for every case
//			TTL:   2 * time.Second,
//			Lacks: conformance.Lacks{conformance.Compact: "keeps no history"},
//		})
//	}
//
// Each case has a code, which stays, and a name, which is the promise in words; its
// subtest is Group/Code name. A case asks for the levers it pulls: faults that the
// Store can be made to suffer. A lever that a backend does not have is declared in
// Lacks with the reason, and its cases are skipped and counted. One that is neither
// there nor declared fails the run, as does a declaration that is not true.
//
// Cases marked Safety guard against two clients acting on the same thing, and against a
// commit that was reported being gone. They may not lack, nor the levers they need. The one
// exception are levers that leave a majority of the members at work: a store of fewer than
// three members, as told by Members, has none to give. So a backend over a network shows
// its safety with three members at least once; with one it may run the rest.
//
// Cases that record histories, C01 to C06, have many clients work under random faults and
// search an order of their calls in which all that they were told is right. What they draw
// comes from Backend.Seed; a failure names the seed, and the file with a picture of the
// history.
//
// The suite runs in real time against servers, with the session TTL they grant, and
// in a bubble of virtual time against a backend that is plain Go. Bounds on waiting are
// the granted TTL and 3 seconds, so that it can be run on a busy machine; where members
// fail and others have to be found, DefaultSessionTTL, which every store has to grant, is
// what they have for it.
//
// The suite itself is tested: for each promise there is a registry that breaks just
// that one, and Try shows that the case meant for it fails.
package conformance
