// Package remote contains the parts that backends with a server share: the format of stored
// entries, the client's side of a session, the buffer behind a watcher, the calls that Close
// has to end, and the classification of errors.
//
// It is independent of any server. A backend supplies the requests that renew and end a
// session, offers changes in the order of their commits, and translates the errors of its
// client library.
package remote
