// Package acts is the table of what operators may do, for front ends that have forms: the console and its HTTP API. Each act has one
// check and one answer.
package acts

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/view"
	"github.com/rota-dev/rota/operator"
)

// Target is what an act is on.
type Target string

// Targets of acts.
const (
	OnJob      Target = "job"
	OnGroup    Target = "group"
	OnInstance Target = "instance"
)

// Request holds the arguments of an act. A Verb reads its target and its Fields, and Check refuses others.
type Request struct {
	Job      string    `json:"job,omitempty"`
	Instance string    `json:"instance,omitempty"`
	Shards   []int     `json:"shards,omitempty"`
	Param    *string   `json:"param,omitempty"`
	Fire     time.Time `json:"fire,omitzero"`
	From     time.Time `json:"from,omitzero"`
	To       time.Time `json:"to,omitzero"`
	Until    time.Time `json:"until,omitzero"`
	Parallel int       `json:"parallel,omitempty"`
	Again    bool      `json:"again,omitempty"`
	Schedule string    `json:"schedule,omitempty"`
	Count    int       `json:"count,omitempty"`
	Clear    bool      `json:"clear,omitempty"`
}

// Kind is the kind of a field.
type Kind string

// Kinds of fields.
const (
	Text    Kind = "text"
	Shards  Kind = "shards"
	Instant Kind = "instant"
	Number  Kind = "number"
	Switch  Kind = "switch"
)

// Field is an argument that a form asks for.
type Field struct {
	Name     string // as in the JSON of Request
	Kind     Kind
	Label    string
	Help     string
	Required bool
	Secret   bool // its value is not repeated in pages and logs
}

// Verb is an act. Do expects a request that Check accepts.
type Verb struct {
	Name    string // as the command has it
	On      Target
	Short   string // what it does, in a sentence without a full stop
	Warning string // what cannot be undone; empty for most
	Fields  []Field
	Do      func(ctx context.Context, op *operator.Operator, r Request) (view.Done, error)
}

// Find returns the act of a name on a target.
func Find(name string, on Target) (Verb, bool) {
	i := slices.IndexFunc(Verbs, func(v Verb) bool { return v.Name == name && v.On == on })
	if i < 0 {
		return Verb{}, false
	}
	return Verbs[i], true
}

// Check returns an error that names the field that is missing, or that the act does not read.
func (v Verb) Check(r Request) error {
	if v.On == OnJob && r.Job == "" || v.On == OnInstance && r.Instance == "" {
		return fmt.Errorf("%s: name the %s", v.Name, v.On)
	}
	given := r.given()
	for _, f := range v.Fields {
		if f.Required && !given[f.Name] {
			return fmt.Errorf("%s: %s is missing", v.Name, f.Name)
		}
		delete(given, f.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		return fmt.Errorf("%s takes no %s", v.Name, name)
	}
	return nil
}

// given returns the fields that are set, but the target.
func (r Request) given() map[string]bool {
	given := map[string]bool{}
	for name, set := range map[string]bool{
		"shards": r.Shards != nil, "param": r.Param != nil, "fire": !r.Fire.IsZero(), "from": !r.From.IsZero(), "to": !r.To.IsZero(),
		"until": !r.Until.IsZero(), "parallel": r.Parallel != 0, "again": r.Again, "schedule": r.Schedule != "", "count": r.Count != 0,
		"clear": r.Clear,
	} {
		if set {
			given[name] = true
		}
	}
	return given
}
