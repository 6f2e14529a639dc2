package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rota-dev/rota/cmd/rota/internal/complete"
	"github.com/rota-dev/rota/cmd/rota/internal/exit"
	"github.com/rota-dev/rota/cmd/rota/internal/screen"
	"github.com/rota-dev/rota/cmd/rota/internal/settings"
	"github.com/rota-dev/rota/internal/view"
)

// contextCommand returns the command that reads and changes the configuration file.
func contextCommand(s *settings.Settings) *cobra.Command {
	cmd := settings.Limit(&cobra.Command{
		Use:   "context",
		Short: "List, choose and change contexts: fleets by name",
		Long: `A context names a fleet: its registry, namespace and group, and where its credentials are. Contexts
are in ~/.config/rota/config.yaml, or in the file that ROTA_CONFIG names. --context or ROTA_CONTEXT
choose one for a command, rota context use for all commands after it.`,
	})
	cmd.AddCommand(listContexts(s), useContext(s), setContext(s))
	return cmd
}

func listContexts(s *settings.Settings) *cobra.Command {
	return settings.Limit(&cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List the contexts; the current one has a star",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !slices.Contains(settings.Outputs, s.Output) {
				return exit.Usagef("--output is %q, not one of %s", s.Output, strings.Join(settings.Outputs, ", "))
			}
			file, err := settings.ReadFile(s.ConfigPath())
			if err != nil {
				return &exit.Error{Code: exit.Usage, Err: err}
			}
			v := view.Contexts{Version: view.Version, Current: file.Current, Contexts: []view.Context{}}
			for _, name := range slices.Sorted(maps.Keys(file.Contexts)) {
				c := file.Contexts[name]
				v.Contexts = append(v.Contexts, view.Context{
					Name: name, Registry: c.Registry, Namespace: c.Namespace, Group: c.Group, Protected: c.Protected,
				})
			}
			return screen.Print(cmd.OutOrStdout(), v, s.Output, screen.TimesOf(s))
		},
	}, "output")
}

func useContext(s *settings.Settings) *cobra.Command {
	return settings.Limit(&cobra.Command{
		Use:   "use NAME",
		Short: "Make a context the current one",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return changeFile(s, func(f *settings.File) error {
				if _, ok := f.Contexts[args[0]]; !ok {
					return fmt.Errorf("there is no context %q; rota context set makes one", args[0])
				}
				f.Current = args[0]
				return nil
			})
		},
		ValidArgsFunction: completeContexts(s),
	})
}

// completeContexts completes the names of contexts.
func completeContexts(s *settings.Settings) complete.Func {
	return func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		file, err := settings.ReadFile(s.ConfigPath())
		if err != nil || len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return slices.Sorted(maps.Keys(file.Contexts)), cobra.ShellCompDirectiveNoFileComp
	}
}

func setContext(s *settings.Settings) *cobra.Command {
	var c settings.ContextEntry
	cmd := &cobra.Command{
		Use:   "set NAME",
		Short: "Make or change a context; flags that are not given keep their values",
		Example: `  rota context set prod --registry etcd://e1,e2,e3 --namespace billing --protected \
    --user rota --password-file /run/secrets/rota --ca-file /etc/ssl/etcd.pem`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return changeFile(s, func(f *settings.File) error {
				if strings.TrimSpace(args[0]) == "" {
					return fmt.Errorf("the name of a context is empty")
				}
				next := f.Contexts[args[0]]
				for flag, fields := range map[string][2]*string{
					"registry": {&next.Registry, &c.Registry}, "namespace": {&next.Namespace, &c.Namespace}, "group": {&next.Group, &c.Group},
					"user": {&next.User, &c.User}, "password-file": {&next.PasswordFile, &c.PasswordFile},
					"password-env": {&next.PasswordEnv, &c.PasswordEnv}, "history": {&next.History, &c.History},
					"history-env": {&next.HistoryEnv, &c.HistoryEnv}, "ca-file": {&next.TLS.CAFile, &c.TLS.CAFile},
					"cert-file": {&next.TLS.CertFile, &c.TLS.CertFile}, "key-file": {&next.TLS.KeyFile, &c.TLS.KeyFile},
				} {
					if cmd.Flags().Changed(flag) {
						*fields[0] = *fields[1]
					}
				}
				if cmd.Flags().Changed("protected") {
					next.Protected = c.Protected
				}
				if next.Registry == "" {
					return fmt.Errorf("context %q has no registry: pass --registry", args[0])
				}
				if err := s.Schemes.Check(next.Registry); err != nil {
					return err
				}
				if f.Contexts == nil {
					f.Contexts = map[string]settings.ContextEntry{}
				}
				f.Contexts[args[0]] = next
				if f.Current == "" {
					f.Current = args[0]
				}
				return nil
			})
		},
		ValidArgsFunction: completeContexts(s),
	}
	f := cmd.Flags()
	f.StringVar(&c.Registry, "registry", "", "etcd://HOST[:PORT],..., zookeeper://HOST[:PORT],.../CHROOT or postgres://HOST[:PORT],.../DATABASE")
	f.StringVarP(&c.Namespace, "namespace", "n", "", "namespace of the fleet")
	f.StringVarP(&c.Group, "group", "g", "", "group of the namespace")
	f.StringVar(&c.User, "user", "", "user of the store")
	f.StringVar(&c.PasswordFile, "password-file", "", "file with the user's password")
	f.StringVar(&c.PasswordEnv, "password-env", "", "environment variable with the user's password")
	f.StringVar(&c.TLS.CAFile, "ca-file", "", "certificates of authorities; enables TLS")
	f.StringVar(&c.TLS.CertFile, "cert-file", "", "client certificate; enables TLS")
	f.StringVar(&c.TLS.KeyFile, "key-file", "", "key of the client certificate")
	f.StringVar(&c.History, "history", "", "database of runs")
	f.StringVar(&c.HistoryEnv, "history-env", "", "environment variable with the URL of the database of runs")
	f.VisitAll(func(flag *pflag.Flag) { settings.AllowEmpty(f, flag.Name) }) // an empty value clears that of the context
	f.BoolVar(&c.Protected, "protected", false, "demand --yes of commands that change something")
	return settings.Limit(cmd)
}

// changeFile changes the configuration file.
func changeFile(s *settings.Settings, change func(*settings.File) error) error {
	file, err := settings.ReadFile(s.ConfigPath())
	if err == nil {
		err = change(&file)
	}
	if err != nil {
		return &exit.Error{Code: exit.Usage, Err: err}
	}
	return settings.WriteFile(s.ConfigPath(), file)
}
