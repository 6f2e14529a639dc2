// Package recordedit defines the record edits that tests make behind a fleet's back: which kinds of
// records there are, under which keys, and how each is changed. docs/protocol/record-edits.md
// states the reaction of a fleet.
package recordedit

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// Kind is a kind of record.
type Kind string

// The kinds of records.
const (
	Meta         Kind = "meta"
	Instance     Kind = "instance"
	Leader       Kind = "leader"
	Seat         Kind = "seat"
	Member       Kind = "member"
	Job          Kind = "job"
	Control      Kind = "control"
	GroupControl Kind = "group-control"
	Plan         Kind = "plan"
	Claims       Kind = "claims"
)

// Kinds are all kinds of records.
var Kinds = []Kind{Meta, Instance, Leader, Seat, Member, Job, Control, GroupControl, Plan, Claims}

// Change is what an edit does to a record.
type Change string

// The changes of records.
const (
	Delete   Change = "delete"
	Garbage  Change = "garbage"  // overwrite it with bytes that are no JSON
	Invalid  Change = "invalid"  // overwrite it with JSON whose values no record has
	RollBack Change = "rollback" // write an older value again
)

// Changes are all changes.
var Changes = []Change{Delete, Garbage, Invalid, RollBack}

// InvalidInstance is the instance that records written by Invalid name.
const InvalidInstance = "invalid"

const (
	garbage = "garbage {"

	// invalid has the field types of every kind of record, so that only checks of values refuse it.
	invalid = `{"format":-7,"fence_base":0,"incarnation":"` + InvalidInstance + `.none","session":"none","name":"","job":"","jobs":["",""],` +
		`"shards":-3,"revision":-9,"owners":{"":"0-9999"},"epochs":[],"weight":-5,"successors":["","."],"triggers":[{"number":0}],"last_trigger":0}`
)

// Edit is an edit of one record.
type Edit struct {
	Kind   Kind
	Change Change
	Key    registry.Key
	Job    string // of the record; "" if the record belongs to none or to all
}

func (e Edit) String() string { return fmt.Sprintf("%s %s", e.Change, e.Key) }

// ID returns kind and change.
func (e Edit) ID() string { return string(e.Kind) + ", " + string(e.Change) }

// SetKey sets key and job of the edit. Kinds that belong to no job ignore job, and those that
// belong to no incarnation ignore incarnation, NAME.SESSION.
func (e *Edit) SetKey(keys record.Keys, job, incarnation string) {
	e.Job = ""
	switch e.Kind {
	case Meta:
		e.Key = keys.Meta()
	case Leader:
		e.Key = keys.Leader()
	case Seat:
		e.Key = keys.Seat()
	case GroupControl:
		e.Key = keys.GroupControl()
	case Instance:
		e.Key = keys.Instance(incarnation[:strings.LastIndexByte(incarnation, '.')])
	case Member:
		e.Key = keys.Member(incarnation)
	case Job:
		e.Key, e.Job = keys.Job(job), job
	case Control:
		e.Key, e.Job = keys.Control(job), job
	case Plan:
		e.Key, e.Job = keys.Plan(job), job
	case Claims:
		e.Key, e.Job = keys.Claims(incarnation, job), job
	}
}

// OfIncarnation reports whether each incarnation has a record of the kind.
func (k Kind) OfIncarnation() bool { return k == Instance || k == Member || k == Claims }

// Op returns the operation that makes the edit. older are earlier values of the record, of which
// pick chooses one; ok is false if a roll back has none that differs from the current value.
func (e Edit) Op(current registry.Entry, older []string, pick func(n int) int) (op registry.Op, ok bool) {
	set := func(value string) registry.Op { return registry.Set(e.Key, current.Modified, []byte(value)) }
	switch e.Change {
	case Delete:
		return registry.Delete(e.Key, current.Modified), true
	case Garbage:
		return set(garbage), true
	case Invalid:
		return set(invalid), true
	}
	older = slices.DeleteFunc(slices.Clone(older), func(v string) bool { return v == string(current.Value) })
	if len(older) == 0 {
		return op, false
	}
	return set(older[pick(len(older))]), true
}

// IsUnreadable reports whether a value that the edit wrote does not decode as the record of its key.
// Rota does not use the values of the kinds that are missing here.
func (e Edit) IsUnreadable(value []byte) bool {
	if e.Change != Garbage && e.Change != Invalid {
		return false
	}
	job, err := e.Job, error(nil)
	switch e.Kind {
	case Meta:
		_, err = record.DecodeMeta(value)
	case Job:
		_, _, err = record.DecodeDefinition(value)
	case GroupControl:
		_, err = record.DecodeGroupControl(value)
	case Plan:
		_, err = record.DecodePlan(value)
	case Control:
		var c *record.Control
		if c, err = record.DecodeControl(value); err == nil {
			job = c.Job
		}
	case Claims:
		var c record.Claims
		c, err = record.DecodeClaims(value)
		job = c.Job
	}
	return err != nil || job != e.Job
}

// SeparatesRuns reports whether the record keeps runs of its job apart, so that the edit excuses
// doubled runs.
func (e Edit) SeparatesRuns() bool { return e.Kind == Plan || e.Kind == Claims }

// IsWrittenValue reports whether a value was written by an edit that does not roll back.
func IsWrittenValue(value []byte) bool { return string(value) == garbage || string(value) == invalid }
