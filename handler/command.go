package handler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"text/template"
	"time"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/internal/contain"
	"github.com/rota-dev/rota/internal/runlog"
)

const (
	// defaultKillAfter lets a program end within the 5 s that a shutdown gives to handlers.
	defaultKillAfter = 4 * time.Second
	// outputDelay bounds the wait for output after a program has ended, since a process that
	// has left the program's group may hold the pipes open for ever.
	outputDelay = time.Second
)

// Cmd is a handler that runs a program. [Command] and [Shell] return one; a literal works as
// well, by its address. Register copies none of it: do not change a Cmd after the call.
//
// # Input
//
// The standard input of the program is empty. The run is in these variables: ROTA_ID, ROTA_KEY, ROTA_JOB,
// ROTA_INSTANCE, ROTA_SHARD, ROTA_SHARDS, ROTA_PARAM, ROTA_SHARD_PARAM, ROTA_FIRE (RFC 3339 in
// UTC), ROTA_ATTEMPT, ROTA_RETRIES, ROTA_REASON, ROTA_TRIGGER (0 for a scheduled fire) and ROTA_FENCE.
// ROTA_RUN has all of them as a JSON object, whose keys are the names in lower case without
// the prefix. A parameter with a NUL byte fails the run, as no variable can hold it.
//
// # End
//
// Exit code 0 and those of OK mean success. Any other end is an [*ExitError]; the codes of
// Permanent are not retried.
//
// The program has a process group of its own. When the context of the run ends, the group gets
// SIGTERM, and SIGKILL after KillAfter. The exit code decides then, too: a program that stops
// before its work is complete has to return a code other than 0, as one without a handler for
// SIGTERM does. When the program has ended, other processes of its group are killed. A process
// that has left the group goes on, and does not hold up the run.
//
// On Linux the program is killed when this process dies, but processes that it started are
// not: a shell that dies leaves the program that it waits for. They end at once only if they
// notice, such as by writing to the closed pipe of their output. Guard their writes by
// ROTA_FENCE. Each running program occupies a thread of this process. On other Unix systems the
// program outlives this process as well. On Windows there is no group and no SIGTERM: the end
// of the context kills the program alone, at once.
type Cmd struct {
	// Path is the program. Without a slash, it is looked up in PATH, and found when Register
	// is called. It is not a template. With a Script it is the shell; empty means /bin/sh.
	Path string
	// Args are the arguments, each a template that results in one argument, however it looks. An
	// argument that begins with a parameter may be taken for an option: write "--" before it,
	// or "--region={{.ShardParam}}". Other users of the host can read arguments.
	Args []string
	// Script is a script for the shell, run as Path -c Script. It is not a template: the run
	// is in the variables, and Args are $1, $2 and so on. Quote them: "$ROTA_SHARD_PARAM".
	Script string
	// Dir is the working directory. Empty means that of this process.
	Dir string
	// Env is the environment, each entry of the form NAME=value, to which the variables of the
	// run are added. Nil means the environment of this process.
	Env []string
	// KillAfter is the time from SIGTERM to SIGKILL. Zero means 4 s, which fits into the 5 s
	// that a shutdown waits for handlers. A negative value sends SIGKILL at once.
	//
	// After a lost session, another instance may begin the run before KillAfter is over.
	KillAfter time.Duration
	// OK lists exit codes that mean success, beside 0.
	OK []int
	// Permanent lists exit codes after which the run is not retried.
	Permanent []int
	// Logger receives each line of the output as a record "output" at INFO, with the
	// attributes stream ("stdout" or "stderr"), line, and those of Run.Logger. A line has up to
	// 4 KiB; the attribute cut is the number of further bytes. Empty lines are left out. Nil
	// means Run.Logger, which is that of the executor.
	Logger *slog.Logger
	// LogLimit bounds the output that a run logs in each of its minutes: in bytes, with 128 bytes added for each line. Zero
	// means 1 MiB, math.MaxInt no bound, below zero that none is logged. Lines beyond it are dropped; a record "output cut"
	// at INFO, after the minute or the run, has lines and bytes, their number, and end, the last 4 KiB of the output so far.
	// Observers with a RunLog get all lines, such as for the log of the run in the history, which has its own bound.
	LogLimit int
	// Filter returns a writer through which a stream of the output passes before it is logged, and kept for the error: to
	// mask secrets, for instance. Close, after the end of the program, writes what the filter has held back. Nil means no filter.
	// A filter that panics or returns an error gets no more: the program goes on, and the rest of the stream is neither logged
	// nor kept.
	Filter func(to io.Writer) io.WriteCloser

	parsed  sync.Once
	args    []*template.Template
	invalid []error // problems of the fields, which stay
}

// Command returns a handler that runs a program without a shell. The arguments are templates
// of the run.
func Command(path string, args ...string) *Cmd { return &Cmd{Path: path, Args: args} }

// Shell returns a handler that runs a script with /bin/sh. The script is no template, since
// text that a shell reads as code must not contain parameters. It finds the run in the
// variables that [Cmd] lists, and args, which are templates, as $1, $2 and so on.
func Shell(script string, args ...string) *Cmd { return &Cmd{Script: script, Args: args} }

// ExitError is the error of a run whose program failed.
type ExitError struct {
	Code   int       // the exit code, -1 after a signal
	Signal os.Signal // the signal that ended the program, or nil
	Tail   string    // the last 4 KiB of the output, both streams about as they were written

	last string // line, for the text
}

// Error returns the exit code or signal, and the last line of the standard error or, if that is
// empty, of the standard output.
func (e *ExitError) Error() string {
	text := fmt.Sprintf("exit code %d", e.Code)
	if e.Signal != nil {
		text = "signal: " + e.Signal.String()
	}
	return addExcerpt(text, lastPart(e.last))
}

// ExitCode returns Code, as that of os/exec does.
func (e *ExitError) ExitCode() int { return e.Code }

// OutputTail returns Tail. Package history records it.
func (e *ExitError) OutputTail() string { return e.Tail }

// Check returns all problems of c, joined: templates that are wrong, a program that does not
// exist, and values out of bounds. Register calls it.
func (c *Cmd) Check() error {
	if c == nil {
		return errors.New("the *Cmd is nil")
	}
	c.parse()
	errs := slices.Clone(c.invalid)
	if err := c.findProgram(); err != nil {
		errs = append(errs, fieldError("Path", err))
	}
	return errors.Join(errs...)
}

// parse parses the templates and checks the values, once.
func (c *Cmd) parse() {
	c.parsed.Do(func() {
		for i, arg := range c.Args {
			t, err := parseTemplate(fmt.Sprintf("Args[%d]", i), arg)
			if err != nil {
				c.invalid = append(c.invalid, err)
			}
			c.args = append(c.args, t)
		}
		for i, entry := range c.Env {
			if name, _, ok := strings.Cut(entry, "="); !ok || name == "" {
				c.invalid = append(c.invalid, fieldError(fmt.Sprintf("Env[%d]", i), errors.New("is not of the form NAME=value"))) // the entry may be secret
			}
		}
		c.invalid = append(c.invalid, checkCodes(c.OK, c.Permanent)...)
	})
}

func checkCodes(ok, permanent []int) (errs []error) {
	for _, code := range slices.Concat(ok, permanent) {
		if code < 1 {
			errs = append(errs, fmt.Errorf("exit code %d: OK and Permanent have codes from 1", code))
		}
	}
	for _, code := range ok {
		if slices.Contains(permanent, code) {
			errs = append(errs, fmt.Errorf("exit code %d: is in both OK and Permanent", code))
		}
	}
	return errs
}

// findProgram returns an error if the program does not exist now.
func (c *Cmd) findProgram() error {
	path := c.program()
	if path == "" {
		return errors.New("is empty, and there is no Script")
	}
	if filepath.Base(path) != path && !filepath.IsAbs(path) {
		path = filepath.Join(c.Dir, path) // as the system does when it starts the program
	}
	_, err := exec.LookPath(path)
	return err
}

func (c *Cmd) program() string {
	if c.Path == "" && c.Script != "" {
		return "/bin/sh"
	}
	return c.Path
}

// Handle runs the program for a run.
func (c *Cmd) Handle(ctx context.Context, r *executor.Run) error {
	if c.parse(); c.invalid != nil {
		return executor.Permanent(errors.Join(c.invalid...))
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	cmd, err := c.command(viewOf(r))
	if err != nil {
		return executor.Permanent(err)
	}
	log, kept := runlog.Split(r.Logger())
	if c.Logger != nil {
		log = contain.Logger(c.Logger).With("job", r.Job, "shard", r.Shard, "run", r.ID, "attempt", r.Attempt)
	}
	out := newOutput(log, kept, c.LogLimit)
	log = runlog.Join(log, kept...)
	stdout, stderr := out.stream("stdout"), out.stream("stderr")
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = stdout, stderr, outputDelay
	closeFilters := func() {}
	if c.Filter != nil {
		first, second := &filter{to: c.Filter(stdout), log: log}, &filter{to: c.Filter(stderr), log: log}
		cmd.Stdout, cmd.Stderr = first, second
		closeFilters = func() {
			first.close()
			second.close()
		}
	}
	err = runProgram(ctx, cmd, c.KillAfter)
	closeFilters()
	stdout.flush()
	stderr.flush()
	out.reportCut()
	if cmd.ProcessState == nil {
		return fmt.Errorf("run program: %w", cmp.Or(checkDir(cmd.Dir), err))
	}
	if errors.Is(err, exec.ErrWaitDelay) {
		log.Warn("program has ended, and a process that left its group holds its output open",
			"next", "further output of that process is not logged")
	}
	return c.resultOf(ctx, cmd.ProcessState, out.tail(), cmp.Or(stderr.last, stdout.last))
}

// command returns the program for a run, with the run as arguments and environment.
func (c *Cmd) command(v view) (*exec.Cmd, error) {
	var args []string
	if c.Script != "" {
		args = append(args, "-c", c.Script, filepath.Base(c.program())) // the last is $0
	}
	for _, t := range c.args {
		arg, err := render(t, v)
		if err != nil {
			return nil, err
		}
		args = append(args, arg)
	}
	variables, err := v.environment()
	if err != nil {
		return nil, err
	}
	for _, text := range slices.Concat(args, variables) {
		if strings.Contains(text, "\x00") {
			return nil, errors.New("a parameter of the run has a NUL byte, which neither an argument nor a variable can hold")
		}
	}
	cmd := exec.Command(c.program(), args...)
	cmd.Dir = c.Dir
	cmd.Env = c.Env
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	cmd.Env = slices.Concat(cmd.Env, variables) // the later of two entries applies
	return cmd, nil
}

// checkDir returns an error if dir, the working directory of a program that has not started, cannot be used. The error of
// os/exec names the program in that case, as if the program were missing.
func checkDir(dir string) error {
	if dir == "" {
		return nil
	}
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		return fmt.Errorf("working directory: %w", err)
	case !info.IsDir():
		return fmt.Errorf("working directory: %w", &os.PathError{Op: "chdir", Path: dir, Err: syscall.ENOTDIR})
	}
	return nil
}

// resultOf returns the result of a run whose program has ended.
func (c *Cmd) resultOf(ctx context.Context, state *os.ProcessState, tail, last string) error {
	code := state.ExitCode()
	if code == 0 || slices.Contains(c.OK, code) {
		return nil
	}
	err := &ExitError{Code: code, Signal: signalOf(state), Tail: tail, last: last}
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w", context.Cause(ctx), err)
	case slices.Contains(c.Permanent, code):
		return executor.Permanent(err)
	}
	return err
}
