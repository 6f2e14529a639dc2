package act

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rota-dev/rota/cmd/rota/internal/complete"
	"github.com/rota-dev/rota/cmd/rota/internal/exit"
	"github.com/rota-dev/rota/cmd/rota/internal/settings"
	"github.com/rota-dev/rota/internal/acts"
	"github.com/rota-dev/rota/internal/instant"
	"github.com/rota-dev/rota/internal/parallel"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/view"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/schedule"
)

// defineOptions are the flags of define.
type defineOptions struct {
	definition operator.Definition // without the fields of the flags below

	schedule, cron, at, in string
	every                  time.Duration
	shards, revision       int
	param                  string
	deleteAfter            deleteAfter

	ifAbsent, dryRun, unknownKind, noFires bool

	file, prefix string
	prune        bool
}

// deleteAfter is a flag: a duration, or never.
type deleteAfter time.Duration

// Set implements pflag.Value.
func (d *deleteAfter) Set(text string) error {
	parsed, err := acts.ParseDeleteAfter(text)
	*d = deleteAfter(parsed)
	return err
}

// String implements pflag.Value.
func (d *deleteAfter) String() string {
	return acts.TextOfDeleteAfter(time.Duration(*d))
}

// Type implements pflag.Value.
func (d *deleteAfter) Type() string { return "duration|never" }

func (o *defineOptions) addFlags(f *pflag.FlagSet) {
	d := &o.definition
	f.StringVar(&d.Kind, "kind", "", "the kind that runs the job")
	f.Var(settings.NewNumber(&d.KindRevision, 0, 0, math.MaxInt), "kind-revision", "lowest revision of the kind that may run the job")
	f.StringVar(&o.schedule, "schedule", "", "the text form of any schedule, as 'cron 0 3 * * * in Asia/Shanghai' or 'on trigger'")
	f.StringVar(&o.cron, "cron", "", "an expression of schedule.Cron: five fields, six, or @daily")
	f.DurationVar(&o.every, "every", 0, "a fixed rate")
	f.StringVar(&o.at, "at", "", "one fire: RFC 3339, or the next such time of day in UTC, as 18:00 (with --in, in that zone)")
	f.StringVar(&o.in, "in", "", "zone of --cron and --at (default UTC)")
	f.Var(settings.NewNumber(&o.shards, 1, 1, record.MaxShards), "shards", "number of shards")
	f.StringVar(&o.param, "param", "", "parameter of the runs")
	settings.AllowEmpty(f, "param")
	f.BoolVar(&d.StartPaused, "start-paused", false, "pause the job if it is created")
	f.Var(&o.deleteAfter, "delete-after", "how long the job stays after its last fire, or never (default 1h)")
	f.BoolVar(&o.ifAbsent, "if-absent", false, "only create the job: exit code 4 if it is defined")
	f.Var(settings.NewNumber(&o.revision, 0, 1, math.MaxInt), "if-revision", "only change this revision of the job: exit code 4 if it has another one")
	f.BoolVar(&o.unknownKind, "allow-unknown-kind", false, "accept a kind that no process has stored yet")
	f.BoolVar(&o.noFires, "allow-no-fires", false, "accept a schedule without a fire from now on")
	f.BoolVar(&o.dryRun, "dry-run", false, "show what would change and change nothing")
	f.StringVarP(&o.file, "file", "f", "", "define the jobs of this jobs file that have a kind; - is the standard input")
	f.BoolVar(&o.prune, "prune", false, "delete the jobs of --prefix that the file does not have")
	f.StringVar(&o.prefix, "prefix", "", "with --prune: the file has all jobs whose names begin with this text")
}

func (c *commands) define() *cobra.Command {
	var o defineOptions
	cmd := &cobra.Command{
		Use:   "define {NAME --kind KIND --schedule TEXT [KEY=VALUE...] | --file FILE}",
		Short: "Define a job of a kind as data, or change it",
		Long: `Define creates a job of a kind, which rota kinds lists, or changes it: the fleet runs it as it runs jobs
of programs, and no deployment is needed. What the command line leaves out is the default of the kind,
also if the job had it before. The same definition changes nothing, so a call may be repeated.

The schedule is one of --schedule, --cron, --every and --at. KEY is shard_params.N, description,
strategy, timeout, on_crash, on_misfire, max_attempts, on_overlap, catchup_window, retry.FIELD, tracking,
pool or run_on.LABEL, as of rota override. An empty value leaves out what the kind has by default.

With --file, it defines all jobs of a jobs file that have the key kind. If one is refused, it reports all
that is wrong with the lines of the file, and changes nothing. A job without a fire from now on, such as
a reminder whose time has passed, is left as it is. With --prune, it then deletes the jobs that are not in
the file: among those whose names begin with --prefix, which is to be the file's alone.

It exits with 4 if the kind is unknown, the name is that of a job in a program, as many jobs are defined
as may be, or the condition of --if-absent or --if-revision does not hold.`,
		Example: `  rota define acme/report --kind report --cron "0 6 * * 1-5" --in Europe/Berlin --param acme timeout=30m
  rota define acme/reminder --kind mail --at 2027-01-02T09:00:00Z --if-absent
  rota define acme/report --kind report --every 1h --dry-run
  rota define -f jobs.yaml --prune --prefix acme/ --dry-run`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.checkForm(cmd.Flags(), args); err != nil {
				return &exit.Error{Code: exit.Usage, Err: err}
			}
			if o.file != "" {
				return c.defineFile(cmd, &o)
			}
			def, err := o.read(cmd.Flags(), args)
			if err != nil {
				return &exit.Error{Code: exit.Usage, Err: err}
			}
			operate := c.operate
			if o.dryRun {
				operate = func(_ context.Context, f func(context.Context, *operator.Operator) error) error {
					return c.read(cmd, f)
				}
			}
			return operate(cmd.Context(), func(ctx context.Context, op *operator.Operator) error {
				change, err := acts.Define(ctx, op, &def, o.options()...)
				if err != nil {
					return refusedDefinition(err)
				}
				return c.printView(cmd, view.DefineChanges{Version: view.Version, DryRun: o.dryRun, Changes: []view.DefineChange{change}})
			})
		},
		ValidArgsFunction: complete.DefinedJobs(c.s, 1),
	}
	o.addFlags(cmd.Flags())
	_ = cmd.RegisterFlagCompletionFunc("kind", complete.Kinds(c.s))
	return settings.Limit(cmd, append([]string{"time"}, flags...)...)
}

func (o *defineOptions) options() (all []operator.DefineOption) {
	if o.revision > 0 {
		all = append(all, operator.IfRevision(o.revision))
	}
	for _, option := range []struct {
		set bool
		of  func() operator.DefineOption
	}{
		{o.ifAbsent, operator.IfAbsent}, {o.dryRun, operator.DryRun}, {o.unknownKind, operator.AllowUnknownKind}, {o.noFires, operator.AllowNoFires},
	} {
		if option.set {
			all = append(all, option.of())
		}
	}
	return all
}

// read returns the definition that the command line describes.
func (o *defineOptions) read(f *pflag.FlagSet, args []string) (operator.Definition, error) {
	fields := map[string]any{}
	for _, arg := range args[1:] {
		if err := acts.AddPair(fields, arg); err != nil {
			return operator.Definition{}, err
		}
	}
	for _, name := range []string{"schedule", "shards", "param"} {
		if _, set := fields[name]; set {
			return operator.Definition{}, fmt.Errorf("%s is a flag of define: --%s", name, name)
		}
	}
	def, err := acts.DefinitionOf(fields)
	if err != nil {
		return def, err
	}
	def.Name, def.Kind, def.KindRevision, def.StartPaused = args[0], o.definition.Kind, o.definition.KindRevision, o.definition.StartPaused
	def.Param, def.DeleteAfter = o.param, time.Duration(o.deleteAfter)
	if f.Changed("shards") {
		def.Shards = o.shards
	}
	switch {
	case def.Kind == "":
		return def, errors.New("name the kind: --kind; rota kinds lists them")
	case o.ifAbsent && o.revision > 0:
		return def, errors.New("--if-absent and --if-revision exclude each other")
	}
	def.Schedule, err = o.parseSchedule()
	return def, err
}

// parseSchedule returns the schedule that the flags name. Without one, the job of a forgotten flag would never run.
func (o *defineOptions) parseSchedule() (s schedule.Schedule, err error) {
	given := []bool{o.schedule != "", o.cron != "", o.every != 0, o.at != ""}
	if n := len(slices.DeleteFunc(given, func(set bool) bool { return !set })); n != 1 {
		return s, errors.New("name one of --schedule, --cron, --every and --at; --schedule 'on trigger' is for a job without fires")
	}
	zone := time.UTC
	if o.in != "" {
		if o.cron == "" && o.at == "" {
			return s, errors.New("--in is the zone of --cron and --at; --schedule has its own, as in 'cron 0 3 * * * in Asia/Shanghai'")
		}
		if zone, err = time.LoadLocation(o.in); err != nil {
			return s, fmt.Errorf("--in is %q: %w", o.in, err)
		}
	}
	switch {
	case o.cron != "":
		if s = schedule.Cron(o.cron); o.in != "" {
			s = s.In(o.in)
		}
	case o.every != 0:
		s = schedule.Every(o.every)
	case o.at != "":
		at, err := instant.Parse(o.at, time.Now(), zone, instant.Future)
		if err != nil {
			return s, fmt.Errorf("--at is %w", err)
		}
		return schedule.At(at), nil
	default:
		d, err := acts.DefinitionOf(map[string]any{"schedule": o.schedule})
		return d.Schedule, err
	}
	_, err = s.Timetable()
	return s, err
}

// refusedDefinition gives an error the exit code 4 if it names a condition of the fleet under which a definition or a deletion is refused.
func refusedDefinition(err error) error {
	for _, cause := range []error{
		operator.ErrExists, operator.ErrOtherRevision, operator.ErrRegistered, operator.ErrDeleting, operator.ErrUnknownKind,
		operator.ErrTooManyJobs, operator.ErrTooManyChanges,
	} {
		if errors.Is(err, cause) && !errors.Is(err, operator.ErrInvalidArgument) {
			return &exit.Error{Code: exit.NotMet, Err: err}
		}
	}
	return err
}

// deletedTogether is how many jobs are deleted at once. A deletion waits for the leader.
const deletedTogether = 32

func (c *commands) delete() *cobra.Command {
	var cancelRuns bool
	cmd := &cobra.Command{
		Use:   "delete NAME...",
		Short: "Delete jobs that are defined as data",
		Long: `Delete removes jobs that rota define or a program has defined as data, with their counts, failures and
saved states. When it returns, no further run of them is claimed. Runs in progress go on, unless
--cancel-runs is set. The names are free at once. It exits with 4 if a job is one of a program, which rota
retire removes, or if no leader has confirmed the deletion in time: it is stored then, and happens.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := c.s.Confirm(cmd, "delete "+strings.Join(args, ", ")+" with all records"); err != nil {
				return err
			}
			return c.operate(cmd.Context(), func(ctx context.Context, op *operator.Operator) error {
				deleted, err := deleteJobs(ctx, op, args, cancelRuns)
				v := view.DefineChanges{Version: view.Version, Changes: deleted}
				if len(deleted) > 0 {
					err = errors.Join(err, c.printView(cmd, v))
				}
				return refusedDefinition(err)
			})
		},
		ValidArgsFunction: complete.DefinedJobs(c.s, 0),
	}
	cmd.Flags().BoolVar(&cancelRuns, "cancel-runs", false, "cancel the runs in progress")
	return settings.Limit(cmd, flags...)
}

// deleteJobs deletes jobs, and returns those that are deleted. A failure does not prevent the other deletions.
func deleteJobs(ctx context.Context, op *operator.Operator, jobs []string, cancelRuns bool) (deleted []view.DefineChange, err error) {
	var options []operator.DeleteOption
	if cancelRuns {
		options = append(options, operator.CancelRuns())
	}
	jobs = slices.Compact(slices.Sorted(slices.Values(jobs)))
	errs := make([]error, len(jobs))
	indexes := make([]int, len(jobs))
	for i := range jobs {
		indexes[i] = i
		errs[i] = fmt.Errorf("delete %q: the time was over before", jobs[i])
	}
	_ = parallel.Each(ctx, deletedTogether, indexes, func(ctx context.Context, i int) error {
		errs[i] = op.Delete(ctx, jobs[i], options...)
		return nil
	})
	for i, job := range jobs {
		if errs[i] == nil {
			deleted = append(deleted, view.DefineChange{Job: job, Outcome: view.Deleted})
		}
	}
	return deleted, errors.Join(errs...)
}
