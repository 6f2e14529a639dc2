// Package fleet runs fleets of operating system processes on real servers, injects faults, and judges what
// the fleets do by the commits of the store, which it reads without the library, and by the reports of
// the handlers.
package fleet
