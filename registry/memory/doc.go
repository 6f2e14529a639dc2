// Package memory is a registry in one process: a server with many clients.
//
// It is a full backend, for programs that need no other and for tests. It takes time
// from package time only, so in a testing/synctest bubble an hour of sessions passes in
// milliseconds, and it keeps no goroutine, and while its sessions are healthy no timer.
package memory
