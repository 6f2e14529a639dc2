// Package acts is the table of what operators may do: the command, the console and its HTTP API ask by it, so that each act has one
// form, one check and one answer.
package acts

import (
	"context"
	"time"

	"github.com/rota-dev/rota/internal/view"
	"github.com/rota-dev/rota/operator"
)

// Verbs are all acts.
var Verbs []Verb

// Target is what an act is on.
type Target string

// Targets of acts.
const (
	OnJob      Target = "job"
	OnGroup    Target = "group"
	OnInstance Target = "instance"
)

// Request holds the arguments of an act. Each Verb says which of them it reads.
type Request struct {
	Job       string    `json:"job,omitempty"`
	Instances []string  `json:"instances,omitempty"`
	Hosts     []string  `json:"hosts,omitempty"`
	Shards    []int     `json:"shards,omitempty"`
	Param     *string   `json:"param,omitempty"`
	Fire      time.Time `json:"fire,omitzero"`
	From      time.Time `json:"from,omitzero"`
	To        time.Time `json:"to,omitzero"`
	Until     time.Time `json:"until,omitzero"`
	Parallel  int       `json:"parallel,omitempty"`
	Total     int       `json:"total,omitempty"`
	Again     bool      `json:"again,omitempty"`
}

// Field is an argument that a form asks for.
type Field struct {
	Name     string // as in the JSON of Request
	Label    string
	Help     string
	Required bool
}

// Verb is an act.
type Verb struct {
	Name    string // as the command has it
	On      Target
	Short   string // what it does, in a line
	Fields  []Field
	Confirm func(Request) string // what is about to happen, as a question would state it
	Do      func(ctx context.Context, op *operator.Operator, r Request) (view.Done, error)
}
