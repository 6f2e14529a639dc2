// Package zookeeper is a registry on ZooKeeper, built on github.com/go-zookeeper/zk.
//
//	reg, err := zookeeper.Open(ctx, zookeeper.Options{Endpoints: []string{"127.0.0.1:2181"}})
//
// # Stored form
//
// In the default namespace, the entry "jobs/daily" is the znode /rota/jobs/daily. Its content
// begins with a line that names the transaction that wrote it; the rest is the entry's value:
//
//	$ zkCli.sh get /rota/jobs/daily
//	rota1 1f0c5e3fb2b44ddbb2d6ac1b4a3f7f6d created=8589934611
//	{"schedule":"0 3 * * *"}
//
// A znode that exists only for its children, or whose key was deleted, contains "rota1 none" and
// appears in no read. The znode of a deleted key is removed after Options.ReapAfter, unless the
// key is created again.
//
// Names that begin with a colon are not keys. /rota/:sessions has a znode for each session, named
// by the server's ID of the session and a random part. /rota/:births has one for each owned key.
// The version of /rota/:reaped counts the commits that removed znodes of deleted keys. Owned keys
// are ephemeral. Rev.Seq is a zxid.
//
// While there are handles on a namespace, no other program may write or delete znodes below it. A
// foreign value, that is one which another writer stored or damaged, is skipped in lists and
// watches and reported to the Logger. Get returns an ErrForeign that names the violated rule. A
// Txn that would create the key conflicts.
//
// # Guarantees
//
// The package meets the contract of registry.Registry, which package conformance tests. A plain
// read asks one member. It never goes back in time, even after a change of member. A Fresh read
// first makes a commit that changes nothing, because a leader that was cut off answers a sync
// until it notices. A List is Atomic if nothing in the directory changed while it was read.
//
// If the ensemble was wiped, replaced or set back, the handle detects it by the zxid of a commit, which
// is then lower than one that it has observed. It logs a warning, its sessions are lost, and it continues
// with the state that it finds. A member that lags is never taken for such a store.
//
// Each session has a connection of its own, which a Txn with a CreateOwned uses: all owned keys
// that it creates must belong to one session of this handle. If the connection breaks, the Txn
// waits until the session is reconnected or lost, so that its error can state the outcome.
//
// The server grants a session's TTL: in its default configuration between 2 and 20 ticks, which
// are 4 s and 40 s. A TTL above that range is an error. The session is renewed through the leader
// every twelfth of the TTL. Counted from the sending of the last confirmed renewal, it is
// Suspended after half of the TTL, or at once when its connection breaks, and Lost after two
// thirds. The server rounds the TTL up to ticks. When it elects a leader, every session gets its
// full TTL again: other clients may notice a crash that much later.
//
// # Requirements
//
// The package needs ZooKeeper 3.5 or newer, with a request limit no lower than the default
// (1 MiB). The credentials must allow reading, writing, creating and deleting below the
// namespace; with Options.ReadOnly, reading.
package zookeeper

// A file that registry/etcd also has does the same work there; registry/memory, which connects
// to no server, shares client.go, clock.go, renewal.go, session.go, txn.go and watch.go. Five
// files have no twin in registry/etcd:
//
//   - clock.go: a znode carries the time of its last write; etcd records none.
//   - mirror.go: a ZooKeeper event carries neither value nor version and fires once, so a
//     change is found by comparing the directory with a mirror. An etcd event carries the entry.
//   - reap.go, sweep.go: the znode of a deleted key remains, so that its versions do not begin
//     anew, and is deleted later. etcd's revisions never repeat.
//   - versioncache.go: a Rev is a zxid, and the server compares versions. etcd compares the
//     revision itself.
