// Package eventlog logs changes of plans and of shard ownership. A change of the fleet affects many
// jobs; their changes are collected and logged as one line.
package eventlog
