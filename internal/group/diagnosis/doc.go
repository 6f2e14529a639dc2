// Package diagnosis finds faults in the records of a group: damaged, orphaned and missing records,
// skewed clocks, jobs and shards that do not run, and a group without a leader. Diagnose is a pure
// function of Records.
package diagnosis
