//go:build unix

package handler

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/registry/memory"
)

// reported runs h, which reports what it got.
func reported(t *testing.T, h *Cmd, r *executor.Run) (got received) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "got")
	if h.Env == nil {
		t.Setenv(fileVar, file)
	} else {
		h.Env = append(h.Env, fileVar+"="+file)
	}
	require.NoError(t, h.Handle(t.Context(), r))
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &got))
	return got
}

func TestCommand_ArgumentsAreTemplatesOfTheRun(t *testing.T) {
	h := act(t, "report", "--region", "{{.ShardParam}}", "{{.Shard}}/{{.Shards}}", "{{.FireTime}}", `{{.FireTime.Format "2006-01-02"}}`,
		"{{.Job}} {{.Instance}} {{.Param}} {{.Attempt}} {{.Retries}} {{.Reason}} {{.Trigger}} {{.Fence}} {{.Key}} {{.ID}}",
		"{{with .Param}}{{.}} {{$.Shard}}{{end}}", "{{json .ShardParam}}", "")
	assert.Equal(t, []string{
		"--region", "Guangzhou", "2/3", "2026-05-05T03:00:00Z", "2026-05-05",
		"settle web-1 full 2 1 misfire 0 7 settle/2/2026-05-05T03:00:00Z settle/2/2026-05-05T03:00:00Z/2",
		"full 2", `"Guangzhou"`, "",
	}, reported(t, h, run()).Args)
}

func TestCommand_AParameterIsOneArgumentAndOneVariable(t *testing.T) {
	for _, param := range hostile {
		if param == "\xff" {
			continue // not as JSON; executors refuse it
		}
		r := run()
		r.Param, r.ShardParam = param, param
		got := reported(t, act(t, "report", "{{.ShardParam}}", "--region={{.ShardParam}}"), r)
		assert.Equal(t, []string{param, "--region=" + param}, got.Args)
		assert.Contains(t, got.Env, "ROTA_PARAM="+param)
		assert.Contains(t, got.Env, "ROTA_SHARD_PARAM="+param)
	}
}

func TestCommand_EnvironmentHasTheRun(t *testing.T) {
	of := os.Environ() // may have variables of the same prefix, which are those of this project's tests
	ofRun := func(env []string) []string {
		return slices.DeleteFunc(slices.Sorted(slices.Values(env)), func(e string) bool {
			return !strings.HasPrefix(e, "ROTA_") || slices.Contains(of, e)
		})
	}
	want := []string{
		"ROTA_ATTEMPT=2", "ROTA_FENCE=7", "ROTA_FIRE=2026-05-05T03:00:00Z", "ROTA_ID=settle/2/2026-05-05T03:00:00Z/2", "ROTA_INSTANCE=web-1",
		"ROTA_JOB=settle", "ROTA_KEY=settle/2/2026-05-05T03:00:00Z", "ROTA_PARAM=full", "ROTA_REASON=misfire", "ROTA_RETRIES=1",
		`ROTA_RUN={"id":"settle/2/2026-05-05T03:00:00Z/2","key":"settle/2/2026-05-05T03:00:00Z","job":"settle","instance":"web-1",` +
			`"shard":2,"shards":3,"param":"full","shard_param":"Guangzhou","fire":"2026-05-05T03:00:00Z","attempt":2,"retries":1,"reason":"misfire","trigger":0,"fence":7}`,
		"ROTA_SHARD=2", "ROTA_SHARDS=3", "ROTA_SHARD_PARAM=Guangzhou", "ROTA_TRIGGER=0",
	}
	t.Run("in addition to that of the process", func(t *testing.T) {
		t.Setenv(actVar, "report")
		t.Setenv("GORACE", "atexit_sleep_ms=0")
		t.Setenv("ROTA_SHARD_PARAM", "inherited")
		h := act(t, "report")
		h.Env = nil
		got := reported(t, h, run()).Env
		assert.Contains(t, got, "PATH="+os.Getenv("PATH"))
		assert.Equal(t, want, ofRun(got))
	})
	t.Run("in addition to Env alone", func(t *testing.T) {
		h := act(t, "report")
		h.Env = []string{actVar + "=report", noExitDelay, "ROTA_SHARD=99", "A=1", "A=2"}
		got := reported(t, h, run()).Env
		assert.Equal(t, want, ofRun(got))
		got = slices.DeleteFunc(got, func(e string) bool { return strings.HasPrefix(e, fileVar) })
		assert.ElementsMatch(t, append([]string{actVar + "=report", noExitDelay, "A=2"}, want...), got)
	})
}

func TestCommand_InputIsEmptyAndDirIsSet(t *testing.T) {
	h := act(t, "report")
	h.Dir = t.TempDir()
	got := reported(t, h, run())
	assert.Empty(t, got.Stdin)
	want, err := filepath.EvalSymlinks(h.Dir)
	require.NoError(t, err)
	assert.Equal(t, want, got.Dir)
}

func TestShell_ScriptIsNoTemplateAndParametersAreData(t *testing.T) {
	for _, param := range hostile {
		if strings.ContainsAny(param, "\n\r") || param == "\xff" || strings.TrimSpace(param) != param {
			continue // the test compares lines
		}
		var log journal
		h := Shell(`printf '%s\n' "<$ROTA_SHARD_PARAM>" "<$1>" "<$2>" '{{.Shard}}'`, "{{.ShardParam}}", "{{.Shard}}")
		h.Logger = log.logger()
		r := run()
		r.ShardParam = param
		require.NoError(t, h.Handle(t.Context(), r))
		assert.Equal(t, []string{"stdout: <" + param + ">", "stdout: <" + param + ">", "stdout: <2>", "stdout: {{.Shard}}"}, log.lines())
	}
}

func TestCommand_CheckReportsAllProblems(t *testing.T) {
	for _, c := range []struct {
		name string
		cmd  *Cmd
		want []string // one for each problem
	}{
		{"sound", &Cmd{Path: "sh", Args: []string{"{{.Shard}}"}, OK: []int{1}, Permanent: []int{2}, Env: []string{"A="}}, nil},
		{"nil", nil, []string{"the *Cmd is nil"}},
		{"empty", &Cmd{}, []string{"Path: is empty, and there is no Script"}},
		{"missing", Command("/no/such/program"), []string{"Path: exec: \"/no/such/program\": stat /no/such/program: no such file or directory"}},
		{"not in PATH", Command("no-such-program"), []string{`Path: exec: "no-such-program": executable file not found in $PATH`}},
		{"not executable", Command("command_test.go"), []string{`Path: exec: "command_test.go": executable file not found in $PATH`}},
		{"directory", Command("/"), []string{`Path: exec: "/": is a directory`}},
		{"relative to Dir", &Cmd{Path: "./sh", Dir: "/bin"}, nil},
		{"not below Dir", &Cmd{Path: "./sh", Dir: "/etc"}, []string{`Path: exec: "/etc/sh": stat /etc/sh: no such file or directory`}},
		{"several", &Cmd{Args: []string{"{{.Shrad}}", "{{", "{{.Shard}}"}, Env: []string{"=x", "secret"}, OK: []int{0, 7}, Permanent: []int{-1, 7}}, []string{
			"template: Args[0]: a run has no .Shrad", "template: Args[1]:1: unclosed action",
			"Env[0]: is not of the form NAME=value", "Env[1]: is not of the form NAME=value",
			"exit code 0: OK and Permanent have codes from 1", "exit code -1: OK and Permanent have codes from 1",
			"exit code 7: is in both OK and Permanent", "Path: is empty, and there is no Script",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.cmd.Check()
			if c.want == nil {
				assert.NoError(t, err)
			} else {
				assert.EqualError(t, err, strings.Join(c.want, "\n"))
			}
		})
	}
	t.Run("reported by Register", func(t *testing.T) {
		ex, err := executor.New(memory.New().Client("a"), "test", executor.Options{})
		require.NoError(t, err)
		err = ex.Register(executor.Job{Name: "job", Handler: Command("sh", "{{.Shrad}}", "{{.Shardd}}")})
		assert.ErrorIs(t, err, executor.ErrInvalidJob)
		assert.EqualError(t, err, "invalid job \"job\": Handler: template: Args[0]: a run has no .Shrad\n"+
			"invalid job \"job\": Handler: template: Args[1]: a run has no .Shardd")
	})
	t.Run("a run of an unchecked handler fails for good", func(t *testing.T) {
		err := Command("sh", "{{.Shrad}}").Handle(t.Context(), run())
		assert.ErrorContains(t, err, "a run has no .Shrad")
		assert.True(t, isPermanent(err))
	})
}

func TestCommand_ExitCodes(t *testing.T) {
	for _, c := range []struct {
		script    string
		text      string // of the error, empty for success
		code      int
		signal    os.Signal
		permanent bool
	}{
		{"exit 0", "", 0, nil, false},
		{"exit 24", "", 0, nil, false},
		{"exit 3", "exit code 3", 3, nil, false},
		{"echo begin; echo disk full >&2; echo; echo end; exit 3", "exit code 3: disk full", 3, nil, false},
		{"echo begin; printf end; echo >&2; exit 3", "exit code 3: end", 3, nil, false},
		{"exit 64", "exit code 64", 64, nil, true},
		{"kill -9 $$", "signal: killed", -1, syscall.SIGKILL, false},
		{"kill -TERM $$", "signal: terminated", -1, syscall.SIGTERM, false},
	} {
		t.Run(c.script, func(t *testing.T) {
			h := Shell(c.script)
			h.OK, h.Permanent, h.Logger = []int{24}, []int{64}, slog.New(slog.DiscardHandler)
			err := h.Handle(t.Context(), run())
			if c.text == "" {
				require.NoError(t, err)
				return
			}
			assert.EqualError(t, err, c.text)
			var exit *ExitError
			require.ErrorAs(t, err, &exit)
			assert.Equal(t, c.code, exit.Code)
			assert.Equal(t, c.signal, exit.Signal)
			assert.Equal(t, c.permanent, isPermanent(err))
		})
	}
}

func TestCommand_ErrorHasTheEndOfTheOutput(t *testing.T) {
	h := Shell(`i=0; while [ $i -lt 2000 ]; do echo "line $i of the output"; i=$((i+1)); done; exit 1`)
	h.Logger = slog.New(slog.DiscardHandler)
	err := h.Handle(t.Context(), run())
	assert.EqualError(t, err, "exit code 1: line 1999 of the output")
	var exit *ExitError
	require.ErrorAs(t, err, &exit)
	assert.Len(t, exit.Tail, maxTail)
	assert.True(t, strings.HasSuffix(exit.Tail, "line 1998 of the output\nline 1999 of the output\n"))
}

func TestCommand_ThatCannotStartMayBeRetried(t *testing.T) {
	err := Command("/no/such/program").Handle(t.Context(), run())
	assert.ErrorIs(t, err, os.ErrNotExist)
	assert.False(t, isPermanent(err))
}

func TestCommand_ErrorNamesAMissingDirectory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for dir, want := range map[string]string{
		"/no/such/directory": "run program: working directory: stat /no/such/directory: no such file or directory",
		file:                 "run program: working directory: chdir " + file + ": not a directory",
	} {
		h := Shell("exit 0")
		h.Dir = dir
		err := h.Handle(t.Context(), run())
		assert.EqualError(t, err, want)
		assert.False(t, isPermanent(err), "the directory may come back")
	}
}

func TestCommand_RefusesNUL(t *testing.T) {
	for _, h := range []*Cmd{Command("true"), Command("true", "{{.Param}}")} {
		err := h.Handle(t.Context(), &executor.Run{RunInfo: executor.RunInfo{Param: "a\x00B=1"}})
		assert.ErrorContains(t, err, "has a NUL byte")
		assert.True(t, isPermanent(err))
	}
}

func TestCommand_EndOfContext(t *testing.T) {
	t.Run("before the start runs nothing", func(t *testing.T) {
		ctx, stop := context.WithCancelCause(t.Context())
		stop(errStop)
		assert.Equal(t, errStop, Command("/no/such/program").Handle(ctx, run()))
	})
	for _, c := range []struct {
		name, script string
		text         string // of the error
	}{
		{"sends SIGTERM", `echo ready; exec sleep 600`, "stop: signal: terminated: ready"},
		{"sends SIGTERM to the whole group", `sh -c 'echo ready; exec sleep 600'; exit 9`, "stop: signal: terminated: ready"},
		{"leaves the exit code to the program", `trap 'echo interrupted >&2; exit 7' TERM; echo ready; while :; do sleep 0.01; done`, "stop: exit code 7: interrupted"},
		{"counts exit code 0 as complete", `trap 'exit 0' TERM; echo ready; while :; do sleep 0.01; done`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			noLeak(t)
			ctx, stop := context.WithCancelCause(t.Context())
			var log journal
			h := Shell(c.script)
			h.Logger, h.KillAfter = log.logger(), time.Hour
			result := start(ctx, h, run())
			log.await(t, "ready")
			stop(errStop)
			err := await(t, result)
			if c.text == "" {
				assert.NoError(t, err)
				return
			}
			assert.ErrorIs(t, err, errStop)
			assert.EqualError(t, err, c.text)
		})
	}
	t.Run("kills after KillAfter", func(t *testing.T) {
		noLeak(t)
		ctx, stop := context.WithCancelCause(t.Context())
		var log journal
		h := act(t, "ignore TERM")
		h.Logger, h.KillAfter = log.logger(), 50*time.Millisecond
		result := start(ctx, h, run())
		log.await(t, "ready")
		stopped := time.Now()
		stop(errStop)
		assert.EqualError(t, await(t, result), "stop: signal: killed: ready")
		assert.GreaterOrEqual(t, time.Since(stopped), h.KillAfter)
	})
	t.Run("kills at once if KillAfter is negative", func(t *testing.T) {
		ctx, stop := context.WithCancelCause(t.Context())
		var log journal
		h := Shell(`trap 'exit 7' TERM; echo ready; while :; do sleep 0.01; done`)
		h.Logger, h.KillAfter = log.logger(), -1
		result := start(ctx, h, run())
		log.await(t, "ready")
		stop(errStop)
		assert.EqualError(t, await(t, result), "stop: signal: killed: ready")
	})
}

// The outcome of a run is in the records that operators read, its output in the executor's log.
func TestCommand_ErrorReachesTheStatusOfTheJob(t *testing.T) {
	noLeak(t)
	var log journal
	h := Shell(`echo "no space left on /backup" >&2; exit 3`)
	ex, err := executor.New(memory.New().Client("a"), "test", executor.Options{Logger: log.logger()})
	require.NoError(t, err)
	require.NoError(t, ex.Register(executor.Job{Name: "backup", Handler: h}))
	require.NoError(t, ex.Start(t.Context()))
	defer func() { require.NoError(t, ex.Shutdown(context.WithoutCancel(t.Context()))) }()
	_, err = ex.Trigger(t.Context(), "backup", executor.Trigger{})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		st, err := ex.Operator().Status(t.Context(), "backup")
		return err == nil && len(st.Failures) == 1 && st.Failures[0].Error == "exit code 3: no space left on /backup"
	}, patience, tick)
	assert.Equal(t, []string{"stderr: no space left on /backup"}, log.lines())
}

func TestCommand_LogsWithTheAttributesOfTheRun(t *testing.T) {
	var log journal
	h := Shell("echo done")
	h.Logger = log.logger()
	require.NoError(t, h.Handle(t.Context(), run()))
	require.Len(t, log.records, 1)
	for key, want := range map[string]string{"job": "settle", "shard": "2", "run": run().ID, "attempt": "2", "stream": "stdout", "line": "done", "cut": ""} {
		assert.Equal(t, want, attr(log.records[0], key))
	}
}

// badFilter does a deed in one of its methods.
type badFilter struct {
	to        io.Writer
	in        string
	do        func() error
	afterDeed *atomic.Bool
}

func (f badFilter) at(method string) error {
	if f.in != method {
		return nil
	}
	f.afterDeed.Store(true)
	return f.do()
}

func (f badFilter) Write(p []byte) (int, error) {
	if f.afterDeed.Load() {
		panic("called again")
	}
	if err := f.at("Write"); err != nil {
		return 0, err
	}
	return f.to.Write(p)
}

func (f badFilter) Close() error { return f.at("Close") }

func TestCommand_AFilterThatFailsEndsNeitherTheProcessNorTheProgram(t *testing.T) {
	noLeak(t)
	for deed, do := range map[string]func() error{
		"panics":  func() error { panic("bad filter") },
		"exits":   func() error { runtime.Goexit(); return nil },
		"returns": func() error { return errors.New("bad filter") },
	} {
		for _, in := range []string{"Write", "Close"} {
			t.Run(in+" "+deed, func(t *testing.T) {
				var log journal
				h := Shell(`echo first; echo on stderr >&2; i=0; while [ $i -lt 20000 ]; do echo "line $i"; i=$((i+1)); done; exit 3`)
				h.Logger, h.LogLimit = log.logger(), math.MaxInt
				first := true
				h.Filter = func(to io.Writer) io.WriteCloser {
					method := ""
					if first {
						method = in
					}
					first = false
					return badFilter{to, method, do, &atomic.Bool{}}
				}
				err := h.Handle(t.Context(), run())
				assert.ErrorContains(t, err, "exit code 3: on stderr", "a filter that returns an error does not break the pipe")
				failures := 0
				for _, r := range log.records {
					if r.Message == "filter of the output failed" {
						failures++
						assert.Equal(t, slog.LevelError, r.Level)
						assert.Regexp(t, "bad filter|runtime.Goexit", attr(r, "error"))
					}
				}
				assert.Equal(t, 1, failures)
				assert.Contains(t, log.lines(), "stderr: on stderr", "the other stream goes on")
			})
		}
	}
}

func TestCommand_ALoggerThatPanicsDoesNotEndTheProcess(t *testing.T) {
	h := Shell("echo done; exit 3")
	h.Logger = slog.New(handlerFunc(func(slog.Record) { panic("bad logger") }))
	assert.EqualError(t, h.Handle(t.Context(), run()), "exit code 3: done")
}
