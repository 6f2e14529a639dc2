// Package balance assigns the shards of many jobs to members: each job evenly by weight, all jobs
// together as evenly as that allows, and with the fewest moves. It decides from its arguments alone.
package balance
