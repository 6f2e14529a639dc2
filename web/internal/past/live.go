package past

import (
	"time"

	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/schedule"
)

// Live is the state of the current fires of a job by the records of the fleet. Its zero value is no state.
type Live struct {
	Shards int // of the job
	// ownFires reports that the fires of each shard count from the ends of its runs, so a fire is usually of one shard.
	ownFires bool
	// schedule has the fires that are to be on record; nil: it is not known, or its fires are at no fixed instants.
	schedule *schedule.Schedule
	// LastFire is the latest scheduled fire that was claimed or skipped for any shard; running and pending are the numbers of shards
	// that run, and whose run is to be made again.
	LastFire         time.Time
	running, pending int
	failures         []operator.Failure // oldest first

	// The rest is known for a single job only.
	claimedTo []time.Time // by shard
	runs      []liveRuns
	again     []operator.Runs
}

// liveRuns are runs of an instance.
type liveRuns struct {
	operator.Runs
	instance string
}

// LiveOf returns the state by the status of a job.
func LiveOf(st *operator.Status) Live {
	v := Live{Shards: max(st.Shards, len(st.PerShard)), failures: st.Failures, again: st.Reruns}
	v.setSchedule(st.Schedule)
	v.claimedTo = make([]time.Time, len(st.PerShard))
	for i := range st.PerShard {
		s := &st.PerShard[i]
		v.claimedTo[i] = s.LastFire
		if s.LastFire.After(v.LastFire) {
			v.LastFire = s.LastFire
		}
	}
	for i := range st.Members {
		for _, r := range st.Members[i].Running {
			v.runs = append(v.runs, liveRuns{r, st.Members[i].Instance})
			v.running += len(r.Shards)
		}
	}
	for _, r := range st.Reruns {
		v.pending += len(r.Shards)
	}
	return v
}

// LiveOfSummary returns the state by the summary of a job in a group.
func LiveOfSummary(j *operator.JobSummary) Live {
	v := Live{Shards: j.Shards, LastFire: j.LastFire, running: j.Running, pending: j.Reruns}
	v.setSchedule(j.Schedule)
	if !j.LastFailure.At.IsZero() {
		v.failures = []operator.Failure{j.LastFailure}
	}
	return v
}

// setSchedule sets what depends on the schedule. One of a later version may not be readable.
func (v *Live) setSchedule(text string) {
	s, err := schedule.Parse(text)
	switch {
	case err != nil:
	case s.CountsEnds():
		v.ownFires = true
	case len(s.After()) == 0:
		v.schedule = &s
	}
}
