// Package planning decides what a leader writes: the next plan of each job, and which expired
// incarnations to reap. Decide is a pure function of a View. Files are named by the part of a plan
// that they decide.
package planning
