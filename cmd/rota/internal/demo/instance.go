package demo

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/rota-dev/rota/internal/registryurl"
)

const instanceCommandName = "demo-instance"

// instanceOptions are the flags of a process that the demo starts.
type instanceOptions struct {
	registry, namespace, name, dir string
	shards                         int
	ttl                            time.Duration
	schemes                        registryurl.Schemes
}

// instanceCommand returns the hidden command of the processes that the demo starts.
func instanceCommand(schemes registryurl.Schemes) *cobra.Command {
	o := instanceOptions{schemes: schemes}
	cmd := &cobra.Command{
		Use:    instanceCommandName,
		Short:  "Take part in a demo",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runInstance(cmd.Context(), o, cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.registry, "registry", "", "URL of the registry")
	f.StringVar(&o.namespace, "namespace", "", "of the demo")
	f.StringVar(&o.name, "name", "", "of the instance")
	f.IntVar(&o.shards, "shards", 0, "of the job")
	f.DurationVar(&o.ttl, "ttl", 0, "of the session")
	f.StringVar(&o.dir, "dir", "", "tree to count")
	return cmd
}

// runInstance takes part in the census until ctx ends, and writes events to out. In the middle of a
// run it waits for a byte of in, so that the demo can kill the process there.
func runInstance(ctx context.Context, o instanceOptions, in io.Reader, out io.Writer) error {
	files, err := listFiles(o.dir)
	if err != nil {
		return err
	}
	reg, err := o.schemes.Open(ctx, o.registry, registryurl.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	c := &census{files: files, namespace: o.namespace, report: awaitAnswers(reportTo(out), in)}
	e, err := newExecutor(reg, c, o.name, o.shards, o.ttl)
	if err == nil {
		err = e.Run(ctx)
	}
	return errors.Join(err, reg.Close(context.WithoutCancel(ctx)))
}
