// Package skew finds out which clocks of a fleet are wrong. It is pure: the loops of package member
// publish readings, observe records and pass them in.
//
// No clock can be read by all members. But a reading can only be received after it was sent: a member
// that receives a reading which its own clock has not reached is behind the sender's clock, by at least
// the difference. So of two clocks that differ, one side can always show it, and a late message hides
// a difference instead of inventing one.
//
// The leader publishes a reading of its clock in the seat, which all members watch. A member whose
// clock differs answers with a reading of its own in its member record, which the leader watches.
// [Comparison] collects these answers, [FindSkewed] judges them by the median, and [JumpDetector]
// detects that the local clock was set.
package skew
