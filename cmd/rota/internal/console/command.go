// Package console has the command "rota web", which serves the console of one fleet or of several.
package console

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/rota-dev/rota/cmd/rota/internal/console/account"
	"github.com/rota-dev/rota/cmd/rota/internal/exit"
	"github.com/rota-dev/rota/cmd/rota/internal/settings"
	"github.com/rota-dev/rota/internal/look"
	"github.com/rota-dev/rota/internal/secret"
)

// Command returns the command "rota web".
func Command(s *settings.Settings) *cobra.Command {
	var o options
	var format, level string
	cmd := &cobra.Command{
		Use:   "web",
		Short: "Serve the console, pages of one fleet or of several",
		Long: `Web serves pages that show a fleet, or several: one for each --context. It listens on this host only,
and looks only, with the right to read the store, unless --allow-acts lets its users act.

An address that other hosts reach needs users, and TLS or a proxy. Users log in with the passwords of
--users, or the proxy names them in a header. rota web hash makes a line for the file of users, and
rota web token a token with which a program uses the HTTP API.
docs/console/serve.md describes the file, a unit of systemd and a proxy.

With --notify it sends messages about the fleets to the receivers of a file, whose form is the key notify of
a jobs file: also when all instances of a fleet are gone, and its own notifiers with them. That needs the
right to write to the store below receivers and senders of the group.

The files of users, of TLS and of receivers are read again when they change.`,
		Example: `  rota web
  rota web --context prod --context test
  rota web --listen :7682 --tls-cert web.pem --tls-key web.key --users users.yaml --allow-acts`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := settings.NewLogger(cmd.ErrOrStderr(), format, level)
			if err != nil {
				return err
			}
			if err := o.check(); err != nil {
				return err
			}
			secrets := &secret.Masker{}
			log = slog.New(secrets.Handler(log.Handler()))
			o.uid = os.Geteuid()
			fleets, err := newFleets(s, o.contexts, o.allowActs, log)
			if err != nil {
				return err
			}
			w := &server{options: o, fleets: fleets, log: log, secrets: secrets, open: openConsole(&o, log), out: cmd.OutOrStdout()}
			return w.run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.Var(&o.contexts, "context", "context to serve, repeated (default: the current one)")
	f.StringVar(&o.listen, "listen", "127.0.0.1:7682", "address of the pages")
	f.StringVar(&o.path, "path", "/", "path of the pages, of which a proxy passes all on")
	f.BoolVar(&o.allowActs, "allow-acts", false, "let users act whose role allows it")
	f.StringVar(&o.users, "users", "", "file of users, their passwords and roles")
	f.StringArrayVar(&o.notify, "notify", nil, "file with receivers of messages about the fleets, or CONTEXT=FILE for one of them, repeated")
	f.StringVar(&o.tlsCert, "tls-cert", "", "file of the certificate; enables TLS")
	f.StringVar(&o.tlsKey, "tls-key", "", "file of the certificate's key")
	f.StringSliceVar(&o.proxyFrom, "proxy-from", nil, "addresses of proxies, such as 10.0.0.0/8; no other client may connect")
	f.StringVar(&o.proxyHeader, "proxy-header", "", "header in which the proxy names the user, such as X-Forwarded-User")
	f.StringVar(&o.proxyRoles, "proxy-roles", "", "header in which the proxy gives the roles, such as look,billing=admin (default: those of --users)")
	f.StringVar(&format, "log-format", "text", "text or json")
	f.StringVar(&level, "log-level", "info", "debug, info, warn or error")
	cmd.AddCommand(hashCommand(), tokenCommand())
	return settings.Limit(cmd, "registry", "namespace", "group", "history", "time", "timeout", "yes")
}

// hashCommand returns the command "rota web hash".
func hashCommand() *cobra.Command {
	return settings.Limit(&cobra.Command{
		Use:   "hash",
		Short: "Ask for a password, and print its hash for the file of users",
		Long: `Hash asks twice for a password, without echo, and prints the line for the file of users that has
its hash. Without a terminal it reads the password from a line of its input.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			password, err := readPassword(cmd)
			if err != nil {
				return err
			}
			hash, err := account.Hash(password)
			if err != nil {
				return &exit.Error{Code: exit.Usage, Err: err}
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "hash: %s\n", hash)
			return err
		},
	})
}

// tokenCommand returns the command "rota web token".
func tokenCommand() *cobra.Command {
	var roles, expires string
	cmd := &cobra.Command{
		Use:   "token NAME",
		Short: "Make a token for a program, and print its entry for the file of users",
		Long: `Token makes a token for the HTTP API, and prints its entry for the list tokens of the file of users. The
file has the hash of the token only. The token itself is printed once, to the standard error: a program
sends it as "Authorization: Bearer TOKEN". Its acts are on record under NAME.`,
		Example: `  rota web token deploys --roles billing=operate --expires 90d
  rota web token dashboard --roles look >> users.yaml`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			of, err := account.ParseRoles(roles)
			if err != nil {
				return exit.Usagef("--roles: %w", err)
			}
			var until time.Time
			if expires != "" {
				age, err := look.ParseAge(expires)
				if err != nil || age == 0 {
					return exit.Usagef("--expires is %q, not a time from now on such as 12h or 90d", expires)
				}
				until = time.Now().Add(age)
			}
			secret, entry, err := account.NewToken(args[0], of, until)
			if err != nil {
				return &exit.Error{Code: exit.Usage, Err: err}
			}
			if _, err := io.WriteString(cmd.OutOrStdout(), entry); err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.ErrOrStderr(), "The token, which is not shown again: %s\n", secret)
			return err
		},
	}
	cmd.Flags().StringVar(&roles, "roles", "", "its roles, such as look,billing=operate: one for all namespaces, and those of single ones")
	cmd.Flags().StringVar(&expires, "expires", "", "how long it is valid, such as 12h or 90d (default: until it is removed from the file)")
	_ = cmd.MarkFlagRequired("roles")
	return settings.Limit(cmd)
}

// readPassword reads a new password from the terminal, or a line of the input that is none.
func readPassword(cmd *cobra.Command) (string, error) {
	f, ok := cmd.InOrStdin().(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		line, err := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
		if errors.Is(err, io.EOF) && line != "" {
			err = nil
		}
		return strings.TrimRight(line, "\r\n"), err
	}
	state, err := term.GetState(int(f.Fd()))
	if err != nil {
		return "", err
	}
	var typed [2]string
	for i, prompt := range []string{"Password: ", "Again: "} {
		fmt.Fprint(cmd.ErrOrStderr(), prompt)
		done := make(chan error, 1)
		go func() {
			text, err := term.ReadPassword(int(f.Fd()))
			typed[i] = string(text)
			done <- err
		}()
		select {
		case err = <-done:
		case <-cmd.Context().Done(): // a signal, which ends the process; the terminal is to echo again
			err = errors.Join(cmd.Context().Err(), term.Restore(int(f.Fd()), state))
		}
		fmt.Fprintln(cmd.ErrOrStderr())
		if err != nil {
			return "", err
		}
	}
	if typed[0] != typed[1] {
		return "", exit.Usagef("the passwords differ")
	}
	return typed[0], nil
}
