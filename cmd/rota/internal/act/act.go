// Package act holds the commands that change what a fleet runs.
package act

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/user"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rota-dev/rota/cmd/rota/internal/complete"
	"github.com/rota-dev/rota/cmd/rota/internal/exit"
	"github.com/rota-dev/rota/cmd/rota/internal/screen"
	"github.com/rota-dev/rota/cmd/rota/internal/settings"
	"github.com/rota-dev/rota/cmd/rota/internal/show"
	"github.com/rota-dev/rota/internal/view"
	"github.com/rota-dev/rota/operator"
)

// Commands returns the commands.
func Commands(s *settings.Settings) []*cobra.Command {
	c := &commands{s: s}
	all := []*cobra.Command{
		c.trigger(), c.backfill(), c.retry(), c.cancel(), c.pause(), c.resume(), c.disable(), c.enable(), c.drain(), c.undrain(),
		c.override(), c.reset(), c.retire(), c.unretire(), c.forget(), c.acknowledge(),
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
	for _, name := range []string{c.by, c.s.Getenv("ROTA_BY")} {
		if name != "" {
			return name
		}
	}
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return c.s.Getenv("USER")
}

// print prints the result of a verb.
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

// noChange is the result of an act that has nothing to end: what holds of the job or instance. It is no failure.
type noChange string

func (n noChange) Error() string { return string(n) + ": nothing changed" }

// orUnchanged returns the text of a verb: done, or why it has changed nothing.
func orUnchanged(done, of string, err error) (string, error) {
	if n, ok := errors.AsType[noChange](err); ok {
		return of + " " + n.Error(), nil
	}
	return done, err
}

// eachJob calls f for each job. A failure does not prevent the next call. Done is the format of the result, with the job.
func (c *commands) eachJob(cmd *cobra.Command, verb, done string, jobs []string, f func(context.Context, *operator.Operator, string) error) error {
	return c.operate(cmd.Context(), func(ctx context.Context, op *operator.Operator) error {
		var errs []error
		for _, job := range jobs {
			text, err := orUnchanged(fmt.Sprintf(done, job), job, f(ctx, op, job))
			if err == nil {
				err = c.print(cmd, view.Done{Verb: verb, Jobs: []string{job}, Text: text})
			}
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	})
}

func (c *commands) reset() *cobra.Command {
	return settings.Limit(&cobra.Command{
		Use:   "reset JOB...",
		Short: "Start jobs afresh whose shards wait because of a wrong clock",
		Long: `Reset starts a new epoch of a job. It is for shards that wait because a skewed clock claimed their
fires ahead of time, which rota job shows as a problem. Fires that were claimed ahead of time run
again.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			act := fmt.Sprintf("reset %s: fires that were claimed ahead of time will run again", strings.Join(args, ", "))
			if err := c.s.Confirm(cmd, act); err != nil {
				return err
			}
			return c.eachJob(cmd, "reset", "reset %s", args, func(ctx context.Context, op *operator.Operator, job string) error {
				return op.Reset(ctx, job)
			})
		},
		ValidArgsFunction: complete.Jobs(c.s, 0),
	}, flags...)
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

// scope returns what the flags name.
func (o *scopeOptions) scope(args []string) (operator.Scope, error) {
	sc := operator.Scope{Job: strings.Join(args, ""), Shards: o.shards, Instances: o.instances, Hosts: o.hosts}
	switch {
	case sc.Job == "" && len(sc.Shards) > 0:
		return sc, errors.New("--shards needs a job")
	case len(sc.Shards)+len(sc.Instances)+len(sc.Hosts) == 0:
		return sc, errors.New("name --shards, --instance or --host; to stop a whole job, use rota pause")
	}
	return sc, nil
}

// describe names the scope.
func (o *scopeOptions) describe(job string, shards []int) string {
	var parts []string
	if len(shards) > 0 {
		parts = append(parts, view.ShardsText(shards))
	}
	for _, i := range o.instances {
		parts = append(parts, "instance "+i)
	}
	for _, h := range o.hosts {
		parts = append(parts, "host "+h)
	}
	if job == "" {
		return strings.Join(parts, ", ") + " for all jobs"
	}
	return strings.Join(parts, ", ") + " for " + job
}

func (c *commands) disable() *cobra.Command {
	return c.setDisabled("disable", "disabled", &cobra.Command{
		Short: "Prevent shards, instances or hosts from starting runs until enable",
		Long: `Disable prevents shards of a job, instances or hosts from starting runs until rota enable. Without
JOB, instances and hosts are disabled for all jobs. Fires of disabled shards are skipped; shards of
disabled instances and hosts move to others.`,
		Example: `  rota disable tenants --shards 3,7-9
  rota disable --host node-7`,
	}, (*operator.Operator).Disable)
}

func (c *commands) enable() *cobra.Command {
	return c.setDisabled("enable", "enabled", &cobra.Command{
		Short: "Revert disable for the same job, or for all",
		Long: `Enable reverts rota disable: with JOB what is disabled for that job, without JOB what is disabled for
all jobs.`,
	}, (*operator.Operator).Enable)
}

func (c *commands) setDisabled(verb, done string, cmd *cobra.Command, set func(*operator.Operator, context.Context, operator.Scope) error) *cobra.Command {
	var o scopeOptions
	cmd.Use = verb + " [JOB]"
	cmd.Args = cobra.MaximumNArgs(1)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		sc, err := o.scope(args)
		if err != nil {
			return &exit.Error{Code: exit.Usage, Err: err}
		}
		return c.operate(cmd.Context(), func(ctx context.Context, op *operator.Operator) error {
			v := view.Done{Verb: verb, Jobs: args, Text: done + " " + o.describe(sc.Job, sc.Shards)}
			in, err := op.Intent(ctx, sc.Job)
			if verb == "enable" && err == nil && in.RetiredBy.At.IsZero() && !overlaps(&sc, &in.Disabled) {
				v.Text = o.describe(sc.Job, sc.Shards) + ": not disabled, nothing changed"
			} else if err := set(op, ctx, sc); err != nil {
				return err
			}
			v.Note = describeAbsent(ctx, op, &sc)
			return c.print(cmd, v)
		})
	}
	cmd.ValidArgsFunction = complete.Jobs(c.s, 1)
	o.addFlags(cmd, c.s)
	return settings.Limit(cmd, flags...)
}

// overlaps reports whether something of sc is disabled.
func overlaps(sc, disabled *operator.Scope) bool {
	return slices.ContainsFunc(sc.Shards, func(shard int) bool { return slices.Contains(disabled.Shards, shard) }) ||
		slices.ContainsFunc(sc.Instances, func(name string) bool { return slices.Contains(disabled.Instances, name) }) ||
		slices.ContainsFunc(sc.Hosts, func(name string) bool { return slices.Contains(disabled.Hosts, name) })
}

// describeAbsent returns a note if the scope names something that does not exist, as after a typing error. The act is stored, so
// a failed read is no error.
func describeAbsent(ctx context.Context, op *operator.Operator, sc *operator.Scope) string {
	var notes []string
	if len(sc.Shards) > 0 {
		if st, err := op.Status(ctx, sc.Job); err == nil && slices.Max(sc.Shards) >= st.Shards {
			notes = append(notes, fmt.Sprintf("%s has the shards 0 to %d", sc.Job, st.Shards-1))
		}
	}
	for _, name := range sc.Instances {
		if note := describeMissing(ctx, op, name, "this holds for its start"); note != "" {
			notes = append(notes, note)
		}
	}
	if len(sc.Hosts) > 0 {
		notes = append(notes, describeMissingHosts(ctx, op, sc.Hosts)...)
	}
	return strings.Join(notes, "\n")
}

// describeMissingHosts returns a note for each host on which no instance is alive.
func describeMissingHosts(ctx context.Context, op *operator.Operator, hosts []string) (notes []string) {
	all, err := op.Instances(ctx)
	if err != nil {
		return nil
	}
	var names []string
	for _, i := range all {
		if i.Alive && i.Host != "" && !slices.Contains(names, i.Host) {
			names = append(names, i.Host)
		}
	}
	slices.Sort(names)
	for _, host := range hosts {
		if !slices.Contains(names, host) {
			notes = append(notes, fmt.Sprintf("no instance is alive on host %s; this holds for its next instance. Alive: %s", host, listBounded(names)))
		}
	}
	return notes
}

// listBounded returns up to 20 names, "none" for none.
func listBounded(names []string) string {
	const most = 20
	if len(names) > most {
		names = append(slices.Clone(names[:most-1]), "...")
	}
	return cmp.Or(strings.Join(names, ", "), "none")
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
			done := view.Done{Verb: "trigger", Jobs: args}
			err := c.operate(cmd.Context(), func(ctx context.Context, op *operator.Operator) (err error) {
				done.Trigger, err = op.Trigger(ctx, args[0], o.param, o.shards)
				if err == nil {
					done.Note = c.describeWait(ctx, op, args[0], o.shards)
				}
				return err
			})
			if err != nil {
				return err
			}
			done.Text = fmt.Sprintf("triggered %s: #%d", args[0], done.Trigger)
			if err := c.print(cmd, done); err != nil || !o.wait {
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

// describeWait returns why runs of shards of a job, nil for all, do not begin now, a reason a line; "" if they may. The
// request is stored, so a failed read is no error.
func (c *commands) describeWait(ctx context.Context, op *operator.Operator, job string, shards []int) string {
	var reasons []string
	if in, err := op.Intent(ctx, job); err == nil {
		disabled := slices.DeleteFunc(slices.Clone(in.Disabled.Shards), func(shard int) bool { return shards != nil && !slices.Contains(shards, shard) })
		if in.Paused {
			reasons = append(reasons, view.DescribeHold("the job", &in)+"; the run waits for the resume")
		}
		switch len(disabled) {
		case 0:
		case 1:
			reasons = append(reasons, view.ShardsText(disabled)+" is disabled; its run waits for rota enable")
		default:
			reasons = append(reasons, view.ShardsText(disabled)+" are disabled; their runs wait for rota enable")
		}
	}
	if in, err := op.Intent(ctx, ""); err == nil && in.Paused && len(reasons) == 0 {
		reasons = append(reasons, view.DescribeHold("the group", &in)+"; the run waits for the resume")
	}
	if alive, err := op.HasLiveInstance(ctx); err == nil && !alive {
		reasons = append(reasons, "no instance is alive; the run waits for the start of one")
	}
	return strings.Join(reasons, "\n")
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
	return c.print(cmd, view.Done{Verb: "trigger", Jobs: []string{job}, Trigger: number, Text: fmt.Sprintf("trigger #%d of %s has ended", number, job)})
}
