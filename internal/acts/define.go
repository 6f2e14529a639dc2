package acts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/view"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/schedule"
)

// defineFields are the arguments of define.
var defineFields = []Field{
	{Name: "kind", Kind: Text, Label: "Kind", Help: "of the job, for as long as it exists", Required: true},
	{Name: "fields", Kind: Pairs, Label: "Definition", Help: "an empty field is as the kind has it by default", Secret: true, Keys: defineKeys},
	{Name: "in", Kind: Text, Label: "Time zone", Help: "of a cron or quartz schedule that names none, such as Europe/Berlin"},
	{Name: "kind_revision", Kind: Number, Label: "Revision of the kind", Help: "the lowest one that may run the job"},
	{Name: "delete_after", Kind: Text, Label: "Delete after", Help: "a duration such as 24h, from the last run of a schedule that has ended on, or never; empty for 1h"},
	{Name: "start_paused", Kind: Switch, Label: "Start paused", Help: "if the job is created"},
	{Name: "no_defaults", Kind: Switch, Label: "No defaults", Help: "an empty policy is off, also if the kind has one by default"},
	{Name: "keep_params", Kind: Switch, Label: "Keep parameters", Help: "those that are left empty stay as they are on record"},
	{Name: "if_absent", Kind: Switch, Label: "Only create", Help: "refused if the job is defined"},
	{Name: "if_revision", Kind: Number, Label: "Only change revision", Help: "refused if the job has another one by now"},
	{Name: "allow_unknown_kind", Kind: Switch, Label: "Accept an unknown kind", Help: "that no process has stored yet"},
	{Name: "allow_no_fires", Kind: Switch, Label: "Accept no fires", Help: "a schedule without a fire from now on"},
}

// defineKeys are the fields of a definition, as define asks for them.
var defineKeys = func() []Field {
	keys := slices.Clone(definitionKeys)
	for i := range keys {
		if keys[i].Name == "schedule" {
			keys[i].Required, keys[i].Help = true, "such as cron 0 4 * * * in Asia/Shanghai, every 1h, at 2030-01-02T09:00:00Z, on trigger"
		}
	}
	return keys
}()

// checkDefine checks a definition as far as that needs no fleet.
func checkDefine(r Request) error {
	switch {
	case r.IfAbsent && (r.IfRevision > 0 || r.KeepParams):
		return wrongf("if_absent", "it excludes if_revision and keep_params")
	case r.Fields["schedule"] == nil: // the job of a forgotten field would never run
		return wrongf("fields.schedule", "it is missing; on trigger is for a job without fires")
	}
	_, err := r.definition()
	return err
}

// definition returns the definition that a request has.
func (r *Request) definition() (operator.Definition, error) {
	def, err := DefinitionOf(r.Fields)
	if err != nil {
		return def, &FieldError{fieldsWith(firstWord.FindString(err.Error())), err}
	}
	if r.In != "" {
		def.Schedule = def.Schedule.In(r.In)
		if _, err := def.Schedule.Timetable(); err != nil {
			return def, &FieldError{"in", err}
		}
	}
	if def.DeleteAfter, err = ParseDeleteAfter(r.DeleteAfter); err != nil {
		return def, &FieldError{"delete_after", err}
	}
	if r.NoDefaults {
		policies := map[string]any{}
		for _, name := range overrideNames {
			if !slices.Contains(ownFields, name) {
				policies[name] = def.Policies[name]
			}
		}
		def.Policies = policies
	}
	def.Name, def.Kind, def.KindRevision, def.StartPaused = r.Job, r.Kind, r.KindRevision, r.StartPaused
	return def, nil
}

// ownFields are the fields of an operator.Definition that are not among its policies.
var ownFields = []string{"schedule", "shards", "param", "shard_params"}

// never is the text of a negative Definition.DeleteAfter.
const never = "never"

// ParseDeleteAfter parses the text of a Definition.DeleteAfter: a duration, never, or empty for the default.
func ParseDeleteAfter(text string) (time.Duration, error) {
	switch text {
	case "":
		return 0, nil
	case never:
		return -1, nil
	}
	d, err := time.ParseDuration(text)
	switch {
	case err != nil:
		return 0, errors.New("it is neither a duration nor never")
	case d <= 0:
		return 0, errors.New("it is not above 0")
	}
	return d, nil
}

// TextOfDeleteAfter is the inverse of ParseDeleteAfter.
func TextOfDeleteAfter(d time.Duration) string {
	switch {
	case d < 0:
		return never
	case d == 0:
		return ""
	}
	return d.String()
}

// FormOf returns the values of the form of define, by the names of its fields, that would change nothing of a job. They keep its
// parameters, which are not among them.
func FormOf(j *operator.DefinedJob) map[string]string {
	d := &j.Definition
	form := map[string]string{
		"kind": d.Kind, "fields.schedule": d.Schedule.String(), "fields.shards": strconv.Itoa(d.Shards), "fields.description": d.Description,
		"delete_after": TextOfDeleteAfter(d.DeleteAfter), "if_revision": strconv.Itoa(j.Revision), "no_defaults": "yes", "keep_params": "yes",
	}
	if d.KindRevision > 0 {
		form["kind_revision"] = strconv.Itoa(d.KindRevision)
	}
	if d.StartPaused {
		form["start_paused"] = "yes"
	}
	for name, value := range d.Policies {
		object, ok := value.(map[string]any)
		if !ok {
			form["fields."+name] = textOf(value)
			continue
		}
		var lines []string
		for _, key := range slices.Sorted(maps.Keys(object)) {
			lines = append(lines, key+"="+textOf(object[key]))
		}
		form["fields."+name] = strings.Join(lines, "\n")
	}
	return form
}

func define(ctx context.Context, op *operator.Operator, r Request) (view.Done, error) {
	def, err := r.definition()
	if err != nil {
		return view.Done{}, err
	}
	if r.KeepParams {
		if r.IfRevision, err = keepParams(ctx, op, &def, r); err != nil {
			return view.Done{}, err
		}
	}
	var options []operator.DefineOption
	if r.IfRevision > 0 {
		options = append(options, operator.IfRevision(r.IfRevision))
	}
	if r.IfAbsent {
		options = append(options, operator.IfAbsent())
	}
	if r.AllowUnknownKind {
		options = append(options, operator.AllowUnknownKind())
	}
	if r.AllowNoFires {
		options = append(options, operator.AllowNoFires())
	}
	change, err := Define(ctx, op, &def, options...)
	if err != nil {
		return view.Done{}, nameField(err)
	}
	d := said("%s %s: revision %d", change.Outcome, change.Job, change.Revision)
	if change.Outcome == operator.DefineUnchanged {
		d = unchanged("%s is unchanged: revision %d", change.Job, change.Revision)
	} else if !change.NextFire.IsZero() {
		d.Text += ", next fire " + change.NextFire.UTC().Format(time.RFC3339Nano)
	}
	d.Change = change
	return d, nil
}

// keepParams completes a definition with the parameters on record that the request leaves out, and returns the revision that has them:
// another one may have others.
func keepParams(ctx context.Context, op *operator.Operator, def *operator.Definition, r Request) (revision int, err error) {
	old, err := op.Definition(ctx, def.Name)
	switch {
	case err != nil:
		return 0, err
	case old.State == operator.DefinedDeleting:
		return 0, fmt.Errorf("keep_params: %w: %q is deleted", operator.ErrUnknownJob, def.Name)
	case r.IfRevision > 0 && r.IfRevision != old.Revision:
		return 0, fmt.Errorf("%w: it has revision %d, and %d was expected", operator.ErrOtherRevision, old.Revision, r.IfRevision)
	}
	if _, given := r.Fields["param"]; !given {
		def.Param = old.Definition.Param
	}
	if _, given := r.Fields["shard_params"]; !given {
		def.ShardParams = old.Definition.ShardParams
	}
	return old.Revision, nil
}

// nameField returns an error of Define that names fields of the definition as a FieldError of the first one. Others are returned as they are.
func nameField(err error) error {
	var first string
	var rules []string
	for _, e := range ErrorsByJob(err) {
		field, rule := FieldOf(e.Err)
		if word := firstWord.FindString(rule); field == "" && slices.Contains(overrideNames, word) {
			field = word
		}
		if field == "" || !errors.Is(e.Err, operator.ErrInvalidArgument) {
			return err
		}
		if field == "name" {
			field = "job"
		} else if !slices.ContainsFunc(defineFields, func(f Field) bool { return f.Name == field }) {
			field = fieldsWith(field)
		}
		if rules = append(rules, rule); first == "" {
			first = field
		} else {
			rules[len(rules)-1] = field + ": " + rule
		}
	}
	return wrongf(first, "%s", strings.Join(rules, "; "))
}

// fieldsWith returns the name of a field of a definition in a request, or of all fields if there is no such one.
func fieldsWith(name string) string {
	if slices.Contains(overrideNames, name) {
		return "fields." + name
	}
	return "fields"
}

// firstWord matches the name with which errors about a field begin that have no colon after it.
var firstWord = regexp.MustCompile(`^[a-z_]*`)

// ofField matches an error of a definition and captures the field.
var ofField = regexp.MustCompile(`^([a-z_]+): `)

// FieldOf returns the field that an error of a definition names, "" for none, and the rule.
func FieldOf(err error) (field, rule string) {
	rule = err.Error()
	if m := ofField.FindStringSubmatch(rule); m != nil {
		field, rule = m[1], rule[len(m[0]):]
	}
	return field, rule
}

// ErrorsByJob returns the errors of DefineAll or DeleteAll. One that names no job has an empty name.
func ErrorsByJob(err error) (all []operator.JobError) {
	if err == nil {
		return nil
	}
	each := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		each = joined.Unwrap()
	}
	for _, err := range each {
		if e, ok := errors.AsType[*operator.JobError](err); ok {
			all = append(all, *e)
		} else {
			all = append(all, operator.JobError{Err: err})
		}
	}
	return all
}

func confirmDelete(r Request) string {
	text := "delete " + r.Job + " with its counts, failures and saved states: no further run of it begins, and pending ones are dropped. Runs in progress "
	if r.CancelRuns {
		return text + "are cancelled"
	}
	return text + "finish, unless you cancel them"
}

func deleteJob(ctx context.Context, op *operator.Operator, r Request) (view.Done, error) {
	var options []operator.DeleteOption
	if r.CancelRuns {
		options = append(options, operator.CancelRuns())
	}
	err := op.Delete(ctx, r.Job, options...)
	if errors.Is(err, operator.ErrDeleting) { // it is stored
		d := said("deletes %s", r.Job)
		d.Note = "no leader has confirmed it yet; until one does, runs may begin"
		return d, nil
	}
	return said("deleted %s", r.Job), err
}

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
		"delete_after":  {TextOfDeleteAfter(d.DeleteAfter), d.DeleteAfter == 0},
	} {
		if !given.isZero {
			texts[field] = textOf(given.value)
		}
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
