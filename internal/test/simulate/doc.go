// Package simulate runs whole fleets on the in-memory registry in virtual time, with faults
// drawn from a seed, and has them judged.
//
// A seed decides which faults strike whom and when. It does not decide how the goroutines
// of a moment take turns, nor what the runtime draws at random: for that there is the
// command replay, with which a seed always goes the same way.
package simulate
