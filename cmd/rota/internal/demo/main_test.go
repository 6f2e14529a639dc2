package demo

import (
	"context"
	"os"
	"testing"

	"github.com/spf13/cobra"
)

// beCommand is set in the environment of processes that the tests start of their own
// binary: those are the command.
const beCommand = "ROTA_TEST_BE_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(beCommand) != "" {
		root := &cobra.Command{Use: "rota"}
		root.AddCommand(Commands(nil)...)
		if err := root.ExecuteContext(context.Background()); err != nil {
			os.Exit(1)
		}
		return
	}
	extraEnv = []string{beCommand + "=1"}
	m.Run()
}
