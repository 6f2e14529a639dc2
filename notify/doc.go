// Package notify sends messages when jobs of a group begin to fail, are late, have shards without an owner, or have recovered:
// one for each transition of a job, not for each run.
//
// A Notifier runs in any process that has the configuration of the receivers: one of the fleet, or another one. For each receiver,
// the notifiers of all processes elect one sender by a lock. Only a sender watches the records of the group. No loop of the
// group waits for a notifier.
//
// # Delivery
//
// A message is delivered at least once. The sender records it before it delivers it, and removes it from the record after the
// receiver has accepted it. So a message is repeated only if a process ends, or loses its session, in between, or if the outcome
// of an attempt is unknown. Each repetition has the same Message.ID.
//
// A state that lasts for less than Options.After is not reported. After a message about a job, Options.Quiet has to pass until the
// next one, which counts the changes in between; only the recovery from a reported state is reported at once. More than ten changes
// at a time are one message.
//
// # Not promised
//
// A fleet of which no process is left sends nothing itself: run a notifier in another process as well, or monitor the group with
// rota check. After the store has lost its records, jobs that are not ok are reported anew. The sender compares instants of fires with its own
// clock, so a sender whose clock is ahead reports jobs as late that are not.
package notify
