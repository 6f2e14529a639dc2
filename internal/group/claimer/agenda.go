package claimer

import (
	"github.com/rota-dev/rota/internal/heap"
	"github.com/rota-dev/rota/internal/record"
)

// agenda is the jobs by the instants at which they are due for a decision.
type agenda struct {
	jobs heap.Heap[*JobState, byWake]
}

// schedule sets the instant of a job; zero removes the job.
func (g *agenda) schedule(j *JobState, wake record.Instant) {
	j.wake = wake
	g.jobs.Keep(j, wake != 0)
}

type byWake struct{}

func (byWake) Before(a, b *JobState) bool { return a.wake < b.wake }
func (byWake) Place(j *JobState) *int     { return &j.onAgenda }
