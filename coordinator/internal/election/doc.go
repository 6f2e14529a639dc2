// Package election decides what an incarnation does about the leadership of its group, and builds
// the transactions by which leadership changes. It decides from its arguments alone.
package election
