// Package postgres is a registry on PostgreSQL.
//
//	err := postgres.Migrate(ctx, postgres.Options{Endpoints: []string{"db:5432"}, Database: "jobs", Username: "owner"}) // once
//	reg, err := postgres.Open(ctx, postgres.Options{Endpoints: []string{"db:5432"}, Database: "jobs", Username: "rota"})
//
// # Stored form
//
// A registry is a schema, by default "rota", with four tables, and two for CompleteTx. In kv, a row is an entry: the entry "jobs/daily" has the dir
// "jobs" and the name "daily".
//
//	SELECT dir, name, convert_from(value, 'UTF8') FROM rota.kv;
//
// In session, a row is a session. Its deadline is in the time of a lease clock in the table state, which handles advance by their own
// monotonic clocks: it stands still while the server is down, and no change of a clock moves it. The table log has the names that the last
// 20,000 commits changed, from which watchers continue. Rev.Seq numbers the commits of the schema.
//
// All calls are made by functions of the schema, one statement and one transaction each. So a client that is stopped never holds the lock of
// commits, and a pooler in transaction mode can be used, see Options.ListenEndpoints. One that is stopped while the server sends it a long list
// holds the snapshot of that, and so dead rows, until it goes on or its connection ends. No call waits longer than 4 s for a lock.
//
// # Guarantees
//
// The package meets the contract of registry.Registry, which package conformance tests, on one server, and on a primary with a synchronous
// standby if only that standby is promoted and the old primary is stopped before. After a fail-over to an
// asynchronous standby, the last acknowledged commits may be lost: reads go back, and a lock may be held twice until the safe-until
// of its earlier holder. Rev.Seq still grows. With two primaries at a time nothing is promised.
//
// All reads are made on the primary and are linearizable; all lists are atomic.
//
// A session is renewed every quarter of its TTL. Counted from the sending of the last confirmed renewal, it is Suspended after 0.85
// TTL, or at once when the connection breaks, and Lost after 0.9 TTL. The store ends it between one TTL and about TTL + 1.5 s after
// the last renewal. After a restart of the server each session gets its whole TTL again.
//
// # Requirements
//
// The package needs PostgreSQL 13 or later; it is tested with 15. Isolation levels other than READ COMMITTED are refused.
// Commits wait for the server's disk, also if the role has synchronous_commit off.
package postgres
