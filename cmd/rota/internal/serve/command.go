package serve

import (
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/rota-dev/rota/cmd/rota/internal/exit"
	"github.com/rota-dev/rota/cmd/rota/internal/jobsfile"
	"github.com/rota-dev/rota/cmd/rota/internal/settings"
	"github.com/rota-dev/rota/coordinator"
	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/internal/registryurl"
	"github.com/rota-dev/rota/internal/secret"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

// RunCommand returns the command "rota run". Clock returns the time of day for its instance; nil means
// time.Now.
func RunCommand(schemes registryurl.Schemes, clock func() time.Time) *cobra.Command {
	o := options{schemes: schemes, clock: clock, exit: os.Exit, uid: os.Geteuid()}
	cmd := &cobra.Command{
		Use:   "run FILE",
		Short: "Run the jobs of a file, alone or in a fleet",
		Long: `Run is a process whose jobs are commands, scripts and HTTP requests of a YAML file.
rota validate checks the file; docs/jobs-file.md describes it.

With the registry "memory", the default, the process is alone: a cron with shards,
retries and catch-up. With etcd, ZooKeeper or PostgreSQL it is an instance of a fleet: several
processes with the same file share the shards, and if one dies, others run its shards.

Commands and URLs are in the local file only; the store has schedules and parameters. Run
refuses a file that group or others may write, and refuses to run as root without --allow-root.

If the store does not answer at the start, run waits for it; the port answers meanwhile.

SIGTERM and SIGINT drain: runs may finish, and the shards move to other instances. A second
one ends the process at once. SIGHUP reloads the file: all of it applies, or nothing if it
has a problem. As process 1 of a container, run also reaps orphaned processes.`,
		Example: `  rota run examples/jobs.yaml
  rota run jobs.yaml --registry etcd://e1:2379,e2:2379 --listen :8080`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.file = args[0]
			if err := hideProcess(); err != nil {
				return err
			}
			if !cmd.Flags().Changed("revision") {
				o.revision = -1
			}
			code, done, err := superviseIfInit(o.asInit)
			switch {
			case done && code != 0:
				return &exit.Error{Code: code, Err: err}
			case done || err != nil:
				return err
			}
			if o.log, err = settings.NewLogger(cmd.ErrOrStderr(), o.logFormat, o.logLevel); err != nil {
				return err
			}
			o.env = os.Environ()
			signals := make(chan os.Signal, 8)
			signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
			defer signal.Stop(signals)
			o.signals = signals
			return run(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.registry, "registry", "", "memory, etcd://HOST,..., zk://HOST,..., postgres://HOST/DB (default: ROTA_REGISTRY, file, memory)")
	f.StringVarP(&o.namespace, "namespace", "n", "", "namespace of the jobs (default: ROTA_NAMESPACE, the file's, or default)")
	f.StringVarP(&o.group, "group", "g", "", "group of the namespace (default: ROTA_GROUP, the file's, or default)")
	f.Var(settings.NewNumber(&o.revision, 0, 0, math.MaxInt), "revision", "revision of the jobs, instead of the file's")
	f.StringVar(&o.instance, "instance", "", "name of this instance, unique in the fleet (default: the host and a random part)")
	f.StringVar(&o.host, "host", "", "name of the host, for operators who disable hosts (default: the system's)")
	f.Var(settings.NewNumber(&o.workers, 0, 0, math.MaxInt), "workers", "number of runs of all jobs at a time (default: no bound)")
	f.Var(settings.NewNumber(&o.weight, 0, 0, coordinator.MaxWeight), "weight", "share of shards relative to other instances (default 1)")
	f.StringToStringVar(&o.labels, "label", nil, "label of this instance, for run_on: NAME=VALUE, repeated")
	f.DurationVar(&o.sessionTTL, "ttl", registry.DefaultSessionTTL, "time after which the shards of a silent instance move")
	f.DurationVar(&o.restartGrace, "restart-grace", 0, "time for which the shards wait for this instance after a stop or crash; needs --instance")
	f.DurationVar(&o.drainTimeout, "drain-timeout", 20*time.Second, "time that runs have to finish after SIGTERM; the end takes up to 9 s more")
	f.DurationVar(&o.waitForStore, "wait-for-store", defaultWaitForStore, "`time` to wait at the start for a store that does not answer (0: none)")
	f.StringVar(&o.listen, "listen", "", "address for /livez, /readyz and /metrics, such as :8080 (default: none)")
	f.StringVar(&o.pprof, "pprof", "", "address for /debug/pprof/, such as 127.0.0.1:6060 (default: none)")
	f.BoolVar(&o.pprofRemote, "pprof-remote", false, "let --pprof be an address that other hosts reach")
	f.BoolVar(&o.allowRoot, "allow-root", false, "run commands as root")
	f.BoolVar(&o.asInit, "init", false, "reap orphaned processes even if this is not process 1 (Linux)")
	f.StringVar(&o.logFormat, "log-format", "text", "text or json")
	f.StringVar(&o.logLevel, "log-level", "info", "debug, info, warn or error")
	return settings.Limit(cmd) // its flags have other defaults than the global ones
}

// ValidateCommand returns the command "rota validate".
func ValidateCommand(schemes registryurl.Schemes) *cobra.Command {
	var schema, noLookup bool
	var fires int
	var labels map[string]string
	cmd := &cobra.Command{
		Use:   "validate FILE",
		Short: "Check a file of jobs, and show their next fires",
		Long: `Validate reads a file and the environment as rota run does, and prints the registry, namespace and
group, and the jobs with their next fires. If the file has problems, it prints all of them, each
with line, column, key and rule, and returns exit code 2.

Programs, and files and variables with secrets, must exist on this host, for a job with run_on
only if --label gives its labels. With --no-lookup they need not exist.`,
		Example: `  rota validate jobs.yaml
  rota validate --schema > jobs.schema.json`,
		Args: func(_ *cobra.Command, args []string) error {
			if want := map[bool]int{true: 0, false: 1}[schema]; len(args) != want {
				return fmt.Errorf("validate needs a FILE, or --schema and no FILE")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if schema {
				_, err := cmd.OutOrStdout().Write(jobsfile.Schema())
				return err
			}
			o := &options{schemes: schemes, env: os.Environ(), labels: labels, secrets: &secret.Masker{}, log: slog.New(slog.DiscardHandler)}
			host := jobsfile.Host{Schemes: schemes}
			if !noLookup {
				host = o.hostOfRun()
			}
			return o.validate(cmd, args[0], host, fires, time.Now())
		},
	}
	f := cmd.Flags()
	f.BoolVar(&schema, "schema", false, "print the JSON schema of the file")
	f.BoolVar(&noLookup, "no-lookup", false, "accept programs, files and variables that do not exist here")
	f.Var(settings.NewNumber(&fires, 3, 1, maxFires), "fires", "number of fires to show for each job")
	f.StringToStringVar(&labels, "label", nil, "label of the instances that the check is for: NAME=VALUE, repeated")
	return settings.Limit(cmd)
}

// validate checks a file and prints its jobs.
func (o *options) validate(cmd *cobra.Command, path string, host jobsfile.Host, fires int, now time.Time) error {
	file, err := os.Open(path)
	if err != nil {
		return &exit.Error{Code: exit.Usage, Err: err}
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, jobsfile.MaxBytes+1))
	if err != nil {
		return &exit.Error{Code: exit.Usage, Err: err}
	}
	f, err := jobsfile.Load(path, content, host)
	if err != nil {
		return &exit.Error{Code: exit.Usage, Err: err}
	}
	t, err := o.checkTarget(f, host.Programs)
	if err != nil {
		return err
	}
	if host.Programs {
		if err := f.History.CheckDirectory(); err != nil {
			return &exit.Error{Code: exit.Usage, Err: fmt.Errorf("%s: %w", path, err)}
		}
	}
	if info, err := file.Stat(); err == nil {
		if err := ownFile(path, os.Geteuid()).Check(info); err != nil {
			fmt.Fprintln(cmd.ErrOrStderr(), "warning: for rota run,", err)
		}
	}
	for _, warning := range slices.Concat(f.Warnings, f.Notes, listUnknownFollowed(f), listEnded(f, now), o.listOverruled(f)) {
		fmt.Fprintln(cmd.ErrOrStderr(), "warning:", warning)
	}
	text, err := describe(path, f, t, fires, now)
	if err != nil {
		return err
	}
	_, err = io.Copy(cmd.OutOrStdout(), strings.NewReader(text))
	return err
}

// checkTarget returns where an instance with the file would join. It reads the credentials only if lookup is set.
func (o *options) checkTarget(f *jobsfile.File, lookup bool) (target, error) {
	t, err := o.targetOf(f)
	if err != nil {
		return target{}, err
	}
	if _, err := executor.New(memory.New().Client("check"), t.namespace, executor.Options{Group: t.group, Logger: o.log}); err != nil {
		return target{}, &exit.Error{Code: exit.Usage, Err: err}
	}
	if lookup {
		_, err = o.connectionOf(t)
	}
	return t, err
}
