// Package zookeeper is a registry on ZooKeeper, by github.com/go-zookeeper/zk.
//
//	reg, err := zookeeper.Open(ctx, zookeeper.Options{Endpoints: []string{"127.0.0.1:2181"}})
//
// # What is stored
//
// The entry "jobs/daily" of the default namespace is the znode /rota/jobs/daily. It holds a
// line with the transaction that wrote it, then the value as it was given:
//
//	$ zkCli.sh get /rota/jobs/daily
//	rota1 1f0c5e3fb2b44ddbb2d6ac1b4a3f7f6d created=8589934611
//	{"schedule":"0 3 * * *"}
//
// A znode that is only there for those below it, or whose key was deleted, holds
// "rota1 none" and shows in nothing. Those of deleted keys go when nobody has used them for
// Options.ReapAfter. What begins with a colon is no key: /rota/:sessions has a znode for
// each session, named by the server's id of it and a random part, /rota/:births one for
// each owned key, and the version of /rota/:reaped counts how often znodes of deleted keys
// were taken away. Owned keys are ephemeral. A Rev's Seq is a zxid.
//
// Nothing below the namespace is to be written by others, or taken away, while there are
// handles on it. A key that somebody else has written, or damaged, is left out of lists
// and watches, and told of to the Logger. Get of it is ErrForeign, and names the rule that
// it breaks; a Txn that would make it conflicts.
//
// # What it promises
//
// What registry.Registry does, and package conformance tests. A plain read asks one member,
// and never takes the handle back in time, also when that member changes. A Fresh read
// first makes a commit that changes nothing: ZooKeeper's sync is answered by a leader that
// was cut off, for as long as it has not noticed. A List is Atomic if nothing of it changed
// while it was read.
//
// Each session has a connection of its own, and a Txn with a CreateOwned goes that way: all
// owned keys that it makes have to be of one session, and that of this handle. If the
// connection breaks, such a Txn waits for the session to come back or to be lost, so that
// the error can tell.
//
// A session's TTL is what the server grants, between 2 and 20 ticks as it comes, that is 4
// and 40 s; asking for more than it grants is an error. The session is renewed, through the
// leader, every twelfth of it; counted from when the last confirmed renewal was sent, it is
// Suspended after half of it, or when its connection breaks, and Lost after two thirds.
// The server rounds up to ticks, and gives every session its full TTL again when it elects
// a leader: between two clients a crash may take that long to show.
//
// # What it needs
//
// ZooKeeper 3.5 or newer, with its default limit on requests (1 MiB) at least. The
// credentials have to allow to read, write, create and delete below the namespace.
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
