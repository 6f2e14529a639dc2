// Package ledger tests that work which ends by postgres.CompleteTx is done exactly once under faults: processes on PostgreSQL write rows into a
// table without a unique column, and SQL judges it.
package ledger
