// Package fleet runs fleets of processes of the operating system on real servers, has
// faults befall them, and has them judged by what the store has committed, which is read
// past the library, and by what the runs said.
package fleet
