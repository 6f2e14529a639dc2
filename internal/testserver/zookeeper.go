package testserver

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/testserver/provision"
)

// ZooKeeperOptions are those of ZooKeeper. The zero value is a single server without TLS
// and credentials.
type ZooKeeperOptions struct {
	// Members is how many servers there are: 1 if not said.
	Members int
	// Log gets what is worth telling; nil discards it.
	Log io.Writer
	// Tick is the unit of its times: a session lasts 2 ticks at least. Zero means 50 ms for
	// a single server and 100 ms for several.
	Tick time.Duration
	// Lines are added to the configuration of each server.
	Lines []string
}

// ZooKeeper starts ZooKeeper. It returns when all members serve.
func ZooKeeper(ctx context.Context, o ZooKeeperOptions) (*Cluster, error) {
	java, err := provision.Java(ctx)
	if err != nil {
		return nil, err
	}
	classPath, err := provision.ClassPath(ctx)
	if err != nil {
		return nil, err
	}
	if o.Tick == 0 {
		o.Tick = 50 * time.Millisecond
		if o.Members > 1 {
			o.Tick = 100 * time.Millisecond
		}
	}
	return start(ctx, &zookeeper{java, classPath, o}, o.Members, o.Log)
}

type zookeeper struct {
	java      string
	classPath string
	options   ZooKeeperOptions
}

func (z *zookeeper) name() string { return "zookeeper" }

func (z *zookeeper) ports() []role { return []role{clients} }

func (z *zookeeper) prepare(m *Member) error {
	lines := append([]string{
		fmt.Sprintf("tickTime=%d", z.options.Tick.Milliseconds()),
		"maxSessionTimeout=60000",
		"dataDir=" + filepath.Join(m.dir, "data"),
		"clientPortAddress=127.0.0.1",
		fmt.Sprintf("clientPort=%d", m.port[clients].Number),
		"maxClientCnxns=0", // no limit
		"admin.enableServer=false",
		"4lw.commands.whitelist=*",
		"extendedTypesEnabled=true",
		"forceSync=no",
	}, z.options.Lines...)
	return os.WriteFile(z.configPath(m), []byte(strings.Join(lines, "\n")+"\n"), 0o600)
}

func (z *zookeeper) configPath(m *Member) string { return filepath.Join(m.dir, "zoo.cfg") }

func (z *zookeeper) command(m *Member) *exec.Cmd {
	return exec.Command(z.java,
		// Small and quick to start, which is what counts here.
		"-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
		"-cp", z.classPath,
		"org.apache.zookeeper.server.quorum.QuorumPeerMain", z.configPath(m))
}

// probe asks for more than a sign of life, which there is before sessions are accepted.
func (z *zookeeper) probe(ctx context.Context, m *Member) error {
	_, err := z.mode(ctx, m)
	return err
}

func (z *zookeeper) leads(ctx context.Context, m *Member) (bool, error) {
	mode, err := z.mode(ctx, m)
	return mode == "leader" || mode == "standalone", err
}

func (z *zookeeper) mode(ctx context.Context, m *Member) (string, error) {
	answer, err := ask(ctx, m.port[clients].Addr(), "srvr")
	if err != nil {
		return "", err
	}
	_, after, ok := strings.Cut(answer, "Mode: ")
	if !ok {
		return "", fmt.Errorf("%s has no mode yet: %s", m.name, answer)
	}
	mode, _, _ := strings.Cut(after, "\n")
	return mode, nil
}

// ask sends one of the commands that are words of four letters.
func ask(ctx context.Context, addr, word string) (string, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return "", err
		}
	}
	if _, err := io.WriteString(conn, word); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(conn)
	return string(answer), err
}
