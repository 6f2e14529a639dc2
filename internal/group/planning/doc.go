// Package planning decides what a leader writes: the next plan of each job, and which expired
// incarnations to reap. Decide is a pure function of a View and reads it only.
//
// The calls go one way. Decide (decide.go) derives a round from the View (round.go), assigns
// shards to eligible members (assign.go, eligible.go, grace.go), has each job planned (job.go), and
// reaps (reap.go). A job is planned in parts, in files of their names: control.go, unoffered.go,
// epochs.go, failover.go, move.go, clear.go, restore.go. The parts share claims.go. Defined jobs are put to rest by rest.go.
package planning
