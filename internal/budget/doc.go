// Package budget holds the tests of what the design's table of budgets says in numbers of
// commits, bytes, reads, goroutines and memory. Counts are taken at the server, with the
// leader's part included.
package budget
