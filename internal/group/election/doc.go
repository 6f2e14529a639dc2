// Package election decides when an incarnation takes, accepts or keeps the leadership of its group, and
// builds the transactions that change it. It is pure: the elector observes the records, waits, and commits.
//
// Two records describe the leadership. election/leader names the leader; it is never deleted, so there
// is always a session whose end can be proven, and its commit number is the term. election/~seat is
// owned by the leader's session and vanishes with it, which is how candidates notice that the leader
// has expired.
//
// There are three transitions:
//
//   - Succession: the seat is free. A candidate writes itself into election/leader, on condition that
//     the session named there is dead, and creates the seat.
//   - Resignation: the leader names a live successor in election/leader and deletes its seat.
//   - Acceptance: the named successor creates the seat, on condition that it is still named.
package election
