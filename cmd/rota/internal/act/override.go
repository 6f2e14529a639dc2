package act

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/rota-dev/rota/cmd/rota/internal/complete"
	"github.com/rota-dev/rota/cmd/rota/internal/exit"
	"github.com/rota-dev/rota/cmd/rota/internal/settings"
	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/view"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/schedule"
)

// overrideOptions are the flags of override.
type overrideOptions struct {
	file          string
	dryRun, clear bool
}

func (c *commands) override() *cobra.Command {
	var o overrideOptions
	cmd := &cobra.Command{
		Use:   "override JOB [KEY=VALUE...]",
		Short: "Replace fields of a job's definition without a deployment",
		Long: `Override replaces fields of a job's definition, until --clear takes the override back. Other fields of
an earlier override stay.

KEY is schedule, shards, param, shard_params.N, description, strategy, timeout, on_crash, on_misfire,
max_attempts, on_overlap, catchup_window, retry.FIELD, tracking or run_on.LABEL. An empty value of a
policy means its default. Fields of retry, labels and parameters of shards replace all of the
definition's. --file is YAML or JSON with the same keys; "-" is the standard input.

--clear KEY... takes single fields back, --clear alone all of them. --dry-run shows shards and next
fires before and after.`,
		Example: `  rota override settle 'schedule=cron 0 4 * * * in Asia/Shanghai' timeout=2h --dry-run
  rota override settle --clear timeout`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			change, err := o.read(cmd.InOrStdin(), args[1:])
			if err != nil {
				return &exit.Error{Code: exit.Usage, Err: err}
			}
			f := func(ctx context.Context, op *operator.Operator) error {
				return c.applyOverride(ctx, cmd, op, args[0], &o, change)
			}
			if o.dryRun {
				return c.read(cmd, f)
			}
			return c.operate(cmd.Context(), f)
		},
		ValidArgsFunction: complete.Jobs(c.s, 1),
	}
	f := cmd.Flags()
	f.StringVar(&o.file, "file", "", "file with the fields")
	f.BoolVar(&o.dryRun, "dry-run", false, "show what would change and change nothing")
	f.BoolVar(&o.clear, "clear", false, "take the override back, or the named fields of it")
	return settings.Limit(cmd, flags...)
}

// applyOverride changes the override in place, or shows what the change would do.
func (c *commands) applyOverride(ctx context.Context, cmd *cobra.Command, op *operator.Operator, job string, o *overrideOptions, change func(map[string]any)) error {
	in, err := op.Intent(ctx, job)
	if err != nil {
		return err
	}
	fields := view.OverrideFields(in.Override)
	before := len(fields)
	change(fields)
	unchanged := o.clear && len(fields) == before
	ov, err := parseOverride(fields)
	if err != nil {
		return &exit.Error{Code: exit.Usage, Err: err}
	}
	if o.dryRun {
		p, err := op.PreviewOverride(ctx, job, ov)
		if err != nil {
			return err
		}
		v := view.OverridePreview{Version: view.Version, Job: job, OverridePreview: p}
		v.Fields = slices.Sorted(maps.Keys(fields))
		return c.printView(cmd, v)
	}
	if unchanged && in.RetiredBy.At.IsZero() {
		text := "the override of " + job + " has none of these fields: nothing changed"
		if before == 0 {
			text = job + " has no override: nothing changed"
		}
		return c.print(cmd, view.Done{Verb: "override", Jobs: []string{job}, Text: text})
	}
	if err := op.Override(ctx, job, ov); err != nil {
		return err
	}
	text := fmt.Sprintf("overrides %s of %s", strings.Join(slices.Sorted(maps.Keys(fields)), ", "), job)
	if len(fields) == 0 {
		text = "took the override of " + job + " back"
	}
	return c.print(cmd, view.Done{Verb: "override", Jobs: []string{job}, Text: text})
}

// read returns the change of an override that the command line describes.
func (o *overrideOptions) read(in io.Reader, args []string) (func(map[string]any), error) {
	if o.clear {
		if o.file != "" {
			return nil, fmt.Errorf("--clear and --file exclude each other")
		}
		for _, key := range args {
			if strings.Contains(key, "=") {
				return nil, fmt.Errorf("%q: --clear takes the names of fields", key)
			}
			if !slices.Contains(fieldNames, key) {
				return nil, fmt.Errorf("%q is no field of an override: one of %s", key, strings.Join(fieldNames, ", "))
			}
		}
		return func(fields map[string]any) {
			maps.DeleteFunc(fields, func(key string, _ any) bool { return len(args) == 0 || slices.Contains(args, key) })
		}, nil
	}
	fields := map[string]any{}
	if o.file != "" {
		text, err := readFile(in, o.file)
		if err != nil {
			return nil, err
		}
		if err := yaml.Unmarshal(text, &fields); err != nil {
			return nil, fmt.Errorf("%s: %w", o.file, err)
		}
		for key, value := range fields {
			fields[key] = useTextKeys(value)
		}
	}
	for _, arg := range args {
		if err := setField(fields, arg); err != nil {
			return nil, err
		}
	}
	if len(fields) == 0 {
		return nil, fmt.Errorf("name a field as KEY=VALUE, --file or --clear; rota job shows the override in place")
	}
	for key, value := range policyDefaults {
		if given, set := fields[key]; set && given == nil {
			fields[key] = value
		}
	}
	if err := checkFields(fields); err != nil {
		return nil, err
	}
	if _, err := parseOverride(fields); err != nil {
		return nil, err
	}
	return func(old map[string]any) { maps.Copy(old, fields) }, nil
}

// fieldNames are the fields that an override may have.
var fieldNames = []string{
	"schedule", "shards", "param", "shard_params", "description", "strategy", "timeout", "on_crash", "on_misfire", "max_attempts",
	"on_overlap", "catchup_window", "retry", "tracking", "run_on",
}

// policyDefaults are those of fields that every stored definition has. An empty value of other policies leaves the field out.
var policyDefaults = map[string]any{
	"strategy": "sticky", "on_crash": executor.RerunElsewhere, "on_misfire": executor.RunOnce, "max_attempts": record.DefaultMaxAttempts,
}

// jobsFileNames maps keys of a jobs file to fields, where the names differ.
var jobsFileNames = map[string]string{"misfire": "on_misfire", "overlap": "on_overlap"}

// scheduleKinds maps keys of a jobs file to the first words of a schedule.
var scheduleKinds = map[string]string{"cron": "cron", "every": "every", "quartz": "quartz", "at": "at", "fixed_delay": "fixed delay"}

// checkFields returns an error for a field that does not exist, or for a schedule that is none, with what to write.
func checkFields(fields map[string]any) error {
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		if slices.Contains(fieldNames, key) {
			continue
		}
		hint := ""
		if name := jobsFileNames[key]; name != "" {
			hint = fmt.Sprintf("; is it %s?", name)
		} else if kind := scheduleKinds[key]; kind != "" {
			hint = fmt.Sprintf("; write schedule='%s %v'", kind, fields[key])
		}
		return fmt.Errorf("there is no field %q%s; there are %s", key, hint, strings.Join(fieldNames, ", "))
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

// useTextKeys replaces the numbers that YAML has as keys of objects, such as shards, by texts.
func useTextKeys(value any) any {
	object, ok := value.(map[any]any)
	if !ok {
		return value
	}
	out := map[string]any{}
	for key, v := range object {
		out[fmt.Sprint(key)] = useTextKeys(v)
	}
	return out
}

func readFile(in io.Reader, name string) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(in)
	}
	return os.ReadFile(name)
}

// numbers are the keys whose values are numbers.
var numbers = []string{"shards", "max_attempts", "retry.max", "retry.factor"}

// setField sets a field from KEY=VALUE. KEY.SUB sets a field of an object.
func setField(fields map[string]any, arg string) error {
	key, text, found := strings.Cut(arg, "=")
	if !found || key == "" {
		return fmt.Errorf("%q is not KEY=VALUE", arg)
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

// parseOverride returns the override with these fields.
func parseOverride(fields map[string]any) (ov operator.Override, err error) {
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
		return ov, errors.New("shards: 0 is not from 1 on; --clear shards takes that field back")
	}
	return ov, nil
}
