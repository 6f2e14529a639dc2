package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/count"
	"github.com/rota-dev/rota/operator"
)

// The results of a check, which are the exit codes of Nagios.
const (
	CheckOK = iota
	CheckWarning
	CheckCritical
	CheckUnknown
)

// Check is the result of a check of a group.
type Check struct {
	Version int       `json:"version"`
	At      time.Time `json:"at"`
	Group
	Code    int           `json:"code"`
	Result  string        `json:"result"` // ok, warning, critical or unknown
	Reasons []string      `json:"reasons"`
	Jobs    []Job         `json:"jobs"` // those that are not ok
	Live    int           `json:"live_instances"`
	Total   int           `json:"total"`
	Late    int           `json:"late"`
	Failing int           `json:"failing"`
	Unowned int           `json:"unowned"`
	Paused  int           `json:"paused"`
	MaxLate float64       `json:"max_late_seconds"`
	Lates   []JobLate     `json:"-"`
	limit   time.Duration // CheckLimits.MaxLate
	failed  bool          // the group could not be read
}

// CheckLimits are the limits that a group must keep to pass a check.
type CheckLimits struct {
	Jobs    JobsFilter
	MaxLate time.Duration // how long a fire may be due
	// MinJobs is the least number of checked jobs, MinInstances that of live instances.
	MinJobs, MinInstances int
}

// JobLate is how long the oldest fire of a job has been due.
type JobLate struct {
	Job     string
	Seconds float64
}

var results = []string{"ok", "warning", "critical", "unknown"}

// CheckOf checks a group. The reasons for its result come first, those of the group before those of its jobs, and of jobs
// the gravest. A job whose
// fire has been due for longer than MaxLate is critical, and so are fewer jobs or live instances than the least number,
// and a group with jobs and no leader. Failing jobs, problems, shards without an owner and wrong clocks are warnings. A
// shard whose owner has expired is not: that is usual during a restart. If no job was checked and there should be one,
// the result is unknown: a monitor that names a wrong namespace sees the same.
func CheckOf(st operator.GroupStatus, l CheckLimits) Check {
	v := Check{Version: Version, At: st.At, Group: groupOf(&st), limit: l.MaxLate}
	reasons := map[int][]string{} // by code, since a monitor shows the first ones only
	raise := func(code int, format string, args ...any) {
		v.Code = max(v.Code, code)
		reasons[code] = append(reasons[code], fmt.Sprintf(format, args...))
	}
	chosen := map[string]bool{}
	for _, name := range JobsOf(st, l.Jobs).Names() {
		chosen[name] = true
	}
	if st.Leader.Instance == "" && len(st.Jobs) > 0 {
		raise(CheckCritical, "no leader")
	}
	for i := range st.Instances {
		if st.Instances[i].Alive {
			v.Live++
		}
	}
	var checked []operator.JobSummary
	for i := range st.Jobs {
		if chosen[st.Jobs[i].Job] {
			checked = append(checked, st.Jobs[i])
		}
	}
	v.Total = len(checked)
	switch {
	case v.Total == 0 && l.MinJobs > 0:
		raise(CheckUnknown, "%s", describeNoJobs(&st, l.Jobs))
	case v.Total < l.MinJobs:
		raise(CheckCritical, "%s, at least %d expected", count.Of(v.Total, "job"), l.MinJobs)
	}
	if v.Live < l.MinInstances && v.Code != CheckUnknown {
		raise(CheckCritical, "%s, at least %d expected", count.Of(v.Live, "live instance"), l.MinInstances)
	}
	if text := describeUnoffered(checked); text != "" {
		raise(CheckWarning, "%s", text)
	}
	for i := range st.Instances {
		switch in := &st.Instances[i]; {
		case in.Skew != 0:
			raise(CheckWarning, "the clock of %s is %s the fleet's median", in.Instance, describeSkew(in.Skew))
		case in.ClockDiffers != 0:
			raise(CheckWarning, "%s", describeDiffering(in))
		}
	}
	for _, key := range st.Unreadable {
		raise(CheckWarning, "%s cannot be read", key)
	}
	var bad []Job
	for i := range st.Jobs {
		j := JobOf(&st.Jobs[i], st.At, l.MaxLate)
		if !chosen[j.Job] {
			continue
		}
		late := overdueFor(&j, st.At).Seconds()
		v.MaxLate = max(v.MaxLate, late)
		v.Lates = append(v.Lates, JobLate{j.Job, late})
		switch j.State {
		case OK, Paused, Retiring, Stopped, New, Expired: // a shard of an expired owner is late, in time
		default:
			bad = append(bad, j)
		}
		for state, n := range map[string]*int{Late: &v.Late, Failing: &v.Failing, Unowned: &v.Unowned, Paused: &v.Paused} {
			if has(j.States, state) {
				*n++
			}
		}
		if j.State != OK {
			v.Jobs = append(v.Jobs, j)
		}
	}
	slices.SortStableFunc(bad, func(a, b Job) int { // a monitor cuts the text
		return cmp.Or(cmp.Compare(slices.Index(JobStates, a.State), slices.Index(JobStates, b.State)), cmp.Compare(overdueFor(&b, st.At), overdueFor(&a, st.At)))
	})
	for i := range bad {
		if j := &bad[i]; j.State == Late {
			raise(CheckCritical, "%s has been due for %s: %s", j.Job, Span(st.At.Sub(j.Overdue)), j.reason(v.Leader))
		} else {
			raise(CheckWarning, "%s: %s", j.Job, j.reason(v.Leader))
		}
	}
	for code := v.Code; code > CheckOK; code-- {
		v.Reasons = append(v.Reasons, reasons[code]...)
	}
	v.Result = results[v.Code]
	return v
}

// overdueFor returns for how long the oldest fire of a job has been due, zero if none is.
func overdueFor(j *Job, now time.Time) time.Duration {
	if j.Overdue.IsZero() {
		return 0
	}
	return now.Sub(j.Overdue)
}

// AddLoss makes the check critical because of a loss of records that no operator has acknowledged; nil is none.
func (v *Check) AddLoss(loss *operator.StoreLoss) {
	if loss == nil {
		return
	}
	v.Code, v.Result = CheckCritical, results[CheckCritical]
	v.Reasons = append([]string{LossText(loss) + ": see rota doctor"}, v.Reasons...)
}

// LossText describes a loss of records in a few words.
func LossText(loss *operator.StoreLoss) string {
	what := "the store was wiped or replaced"
	if loss.Kind == operator.StoreRewound {
		what = "the store was set back"
	}
	return fmt.Sprintf("%s, as %s noticed at %s", what, loss.By, loss.Noticed.UTC().Format(time.RFC3339))
}

// describeNoJobs returns why a check has found no job.
func describeNoJobs(st *operator.GroupStatus, f JobsFilter) string {
	switch {
	case IsEmpty(st):
		return fmt.Sprintf("group %q of namespace %q has no records: check -n, -g and the address of the registry", st.Group, st.Namespace)
	case len(st.Jobs) == 0:
		return "the group has no job"
	}
	return fmt.Sprintf("the group has no job %q", f.Glob)
}

// reason returns the problem that a leader reports, or else the state in words. Without a leader, the problem on record
// may have passed.
func (j *Job) reason(leader string) string {
	switch {
	case j.Problem == "":
		return j.Text
	case leader == "":
		return "the last leader reported: " + j.Problem
	}
	return j.Problem
}

// CheckFailed returns the result of a check that could not read the group.
func CheckFailed(err error, now time.Time) Check {
	text, _, _ := strings.Cut(err.Error(), "\n")
	return Check{failed: true, Version: Version, At: now, Code: CheckUnknown, Result: results[CheckUnknown], Reasons: []string{text}}
}

// Nagios returns the line of a Nagios plugin, with performance data after the bar. The limit of max_late, above which jobs
// count as late, is its threshold.
func (v Check) Nagios() string {
	text := fmt.Sprintf("%s of %s/%s", count.Of(v.Total, "job"), v.Namespace, v.Name)
	if len(v.Reasons) > 0 {
		shown := v.Reasons[:min(len(v.Reasons), 5)]
		text = strings.Join(shown, "; ")
		if more := len(v.Reasons) - len(shown); more > 0 {
			text += fmt.Sprintf("; and %d more", more)
		}
	}
	threshold := "" // critical; there is none for a warning
	if !v.failed {
		threshold = fmt.Sprintf(";;%g", v.limit.Seconds())
	}
	// A bar would end the text.
	text = strings.ReplaceAll(text, "|", "/")
	return fmt.Sprintf("ROTA %s - %s | jobs=%d instances=%d late=%d failing=%d unowned=%d paused=%d max_late=%.0fs%s",
		strings.ToUpper(v.Result), text, v.Total, v.Live, v.Late, v.Failing, v.Unowned, v.Paused, v.MaxLate, threshold)
}

// Prometheus returns the check in the text format, for the textfile collector of the node exporter. The
// names differ from those of an executor's own metrics, which count what one instance sees.
func (v Check) Prometheus() string {
	var b strings.Builder
	labels := fmt.Sprintf(`rota_namespace="%s",rota_group="%s"`, escapeLabel(v.Namespace), escapeLabel(v.Name))
	gauge := func(name, help string, value any) {
		fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s gauge\n%s{%s} %v\n", name, help, name, name, labels, value)
	}
	up := 1
	if v.failed {
		up = 0
	}
	gauge("rota_check_up", "Whether the check could read the group.", up)
	if up == 0 {
		return b.String()
	}
	gauge("rota_check_result", "Result of the check: 0 ok, 1 warning, 2 critical, 3 unknown.", v.Code)
	gauge("rota_check_jobs", "Jobs that were checked.", v.Total)
	gauge("rota_check_live_instances", "Live instances of the group.", v.Live)
	gauge("rota_check_jobs_failing", "Jobs with a shard whose last ended run failed.", v.Failing)
	gauge("rota_check_jobs_unowned", "Jobs with a shard without an owner.", v.Unowned)
	gauge("rota_check_jobs_paused", "Jobs that are paused.", v.Paused)
	leader := 0
	if v.Leader != "" {
		leader = 1
	}
	gauge("rota_check_leader", "Whether the group has a leader.", leader)
	const overdue = "rota_check_job_overdue_seconds"
	fmt.Fprintf(&b, "# HELP %s How long the oldest fire of a job has been due.\n# TYPE %s gauge\n", overdue, overdue)
	for _, l := range v.Lates {
		fmt.Fprintf(&b, "%s{%s,job_name=\"%s\"} %v\n", overdue, labels, escapeLabel(l.Job), l.Seconds)
	}
	return b.String()
}

func escapeLabel(text string) string {
	return strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(text)
}
