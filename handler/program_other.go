//go:build !unix

package handler

import (
	"context"
	"os"
	"os/exec"
	"time"
)

// runProgram runs cmd, and kills it when ctx ends.
func runProgram(ctx context.Context, cmd *exec.Cmd, _ time.Duration) error {
	if err := cmd.Start(); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	defer stop()
	return cmd.Wait()
}

func signalOf(*os.ProcessState) os.Signal { return nil }
