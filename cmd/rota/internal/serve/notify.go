package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rota-dev/rota/cmd/rota/internal/exit"
	"github.com/rota-dev/rota/cmd/rota/internal/jobsfile"
	"github.com/rota-dev/rota/cmd/rota/internal/settings"
	"github.com/rota-dev/rota/internal/registryurl"
	"github.com/rota-dev/rota/internal/secret"
	"github.com/rota-dev/rota/notify"
)

// notifyStopTimeout bounds the wait at the end for a message that is being delivered. It begins after the drain.
const notifyStopTimeout = 3 * time.Second

// startNotifier starts to send messages about the jobs of the group until ctx ends, which is when the drain begins, if the file has receivers.
func (s *server) startNotifier(ctx context.Context, n jobsfile.Notify) error {
	if len(n.Options.Receivers) == 0 {
		return nil
	}
	o := n.Options
	o.Logger = s.log
	var err error
	s.notifier, err = notify.Start(ctx, s.measured, s.target.namespace, s.target.group, o)
	if err != nil {
		return &exit.Error{Code: exit.Usage, Err: err}
	}
	return nil
}

// stopNotifier waits for the end of the notifier. The notifier of another process delivers the rest.
func (s *server) stopNotifier() {
	if s.notifier == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), notifyStopTimeout)
	defer cancel()
	if err := s.notifier.Shutdown(ctx); err != nil {
		s.log.Warn("a receiver of messages has not answered before the end", "error", err)
	}
}

// reloadNotifier applies the settings of messages of another file.
func (s *server) reloadNotifier(ctx context.Context, now, next jobsfile.Notify) error {
	switch {
	case now.Digest == next.Digest:
		return nil
	case s.notifier == nil:
		return s.startNotifier(ctx, next)
	}
	o := next.Options
	o.Logger = s.log
	return s.notifier.Reconfigure(o)
}

// NotifyCommand returns the command "rota notify".
func NotifyCommand(s *settings.Settings) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "notify",
		Short: "Test the receivers of messages about jobs",
		Long: `Processes with receivers in their configuration send messages when jobs begin to fail, are late,
have no owner, or have recovered. rota doctor shows the receivers that get no messages.`,
	}
	cmd.AddCommand(notifyTest(s.Schemes), notifyForget(s))
	return settings.Limit(cmd)
}

func notifyTest(schemes registryurl.Schemes) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "test RECEIVER",
		Short: "Send a test message to a receiver of a file",
		Long: `Test sends a test message to a receiver of a file of jobs, or of a file for rota web --notify, once, and
prints the receiver's answer. It needs no store.`,
		Example: `  rota notify test ops -f jobs.yaml`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o := &options{
				schemes: schemes, file: file, revision: -1, uid: os.Geteuid(), env: os.Environ(), secrets: &secret.Masker{}, log: slog.New(slog.DiscardHandler),
			}
			answer, err := o.testReceiver(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "receiver %s accepted the message: %s\n", args[0], cmp.Or(o.secrets.Mask(answer), "no answer"))
			return err
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "jobs.yaml", "file of the jobs")
	return settings.Limit(cmd)
}

// testReceiver sends a test message to a receiver of the file.
func (o *options) testReceiver(ctx context.Context, name string) (answer string, err error) {
	content, err := ownFile(o.file, o.uid).Read()
	if err != nil {
		return "", &exit.Error{Code: exit.Usage, Err: err}
	}
	f, err := jobsfile.LoadNotify(o.file, content, o.hostOfRun())
	if err != nil {
		return "", &exit.Error{Code: exit.Usage, Err: err}
	}
	t, err := o.targetOf(f)
	if err != nil {
		return "", err
	}
	n := f.Notify.Options
	to, found := n.Receivers[name]
	if !found {
		return "", exit.Usagef("%s has no receiver %.100q; its receivers: %s", o.file, name,
			cmp.Or(strings.Join(slices.Sorted(maps.Keys(n.Receivers)), ", "), "none"))
	}
	ctx, cancel := context.WithTimeoutCause(ctx, notify.DefaultTimeout, fmt.Errorf("no answer within %v", notify.DefaultTimeout))
	defer cancel()
	if answer, err = notify.SendTest(ctx, to, t.namespace, t.group); err != nil {
		return "", errors.New("receiver " + name + ": " + o.secrets.Mask(err.Error()))
	}
	return answer, nil
}

func notifyForget(s *settings.Settings) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "forget RECEIVER",
		Short: "Delete the record of a receiver that no process has any more",
		Long: `Forget deletes the record of a receiver, which keeps what it knows of each job, so that rota doctor no
longer warns that it has no sender. It is refused while a process sends to the receiver.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := s.CheckProtection(); err != nil {
				return err
			}
			s.AllowWrites()
			reg, err := s.Connect(cmd.Context())
			if err != nil {
				return s.ExplainFailure(err)
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), s.Timeout)
			defer cancel()
			if err := notify.Forget(ctx, reg, s.Namespace, s.Group, args[0]); err != nil {
				return s.ExplainFailure(err)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "forgot receiver %s\n", args[0])
			return err
		},
	}
	return settings.Limit(cmd, append([]string{"yes"}, settings.Connection...)...)
}
