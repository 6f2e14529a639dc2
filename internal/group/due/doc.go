// Package due computes the due work of a shard: the fires of its schedule and the pending re-runs
// that its watermark does not cover, and the shards of a trigger.
package due
