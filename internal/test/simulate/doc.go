// Package simulate runs whole fleets on the memory registry in virtual time, injects faults that it draws
// from a seed, and judges the behaviour of the fleets.
//
// A seed decides which faults hit which processes and when. It does not decide the order of goroutines that
// are ready at one instant, nor the random numbers of the runtime. With the command replay a seed decides
// these too.
package simulate
