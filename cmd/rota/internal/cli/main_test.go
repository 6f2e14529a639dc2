package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/rota-dev/rota/cmd/rota/internal/settings"
	"github.com/rota-dev/rota/internal/test/testserver/servertest"
)

// Variables of processes that the tests start of their own binary.
const (
	beCommand  = "ROTA_TEST_BE_COMMAND" // the process is the command
	clockAhead = "ROTA_TEST_CLOCK_AHEAD"
)

func TestMain(m *testing.M) {
	if os.Getenv(beCommand) == "" {
		servertest.Main(m)
		return
	}
	s := settings.New(nil)
	if text := os.Getenv(clockAhead); text != "" {
		ahead, err := time.ParseDuration(text)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		s.Clock = func() time.Time { return time.Now().Add(ahead) }
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM) // as main does
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, s, os.Args[1:], Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
}
