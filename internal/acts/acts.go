// Package acts is the table of the acts of operators. The command, the console and its HTTP API parse their input into a Request and
// act by the table, so that each act has one form, one check and one answer.
package acts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
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

// Origin is where a job comes from.
type Origin string

// Origins of jobs.
const (
	Registered Origin = "registered" // by a process, in code
	Defined    Origin = "defined"    // as data
)

// Request holds the target and the arguments of an act. A Verb reads its target and its Fields, and refuses others.
type Request struct {
	Job          string         `json:"job,omitempty"`      // the target of acts on a job
	Instance     string         `json:"instance,omitempty"` // the target of acts on an instance
	Shards       []int          `json:"shards,omitempty"`
	Instances    []string       `json:"instances,omitempty"`
	Hosts        []string       `json:"hosts,omitempty"`
	Param        *string        `json:"param,omitempty"`
	Fire         time.Time      `json:"fire,omitzero"`
	Total        int            `json:"total,omitempty"` // the number of shards at the Fire
	From         time.Time      `json:"from,omitzero"`
	To           time.Time      `json:"to,omitzero"`
	Until        time.Time      `json:"until,omitzero"`
	Parallel     int            `json:"parallel,omitempty"`
	Again        bool           `json:"again,omitempty"`
	ScheduleOnly bool           `json:"schedule_only,omitempty"`
	Fields       map[string]any `json:"fields,omitempty"` // of a definition, by their names there; see overrideKeys. Nil is the default
	Clear        []string       `json:"clear,omitempty"`  // names of such fields
	ClearAll     bool           `json:"clear_all,omitempty"`
	Pool         string         `json:"pool,omitempty"`
	Size         *int           `json:"size,omitempty"` // of the Pool

	// Of a job that is defined as data.
	Kind             string `json:"kind,omitempty"`
	KindRevision     int    `json:"kind_revision,omitempty"`
	In               string `json:"in,omitempty"` // the zone of a schedule without one
	StartPaused      bool   `json:"start_paused,omitempty"`
	DeleteAfter      string `json:"delete_after,omitempty"` // see ParseDeleteAfter
	NoDefaults       bool   `json:"no_defaults,omitempty"`
	KeepParams       bool   `json:"keep_params,omitempty"`
	IfAbsent         bool   `json:"if_absent,omitempty"`
	IfRevision       int    `json:"if_revision,omitempty"`
	AllowUnknownKind bool   `json:"allow_unknown_kind,omitempty"`
	AllowNoFires     bool   `json:"allow_no_fires,omitempty"`
	CancelRuns       bool   `json:"cancel_runs,omitempty"`
}

// Kind is the kind of a Field: how a form asks for it, and how Parse reads the text.
type Kind string

// Kinds of fields.
const (
	Text     Kind = "text"
	Lines    Kind = "lines"    // text that may have line breaks
	Shards   Kind = "shards"   // shards and ranges, as 3,7-9
	Names    Kind = "names"    // names separated by commas or line breaks, or several values
	Instant  Kind = "instant"  // as instant.Parse reads it, of the past
	Until    Kind = "until"    // an instant of the future, or a duration from now on
	Duration Kind = "duration" // as 90s
	Number   Kind = "number"   // a whole number from 1 on
	Count    Kind = "count"    // a whole number from 0 on
	Switch   Kind = "switch"   // set by any text
	Choice   Kind = "choice"   // one of Choices
	Pairs    Kind = "pairs"    // a line KEY=VALUE for each key
)

// Field is an argument that a form asks for.
type Field struct {
	Name     string // as in the JSON of Request
	Kind     Kind
	Label    string
	Help     string
	Required bool
	Secret   bool     // neither pages nor logs repeat the value
	Choices  []string // of a Choice
	Keys     []Field  // the keys of Pairs that a form may ask for one by one, as NAME.KEY
}

// Verb is an act.
type Verb struct {
	Name   string // as the command has it
	On     Target
	Origin Origin // of the jobs that it is for; empty: all
	Short  string // the act in a line, without a full stop
	Fields []Field
	// Confirm returns the effect, to complete "This will ...". It is nil for an act that needs no question.
	Confirm func(Request) string
	// Do checks the request and acts. Act.By and Act.Reason are those of Operator.As.
	Do doFunc

	check func(Request) error // what Fields cannot express; nil for most
}

type doFunc = func(context.Context, *operator.Operator, Request) (view.Done, error)

// FieldError is an argument that is missing or wrong. It is an operator.ErrInvalidArgument.
type FieldError struct {
	Field string // as in the JSON of Request
	Err   error  // the rule that it breaks
}

// Error returns the field and the rule.
func (e *FieldError) Error() string { return e.Field + ": " + e.Err.Error() }

// Unwrap returns the rule.
func (e *FieldError) Unwrap() error { return e.Err }

// Is reports whether target is operator.ErrInvalidArgument.
func (e *FieldError) Is(target error) bool { return target == operator.ErrInvalidArgument }

func wrongf(field, format string, args ...any) error {
	return &FieldError{field, fmt.Errorf(format, args...)}
}

// Find returns the act of a name on a target.
func Find(name string, on Target) (Verb, bool) {
	i := slices.IndexFunc(Verbs, func(v Verb) bool { return v.Name == name && v.On == on })
	if i < 0 {
		return Verb{}, false
	}
	return Verbs[i], true
}

// For returns a request of v on the job or the instance of a name. The name is unused for an act on the group.
func (v *Verb) For(name string) Request {
	switch v.On {
	case OnJob:
		return Request{Job: name}
	case OnInstance:
		return Request{Instance: name}
	case OnGroup:
	}
	return Request{}
}

// Check returns a FieldError for an argument that is missing, wrong without a look at the fleet, or not read by v.
func (v *Verb) Check(r Request) error {
	missing := errors.New("it is missing")
	for name, value := range fieldsOf(&r) {
		f, declared := v.field(name)
		switch {
		case declared && f.Required && value.IsZero():
			return &FieldError{name, missing}
		case !declared && !value.IsZero():
			return wrongf(name, "%s of a %s has no such argument", v.Name, v.On)
		case value.Kind() == reflect.Slice && !value.IsNil() && value.Len() == 0:
			return wrongf(name, "the list is empty; leave it out for the default")
		case value.Kind() == reflect.Int && value.Int() < 0:
			return wrongf(name, "it is below 1")
		}
	}
	if v.check == nil {
		return nil
	}
	return v.check(r)
}

// field returns the declaration of a field of Request, also of the target.
func (v *Verb) field(name string) (Field, bool) {
	if name == string(v.On) {
		return Field{Name: name, Required: true}, true
	}
	i := slices.IndexFunc(v.Fields, func(f Field) bool { return f.Name == name })
	if i < 0 {
		return Field{}, false
	}
	return v.Fields[i], true
}

// fieldsOf yields the fields of a request by their names in JSON.
func fieldsOf(r *Request) func(yield func(string, reflect.Value) bool) {
	return func(yield func(string, reflect.Value) bool) {
		for f, value := range reflect.ValueOf(r).Elem().Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if !yield(name, value) {
				return
			}
		}
	}
}

// Verbs are all acts, in the order in which a page offers them.
var Verbs = checked(verbs)

// checked returns verbs whose Do checks the request, and completes the result.
func checked(verbs []Verb) []Verb {
	verbs = slices.Clone(verbs)
	for i := range verbs {
		v := verbs[i]
		verbs[i].Do = func(ctx context.Context, op *operator.Operator, r Request) (view.Done, error) {
			if err := v.Check(r); err != nil {
				return view.Done{}, err
			}
			d, err := v.Do(ctx, op, r)
			if err != nil {
				return view.Done{}, err
			}
			d.Version, d.Verb, d.Jobs = view.Version, cmp.Or(d.Verb, v.Name), []string{}
			if r.Job != "" {
				d.Jobs = []string{r.Job}
			}
			return d, nil
		}
	}
	return verbs
}
