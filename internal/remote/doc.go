// Package remote is what the backends that talk to a server over a network share: the
// form in which entries are stored, the client's side of a session, the buffer behind a
// watcher, and the calls that Close has to end.
//
// It knows nothing of any server. A backend translates: it renews a session when it is
// told to, offers changes in the order of their commits, and says which errors mean what.
package remote
