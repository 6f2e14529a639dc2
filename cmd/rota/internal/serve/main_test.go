package serve

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/spf13/cobra"

	"github.com/rota-dev/rota/cmd/rota/internal/exit"
	"github.com/rota-dev/rota/internal/test/testserver/servertest"
)

// beCommand is set in the environment of processes that the tests start of their own binary: those
// are the command.
const beCommand = "ROTA_TEST_BE_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(beCommand) == "" {
		servertest.Main(m)
		return
	}
	root := &cobra.Command{Use: "rota", SilenceUsage: true, SilenceErrors: true}
	root.AddCommand(RunCommand(nil, nil), ValidateCommand(nil))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM) // as main does
	context.AfterFunc(ctx, stop)
	err := root.ExecuteContext(ctx)
	if e, ok := err.(*exit.Error); err != nil && !(ok && e.Err == nil) {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(exit.CodeOf(err))
}
