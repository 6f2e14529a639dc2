//go:build !unix

package child

import (
	"errors"
	"os"
	"syscall"
)

var errNoSignals = errors.New("pause a process: not supported on this system")

func ownGroup(*syscall.SysProcAttr) {}

func dieWithParent(*syscall.SysProcAttr) {}

func killTree(pid int) {
	if p, err := os.FindProcess(pid); err == nil {
		_ = p.Kill()
	}
}

// Pause is not supported.
func (p *Process) Pause() error { return errNoSignals }

// Resume is not supported.
func (p *Process) Resume() error { return errNoSignals }
