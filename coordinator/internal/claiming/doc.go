// Package claiming decides what a member writes to its claims record of a job: which runs it claims,
// which fires it skips, and which runs have ended. It decides from its arguments alone.
package claiming
