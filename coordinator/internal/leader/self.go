package leader

import (
	"encoding/json"
	"sync"
	"time"

	"github.com/rota-dev/rota/coordinator/internal/due"
	"github.com/rota-dev/rota/coordinator/strategy"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// Self is the incarnation for which an elector and its leaders act. Its functions must not block.
type Self struct {
	ID         string // the incarnation
	Name       string // the instance
	Session    registry.Session
	JoinCommit uint64 // the commit that created its records

	Reg            registry.Registry
	Keys           record.Keys
	Clock          func() time.Time // of day
	MaxSkew        time.Duration
	ComparesClocks bool
	Strategies     map[string]strategy.Func // by name, with the built-in ones
	Compile        func(def json.RawMessage) (due.Program, error)
	Planning       *PlanningCalls

	IsDraining           func() bool
	SetSkewed            func(skewed bool)            // stops claims while the clock is skewed
	AnswerReading        func(reading record.Instant) // publishes this clock's time as the answer to a leader's reading
	CheckRecords         func()                       // requests a check of the incarnation's own records
	ReportUncheckedClock func()
}

// fresh are the options of a linearizable read.
var fresh = registry.ReadOptions{Fresh: true}

// PlanningCalls counts the calls of the planning function in a process, across incarnations. A
// strategy that does not return outlives the term that called it.
type PlanningCalls struct {
	mu       sync.Mutex
	running  int
	OnReturn func() // called after a call has returned; must not block
}

func (p *PlanningCalls) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running++
}

func (p *PlanningCalls) end() {
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
