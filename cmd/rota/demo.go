package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/registryurl"
	"github.com/rota-dev/rota/internal/test/testserver"
)

// demoOptions are the flags of the demo.
type demoOptions struct {
	instances, shards, kill int
	ttl, timeout            time.Duration
	dir                     string
	registry                string // "memory", or the kind of a server to start, or a URL
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

The registry is in memory, and the instances in this process, unless --registry says
otherwise: then each instance is a process of its own, and is killed (SIGKILL).

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
	f.StringVar(&o.registry, "registry", "memory",
		"memory, etcd://HOST:PORT,... or zk://HOST:PORT,..., or etcd or zk to have one started")
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
	switch o.registry {
	case "memory", "etcd", "zk":
		return nil
	}
	if err := registryurl.Check(o.registry); err != nil {
		return fmt.Errorf("--registry: %w", err)
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

// demoFleet is the instances of the demo.
type demoFleet interface {
	// start starts the instances, waits until all take part, and sets the job off.
	start(ctx context.Context) error
	// kill ends an instance as a crash does.
	kill(instance string)
	// read has the story hear what has happened since, if that does not come by itself.
	read()
	stop()
}

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
	b := newBoard(o.shards, o.kill)
	s := newStory(b)
	fleet, err := o.fleet(ctx, out, files, b, s)
	if err != nil {
		return summary{}, err
	}
	defer fleet.stop()
	b.kill = fleet.kill

	fmt.Fprintf(out, "counting %d files of %s in %d shards over %d instances\n", len(files), o.dir, o.shards, o.instances)
	stopTelling := tell(s, out, isTerminal(out), fleet.read)
	err = fleet.start(ctx)
	if err == nil {
		err = b.await(ctx)
	}
	if err == nil {
		err = s.complete(ctx)
	}
	stopTelling()
	if err != nil {
		return summary{}, err
	}
	if o.kill > 0 {
		fmt.Fprintln(out, s.times())
	}
	return s.check(ctx, o)
}

// fleet returns the fleet that o asks for, on the registry that it names.
func (o demoOptions) fleet(ctx context.Context, out io.Writer, files []string, b *board, s *story) (demoFleet, error) {
	namespace := fmt.Sprintf("demo-%s", rand.Text()[:8]) // a server may keep those of other runs
	keys, err := record.NewKeys(namespace, "default")
	if err != nil {
		return nil, err
	}
	c := &census{files: files, namespace: namespace, tell: b.take}
	if o.registry == "memory" {
		return newMemoryFleet(o, keys, c, s), nil
	}
	url, stopServer, err := o.server(ctx, out)
	if err != nil {
		return nil, err
	}
	f, err := newProcessFleet(ctx, o, url, keys, c, b, s)
	if err != nil {
		stopServer()
		return nil, err
	}
	return &served{f, stopServer}, nil
}

// served is a fleet with a server of its own.
type served struct {
	demoFleet
	stopServer func()
}

func (s *served) stop() {
	s.demoFleet.stop()
	s.stopServer()
}

// server returns the URL of the registry, and starts a server if o names only a kind.
func (o demoOptions) server(ctx context.Context, out io.Writer) (url string, stop func(), err error) {
	var c *testserver.Cluster
	switch o.registry {
	case "etcd":
		fmt.Fprintln(out, "starting an etcd server; the first time it has to be built, which takes a minute")
		c, err = testserver.Etcd(ctx, testserver.EtcdOptions{})
	case "zk":
		fmt.Fprintln(out, "starting a ZooKeeper server; the first time it has to be fetched")
		c, err = testserver.ZooKeeper(ctx, testserver.ZooKeeperOptions{})
	default:
		return o.registry, func() {}, nil
	}
	if err != nil {
		return "", nil, err
	}
	return o.registry + "://" + strings.Join(c.Addrs(), ","), c.Stop, nil
}

// isTerminal reports whether out is one.
func isTerminal(out io.Writer) bool {
	f, ok := out.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
