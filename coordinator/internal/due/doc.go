// Package due computes what is due for a shard: fires by its schedule, pending re-runs and triggers
// that its watermark does not cover.
package due
