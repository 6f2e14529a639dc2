package member

import (
	"container/heap"

	"github.com/rota-dev/rota/internal/record"
)

// agenda is a heap of accounts by when they want to be looked at.
type agenda []*JobState

// schedule sets when an account wants to be looked at; zero takes it off.
func (g *agenda) schedule(a *JobState, wake record.Instant) {
	a.wake = wake
	switch {
	case wake == 0 && a.index >= 0:
		heap.Remove(g, a.index)
	case wake == 0:
	case a.index >= 0:
		heap.Fix(g, a.index)
	default:
		heap.Push(g, a)
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
	a := x.(*JobState)
	a.index = len(*g)
	*g = append(*g, a)
}

// Pop is for package heap.
func (g *agenda) Pop() any {
	old := *g
	a := old[len(old)-1]
	old[len(old)-1] = nil
	*g = old[:len(old)-1]
	a.index = -1
	return a
}
