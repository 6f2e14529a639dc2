package elector

import (
	"encoding/json"
	"time"

	"github.com/rota-dev/rota/coordinator/strategy"
	"github.com/rota-dev/rota/internal/group/due"
	"github.com/rota-dev/rota/internal/group/event"
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
	Events         event.Hooks

	IsDraining           func() bool
	SetSkewed            func(skewed bool)            // stops claims while the clock is skewed
	AnswerReading        func(reading record.Instant) // publishes this clock's time as the answer to a leader's reading
	CheckRecords         func()                       // requests a check of the incarnation's own records
	ReportUncheckedClock func()
	// KeepIntents receives the control records that a leader knew at the end of its term.
	KeepIntents func(controls map[string]*record.Control, group *record.GroupControl)
}

// Fresh are the options of a linearizable read.
var Fresh = registry.ReadOptions{Fresh: true}
