// Package skew finds out which clocks of a fleet are wrong: it compares the readings that members
// publish, and detects that a clock was set. It decides from its arguments alone.
package skew
