package member

import (
	"github.com/rota-dev/rota/internal/record"
)

// reportAhead logs and publishes a change of the instant that an account's shards wait for.
func (l *Claimer) reportAhead(a *JobState, is record.Ahead) {
	if is == a.reportedAhead {
		return
	}
	job := a.Claims.Job
	switch a.reportedAhead = is; {
	case is.Epoch != 0:
		l.Log.Warn("shards wait until this clock has reached what was claimed: this clock is wrong, or an earlier owner's was; Operator.Reset starts the job afresh",
			"job", job, "epoch", is.Epoch, "until", is.At.Time())
	default:
		l.Log.Info("shards no longer wait for this clock", "job", job)
	}
	l.publishAhead(job, is)
}

// publishAhead writes the instant that a job's shards wait for here into the member record.
func (m *Member) publishAhead(job string, is record.Ahead) {
	m.ChangeState(func() {
		if delete(m.ahead, job); is.Epoch != 0 {
			m.ahead[job] = is
		}
	})
}
