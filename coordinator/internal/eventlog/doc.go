// Package eventlog logs changes of plans and of ownership, one line for all jobs that a change of
// the fleet concerns.
package eventlog
