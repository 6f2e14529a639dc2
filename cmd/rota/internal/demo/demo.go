// Package demo is the command demo: a sharded job counts a tree of files while instances are
// killed.
package demo

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/rota-dev/rota/cmd/rota/internal/exit"
	"github.com/rota-dev/rota/cmd/rota/internal/postgres"
	"github.com/rota-dev/rota/cmd/rota/internal/settings"
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
	schemes                 registryurl.Schemes
}

// Commands returns the demo, and the hidden command of the processes that it starts.
func Commands(schemes registryurl.Schemes) []*cobra.Command {
	return []*cobra.Command{settings.Limit(demoCommand(schemes)), settings.Limit(instanceCommand(schemes))}
}

func demoCommand(schemes registryurl.Schemes) *cobra.Command {
	o := demoOptions{schemes: schemes}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Count a tree of files in shards while an instance is killed",
		Long: `Demo divides the files of a directory tree into shards and assigns the shards to
instances. Each shard counts its files, bytes and lines, and stores the totals in the
registry. Meanwhile one instance (--kill) is killed: its session expires, its shards
are reassigned, and other instances repeat its runs. Finally, demo compares the totals
with those of a single pass over the tree.

By default, the registry is in memory and the instances are goroutines of this process;
to kill one is to disconnect it. With --registry, each instance is a process, which is
killed with SIGKILL. Demo deletes its records from the registry when it ends.

The last line is "demo ok: ..." with exit code 0, or "demo failed: ..." with the
reason and exit code 1, or 2 if a flag is wrong.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.dir == "" {
				o.dir = defaultDir()
			}
			return demo(cmd.Context(), o, cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.Var(settings.NewNumber(&o.instances, 3, 1, math.MaxInt), "instances", "number of instances")
	f.Var(settings.NewNumber(&o.shards, 12, 1, math.MaxInt), "shards", "number of shards")
	f.Var(settings.NewNumber(&o.kill, 1, 0, math.MaxInt), "kill", "number of instances to kill while they count")
	f.DurationVar(&o.ttl, "ttl", 2*time.Second, "session TTL of the instances, at least 100ms")
	f.DurationVar(&o.timeout, "timeout", 2*time.Minute, "time after which the demo fails")
	f.StringVar(&o.registry, "registry", "memory",
		"memory, etcd://HOST:PORT,..., zk://HOST:PORT,... or postgres://HOST:PORT,.../DATABASE; etcd, zk or postgres alone start a local server")
	f.StringVar(&o.dir, "dir", "", "directory tree to count (default: the source tree of Go, or else the current directory)")
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
	case o.kill >= o.instances:
		return fmt.Errorf("--kill is %d, not below the %d of --instances", o.kill, o.instances)
	case o.kill > o.shards:
		return fmt.Errorf("--kill is %d, above the %d of --shards: each killed instance needs a shard", o.kill, o.shards)
	case o.ttl < 100*time.Millisecond:
		return fmt.Errorf("--ttl is %v, below 100ms", o.ttl)
	case !isDir(o.dir):
		return fmt.Errorf("--dir %s is not a directory", o.dir)
	}
	switch o.registry {
	case "memory", "etcd", "zk", "postgres":
		return nil
	}
	if err := o.schemes.Check(o.registry); err != nil {
		return fmt.Errorf("--registry: %w", err)
	}
	return nil
}

// demo runs the demo and prints the result as the last line.
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
	// start starts the instances, waits until all own shards, and triggers the job.
	start(ctx context.Context) error
	// kill ends an instance as a crash does.
	kill(instance string)
	// read passes events since the last call to the story, if the fleet does not push them.
	read()
	stop()
}

func runDemo(ctx context.Context, o demoOptions, out io.Writer) (summary, error) {
	if err := o.check(); err != nil {
		return summary{}, &exit.Error{Code: exit.Usage, Err: err}
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
	stopDisplay := display(s, out, isTerminal(out), fleet.read)
	err = fleet.start(ctx)
	if err == nil {
		err = b.await(ctx)
	}
	if err == nil {
		err = s.awaitResults(ctx)
	}
	stopDisplay()
	if err != nil {
		return summary{}, err
	}
	if o.kill > 0 {
		fmt.Fprintln(out, s.describeTimes())
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
	c := &census{files: files, namespace: namespace, report: func(e event) { b.handleEvent(e) }}
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
		fmt.Fprintln(out, "starting an etcd server; the first start builds it, which takes a minute")
		c, err = testserver.Etcd(ctx, testserver.EtcdOptions{})
	case "zk":
		fmt.Fprintln(out, "starting a ZooKeeper server; the first start downloads it")
		c, err = testserver.ZooKeeper(ctx, testserver.ZooKeeperOptions{})
	case "postgres":
		fmt.Fprintln(out, "starting a PostgreSQL server; the first start may download it")
		s, err := postgres.StartDevServer(ctx)
		if err != nil {
			return "", nil, err
		}
		return s.URL(), s.Stop, nil
	default:
		return o.registry, func() {}, nil
	}
	if err != nil {
		return "", nil, err
	}
	return o.registry + "://" + strings.Join(c.Addrs(), ","), c.Stop, nil
}

// isTerminal reports whether out is a terminal.
func isTerminal(out io.Writer) bool {
	f, ok := out.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
