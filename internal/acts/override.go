package acts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/view"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/schedule"
)

// definitionKeys are the fields of a definition that operators may set.
var definitionKeys = []Field{
	{Name: "schedule", Kind: Text, Label: "Schedule", Help: "such as cron 0 4 * * * in Asia/Shanghai"},
	{Name: "shards", Kind: Number, Label: "Number of shards"},
	{Name: "param", Kind: Lines, Label: "Parameter", Secret: true},
	{Name: "shard_params", Kind: Pairs, Label: "Parameters of shards", Help: "SHARD=VALUE", Secret: true},
	{Name: "description", Kind: Lines, Label: "Description"},
	{Name: "strategy", Kind: Text, Label: "Strategy", Help: "that assigns shards"},
	{Name: "timeout", Kind: Duration, Label: "Timeout of a run"},
	{Name: "on_crash", Kind: Choice, Label: "After a crash", Choices: textsOf(executor.RerunElsewhere, executor.CountAsFailed)},
	{Name: "on_misfire", Kind: Text, Label: "After a misfire", Help: "run once, skip missed, or run all with a limit, as run all 100"},
	{Name: "max_attempts", Kind: Number, Label: "Attempts at most"},
	{Name: "on_overlap", Kind: Choice, Label: "If a run lasts until the next fire", Help: "the default is to wait", Choices: textsOf(executor.SkipOverlapping, executor.CancelRunning)},
	{Name: "catchup_window", Kind: Duration, Label: "Catchup window"},
	{Name: "retry", Kind: Pairs, Label: "Retries of failed runs", Help: "max, initial, factor and others"},
	{Name: "tracking", Kind: Choice, Label: "Tracking", Choices: textsOf(executor.TrackRuns, executor.TrackClaims)},
	{Name: "run_on", Kind: Pairs, Label: "Run on", Help: "LABEL=VALUE"},
	{Name: "pool", Kind: Text, Label: "Pool", Help: "that bounds the runs of the group; empty: none"},
}

// overrideKeys are the fields that an override may have.
var overrideKeys = func() []Field {
	keys := slices.Clone(definitionKeys)
	for i := range keys {
		if keys[i].Kind == Pairs {
			keys[i].Help += "; they replace all of the definition's"
		}
	}
	return keys
}()

func textsOf[T fmt.Stringer](values ...T) (texts []string) {
	for _, v := range values {
		texts = append(texts, v.String())
	}
	return texts
}

// overrideNames are the names of overrideKeys.
var overrideNames = func() (names []string) {
	for i := range overrideKeys {
		names = append(names, overrideKeys[i].Name)
	}
	return names
}()

// policyDefaults are those of fields that every stored definition has. An empty value of other policies leaves the field out.
var policyDefaults = map[string]any{
	"strategy": "sticky", "on_crash": executor.RerunElsewhere, "on_misfire": executor.RunOnce, "max_attempts": record.DefaultMaxAttempts,
}

// checkOverride checks the fields of a request as far as that needs no fleet.
func checkOverride(r Request) error {
	switch given := []bool{len(r.Fields) > 0, len(r.Clear) > 0, r.ClearAll}; {
	case !slices.Contains(given, true):
		return wrongf("fields", "name fields to replace, or fields to clear")
	case given[0] && (given[1] || given[2]), given[1] && given[2]:
		return wrongf("fields", "fields, clear and clear_all exclude each other")
	}
	for _, key := range r.Clear {
		if !slices.Contains(overrideNames, key) {
			return wrongf("clear", "%q is no field of an override: one of %s", key, strings.Join(overrideNames, ", "))
		}
	}
	err := checkKeys(r.Fields)
	if err == nil {
		_, err = overrideOf(withDefaults(r.Fields))
	}
	if err != nil {
		return &FieldError{"fields", err}
	}
	return nil
}

func override(ctx context.Context, op *operator.Operator, r Request) (view.Done, error) {
	in, err := op.Intent(ctx, r.Job)
	if err != nil {
		return view.Done{}, err
	}
	ov, fields, err := MergeOverride(&in, r)
	if err != nil {
		return view.Done{}, err
	}
	before := len(in.Override.Fields())
	if len(r.Fields) == 0 && before == len(fields) && before > 0 && in.RetiredBy.At.IsZero() {
		return unchanged("the override of %s has none of these fields: nothing changed", r.Job), nil
	}
	err = op.ReportingUnchanged().Override(ctx, r.Job, ov)
	switch {
	case errors.Is(err, operator.ErrUnchanged):
		return unchanged("%s has no override: nothing changed", r.Job), nil
	case len(fields) == 0:
		return said("took the override of %s back", r.Job), err
	}
	return said("overrides %s of %s", strings.Join(fields, ", "), r.Job), err
}

// MergeOverride returns the override of a job after a request that override accepts, and the names of its fields.
func MergeOverride(in *operator.Intent, r Request) (ov operator.Override, names []string, err error) {
	fields := in.Override.Fields()
	maps.DeleteFunc(fields, func(key string, _ any) bool { return r.ClearAll || slices.Contains(r.Clear, key) })
	maps.Copy(fields, withDefaults(r.Fields))
	if ov, err = overrideOf(fields); err != nil {
		return ov, nil, &FieldError{"fields", err}
	}
	return ov, slices.Sorted(maps.Keys(fields)), nil
}

// withDefaults returns fields with the defaults of policies that are nil.
func withDefaults(fields map[string]any) map[string]any {
	fields = maps.Clone(fields)
	for key, value := range policyDefaults {
		if given, set := fields[key]; set && given == nil {
			fields[key] = value
		}
	}
	return fields
}

// overrideOf returns the override with these fields.
func overrideOf(fields map[string]any) (ov operator.Override, err error) {
	known := map[string]any{"schedule": &ov.Schedule, "shards": &ov.Shards, "param": &ov.Param, "shard_params": &ov.ShardParams}
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		to, ok := known[key]
		if !ok {
			if ov.Policies == nil {
				ov.Policies = map[string]any{}
			}
			ov.Policies[key] = fields[key]
			continue
		}
		text, err := json.Marshal(fields[key])
		if err == nil {
			err = json.Unmarshal(text, to)
		}
		if err != nil {
			return ov, fmt.Errorf("%s: the value has another type", key) // without the value: parameters may be secret
		}
	}
	if _, set := fields["shards"]; set && ov.Shards == 0 { // which would mean those of the definition
		return ov, errors.New("shards: 0 is not from 1 on; clearing shards takes that field back")
	}
	return ov, nil
}

// jobsFileNames maps keys of a jobs file to fields, where the names differ.
var jobsFileNames = map[string]string{"misfire": "on_misfire", "overlap": "on_overlap"}

// scheduleKinds maps keys of a jobs file to the first words of a schedule.
var scheduleKinds = map[string]string{"cron": "cron", "every": "every", "quartz": "quartz", "at": "at", "fixed_delay": "fixed delay"}

// checkKeys returns an error for a field that does not exist, or for a schedule that is none, with what to write.
func checkKeys(fields map[string]any) error {
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		if slices.Contains(overrideNames, key) {
			continue
		}
		hint := ""
		if name := jobsFileNames[key]; name != "" {
			hint = fmt.Sprintf("; is it %s?", name)
		} else if kind := scheduleKinds[key]; kind != "" {
			hint = fmt.Sprintf("; write schedule='%s %v'", kind, fields[key])
		}
		return fmt.Errorf("there is no field %q%s; there are %s", key, hint, strings.Join(overrideNames, ", "))
	}
	if err := checkZeros(fields); err != nil {
		return err
	}
	text, ok := fields["schedule"].(string)
	if !ok {
		return nil
	}
	_, err := schedule.Parse(text)
	if err == nil {
		return nil
	}
	for _, kind := range []string{"cron", "every", "quartz"} {
		if _, err := schedule.Parse(kind + " " + text); err == nil {
			return fmt.Errorf("schedule is %q, without its kind: write schedule='%s %s'", text, kind, text)
		}
	}
	return err
}

// checkZeros refuses zeros that a jobs file refuses, too: they would mean the default, and not what their user expects.
func checkZeros(fields map[string]any) error {
	for _, f := range []struct{ name, least, byDefault string }{
		{"max_attempts", "1", strconv.Itoa(record.DefaultMaxAttempts)}, {"timeout", "1ms", "none"}, {"catchup_window", "1ms", "none"},
	} {
		text := fmt.Sprint(fields[f.name])
		n, numberErr := strconv.ParseFloat(text, 64)
		d, durationErr := time.ParseDuration(text)
		if numberErr == nil && n == 0 || durationErr == nil && d == 0 {
			return fmt.Errorf("%s is %s, below %s; an empty value, %s=, is the default: %s", f.name, text, f.least, f.name, f.byDefault)
		}
	}
	return nil
}

// numbers are the keys whose values are numbers.
var numbers = []string{"shards", "max_attempts", "retry.max", "retry.factor", "retry.jitter"}

// AddPair adds a field of an override to fields from KEY=VALUE. KEY.SUB is a field of an object. An empty value is nil, but that of
// param.
func AddPair(fields map[string]any, pair string) error {
	key, text, found := strings.Cut(pair, "=")
	if !found || key == "" {
		return fmt.Errorf("%q is not KEY=VALUE", pair)
	}
	var value any = text
	switch {
	case text == "" && key != "param":
		value = nil
	case slices.Contains(numbers, key):
		if json.Unmarshal([]byte(text), new(float64)) != nil {
			return fmt.Errorf("%s is %q, not a number", key, text)
		}
		value = json.Number(text)
	}
	name, sub, nested := strings.Cut(key, ".")
	if !nested {
		fields[name] = value
		return nil
	}
	object, ok := fields[name].(map[string]any)
	if !ok {
		object = map[string]any{}
		fields[name] = object
	}
	object[sub] = value
	return nil
}
