package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/registry/memory"
)

// demoOptions are the flags of the demo.
type demoOptions struct {
	instances, shards, kill int
	ttl, timeout            time.Duration
	dir                     string
}

func demoCommand() *cobra.Command {
	var o demoOptions
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Count a tree of files in shards, and cut an instance off while it counts",
		Long: `Demo deals the files of a directory tree to shards, and the shards to instances. Each
shard counts its files, their bytes and lines, and stores the sums under the guard of
its run. Meanwhile an instance is cut off: its session runs out and its shards are
counted again elsewhere. In the end the sums are compared with one plain pass.

The last line is "demo ok: ..." and the exit status 0, or "demo failed: why" and 1.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.dir == "" {
				o.dir = defaultDir()
			}
			return demo(cmd.Context(), o, cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.instances, "instances", 3, "instances in the fleet")
	f.IntVar(&o.shards, "shards", 12, "shards that the files are dealt to")
	f.IntVar(&o.kill, "kill", 1, "instances to cut off while they count")
	f.DurationVar(&o.ttl, "ttl", 2*time.Second, "time to live of the instances' sessions")
	f.DurationVar(&o.timeout, "timeout", 2*time.Minute, "when to give up")
	f.StringVar(&o.dir, "dir", "", "tree to count (default Go's own source tree, else the current directory)")
	return cmd
}

// defaultDir returns Go's own source tree, or the current directory.
func defaultDir() string {
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if dir := filepath.Join(strings.TrimSpace(string(out)), "src"); err == nil && isDir(dir) {
		return dir
	}
	return "."
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

func (o demoOptions) check() error {
	switch {
	case o.instances < 1:
		return fmt.Errorf("--instances is %d, below 1", o.instances)
	case o.shards < 1:
		return fmt.Errorf("--shards is %d, below 1", o.shards)
	case o.kill < 0:
		return fmt.Errorf("--kill is %d, below 0", o.kill)
	case o.kill >= o.instances:
		return fmt.Errorf("--kill %d leaves none of %d instances to go on", o.kill, o.instances)
	case o.kill > o.shards:
		return fmt.Errorf("--kill is %d, but of %d shards no more than that many instances have one", o.kill, o.shards)
	case o.ttl < 100*time.Millisecond:
		return fmt.Errorf("--ttl is %v, below 100ms", o.ttl)
	case !isDir(o.dir):
		return fmt.Errorf("--dir %s is not a directory", o.dir)
	}
	return nil
}

// demo runs the demo and reports how it went as the last line.
func demo(ctx context.Context, o demoOptions, out io.Writer) error {
	s, err := runDemo(ctx, o, out)
	if err != nil {
		return fmt.Errorf("demo failed: %w", err)
	}
	fmt.Fprintf(out, "demo ok: %s\n", s)
	return nil
}

// namespace is where the demo's records live.
const namespace = "demo"

func runDemo(ctx context.Context, o demoOptions, out io.Writer) (summary, error) {
	if err := o.check(); err != nil {
		return summary{}, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, o.timeout, fmt.Errorf("not done after %v", o.timeout))
	defer cancel()
	files, err := listFiles(o.dir)
	if err != nil {
		return summary{}, err
	}
	server := memory.New()
	server.Record()
	c := newCensus(files, o.shards, o.kill)
	fleet := &fleet{census: c, server: server}
	c.cutOff = fleet.cutOff
	defer fleet.stop()

	fmt.Fprintf(out, "counting %d files of %s in %d shards over %d instances\n", len(files), o.dir, o.shards, o.instances)
	story := newStory(server, c, o.shards)
	stopTelling := story.tell(out, isTerminal(out))
	err = fleet.start(ctx, o)
	if err == nil {
		err = c.await(ctx)
	}
	stopTelling()
	if err != nil {
		return summary{}, err
	}
	return story.check(ctx, o)
}

// isTerminal reports whether out is one.
func isTerminal(out io.Writer) bool {
	f, ok := out.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// fleet is the instances of the demo, each with its own connection to the registry.
type fleet struct {
	census    *census
	server    *memory.Server
	instances []*executor.Executor

	mu    sync.Mutex
	heals []func()
}

// start starts the instances, waits until all take part, and sets the job off.
func (f *fleet) start(ctx context.Context, o demoOptions) error {
	job := executor.Job{Name: "census", Shards: o.shards, Handler: executor.HandlerFunc(f.census.count)}
	for i := range o.instances {
		name := fmt.Sprintf("instance-%d", i+1)
		e, err := executor.New(f.server.Client(name), namespace, executor.Options{
			Instance: name, SessionTTL: o.ttl, Workers: 2, Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			return err
		}
		f.instances = append(f.instances, e)
		if err := errors.Join(e.Register(job), e.Start(ctx)); err != nil {
			return err
		}
	}
	if err := awaitDealt(ctx, f.server, o); err != nil {
		return err
	}
	_, err := f.instances[0].Trigger(ctx, "census", executor.Trigger{})
	return err
}

// cutOff cuts an instance off from the registry. Its handlers go on until they are told.
func (f *fleet) cutOff(instance string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.heals = append(f.heals, f.server.Partition(instance))
}

// stop reconnects who was cut off, and shuts all instances down.
func (f *fleet) stop() {
	f.mu.Lock()
	for _, heal := range f.heals {
		heal()
	}
	f.mu.Unlock()
	var all sync.WaitGroup
	for _, e := range f.instances {
		all.Go(func() { e.Shutdown(context.Background()) })
	}
	all.Wait()
}
