// Package etcd is a registry on etcd, by its own client library.
//
//	reg, err := etcd.Open(ctx, etcd.Options{Endpoints: []string{"127.0.0.1:2379"}})
//
// # What is stored
//
// The entry "jobs/daily" of the default namespace is etcd's key /rota/jobs//daily: the last
// slash is doubled, so that the children of a directory are one range of keys. Its value is
// a line with the transaction that wrote it, then the value as it was given:
//
//	$ etcdctl get /rota/jobs//daily
//	/rota/jobs//daily
//	rota1 1f0c5e3fb2b44ddbb2d6ac1b4a3f7f6d
//	{"schedule":"0 3 * * *"}
//
// A session is a lease. It goes by the lease's id, as etcdctl lease list shows it, and has
// the key /rota/:sessions/ID; what it owns has the lease too. Ending the lease ends the
// session and all of that at one revision. A Rev's Seq is etcd's revision.
//
// A key that somebody else has written, or damaged, is left out of lists and watches, and
// told of to the Logger: one bad key does not hide the rest, and no decision rests on a
// list alone, as a Txn that would make the key conflicts. Get of it is ErrForeign, and names
// the rule that it breaks.
//
// # Connections
//
// A handle is connected to one member at a time, and goes on to the next when the connection
// breaks, when the member says that it has no leader, and when it is silent while the next
// one answers. Reads, and watches, are not disturbed by that. A transaction that was under
// way has an unknown outcome; one that a member turned away unread, or that could not be sent
// yet, is sent to the next one.
//
// # What it promises
//
// What registry.Registry does, and package conformance tests. Reads are linearizable, plain
// ones too, and lists atomic. It needs a quorum for everything.
//
// A session's TTL is rounded up to whole seconds, and up to one and a half of the server's
// election timeouts. It is renewed every quarter of the TTL; counted from when the last
// confirmed renewal was sent, it is Suspended after 0.85 TTL, or at once when the connection is
// lost, and Lost after 0.9 TTL. etcd deletes what it owned up to half a second after the
// TTL, and gives every session its full TTL again, and an election timeout more, when it
// elects a leader: between two clients a crash may take that long to show.
//
// # What it needs
//
// etcd 3.5.28, 3.6.9 or 3.7, with its default limits on transactions (128 operations,
// 1.5 MiB) at least. A user needs to read and write the keys that begin with /rota/. History
// has to be compacted by someone, see Options.CompactEvery.
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
