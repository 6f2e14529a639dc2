package view

import (
	"time"

	"github.com/rota-dev/rota/operator"
)

// Events are what happened in a group, the latest first.
type Events struct {
	Version int              `json:"version"`
	At      time.Time        `json:"at"`
	Events  []operator.Event `json:"events"`
}

// Screen returns the table of the events.
func (v Events) Screen(t Times) Screen {
	table := Table{Columns: columns("WHEN", "KIND", "~ON", "~BY", "~WHAT", "~WHY")}
	for i := range v.Events {
		e := &v.Events[i]
		on := e.Job
		switch {
		case e.Instance != "":
			on = "-"
		case on == "":
			on = allJobs
		}
		table.Rows = append(table.Rows, []string{t.At(e.At), string(e.Kind), on, orDash(e.By), e.What, orDash(e.Reason)})
	}
	return Screen{table.orLine("nothing on record")}
}

// Names returns nothing: events have no names.
func (v Events) Names() []string { return nil }

// Items returns the events.
func (v Events) Items() []any { return itemsOf(v.Events) }
