package serve

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
)

// initVar is set in the environment of the process that an init starts.
const initVar = "ROTA_RUN_INIT"

// superviseIfInit makes this process the init of a container if it is process 1 or if asked for: it
// starts the same command again, and returns the exit code of that process when it has ended. Done
// reports whether that is so; otherwise the caller is the process that does the work.
//
// Orphans belong to the init, which waits for whichever child has ended. The process that does the
// work has no orphans, so nothing but package handler waits for its children: no exit code is lost.
func superviseIfInit(asked bool) (code int, done bool, err error) {
	if _, child := os.LookupEnv(initVar); child {
		return 0, false, os.Unsetenv(initVar) // programs of jobs do not inherit it
	}
	if os.Getpid() != 1 && !asked {
		return 0, false, nil
	}
	code, err = supervise()
	return code, true, err
}

// supervise starts this command again, passes signals on to it, and waits for it and for orphans.
func supervise() (code int, err error) {
	// The end of the thread that starts a process counts as the death of its parent.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const setChildSubreaper = 36 // PR_SET_CHILD_SUBREAPER, for an init that is not process 1
	if _, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, setChildSubreaper, 1, 0); errno != 0 {
		return 1, fmt.Errorf("become the parent of orphans: %w", errno)
	}
	signals := make(chan os.Signal, 64)
	signal.Notify(signals, syscall.SIGCHLD, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2)
	defer signal.Stop(signals)
	path, err := os.Executable()
	if err != nil {
		return 1, err
	}
	cmd := exec.Command(path, os.Args[1:]...)
	cmd.Env = append(os.Environ(), initVar+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	// A group of its own, so that an interrupt from a terminal reaches it once, through the init.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return 1, err
	}
	for sig := range signals {
		if sig != syscall.SIGCHLD {
			_ = syscall.Kill(cmd.Process.Pid, sig.(syscall.Signal)) // it may have ended
			continue
		}
		if status, ended := reap(cmd.Process.Pid); ended {
			return exitCodeOf(status), nil
		}
	}
	return 1, nil // not reached: the channel stays open
}

// reap waits for all processes that have ended, and returns the status of the main one if it is among
// them. One SIGCHLD may stand for several.
func reap(main int) (of syscall.WaitStatus, ended bool) {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil || pid <= 0:
			return of, ended
		case pid == main:
			of, ended = status, true
		}
	}
}

// exitCodeOf returns the exit code of a process as a shell does.
func exitCodeOf(s syscall.WaitStatus) int {
	if s.Signaled() {
		return 128 + int(s.Signal())
	}
	return s.ExitStatus()
}
