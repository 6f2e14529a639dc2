// Package runhistory holds the commands that show runs that have ended, from the database of package history.
package runhistory

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"os"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/look"

	"github.com/spf13/cobra"

	"github.com/rota-dev/rota/cmd/rota/internal/complete"
	"github.com/rota-dev/rota/cmd/rota/internal/exit"
	"github.com/rota-dev/rota/cmd/rota/internal/historyurl"
	"github.com/rota-dev/rota/cmd/rota/internal/jobsfile"
	"github.com/rota-dev/rota/cmd/rota/internal/screen"
	"github.com/rota-dev/rota/cmd/rota/internal/settings"
	"github.com/rota-dev/rota/history"
	"github.com/rota-dev/rota/internal/shell"
	"github.com/rota-dev/rota/internal/view"
)

// Commands returns the commands.
func Commands(s *settings.Settings) []*cobra.Command {
	c := &commands{Source: Source{s: s}}
	return []*cobra.Command{c.fires(), c.runs(), c.logs()}
}

type commands struct {
	Source
	unknown bool // the history has nothing of the job
}

// Source finds the database of the history of a group.
type Source struct {
	s    *settings.Settings
	file string // a jobs file; empty if none is named
}

// NewSource returns a Source.
func NewSource(s *settings.Settings) *Source { return &Source{s: s} }

// IsNamed reports whether the command line, the environment or a context names a history.
func (c *Source) IsNamed() bool { return c.s.History != "" || c.file != "" }

// FailedShards returns look.FailedShards.
func (c *Source) FailedShards(ctx context.Context, cmd *cobra.Command, job string, fire time.Time) (failed []int, total int, err error) {
	err = c.Read(ctx, cmd, func(ctx context.Context, r history.Reader) (err error) {
		failed, total, err = look.FailedShards(ctx, r, job, fire)
		return err
	})
	return failed, total, err
}

// Flags returns the flags with which a command finds the same history, after a blank. If none is named, they are
// view.UnnamedHistory.
func (c *Source) Flags(cmd *cobra.Command) (flags string) {
	if !c.IsNamed() {
		return view.UnnamedHistory
	}
	if c.file != "" {
		flags += " --file " + shell.Quote(c.file)
	}
	if cmd.Flags().Changed("history") {
		flags += " --history " + shell.Quote(c.s.History)
	}
	return flags
}

// AddFileFlag adds the flag that names a jobs file.
func (c *Source) AddFileFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.file, "file", "", "jobs file of rota run, for its history, namespace and group")
}

// location is where the history of a group is.
type location struct {
	url, namespace, group string
	connection            historyurl.Options
}

// find returns the location. Flags go before variables of the environment, these before the jobs file, and the file
// before the context.
func (c *Source) find(cmd *cobra.Command) (location, error) {
	if err := c.s.Resolve(); err != nil {
		return location{}, err
	}
	src := location{url: c.s.History, namespace: c.s.Namespace, group: c.s.Group}
	if c.file != "" {
		if err := c.readFile(cmd, &src); err != nil {
			return location{}, &exit.Error{Code: exit.Usage, Err: err}
		}
	}
	switch {
	case src.url == "":
		return location{}, exit.Usagef("no database is named: pass --history or --file, set ROTA_HISTORY, or set it in a context")
	case src.namespace == "":
		return location{}, exit.Usagef("no namespace is named: pass -n, set ROTA_NAMESPACE, or set it in a context")
	}
	src.connection.ReadOnly = true
	return src, nil
}

// readFile replaces the history, the namespace and the group by those of the jobs file, unless the command line or
// the environment names them.
func (c *Source) readFile(cmd *cobra.Command, src *location) error {
	content, err := os.ReadFile(c.file)
	if err != nil {
		return err
	}
	f, err := jobsfile.Load(c.file, content, jobsfile.Host{Schemes: c.s.Schemes})
	if err != nil {
		return err
	}
	isNamed := func(flag string) bool {
		return cmd.Flags().Changed(flag) || c.s.Getenv("ROTA_"+strings.ToUpper(flag)) != ""
	}
	if !isNamed("namespace") {
		src.namespace = cmp.Or(f.Namespace, "default")
	}
	if !isNamed("group") {
		src.group = cmp.Or(f.Group, "default")
	}
	if isNamed("history") {
		return nil
	}
	switch {
	case f.History.URL == "":
		return fmt.Errorf("%s has no key history", c.file)
	case f.History.JSONLines():
		return fmt.Errorf("the history of %s is %s, which this command does not read: its lines are JSON", c.file, f.History.URL)
	}
	src.url = f.History.URL
	src.connection, err = f.History.Connection(jobsfile.Host{ReadFile: os.ReadFile, LookupEnv: func(name string) (string, bool) {
		text := c.s.Getenv(name)
		return text, text != ""
	}})
	return err
}

// flags names the global flags of these commands. They need no registry, but for completion.
var flags = append([]string{"output", "time", "history"}, settings.Connection...)

// Read calls f with the history of the group.
func (c *Source) Read(ctx context.Context, cmd *cobra.Command, f func(context.Context, history.Reader) error) error {
	src, err := c.find(cmd)
	if err != nil {
		return err
	}
	db, dialect, err := historyurl.Open(src.url, src.connection)
	if err != nil {
		return &exit.Error{Code: exit.Usage, Err: err}
	}
	defer db.Close()
	store, err := history.SQL(db, dialect, history.SQLOptions{})
	if err != nil {
		return err
	}
	if err := f(ctx, store.Reader(src.namespace, src.group)); err != nil {
		return fmt.Errorf("history %s: %w", historyurl.Redact(src.url), err)
	}
	return nil
}

// show prints what read reads of the history of the group.
func (c *commands) show(cmd *cobra.Command, read func(context.Context, history.Reader) (screen.View, error)) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), c.s.Timeout)
	defer cancel()
	var v screen.View
	if err := c.Read(ctx, cmd, func(ctx context.Context, r history.Reader) (err error) {
		v, err = read(ctx, r)
		return err
	}); err != nil {
		return err
	}
	if err := screen.Print(cmd.OutOrStdout(), v, c.s.Output, screen.TimesOf(c.s)); err != nil || !c.unknown {
		return err
	}
	return &exit.Error{Code: exit.NoJob}
}

func (c *commands) fires() *cobra.Command {
	var since string
	var failed bool
	var limit int
	cmd := &cobra.Command{
		Use:   "fires JOB",
		Short: "List the fires of a job with their outcome, from the history",
		Long: `Fires lists the fires of a job that have ended, with the number of their runs by outcome. Fires that
were skipped at once, as after an outage, have no rows of their own: they count in the row of the last
one that was due, with the reason and the first one in NOTE ("overlap since ..."). SKIPPED has one for each fire and
shard.

In NOTE, crashed are runs whose session expired before their end was recorded, whether or not they were
made again; unfinished are those that an instance handed back, abandoned, or had when it lost its
session; repeated are attempts after the first, which are retries, or made again after a crash.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			age, err := parseAge(since)
			if err != nil {
				return &exit.Error{Code: exit.Usage, Err: err}
			}
			return c.show(cmd, func(ctx context.Context, r history.Reader) (screen.View, error) {
				v, known, err := look.Fires(ctx, r, look.FiresQuery{Job: args[0], Age: age, Failed: failed, Limit: limit})
				if err == nil && !known {
					v.Note, err = c.describeUnknown(cmd, args[0])
				}
				return v, err
			})
		},
		ValidArgsFunction: complete.Jobs(c.s, 1),
	}
	c.AddFileFlag(cmd)
	cmd.Flags().StringVar(&since, "since", "1d", "how far back, such as 90m or 7d")
	cmd.Flags().BoolVar(&failed, "failed", false, "only fires with a run that did not succeed")
	cmd.Flags().Var(settings.NewNumber(&limit, 100, 1, math.MaxInt), "limit", "the most fires to read")
	return settings.Limit(cmd, flags...)
}

// runsOptions are the flags of runs.
type runsOptions struct {
	fire, since     string
	shards          settings.Shards
	trigger         uint64
	failed, slowest bool
	tail            bool
	limit           int
}

func (c *commands) runs() *cobra.Command {
	var o runsOptions
	cmd := &cobra.Command{
		Use:   "runs JOB",
		Short: "List runs of a job, from the history: the last of each shard, of a fire, failed or slow ones",
		Long: `Runs lists the last run of each shard. With --fire it lists the runs of that fire, with --failed
those that failed, with --slowest the longest ones.

By default, a history keeps only notable runs: those that failed, crashed or were repeated, and the
slowest of each fire. Of a failed run it has the last 4 KiB of the output, which --tail prints.`,
		Example: `  rota runs settle --fire 2026-11-21T19:00:00Z
  rota runs tenants --failed --since 2h --shard 3,7-9
  rota runs settle --failed --tail`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			fire, err := c.s.ParseInstant("fire", o.fire, settings.Past)
			if err != nil {
				return err
			}
			read, err := c.query(cmd, &o, args[0], fire)
			if err != nil {
				return &exit.Error{Code: exit.Usage, Err: err}
			}
			return c.show(cmd, read)
		},
		ValidArgsFunction: complete.Jobs(c.s, 1),
	}
	c.AddFileFlag(cmd)
	f := cmd.Flags()
	f.SetNormalizeFunc(settings.RenameFlag("shards", "shard"))
	f.StringVar(&o.fire, "fire", "", "the instant of a fire: RFC 3339, or a time of day in UTC, as 14:00 (with --time local, in the local zone)")
	f.Uint64Var(&o.trigger, "trigger", 0, "with --fire: only the runs of the trigger of that number")
	f.Var(&o.shards, "shard", "only these shards, such as 3,7-9")
	f.StringVar(&o.since, "since", "1d", "with --failed and --slowest: how far back, such as 90m or 7d")
	f.BoolVar(&o.failed, "failed", false, "runs that did not succeed, the latest first")
	f.BoolVar(&o.slowest, "slowest", false, "the longest runs")
	f.BoolVar(&o.tail, "tail", false, "print the end of the output of each run below the table")
	f.Var(settings.NewNumber(&o.limit, 100, 1, math.MaxInt), "limit", "the most runs to read")
	cmd.MarkFlagsMutuallyExclusive("fire", "failed", "slowest")
	return settings.Limit(cmd, flags...)
}

// query returns a function that reads the selected runs.
func (c *commands) query(cmd *cobra.Command, o *runsOptions, job string, fire time.Time) (func(context.Context, history.Reader) (screen.View, error), error) {
	age, err := parseAge(o.since)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, r history.Reader) (screen.View, error) {
		v, known, err := look.Runs(ctx, r, look.RunsQuery{
			Job: job, OfFire: o.fire != "", Fire: fire, Trigger: o.trigger, Failed: o.failed, Slowest: o.slowest, Shards: o.shards, Age: age, Limit: o.limit,
		})
		if err == nil && !known {
			v.Note, err = c.describeUnknown(cmd, job)
		}
		v.Tail = o.tail
		return v, err
	}, nil
}

// describeUnknown returns a note for a job of which the history has nothing.
func (c *commands) describeUnknown(cmd *cobra.Command, job string) (string, error) {
	c.unknown = true
	src, err := c.find(cmd)
	return fmt.Sprintf("The history %s has nothing of job %q in %s/%s: check the name, -n and -g.", historyurl.Redact(src.url), job, src.namespace, src.group), err
}

// parseAge parses the flag --since.
func parseAge(text string) (time.Duration, error) {
	d, err := look.ParseAge(text)
	if err != nil {
		err = fmt.Errorf("--since %w", err)
	}
	return d, err
}
