package acts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/view"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/schedule"
)

// DefinitionOf returns the definition that has these fields, which are those of an override. A nil policy leaves out what the kind has by
// default. The caller sets the other fields.
func DefinitionOf(fields map[string]any) (operator.Definition, error) {
	if err := checkKeys(fields); err != nil {
		return operator.Definition{}, err
	}
	ov, err := overrideOf(fields)
	if err != nil {
		return operator.Definition{}, err
	}
	d := operator.Definition{Shards: ov.Shards, ShardParams: ov.ShardParams, Policies: ov.Policies}
	if ov.Param != nil {
		d.Param = *ov.Param
	}
	if ov.Schedule != "" {
		d.Schedule, err = schedule.Parse(ov.Schedule)
	}
	return d, err
}

// Define defines a job and returns the change. The job as it was before is for the result alone, so a change between the two calls does
// no harm.
func Define(ctx context.Context, op *operator.Operator, def *operator.Definition, options ...operator.DefineOption) (view.DefineChange, error) {
	before, err := op.Definition(ctx, def.Name)
	if err != nil && !errors.Is(err, operator.ErrUnknownJob) && !errors.Is(err, operator.ErrRegistered) {
		return view.DefineChange{}, err
	}
	r, err := op.Define(ctx, *def, options...)
	return DescribeDefine(&before, def, r), err
}

// DescribeDefine returns the change that a Define has made, or would make. Before is the job as it is defined, zero if it is not.
func DescribeDefine(before *operator.DefinedJob, after *operator.Definition, r operator.DefineResult) view.DefineChange {
	c := view.DefineChange{Job: r.Name, Outcome: r.Outcome, Revision: r.Revision, NextFire: r.NextFire}
	now, old := textsOfDefinition(after), textsOfDefinition(&before.Definition)
	changed := r.Changed
	if r.Outcome == operator.DefineCreated {
		changed, old = slices.Sorted(maps.Keys(now)), nil
	}
	for _, field := range changed {
		f := view.FieldChange{Field: field, Before: old[field], After: now[field]}
		if field == "param" || field == "shard_params" {
			f.Before, f.After = "", ""
		}
		c.Fields = append(c.Fields, f)
	}
	return c
}

// textsOfDefinition returns the fields that a definition has, but its name, as texts.
func textsOfDefinition(d *operator.Definition) map[string]string {
	texts := map[string]string{}
	for field, value := range d.Policies {
		texts[field] = textOf(value)
	}
	for field, given := range map[string]struct {
		value  any
		isZero bool
	}{
		"kind":          {d.Kind, d.Kind == ""},
		"kind_revision": {d.KindRevision, d.KindRevision == 0},
		"schedule":      {d.Schedule.String(), d.Kind == ""}, // the zero one is on trigger
		"shards":        {d.Shards, d.Shards == 0},
		"param":         {d.Param, d.Param == ""},
		"shard_params":  {d.ShardParams, len(d.ShardParams) == 0},
		"description":   {d.Description, d.Description == ""},
		"start_paused":  {d.StartPaused, !d.StartPaused},
		"delete_after":  {d.DeleteAfter, d.DeleteAfter == 0},
	} {
		if !given.isZero {
			texts[field] = textOf(given.value)
		}
	}
	if d.DeleteAfter < 0 {
		texts["delete_after"] = "never"
	}
	return texts
}

// textOf returns the text of a value: itself, or JSON.
func textOf(value any) string {
	switch v := value.(type) {
	case nil:
		return ""
	case string:
		return v
	case time.Duration:
		return v.String()
	}
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value)
	}
	return string(text)
}
