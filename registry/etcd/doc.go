// Package etcd is a registry on etcd, built on etcd's own client library.
//
//	reg, err := etcd.Open(ctx, etcd.Options{Endpoints: []string{"127.0.0.1:2379"}})
//
// # Stored form
//
// In the default namespace, the entry "jobs/daily" has the etcd key /rota/jobs//daily. The last
// slash is doubled so that one key range holds exactly the children of a directory. The value
// begins with a line that names the transaction that wrote it; the rest is the entry's value:
//
//	$ etcdctl get /rota/jobs//daily
//	/rota/jobs//daily
//	rota1 1f0c5e3fb2b44ddbb2d6ac1b4a3f7f6d
//	{"schedule":"0 3 * * *"}
//
// A session is a lease. Its ID is the lease ID as etcdctl lease list prints it. The key
// /rota/:sessions/ID and all keys that the session owns are attached to the lease, so they are
// deleted in one revision when the lease ends. Rev.Seq is etcd's revision.
//
// A foreign value, that is one which another writer stored or damaged, is skipped in lists and
// watches and reported to the Logger, so one bad key does not hide the others. This is safe
// because no decision rests on a list alone: a Txn that would create the key conflicts. Get
// returns an ErrForeign that names the violated rule.
//
// # Connections
//
// A handle is connected to one member at a time. It switches to the next member when the
// connection breaks, when the member reports that it has no leader, and when the member is
// silent while the next one answers. Reads and watches continue on the next member. A
// transaction in flight has an unknown outcome; if it was not sent, or was rejected unread, it
// is sent to the next member.
//
// # Guarantees
//
// The package meets the contract of registry.Registry, which package conformance tests. All
// reads are linearizable and all lists atomic. Every operation needs a quorum.
//
// A session's TTL is rounded up to whole seconds, and to at least one and a half of the server's
// election timeouts. The session is renewed every quarter of the TTL. Counted from the sending
// of the last confirmed renewal, it is Suspended after 0.85 TTL, or at once when the connection
// breaks, and Lost after 0.9 TTL. etcd deletes the session's keys up to half a second after the
// TTL. When etcd elects a leader, every session gets its full TTL again, plus an election
// timeout: other clients may notice a crash that much later.
//
// # Requirements
//
// The package needs etcd 3.5.28, 3.6.9 or 3.7, with transaction limits no lower than the default
// (128 operations, 1.5 MiB). The user needs the right to read and write all keys that begin with
// /rota/. The history has to be compacted, see Options.CompactEvery.
package etcd

// A file that registry/zookeeper also has does the same work there; registry/memory, which
// connects to no server, shares client.go, renewal.go, session.go, txn.go and watch.go. Two
// files have no twin:
//
//   - compact.go: etcd keeps every revision until a client compacts the history; ZooKeeper and
//     memory keep the latest value only.
//   - rights.go: etcd checks rights by key range, so Open proves them with one read and one
//     transaction that changes nothing. Open of registry/zookeeper meets a missing right when
//     it creates and reads its own znodes.
