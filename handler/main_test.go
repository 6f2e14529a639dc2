package handler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/internal/test/nice"
)

// patience bounds the wait for something that has to happen.
const (
	patience = 20 * time.Second
	tick     = 2 * time.Millisecond
)

// The binary of this package's tests is also the program that the tests run: actVar has the name
// of an act, fileVar that of a file for its result.
const (
	actVar  = "HANDLER_TEST_ACT"
	fileVar = "HANDLER_TEST_FILE"

	// noExitDelay is a variable without which a program with the race detector ends a second later.
	noExitDelay = "GORACE=atexit_sleep_ms=0"
)

func TestMain(m *testing.M) {
	if act, ok := acts[os.Getenv(actVar)]; ok {
		act()
		os.Exit(0)
	}
	nice.Lower()
	m.Run()
}

var acts = map[string]func(){
	"report":      report,
	"ignore TERM": ignoreTERM,
	"run a sleep": runASleep,
}

// received is what a program got.
type received struct {
	Args  []string
	Env   []string
	Stdin string
	Dir   string
}

// report writes what the program got to a file.
func report() {
	stdin, _ := io.ReadAll(os.Stdin)
	dir, _ := os.Getwd()
	b, _ := json.Marshal(received{os.Args[1:], os.Environ(), string(stdin), dir})
	_ = os.WriteFile(os.Getenv(fileVar), b, 0o600)
}

func ignoreTERM() {
	signal.Ignore(syscall.SIGTERM)
	fmt.Println("ready")
	select {}
}

// runASleep is a process with a program, whose ID it prints.
func runASleep() {
	h := Shell(`echo $$; exec sleep 600`)
	h.Env = []string{"PATH=" + os.Getenv("PATH")}
	h.Logger = slog.New(handlerFunc(func(r slog.Record) { fmt.Println(attr(r, "line")) }))
	fmt.Println(h.Handle(context.Background(), &executor.Run{}))
}

// act returns a handler that runs an act of this binary.
func act(t *testing.T, name string, args ...string) *Cmd {
	t.Helper()
	path, err := os.Executable()
	require.NoError(t, err)
	h := Command(path, args...)
	h.Env = append(os.Environ(), actVar+"="+name, noExitDelay)
	return h
}

// handlerFunc is a slog.Handler that passes attributes of With on.
type handlerFunc func(slog.Record)

func (f handlerFunc) Enabled(context.Context, slog.Level) bool { return true }

func (f handlerFunc) Handle(_ context.Context, r slog.Record) error { f(r); return nil }

func (f handlerFunc) WithAttrs(attrs []slog.Attr) slog.Handler {
	return handlerFunc(func(r slog.Record) {
		r = r.Clone()
		r.AddAttrs(attrs...)
		f(r)
	})
}

func (f handlerFunc) WithGroup(string) slog.Handler { panic("no groups") }

func attr(r slog.Record, key string) (value string) {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == key {
			value = a.Value.String()
		}
		return value == ""
	})
	return value
}

// journal is a log that a test reads.
type journal struct {
	mu      sync.Mutex
	records []slog.Record
}

func (j *journal) logger() *slog.Logger {
	return slog.New(handlerFunc(func(r slog.Record) {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.records = append(j.records, r)
	}))
}

// lines returns the lines of output that have been logged, each after its stream.
func (j *journal) lines() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	var all []string
	for _, r := range j.records {
		if r.Message == "output" {
			all = append(all, attr(r, "stream")+": "+attr(r, "line"))
		}
	}
	return all
}

func (j *journal) messages() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	var all []string
	for _, r := range j.records {
		all = append(all, r.Message)
	}
	return all
}

// await waits for a line of stdout.
func (j *journal) await(t *testing.T, line string) {
	t.Helper()
	require.Eventually(t, func() bool { return slices.Contains(j.lines(), "stdout: "+line) }, patience, tick, "no line %q", line)
}

// start calls the handler in a goroutine and returns its result.
func start(ctx context.Context, h executor.Handler, r *executor.Run) <-chan error {
	result := make(chan error, 1)
	go func() { result <- h.Handle(ctx, r) }()
	return result
}

func await(t *testing.T, result <-chan error) error {
	t.Helper()
	select {
	case err := <-result:
		return err
	case <-time.After(patience):
		buf := make([]byte, 1<<16)
		t.Fatalf("the handler has not returned:\n%s", buf[:runtime.Stack(buf, true)])
		return nil
	}
}

// noLeak fails the test if it leaves goroutines behind.
func noLeak(t *testing.T) {
	t.Helper()
	before := runtime.NumGoroutine()
	t.Cleanup(func() {
		for deadline := time.Now().Add(patience); runtime.NumGoroutine() > before; <-time.After(tick) {
			if time.Now().After(deadline) {
				buf := make([]byte, 1<<16)
				t.Fatalf("goroutines are left:\n%s", buf[:runtime.Stack(buf, true)])
			}
		}
	})
}

// errStop is a cause with which tests end contexts.
var errStop = errors.New("stop")

func isPermanent(err error) bool {
	var p *executor.PermanentError
	return errors.As(err, &p)
}

// run is the run of most tests.
func run() *executor.Run {
	return &executor.Run{RunInfo: executor.RunInfo{
		ID: "settle/2/2026-05-05T03:00:00Z/2", Key: "settle/2/2026-05-05T03:00:00Z", Job: "settle", Instance: "web-1",
		Shard: 2, Shards: 3, Param: "full", ShardParam: "Guangzhou",
		FireTime: time.Date(2026, 5, 5, 11, 0, 0, 0, time.FixedZone("", 8*3600)), Attempt: 2, Retries: 1, Reason: executor.Misfire, Fence: 7,
	}}
}

// hostile are parameters that shells, templates, programs, URLs or HTTP would read as more than data.
var hostile = []string{
	"; exit 9", "$(exit 9)", "`exit 9`", "a b", "'", `"`, `\`, "*", "~", "a\nb", "a\r\nX-Injected: yes", "-rf", "--", "{{.Fence}}", "{{", "%s",
	"%2e%2e", "..", ".", "", "../admin", "..\\admin", "a/b", "/", "//evil.example/", "a?admin=1", "a&admin=1", "a=b", "a;b", "#x", "@evil.example",
	":8080", "\t", " ", "é", "\xff", strings.Repeat("x", 1000),
}
