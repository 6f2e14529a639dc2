// Package act holds the commands that change what a fleet runs.
package act

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/user"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rota-dev/rota/cmd/rota/internal/complete"
	"github.com/rota-dev/rota/cmd/rota/internal/exit"
	"github.com/rota-dev/rota/cmd/rota/internal/screen"
	"github.com/rota-dev/rota/cmd/rota/internal/settings"
	"github.com/rota-dev/rota/cmd/rota/internal/show"
	"github.com/rota-dev/rota/internal/acts"
	"github.com/rota-dev/rota/internal/view"
	"github.com/rota-dev/rota/operator"
)

// Commands returns the commands.
func Commands(s *settings.Settings) []*cobra.Command {
	c := &commands{s: s}
	all := []*cobra.Command{
		c.trigger(), c.backfill(), c.retry(), c.cancel(), c.pause(), c.resume(), c.disable(), c.enable(), c.drain(), c.undrain(),
		c.override(), c.reset(), c.retire(), c.unretire(), c.forget(), c.acknowledge(), c.define(), c.delete(),
		c.setPool(), c.deletePool(),
	}
	for _, cmd := range all {
		cmd.Flags().StringVar(&c.by, "by", "", "who acts, for the record (default: ROTA_BY, or the user of the system)")
		cmd.Flags().StringVar(&c.reason, "reason", "", "why, for the record; rota acts lists it")
		settings.AllowEmpty(cmd.Flags(), "reason")
	}
	return append(all, c.raiseFences()) // which no record of acts lists
}

// commands holds the flags that all verbs have.
type commands struct {
	s          *settings.Settings
	by, reason string
}

// flags names the global flags of verbs.
var flags = append([]string{"output", "yes"}, settings.Connection...)

// operate connects, unless the context is protected, and calls f with the time-out of the command.
func (c *commands) operate(ctx context.Context, f func(ctx context.Context, op *operator.Operator) error) error {
	if err := c.s.CheckProtection(); err != nil {
		return err
	}
	c.s.AllowWrites()
	op, err := c.s.Operator(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.s.Timeout)
	defer cancel()
	return c.s.ExplainFailure(f(ctx, op.As(c.nameCaller(), c.reason)))
}

// nameCaller returns who acts.
func (c *commands) nameCaller() string {
	if name := cmp.Or(c.by, c.s.Getenv("ROTA_BY")); name != "" {
		return name
	}
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return c.s.Getenv("USER")
}

// print prints the result of a command beside the table of acts.
func (c *commands) print(cmd *cobra.Command, v view.Done) error {
	v.Version = view.Version
	if v.Jobs == nil {
		v.Jobs = []string{}
	}
	return c.printView(cmd, v)
}

func (c *commands) printView(cmd *cobra.Command, v screen.View) error {
	return screen.Print(cmd.OutOrStdout(), v, c.s.Output, screen.TimesOf(c.s))
}

// verb returns the act of a name, which has to exist.
func verb(name string, on acts.Target) acts.Verb {
	v, ok := acts.Find(name, on)
	if !ok {
		panic(fmt.Sprintf("there is no act %s on a %s", name, on))
	}
	return v
}

// confirm asks before an act on jobs if it cannot be taken back.
func (c *commands) confirm(cmd *cobra.Command, v acts.Verb, jobs []string) error {
	if v.Confirm == nil {
		return nil
	}
	return c.s.Confirm(cmd, v.Confirm(acts.Request{Job: strings.Join(jobs, ", ")}))
}

// do does an act and prints the result.
func (c *commands) do(cmd *cobra.Command, v acts.Verb, r acts.Request) error {
	return c.operate(cmd.Context(), func(ctx context.Context, op *operator.Operator) error {
		_, err := c.doIn(ctx, cmd, op, v, r)
		return err
	})
}

// doConfirmed asks before it does an act.
func (c *commands) doConfirmed(cmd *cobra.Command, v acts.Verb, r acts.Request) error {
	if err := c.s.Confirm(cmd, v.Confirm(r)); err != nil {
		return err
	}
	return c.do(cmd, v, r)
}

func (c *commands) doIn(ctx context.Context, cmd *cobra.Command, op *operator.Operator, v acts.Verb, r acts.Request) (view.Done, error) {
	done, err := v.Do(ctx, op, r)
	if err != nil {
		return done, notMet(err)
	}
	return done, c.printView(cmd, done)
}

// doEach does an act on each job. A failure does not prevent the next act.
func (c *commands) doEach(cmd *cobra.Command, v acts.Verb, jobs []string, r acts.Request) error {
	return c.operate(cmd.Context(), func(ctx context.Context, op *operator.Operator) error {
		var errs []error
		for _, job := range jobs {
			r.Job = job
			_, err := c.doIn(ctx, cmd, op, v, r)
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	})
}

// notMet gives an error the exit code 4 if it names a condition of the fleet under which an act is refused.
func notMet(err error) error {
	for _, cause := range []error{operator.ErrNotRunning, operator.ErrNoFailure, operator.ErrRetryRefused, operator.ErrOffered} {
		if errors.Is(err, cause) {
			return &exit.Error{Code: exit.NotMet, Err: err}
		}
	}
	return err
}

// ofJobs completes a command that has jobs and no flags of its own.
func (c *commands) ofJobs(name string, cmd *cobra.Command) *cobra.Command {
	v := verb(name, acts.OnJob)
	cmd.Use = name + " JOB..."
	cmd.Args = cobra.MinimumNArgs(1)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := c.confirm(cmd, v, args); err != nil {
			return err
		}
		return c.doEach(cmd, v, args, acts.Request{})
	}
	cmd.ValidArgsFunction = complete.Jobs(c.s, 0)
	return settings.Limit(cmd, flags...)
}

func (c *commands) reset() *cobra.Command {
	return c.ofJobs("reset", &cobra.Command{
		Short: "Start jobs afresh whose shards wait because of a wrong clock",
		Long: `Reset starts a new epoch of a job. It is for shards that wait because a skewed clock claimed their
fires ahead of time, which rota job shows as a problem. Fires that were claimed ahead of time run
again.`,
	})
}

func (c *commands) forget() *cobra.Command {
	return c.ofJobs("forget", &cobra.Command{
		Short: "Delete jobs for good that no instance offers",
		Long: `Forget deletes the records of a job: definition, plan, counts, failures, intent, acts and the saved
states of its shards. The acts go with it, so it is not recorded. It exits with 4 while a live
instance offers the job or owns shards of it.`,
	})
}

func (c *commands) unretire() *cobra.Command {
	return c.ofJobs("unretire", &cobra.Command{Short: "Revert retire, unless the jobs are deleted already"})
}

// scopeOptions are the flags of disable and enable.
type scopeOptions struct {
	shards           settings.Shards
	instances, hosts settings.Names
}

func (o *scopeOptions) addFlags(cmd *cobra.Command, s *settings.Settings) {
	f := cmd.Flags()
	f.SetNormalizeFunc(settings.RenameFlag("shard", "shards"))
	f.Var(&o.shards, "shards", "shards of the job, such as 3,7-9")
	f.Var(&o.instances, "instance", "name of an instance; may be repeated")
	f.Var(&o.hosts, "host", "name of a host; may be repeated")
	_ = cmd.RegisterFlagCompletionFunc("instance", complete.Instances(s))
}

// check returns an error if the flags name nothing, or shards of no job.
func (o *scopeOptions) check(args []string) error {
	switch {
	case len(args) == 0 && len(o.shards) > 0:
		return exit.Usagef("--shards needs a job")
	case len(o.shards)+len(o.instances)+len(o.hosts) == 0:
		return exit.Usagef("name --shards, --instance or --host; to stop a whole job, use rota pause")
	}
	return nil
}

func (c *commands) disable() *cobra.Command {
	return c.setDisabled("disable", &cobra.Command{
		Short: "Prevent shards, instances or hosts from starting runs until enable",
		Long: `Disable prevents shards of a job, instances or hosts from starting runs until rota enable. Without
JOB, instances and hosts are disabled for all jobs. Fires of disabled shards are skipped; shards of
disabled instances and hosts move to others.`,
		Example: `  rota disable tenants --shards 3,7-9
  rota disable --host node-7`,
	})
}

func (c *commands) enable() *cobra.Command {
	return c.setDisabled("enable", &cobra.Command{
		Short: "Revert disable for the same job, or for all",
		Long: `Enable reverts rota disable: with JOB what is disabled for that job, without JOB what is disabled for
all jobs.`,
	})
}

func (c *commands) setDisabled(name string, cmd *cobra.Command) *cobra.Command {
	var o scopeOptions
	cmd.Use = name + " [JOB]"
	cmd.Args = cobra.MaximumNArgs(1)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := o.check(args); err != nil {
			return err
		}
		r, on := acts.Request{Shards: o.shards, Instances: o.instances, Hosts: o.hosts}, acts.OnGroup
		if len(args) > 0 {
			r.Job, on = args[0], acts.OnJob
		}
		return c.do(cmd, verb(name, on), r)
	}
	cmd.ValidArgsFunction = complete.Jobs(c.s, 1)
	o.addFlags(cmd, c.s)
	return settings.Limit(cmd, flags...)
}

// triggerOptions are the flags of trigger.
type triggerOptions struct {
	param       string
	shards      settings.Shards
	wait        bool
	waitTimeout time.Duration
}

func (c *commands) trigger() *cobra.Command {
	var o triggerOptions
	cmd := &cobra.Command{
		Use:   "trigger JOB",
		Short: "Run a job now, in all shards or some, with its parameter or another",
		Long: `Trigger requests a run of a job and prints its number. The request is durable: crashes cannot
prevent the run. With --wait, trigger returns when all its runs have ended: with exit code 4 if one
failed, or if the time is over.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var done view.Done
			err := c.operate(cmd.Context(), func(ctx context.Context, op *operator.Operator) (err error) {
				r := acts.Request{Job: args[0], Shards: o.shards, Param: &o.param}
				done, err = c.doIn(ctx, cmd, op, verb("trigger", acts.OnJob), r)
				return err
			})
			if err != nil || !o.wait {
				return err
			}
			return c.awaitTrigger(cmd, args[0], done.Trigger, o.waitTimeout)
		},
		ValidArgsFunction: complete.Jobs(c.s, 1),
	}
	f := cmd.Flags()
	f.SetNormalizeFunc(settings.RenameFlag("shard", "shards"))
	f.StringVar(&o.param, "param", "", "parameter of the runs, instead of the job's")
	f.Var(&o.shards, "shards", "shards to run, such as 3,7-9 (default all)")
	settings.AllowEmpty(f, "param")
	f.BoolVar(&o.wait, "wait", false, "wait until all runs have ended")
	f.DurationVar(&o.waitTimeout, "wait-timeout", time.Hour, "how long to wait")
	return settings.Limit(cmd, flags...)
}

// awaitTrigger waits for the end of a trigger, and fails if one of its runs did.
func (c *commands) awaitTrigger(cmd *cobra.Command, job string, number uint64, timeout time.Duration) error {
	op, err := c.s.Operator(cmd.Context())
	if err != nil {
		return err
	}
	ended := view.TriggerEnded(number)
	var last operator.Status
	err = show.Await(cmd.Context(), op, job, timeout, func(st *operator.Status, now time.Time) (bool, string) {
		last = *st
		return ended(st, now)
	})
	if err != nil {
		return err
	}
	for _, f := range last.Failures {
		if f.Trigger == number {
			return exit.NotMetf("trigger #%d of %s failed in %s: %s", number, job, view.ShardsText(f.Shards), f.Error)
		}
	}
	return c.print(cmd, view.Done{Verb: "trigger", Jobs: []string{job}, Trigger: number, Text: fmt.Sprintf("trigger #%d of %s has ended without a failure", number, job)})
}
