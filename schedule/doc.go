// Package schedule determines the fires of jobs: the instants at which they run.
//
// A [Schedule] is a set of instants. The set depends only on the text of the schedule, not on the host or the start of
// a process, so a fire is the same instant on every instance. [Schedule.Next] lists the next fires of any schedule, for
// instance in a test:
//
//	fires, err := schedule.Cron("0 3 * * *").In("Asia/Shanghai").Next(time.Now(), 5)
//
// Three kinds have no instants of their own: the fires of [FixedDelay] and [Always] count from the ends of runs, which
// the fleet records, and those of [AfterJob] are the fires of other jobs.
//
// # Zones
//
// A cron or quartz schedule is in UTC unless it names a zone. The zone of the host is never used. Zone
// data comes from the host, as for time.LoadLocation; in an image without zone data, import
// time/tzdata. If a zone's rules change, instances with zone data of different age disagree
// on its fires. [Cron] and [Quartz] say what becomes of times that a clock skips or repeats.
package schedule
