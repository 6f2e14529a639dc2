package claimer

import (
	"container/heap"

	"github.com/rota-dev/rota/internal/record"
)

// agenda is a heap of jobs, ordered by the instants at which they are due for a decision.
type agenda []*JobState

// schedule sets the instant of a job; zero removes the job.
func (g *agenda) schedule(j *JobState, wake record.Instant) {
	j.wake = wake
	switch {
	case wake == 0 && j.index >= 0:
		heap.Remove(g, j.index)
	case wake == 0:
	case j.index >= 0:
		heap.Fix(g, j.index)
	default:
		heap.Push(g, j)
	}
}

func (g agenda) Len() int { return len(g) }

func (g agenda) Less(i, j int) bool { return g[i].wake < g[j].wake }

func (g agenda) Swap(i, j int) {
	g[i], g[j] = g[j], g[i]
	g[i].index, g[j].index = i, j
}

// Push is for package heap.
func (g *agenda) Push(x any) {
	j := x.(*JobState)
	j.index = len(*g)
	*g = append(*g, j)
}

// Pop is for package heap.
func (g *agenda) Pop() any {
	old := *g
	j := old[len(old)-1]
	old[len(old)-1] = nil
	*g = old[:len(old)-1]
	j.index = -1
	return j
}
