package provision

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/rota-dev/rota/conformance/child"
)

// runCommand runs a command in dir with additional environment variables. Its error
// includes the output.
func runCommand(ctx context.Context, dir string, env []string, name string, args ...string) error {
	var out bytes.Buffer
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = time.Second // for children of a killed command that keep its output open
	if err := child.Run(ctx, cmd); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, tail(out.Bytes(), 4<<10))
	}
	return nil
}

func tail(b []byte, n int) []byte {
	return bytes.TrimSpace(b[max(0, len(b)-n):])
}

// attempts bounds network operations; the pause after each attempt doubles.
const (
	attempts   = 4
	firstPause = time.Second
)

func retry(ctx context.Context, f func() error) error {
	pause := firstPause
	for try := 1; ; try++ {
		err := f()
		if err == nil || try == attempts || ctx.Err() != nil {
			return err
		}
		select {
		case <-time.After(pause):
			pause *= 2
		case <-ctx.Done():
			return err
		}
	}
}
