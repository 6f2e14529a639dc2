package operator

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rota-dev/rota/internal/jobname"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/scheduletext"
	"github.com/rota-dev/rota/schedule"
)

// Definition defines a job as data: the handler is that of its kind (executor.Kind), and all else is here. Fields that are zero are
// those of the kind's defaults, or else those of executor.Job.
type Definition struct {
	// Name identifies the job in its group, as executor.Job.Name does. Registered and defined jobs share their names.
	Name string
	// Kind is the name of the kind that runs the job. It stays for as long as the job exists.
	Kind string
	// KindRevision is the lowest revision of the kind that may run the job. Zero means any.
	KindRevision int
	// Schedule determines the fires. The zero value is OnTrigger.
	Schedule schedule.Schedule
	Shards   int
	// Param and ShardParams are executor.Run.Param and ShardParam, within the bounds of executor.Job.
	Param       string
	ShardParams map[int]string
	Description string
	// Policies are values of other fields, by their names in the stored definition, as in Override. A time.Duration counts as
	// its text, and a retry policy needs "max" only. Nil leaves a field out that the kind has by default. A strategy may have any name, as
	// the custom ones of instances (executor.Options.Strategies) are not on record: if the leader does not know it, shards are assigned
	// without one, and Status.Problem says so.
	Policies map[string]any
	// StartPaused makes the job wait for Operator.Resume when it is created. It has no effect on one that exists.
	StartPaused bool
	// DeleteAfter is how long the job stays after its last run once its schedule has no further fire, unless that run failed. Zero
	// means an hour; a negative value means for ever. A job on trigger stays. No job is deleted earlier than five minutes after the
	// leader has found that it has no further fire.
	DeleteAfter time.Duration
}

// createdBytes is the length of record.NewToken, which names a creation.
const createdBytes = 13

// MaxDefinitionBytes bounds the JSON of a defined job's definition, parameters included.
const MaxDefinitionBytes = 16 << 10

// fields are the fields of a definition by their names in the record. No value is null.
type fields map[string]json.RawMessage

// identity are the names of the fields that no kind has by default.
var identity = []string{"name", "kind", "kind_revision", "created", "revision"}

// defaultFields are those of executor.Job that every stored definition has.
var defaultFields = fields{
	"max_attempts": json.RawMessage(fmt.Sprint(record.DefaultMaxAttempts)),
	"on_crash":     json.RawMessage(`"` + record.CrashRerun + `"`),
	"on_misfire":   json.RawMessage(`"run once"`),
	"schedule":     json.RawMessage(`"on trigger"`),
	"shards":       json.RawMessage(`1`),
	"strategy":     json.RawMessage(`"sticky"`),
}

// defaultRetry are the fields of executor.Retry but Max.
var defaultRetry = fields{
	"factor": json.RawMessage(`2`), "initial": json.RawMessage(`"1s"`), "jitter": json.RawMessage(`0.2`), "max_interval": json.RawMessage(`"1m"`),
}

// wanted is a definition as it is to be stored.
type wanted struct {
	name        string
	segment     string
	kind        string
	fields      fields // without created and revision, which the record decides
	schedule    schedule.Schedule
	fires       *schedule.Timetable
	deleteAfter record.Duration
}

// encodeDefinition returns a definition as it is to be stored, with the defaults of its kind, or all rules that it breaks.
func (o *Operator) encodeDefinition(d *Definition, k *record.Kind) (*wanted, []error) {
	var problems fieldErrors
	d.check(&problems)
	own, err := d.ownFields()
	problems.add("policies", err)
	all, err := mergeFields(own, k)
	problems.add("kind", err)
	if len(problems.errs) > 0 && err != nil {
		return nil, problems.errs
	}
	w := &wanted{name: d.Name, segment: record.Segment(d.Name), kind: d.Kind, fields: all, deleteAfter: max(record.Duration(d.DeleteAfter), -1)}
	if w.schedule, err = all.schedule(); err == nil {
		w.fires, err = w.schedule.Timetable()
	}
	problems.add("schedule", err)
	problems.add("retry", all.completeRetry(w.schedule.IsAlways()))
	text, err := all.encode(strings.Repeat("x", createdBytes), 1)
	if err == nil && len(text) > MaxDefinitionBytes {
		err = fmt.Errorf("has %d bytes of JSON, at most %d", len(text), MaxDefinitionBytes)
	}
	problems.add("definition", err)
	if err == nil {
		problems.addCompiled(o.compileText(text))
	}
	return w, problems.errs
}

// compileText returns the rules that the JSON of a definition breaks by the compiler, and by what planning needs.
func (o *Operator) compileText(text json.RawMessage) error {
	if _, err := o.compile(text); err != nil {
		return err
	}
	_, err := record.ParseJob(text)
	return err
}

// check reports faults that the JSON of a definition would hide.
func (d *Definition) check(problems *fieldErrors) {
	err := jobname.Check(d.Name)
	if err == nil {
		err = jobname.CheckNew(d.Name)
	}
	problems.add("name", err)
	problems.add("kind", record.CheckKindName(d.Kind))
	if d.KindRevision < 0 || uint64(d.KindRevision) > record.MaxNumber {
		problems.add("kind_revision", fmt.Errorf("%d is not from 0 to %d", d.KindRevision, uint64(record.MaxNumber)))
	}
	problems.add("param", record.CheckParam(d.Param))
	if !utf8.ValidString(d.Description) { // JSON would change it
		problems.add("description", errors.New("is not UTF-8"))
	}
	for _, shard := range slices.Sorted(maps.Keys(d.ShardParams)) {
		if !utf8.ValidString(d.ShardParams[shard]) {
			problems.add("shard_params", fmt.Errorf("that of shard %d is not UTF-8", shard))
			break
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.Policies)) {
		if !slices.Contains(policyFields, name) {
			problems.add("policies", fmt.Errorf("there is no policy %.100q; there are %s", name, strings.Join(policyFields, ", ")))
			break
		}
	}
}

// ownFields returns the fields that the definition itself has. Null ones are to be left out.
func (d *Definition) ownFields() (fields, error) {
	values := map[string]any{}
	maps.Copy(values, d.Policies)
	values["name"], values["kind"] = d.Name, d.Kind
	for name, given := range map[string]struct {
		value  any
		isZero bool
	}{
		"kind_revision": {d.KindRevision, d.KindRevision == 0},
		"schedule":      {d.Schedule.String(), d.Schedule == schedule.Schedule{}},
		"shards":        {d.Shards, d.Shards == 0},
		"param":         {d.Param, d.Param == ""},
		"shard_params":  {d.ShardParams, len(d.ShardParams) == 0},
		"description":   {d.Description, d.Description == ""},
		"start_paused":  {d.StartPaused, !d.StartPaused},
	} {
		if !given.isZero {
			values[name] = given.value
		}
	}
	own := fields{}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		text, err := encodeValue(values[name])
		if err != nil {
			return own, fmt.Errorf("%s: %w", name, err)
		}
		own[name] = text
	}
	return own, nil
}

// encodeValue returns the JSON of the value of a field, in one form for equal values.
func encodeValue(v any) (json.RawMessage, error) {
	text, err := json.Marshal(textDurations(v))
	if err != nil {
		return nil, err
	}
	return canonical(text)
}

// textDurations returns v with durations in the form of definitions.
func textDurations(v any) any {
	switch v := v.(type) {
	case time.Duration:
		return scheduletext.Duration(v)
	case map[string]any:
		texts := make(map[string]any, len(v))
		for name, value := range v {
			texts[name] = textDurations(value)
		}
		return texts
	}
	return v
}

// canonical returns JSON with sorted names and without spaces.
func canonical(text json.RawMessage) (json.RawMessage, error) {
	var v any
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false) // as in all records
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSpace(out.Bytes()), nil
}

// mergeFields returns the fields of a definition, with those that its kind has by default and those that every definition has. The
// kind may be nil.
func mergeFields(own fields, k *record.Kind) (fields, error) {
	all := maps.Clone(defaultFields)
	if k != nil && len(k.Defaults) > 0 {
		var defaults fields
		if err := json.Unmarshal(k.Defaults, &defaults); err != nil {
			return nil, fmt.Errorf("the defaults of %q cannot be read: %w", k.Name, err)
		}
		for name, value := range defaults {
			value, err := canonical(value)
			if err != nil {
				return nil, fmt.Errorf("the default %s of %q cannot be read: %w", name, k.Name, err)
			}
			if !slices.Contains(identity, name) && string(value) != "null" {
				all[name] = value
			}
		}
	}
	for name, value := range own {
		all[name] = value
		if string(value) != "null" {
			continue
		}
		if delete(all, name); defaultFields[name] != nil {
			all[name] = defaultFields[name]
		}
	}
	return all, nil
}

// schedule returns the schedule of a definition.
func (f fields) schedule() (schedule.Schedule, error) {
	var text string
	if err := json.Unmarshal(f["schedule"], &text); err != nil {
		return schedule.Schedule{}, err
	}
	return schedule.Parse(text)
}

// completeRetry adds the missing fields of a retry policy, and the policy of daemons if there is none.
func (f fields) completeRetry(daemon bool) error {
	retry := fields{}
	if text, has := f["retry"]; has {
		if err := json.Unmarshal(text, &retry); err != nil {
			return err
		}
	} else if daemon {
		retry["max"] = json.RawMessage(`-1`)
	}
	if len(retry) == 0 {
		return nil
	}
	complete := maps.Clone(defaultRetry)
	maps.Copy(complete, retry)
	if _, has := retry["max_interval"]; !has {
		var initial string
		_ = json.Unmarshal(complete["initial"], &initial) // the compiler names the fault
		if d, err := time.ParseDuration(initial); err == nil && d > time.Minute {
			complete["max_interval"] = complete["initial"]
		}
	}
	text, err := record.EncodeFields(complete, nil)
	f["retry"] = text
	return err
}

// encode returns the JSON of the definition, for a creation and a revision of it.
func (f fields) encode(created string, revision int) (json.RawMessage, error) {
	all := maps.Clone(f)
	all["created"], all["revision"] = json.RawMessage(`"`+created+`"`), json.RawMessage(fmt.Sprint(revision))
	return record.EncodeFields(all, nil)
}

// storedFields returns the fields of a stored definition, without created and revision.
func storedFields(def json.RawMessage) (fields, error) {
	var all fields
	if err := json.Unmarshal(def, &all); err != nil {
		return nil, err
	}
	delete(all, "created")
	delete(all, "revision")
	return all, nil
}

// differing returns the names of the fields in which two definitions differ, sorted.
func (f fields) differing(other fields) (names []string) {
	for name, value := range f {
		if !bytes.Equal(value, other[name]) {
			names = append(names, name)
		}
	}
	for name := range other {
		if _, has := f[name]; !has {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// decodeDefinition returns a stored definition, as far as it can be read. Defaults that were filled in are among its fields.
func decodeDefinition(d *record.Defined) (Definition, error) {
	out := Definition{Name: d.Job, DeleteAfter: time.Duration(d.DeleteAfter)}
	if d.IsDeleted() {
		return out, nil
	}
	var known struct {
		Kind         string         `json:"kind"`
		KindRevision int            `json:"kind_revision"`
		Schedule     string         `json:"schedule"`
		Shards       int            `json:"shards"`
		Param        string         `json:"param"`
		ShardParams  map[int]string `json:"shard_params"`
		Description  string         `json:"description"`
		StartPaused  bool           `json:"start_paused"`
	}
	if err := json.Unmarshal(d.Definition, &known); err != nil {
		return out, err
	}
	out.Kind, out.KindRevision, out.Shards, out.StartPaused = known.Kind, known.KindRevision, known.Shards, known.StartPaused
	out.Param, out.ShardParams, out.Description = known.Param, known.ShardParams, known.Description
	var all map[string]any
	if err := json.Unmarshal(d.Definition, &all); err != nil {
		return out, err
	}
	maps.DeleteFunc(all, func(name string, _ any) bool { return name == "description" || !slices.Contains(policyFields, name) })
	out.Policies = all
	var err error
	if out.Schedule, err = schedule.Parse(cmp.Or(known.Schedule, schedule.OnTrigger().String())); err != nil {
		return out, fmt.Errorf("schedule: %w", err)
	}
	return out, nil
}

// fieldErrors are the rules that a definition breaks, one for each field.
type fieldErrors struct {
	errs  []error
	named []string
}

// add adds the rule that a field breaks, unless err is nil or the field has one.
func (f *fieldErrors) add(field string, err error) {
	if err != nil && !slices.Contains(f.named, field) {
		f.named = append(f.named, field)
		f.errs = append(f.errs, invalidArgument(fmt.Errorf("%s: %w", field, err)))
	}
}

// addCompiled adds the rules that a compiler names, each with its field before a colon.
func (f *fieldErrors) addCompiled(err error) {
	for _, err := range splitJoined(err) {
		field, _, _ := strings.Cut(err.Error(), ":")
		if !slices.Contains(f.named, field) && field != "created" { // which is refused because the kind is missing
			f.errs = append(f.errs, invalidArgument(err))
		}
	}
}

// splitJoined returns the errors that err joins, or err alone.
func splitJoined(err error) []error {
	for e := err; e != nil; e = errors.Unwrap(e) {
		if joined, ok := e.(interface{ Unwrap() []error }); ok {
			return joined.Unwrap()
		}
	}
	if err == nil {
		return nil
	}
	return []error{err}
}
