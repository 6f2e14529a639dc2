// Package claimer has the loop that claims the fires of an incarnation's shards, starts their runs,
// and records the ends of runs. Package claiming decides what to claim. The loop is
// level-triggered: it acts on the present state, so it may miss events.
package claimer
