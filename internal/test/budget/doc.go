// Package budget tests the budgets of docs/performance.md: numbers of commits, bytes, reads,
// goroutines and memory. Counts are taken at the store and include the leader's part. On the memory
// registry, time is virtual and each count is exact; etcd and ZooKeeper are measured by
// their own metrics and commit logs.
package budget
