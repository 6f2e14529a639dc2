// Package budget holds the tests of what the design's table of budgets says in numbers of
// commits, bytes, reads, goroutines and memory. Counts are taken at the server, with the
// leader's part included: on the registry in memory, where time is virtual and each count
// is exact, and on etcd and ZooKeeper, by what these count themselves and by the logs of
// their commits.
package budget
