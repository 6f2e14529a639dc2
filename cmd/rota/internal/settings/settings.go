// Package settings holds the global flags of the command, completes them from the environment and
// the configuration file, and opens the registry that they name.
package settings

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rota-dev/rota/cmd/rota/internal/exit"
	"github.com/rota-dev/rota/cmd/rota/internal/historyurl"
	"github.com/rota-dev/rota/cmd/rota/internal/spelling"
	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/internal/registryurl"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry"
)

// Settings are the global flags. A flag overrides the environment variable ROTA_ and its name in
// capitals, which overrides the context, which overrides the default. Resolve completes the fields.
type Settings struct {
	Registry  string // a URL of package registryurl, or "memory"
	Namespace string
	Group     string
	Context   string // the name of the context in use; empty if there is none
	Output    string // one of Outputs
	Watch     bool
	Time      string // one of Times
	History   string // URL of the database of runs; empty if there is none
	Timeout   time.Duration
	Yes       bool
	// Protected reports whether the context demands --yes of verbs.
	Protected bool

	// Schemes are the registries that URLs can name.
	Schemes registryurl.Schemes
	// OpenRegistry opens the registry at a URL. Tests replace it.
	OpenRegistry func(ctx context.Context, url string, o registryurl.Options) (registry.Registry, error)
	// Getenv looks up an environment variable. Tests replace it.
	Getenv func(name string) string
	// Logger gets the lines of the registry. Nil means none: a command that ends soon returns its errors.
	Logger *slog.Logger
	// Clock returns the time of day for the instance of rota run. Nil means time.Now. Tests of wrong clocks
	// replace it.
	Clock func() time.Time

	flags    *pflag.FlagSet
	resolved bool
	file     File
	inUse    ContextEntry // of the file; zero if no context is in use
	reg      registry.Registry
	writes   bool
}

// The values of --output and --time.
var (
	Outputs = []string{"table", "wide", "json", "jsonl", "yaml", "name"}
	Times   = []string{"relative", "utc", "local"}
)

// New returns Settings for the environment of this process and registries of these schemes.
func New(schemes registryurl.Schemes) *Settings {
	return &Settings{Schemes: schemes, OpenRegistry: schemes.Open, Getenv: os.Getenv}
}

// AddFlags adds the global flags to the root command.
func (s *Settings) AddFlags(root *cobra.Command) {
	f := root.PersistentFlags()
	f.StringVar(&s.Registry, "registry", "", "store of the fleet: etcd://HOST[:PORT],..., zookeeper://HOST[:PORT],.../CHROOT or postgres://HOST[:PORT],.../DATABASE")
	f.StringVarP(&s.Namespace, "namespace", "n", "", "namespace of the fleet")
	f.StringVarP(&s.Group, "group", "g", "default", "group of the namespace")
	f.StringVar(&s.Context, "context", "", "context of the configuration file to use (default: its current one)")
	f.StringVarP(&s.Output, "output", "o", "table", strings.Join(Outputs, ", "))
	f.BoolVarP(&s.Watch, "watch", "w", false, "show the screen again after each change")
	f.StringVar(&s.Time, "time", "relative", "times in tables: "+strings.Join(Times, ", "))
	f.StringVar(&s.History, "history", "", "database of runs: postgres://..., mysql://... or sqlite:FILE")
	f.DurationVar(&s.Timeout, "timeout", 10*time.Second, "time after which a command without --watch or --wait fails")
	f.BoolVar(&s.Yes, "yes", false, "do not ask before a destructive command")
	s.flags = f
	showApplicableFlags(root)
}

// appliesTo is the annotation of a command that lists the global flags which apply to it.
const appliesTo = "rota-global-flags"

// Limit makes a command accept only the named global flags. Without Limit, it accepts all.
func Limit(cmd *cobra.Command, flags ...string) *cobra.Command {
	if cmd.Annotations == nil {
		cmd.Annotations = map[string]string{}
	}
	cmd.Annotations[appliesTo] = strings.Join(flags, ",")
	return cmd
}

// Connection are the global flags of commands that read the store.
var Connection = []string{"registry", "namespace", "group", "context", "timeout"}

// applies reports whether a global flag applies to a command.
func applies(cmd *cobra.Command, flag string) bool {
	list, limited := cmd.Annotations[appliesTo]
	return !limited || slices.Contains(strings.Split(list, ","), flag)
}

// CheckLine returns an error if a global flag is set that does not apply to cmd, or if a flag or an argument is empty, or a
// duration negative.
func (s *Settings) CheckLine(cmd *cobra.Command, args []string) error {
	var errs []error
	cmd.InheritedFlags().VisitAll(func(f *pflag.Flag) {
		if f.Changed && s.flags.Lookup(f.Name) == f && !applies(cmd, f.Name) {
			errs = append(errs, fmt.Errorf("--%s does not apply to %q", f.Name, cmd.CommandPath()))
		}
	})
	cmd.Flags().Visit(func(f *pflag.Flag) { errs = append(errs, checkEmpty(f), checkDuration(f)) })
	for i, arg := range args {
		if arg == "" {
			errs = append(errs, fmt.Errorf("argument %d of %q is empty", i+1, cmd.Use))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return &exit.Error{Code: exit.Usage, Err: err}
	}
	return nil
}

// usageCode is the annotation of a command whose exit code for a wrong command line is not exit.Usage.
const usageCode = "rota-usage-code"

// SetUsageCode sets the exit code of a command whose command line is refused.
func SetUsageCode(cmd *cobra.Command, code int) *cobra.Command {
	cmd.Annotations[usageCode] = strconv.Itoa(code)
	return cmd
}

// UsageCode returns the exit code of a command whose command line is refused.
func UsageCode(cmd *cobra.Command) int {
	if code, err := strconv.Atoi(cmd.Annotations[usageCode]); err == nil {
		return code
	}
	return exit.Usage
}

// showApplicableFlags makes the help of each command omit global flags that do not apply.
func showApplicableFlags(root *cobra.Command) {
	help, usage := root.HelpFunc(), root.UsageFunc()
	hide := func(cmd *cobra.Command) {
		cmd.InheritedFlags().VisitAll(func(f *pflag.Flag) { f.Hidden = !applies(cmd, f.Name) })
	}
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		hide(cmd)
		help(cmd, args)
	})
	root.SetUsageFunc(func(cmd *cobra.Command) error {
		hide(cmd)
		return usage(cmd)
	})
}

// Resolve completes the settings from the environment and the configuration file. It is
// idempotent.
func (s *Settings) Resolve() error {
	if s.resolved {
		return nil
	}
	if err := s.resolve(); err != nil {
		return &exit.Error{Code: exit.Usage, Err: err}
	}
	s.resolved = true
	return nil
}

func (s *Settings) resolve() error {
	file, err := ReadFile(s.ConfigPath())
	if err != nil {
		return err
	}
	s.file = file
	if err := s.chooseContext(); err != nil {
		return err
	}
	for flag, fallback := range map[string]string{
		"registry": s.inUse.Registry, "namespace": s.inUse.Namespace, "group": s.inUse.Group, "output": s.inUse.Output,
		"time": s.inUse.Time, "history": s.inUse.History, "timeout": s.inUse.Timeout,
	} {
		if err := s.override(flag, fallback); err != nil {
			return err
		}
	}
	if s.flags.Changed("history") && s.History != "" {
		if err := checkHistoryFlag(s.History); err != nil {
			return err
		}
	}
	if s.History == "" && s.inUse.HistoryEnv != "" {
		s.History = s.Getenv(s.inUse.HistoryEnv)
	}
	if !slices.Contains(Outputs, s.Output) {
		return fmt.Errorf("--output is %q, not one of %s", s.Output, strings.Join(Outputs, ", "))
	}
	if !slices.Contains(Times, s.Time) {
		return fmt.Errorf("--time is %q, not one of %s", s.Time, strings.Join(Times, ", "))
	}
	if s.Timeout <= 0 {
		return fmt.Errorf("--timeout is %v, not above 0", s.Timeout)
	}
	s.Protected = s.inUse.Protected && s.usesContextRegistry()
	return nil
}

// checkHistoryFlag refuses a password in an argument, which other users of the host can read.
func checkHistoryFlag(url string) error {
	if errors.Is(historyurl.CheckWithoutPassword(url), historyurl.ErrPassword) {
		return errors.New("--history has a password, which other users of the host can read: set ROTA_HISTORY, or history_env of a context")
	}
	return nil
}

// chooseContext sets the context in use.
func (s *Settings) chooseContext() error {
	if s.Context = cmp.Or(s.Context, s.Getenv("ROTA_CONTEXT"), s.file.Current); s.Context == "" {
		return nil
	}
	entry, ok := s.file.Contexts[s.Context]
	if !ok {
		return fmt.Errorf("there is no context %q in %s; rota context ls lists them", s.Context, s.ConfigPath())
	}
	s.inUse = entry
	return nil
}

// override sets a flag that the command line does not set from the environment, or else from the
// context.
func (s *Settings) override(flag, fromContext string) error {
	f := s.flags.Lookup(flag)
	if f.Changed {
		return nil
	}
	name, source := "ROTA_"+strings.ToUpper(flag), ""
	value := s.Getenv(name)
	if source = name; value == "" {
		value, source = fromContext, fmt.Sprintf("context %q: %s", s.Context, flag)
	}
	if value == "" {
		return nil
	}
	if err := f.Value.Set(value); err != nil {
		return fmt.Errorf("%s: %q: %w", source, value, err)
	}
	return nil
}

// usesContextRegistry reports whether the registry is that of the context. Credentials of a context
// are never sent to another address.
func (s *Settings) usesContextRegistry() bool {
	return s.inUse.Registry != "" && s.Registry == s.inUse.Registry
}

// AllowWrites makes Connect open a registry that can be written to, which needs the right to write. A command that
// only looks does not call it.
func (s *Settings) AllowWrites() {
	if !s.writes {
		s.Close() // a registry that was opened for reading
		s.writes = true
	}
}

// Connect opens the registry on the first call, and returns it: for reading only, unless AllowWrites was called
// before. Close closes it.
func (s *Settings) Connect(ctx context.Context) (registry.Registry, error) {
	if s.reg != nil {
		return s.reg, nil
	}
	reg, err := s.open(ctx, !s.writes)
	if err != nil {
		return nil, err
	}
	s.reg = reg
	return reg, nil
}

// OpenWritable opens the registry once more, so that it can be written to. The caller closes it.
func (s *Settings) OpenWritable(ctx context.Context) (registry.Registry, error) {
	return s.open(ctx, false)
}

func (s *Settings) open(ctx context.Context, readOnly bool) (registry.Registry, error) {
	if err := s.Resolve(); err != nil {
		return nil, err
	}
	if err := s.checkAddress(); err != nil {
		return nil, &exit.Error{Code: exit.Usage, Err: err}
	}
	o, err := s.connection(readOnly)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, min(s.Timeout, maxConnectTime))
	defer cancel()
	reg, err := s.OpenRegistry(ctx, s.Registry, o)
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, s.adviseConnection(err))
	}
	return reg, nil
}

// connection returns how to connect to the registry.
func (s *Settings) connection(readOnly bool) (registryurl.Options, error) {
	o := registryurl.Options{Logger: cmp.Or(s.Logger, slog.New(slog.DiscardHandler)), CallTimeout: s.callTimeout(), ReadOnly: readOnly}
	if err := s.addCredentials(&o); err != nil {
		return o, &exit.Error{Code: exit.Usage, Err: err}
	}
	return o, nil
}

// ConnectionOf returns how to connect to the registry, whose URL needs the given scheme, for a command that does not open it.
func (s *Settings) ConnectionOf(scheme string) (registryurl.Options, error) {
	if err := s.Resolve(); err != nil {
		return registryurl.Options{}, err
	}
	if !strings.HasPrefix(s.Registry, scheme+"://") {
		return registryurl.Options{}, exit.Usagef("the registry has to be %s://HOST/DATABASE: pass --registry, set ROTA_REGISTRY, or use a context", scheme)
	}
	return s.connection(!s.writes)
}

// callTimeout returns the bound of one call: the default of the backends, or more if the user gives the command more
// time, since a list of all jobs of a large group is one call.
func (s *Settings) callTimeout() time.Duration {
	if half := s.Timeout / 2; half > usualCallTimeout {
		return half
	}
	return 0
}

// usualCallTimeout is the default of the backends.
const usualCallTimeout = 5 * time.Second

// maxConnectTime bounds the attempt to connect: a wrong address fails within seconds.
const maxConnectTime = 5 * time.Second

// checkAddress checks registry and namespace without a connection.
func (s *Settings) checkAddress() error {
	var noNamespace error
	if s.Namespace == "" {
		noNamespace = errors.New("no namespace is named: pass -n, set ROTA_NAMESPACE, or set it in a context")
	}
	switch s.Registry {
	case "":
		return errors.Join(errors.New("no registry is named: pass --registry etcd://HOST, zookeeper://HOST or postgres://HOST/DATABASE, set ROTA_REGISTRY, "+
			"or make a context with rota context set"), noNamespace)
	case "memory":
		return errors.New("the registry memory exists within one process, so this command cannot reach it: " +
			"name etcd://HOST, zookeeper://HOST or postgres://HOST/DATABASE")
	}
	if err := s.Schemes.Check(s.Registry); errors.Is(err, registryurl.ErrCredentials) {
		return fmt.Errorf("%w: use ROTA_USER with ROTA_PASSWORD or ROTA_PASSWORD_FILE, or user with password_env or password_file of a context", err)
	} else if err != nil {
		return fmt.Errorf("%w, as in etcd://host:2379, zookeeper://host:2181/chroot or postgres://host:5432/database", err)
	}
	return noNamespace
}

// adviseConnection returns what to try when the registry does not answer, or refuses.
func (s *Settings) adviseConnection(err error) string {
	source := "--registry"
	switch {
	case s.flags.Changed("registry"):
	case s.Getenv("ROTA_REGISTRY") != "":
		source = "ROTA_REGISTRY"
	default:
		source = fmt.Sprintf("context %q of %s", s.Context, s.ConfigPath())
	}
	switch {
	case errors.Is(err, registry.ErrPermission):
		return fmt.Sprintf("The server at %s, from %s, answered, and this user lacks a right there: the page on stores lists the rights of each role.", s.Registry, source)
	case errors.Is(err, registry.ErrUnauthenticated):
		return fmt.Sprintf("The server at %s, from %s, refuses the user: check ROTA_USER with ROTA_PASSWORD or ROTA_PASSWORD_FILE, or those of the context.", s.Registry, source)
	}
	from := fmt.Sprintf("The address %s comes from %s.", s.Registry, source)
	if !seemsAway(err) {
		return from // the error has the remedy, such as rota postgres migrate
	}
	return from + " Check that it is right and that a server listens there; " +
		"that TLS and credentials match the server's; and that no firewall is between."
}

// seemsAway reports whether err is that of a registry that does not answer.
func seemsAway(err error) bool {
	return errors.Is(err, registry.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded)
}

// ExplainFailure adds to an error of a registry that does not answer what to try.
func (s *Settings) ExplainFailure(err error) error {
	if seemsAway(err) {
		return fmt.Errorf("%w\n%s", err, s.adviseConnection(err))
	}
	return err
}

// AdviseJob adds to an error for an unknown job the job that one of the arguments probably means, or how to find the
// jobs. If the group has no fleet, it is that which is wrong, and not the name of the job.
func (s *Settings) AdviseJob(ctx context.Context, err error, args []string) error {
	if !errors.Is(err, operator.ErrUnknownJob) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, adviceTimeout)
	defer cancel()
	if note, absentErr := s.DescribeAbsence(ctx); absentErr == nil && note != "" {
		return exit.Usagef("%w\n%s", err, note)
	}
	var meant []string
	if op, opErr := s.Operator(ctx); opErr == nil {
		names, _ := op.JobNames(ctx) // without them, the advice is the general one
		for _, arg := range args {
			if name := spelling.Nearest(arg, names); name != "" && !slices.Contains(names, arg) {
				meant = append(meant, name)
			}
		}
	}
	if len(meant) == 0 {
		return fmt.Errorf("%w; rota jobs lists the jobs of the group", err)
	}
	return fmt.Errorf("%w; did you mean %s?", err, strings.Join(meant, ", "))
}

// adviceTimeout bounds the search for advice.
const adviceTimeout = 2 * time.Second

// Operator returns an Operator for the group, connected to the registry, which knows the schedules
// of package executor.
func (s *Settings) Operator(ctx context.Context) (*operator.Operator, error) {
	reg, err := s.Connect(ctx)
	if err != nil {
		return nil, err
	}
	op, err := operator.New(reg, s.Namespace, s.Group)
	if err != nil {
		return nil, &exit.Error{Code: exit.Usage, Err: err}
	}
	return op.WithCompiler(executor.Compile), nil
}

// Close closes the registry if Connect opened it.
func (s *Settings) Close() {
	if s.reg != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = s.reg.Close(ctx)
		s.reg = nil
	}
}

// Target names the fleet, for the line above a screen.
func (s *Settings) Target() string {
	target := s.Namespace + "/" + s.Group
	if s.Context != "" {
		target = s.Context + " " + target
	}
	return target
}
