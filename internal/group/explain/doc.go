// Package explain finds the reason why a fire of a shard has not run. A run has conditions, the gates,
// and Explain checks them in order against the records of the job. It is a pure function of Records.
//
// The table of gates is in gates.go. Those that hold before a run is claimed are in beforeclaim.go,
// those after it in afterclaim.go.
package explain
