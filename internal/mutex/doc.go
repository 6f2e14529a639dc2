// Package mutex has the mutexes of the library. They are those of package sync. In a build with the tag rotacheck they
// record which goroutine holds which, and end the process at the first of these:
//
//   - CheckFree is called by a goroutine that holds one: it is about to call code of users, or a callback of another
//     package, which may lock any mutex and block;
//   - a goroutine locks a mutex while it holds one of another package, which downward.go does not list;
//   - two mutexes are locked in both orders, perhaps by way of others, at any time.
package mutex
