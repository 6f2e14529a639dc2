// Package claiming decides the next version of a member's claims record for one job: the runs that it
// claims, the fires that it skips, and the runs that have ended. [Input.Decide] is pure: the claimer
// collects an [Input], commits the [Decision] and then starts its runs.
package claiming
