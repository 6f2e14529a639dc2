// Package explore searches small worlds for a broken promise of the protocol. It has tests only.
//
// A world is a value: a model of the store, two or three processes with their views of it, requests and
// replies in flight, and the faults that may still happen. A scenario describes the first world.
//
// A step turns a world into another one: a process observes a directory, sends a transaction, or gets a
// reply; a request reaches the store; a session expires; time passes; a fault happens. A step of a
// process calls the library's own decisions and loops (packages claiming, planning, election and
// member) on a recording registry, so the model has no protocol logic of its own; a test refuses copies
// of library functions. Each step has a label, such as "a claim arrives".
//
// The judge checks each commit, and each world in which no step is left, against the promises. It shares
// no decision with the library.
//
// Tests go through the worlds of each scenario breadth first, up to -explore.states, and along long
// random paths, -explore.ways of them.
//
// # Guards and witnesses
//
// A guard is a condition of a transaction, stated or implied by an operation, such as "claim: alive". Its
// name consists of the purpose of the transaction and the condition, see guardOf. Each guard is removed
// in turn, and the search has to find a violation. A witness is a path on which it finds one: the seed
// of a random path, or the labels of its steps. It is tried first, so that the test is fast.
//
// # Adding to it
//
//   - A guard: add the place in the source to guardSites, and a row to the table in docs/protocol/guards.md. Run
//     the test with -explore.guard=NAME -explore.ways=10000 -v, and add the scenario and seed that it
//     logs to witnesses. If no random path is found, record the steps by hand; if no small world needs
//     the guard, name the test that does in testedElsewhere.
//   - A step: emit it in emitSteps or one of the functions that it calls. If it costs a fault, decrease
//     faultBudget, or the search never ends. All that it changes in a world must be part of the digest
//     (encoder), or distinct worlds are taken for one.
//   - A promise: add a check to the judge, and see that it fails when the code is wrong.
//
// A renamed step or scenario has to be renamed in witnesses too: a witness with an unknown step fails.
package explore
