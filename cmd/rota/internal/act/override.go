package act

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/rota-dev/rota/cmd/rota/internal/complete"
	"github.com/rota-dev/rota/cmd/rota/internal/exit"
	"github.com/rota-dev/rota/cmd/rota/internal/settings"
	"github.com/rota-dev/rota/internal/acts"
	"github.com/rota-dev/rota/internal/view"
	"github.com/rota-dev/rota/operator"
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
max_attempts, on_overlap, catchup_window, retry.FIELD, tracking, pool or run_on.LABEL. An empty value of a
policy means its default. Fields of retry, labels and parameters of shards replace all of the
definition's. --file is YAML or JSON with the same keys; "-" is the standard input.

--clear KEY... takes single fields back, --clear alone all of them. --dry-run shows shards and next
fires before and after.`,
		Example: `  rota override settle 'schedule=cron 0 4 * * * in Asia/Shanghai' timeout=2h --dry-run
  rota override settle --clear timeout`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			v := verb("override", acts.OnJob)
			r, err := o.read(cmd.InOrStdin(), args[1:])
			if err != nil {
				return &exit.Error{Code: exit.Usage, Err: err}
			}
			r.Job = args[0]
			if err := v.Check(r); err != nil {
				return asUsage(err)
			}
			if o.dryRun {
				return c.read(cmd, func(ctx context.Context, op *operator.Operator) error {
					return c.previewOverride(ctx, cmd, op, r)
				})
			}
			return c.operate(cmd.Context(), func(ctx context.Context, op *operator.Operator) error {
				_, err := c.doIn(ctx, cmd, op, v, r)
				return asUsage(err)
			})
		},
		ValidArgsFunction: complete.Jobs(c.s, 1),
	}
	f := cmd.Flags()
	f.StringVar(&o.file, "file", "", "file with the fields")
	f.BoolVar(&o.dryRun, "dry-run", false, "show what would change and change nothing")
	f.BoolVar(&o.clear, "clear", false, "take the override back, or the named fields of it")
	return settings.Limit(cmd, flags...)
}

// asUsage gives an error of an argument the exit code 2. It leaves out the name of the field, which no flag has.
func asUsage(err error) error {
	if wrong, ok := errors.AsType[*acts.FieldError](err); ok {
		return &exit.Error{Code: exit.Usage, Err: wrong.Err}
	}
	return err
}

// previewOverride shows shards and fires before and after an override.
func (c *commands) previewOverride(ctx context.Context, cmd *cobra.Command, op *operator.Operator, r acts.Request) error {
	in, err := op.Intent(ctx, r.Job)
	if err != nil {
		return err
	}
	ov, fields, err := acts.MergeOverride(&in, r)
	if err != nil {
		return asUsage(err)
	}
	p, err := op.PreviewOverride(ctx, r.Job, ov)
	if err != nil {
		return err
	}
	return c.printView(cmd, view.OverridePreview{Version: view.Version, Job: r.Job, Fields: fields, OverridePreview: p})
}

// read returns the request that the command line describes, without the job.
func (o *overrideOptions) read(in io.Reader, args []string) (r acts.Request, err error) {
	if o.clear {
		if o.file != "" {
			return r, fmt.Errorf("--clear and --file exclude each other")
		}
		for _, key := range args {
			if strings.Contains(key, "=") {
				return r, fmt.Errorf("%q: --clear takes the names of fields", key)
			}
		}
		if len(args) == 0 {
			return acts.Request{ClearAll: true}, nil
		}
		return acts.Request{Clear: args}, nil
	}
	fields := map[string]any{}
	if o.file != "" {
		text, err := readFile(in, o.file)
		if err != nil {
			return r, err
		}
		if err := yaml.Unmarshal(text, &fields); err != nil {
			return r, fmt.Errorf("%s: %w", o.file, err)
		}
		for key, value := range fields {
			fields[key] = useTextKeys(value)
		}
	}
	for _, arg := range args {
		if err := acts.AddPair(fields, arg); err != nil {
			return r, err
		}
	}
	if len(fields) == 0 {
		return r, fmt.Errorf("name a field as KEY=VALUE, --file or --clear; rota job shows the override in place")
	}
	return acts.Request{Fields: fields}, nil
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
