package elector

import (
	"github.com/rota-dev/rota/internal/mutex"
)

// PlanningCalls counts the calls of the planning function in a process, across incarnations. A
// strategy that does not return outlives the term that called it.
type PlanningCalls struct {
	mu       mutex.Mutex
	running  int
	OnReturn func() // called after a call has returned; must not block
}

func (p *PlanningCalls) Begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running++
}

func (p *PlanningCalls) End() {
	p.mu.Lock()
	p.running--
	p.mu.Unlock()
	if p.OnReturn != nil {
		p.OnReturn()
	}
}

// noneRuns reports whether all calls have returned.
func (p *PlanningCalls) noneRuns() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.running == 0
}
