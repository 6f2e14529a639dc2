package testserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/rota-dev/rota/conformance/child"
	"github.com/rota-dev/rota/conformance/freeport"
)

// role is the purpose of a member's port.
type role int

const (
	clients  role = iota
	admin         // without TLS, credentials or quorum
	peers         // for replication
	election      // ZooKeeper only
)

// Member is one server of a cluster.
type Member struct {
	cluster *Cluster
	index   int
	name    string
	dir     string
	port    map[role]*freeport.Port

	mu       sync.Mutex
	proc     *child.Process // current or last; nil before the first start
	replaced bool
}

func (c *Cluster) addMember(index int) error {
	m := &Member{cluster: c, index: index, name: fmt.Sprintf("m%d", index+1), port: map[role]*freeport.Port{}}
	m.dir = filepath.Join(c.dir.path, m.name)
	if err := os.Mkdir(m.dir, 0o700); err != nil {
		return err
	}
	c.members = append(c.members, m)
	for _, r := range c.kind.ports() {
		p, err := freeport.Reserve()
		if err != nil {
			return err
		}
		m.port[r] = p
	}
	return nil
}

func (m *Member) release() {
	for _, p := range m.port {
		p.Release()
	}
}

// Addr returns the host:port for clients. It survives restarts.
func (m *Member) Addr() string { return m.port[clients].Addr() }

// Pid returns the ID of the server's current or last process.
func (m *Member) Pid() int {
	if p := m.process(); p != nil {
		return p.Pid()
	}
	return 0
}

func (m *Member) process() *child.Process {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.proc
}

// Kill kills the server (SIGKILL), even if it is paused, and returns when it has ended.
func (m *Member) Kill() {
	if p := m.process(); p != nil {
		p.Kill()
	}
}

// Pause suspends the server (SIGSTOP): its connections stay open and it does nothing.
func (m *Member) Pause() error { return m.process().Pause() }

// Resume continues a paused server.
func (m *Member) Resume() error { return m.process().Resume() }

// Restart kills the server, if it runs, and starts it with the same data and port. It
// returns when the server serves, which requires a majority of the members.
func (m *Member) Restart(ctx context.Context) error {
	for try := 1; ; try++ {
		m.Kill()
		err := m.spawn()
		if err == nil {
			err = m.awaitServing(ctx)
		}
		if !errors.Is(err, errPortTaken) || try == startTries {
			return err
		}
		select {
		case <-time.After(probeInterval):
		case <-ctx.Done():
			return err
		}
	}
}

// Replace kills the server, if it runs, and starts an empty one in its place, at the same
// address. It returns when the new server has caught up and serves, which requires a
// majority of the members without it. A single server loses all data.
func (m *Member) Replace(ctx context.Context) error {
	m.Kill()
	if len(m.cluster.members) > 1 {
		if err := m.cluster.kind.expectEmpty(ctx, m); err != nil {
			return fmt.Errorf("replace %s: %w", m.name, err)
		}
		m.mu.Lock()
		m.replaced = true
		m.mu.Unlock()
	}
	if err := os.RemoveAll(m.DataDir()); err != nil {
		return err
	}
	if err := m.cluster.kind.prepare(m); err != nil {
		return err
	}
	return m.Restart(ctx)
}

func (m *Member) wasReplaced() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.replaced
}

// Counters returns the server's metrics under their own names.
func (m *Member) Counters(ctx context.Context) (map[string]float64, error) {
	return m.cluster.kind.counters(ctx, m)
}

// others returns the other members.
func (m *Member) others() []*Member {
	return slices.DeleteFunc(slices.Clone(m.cluster.members), func(o *Member) bool { return o == m })
}

// spawn starts the process.
func (m *Member) spawn() error {
	out, err := os.OpenFile(m.outputPath(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer out.Close() // the process has its own descriptor
	cmd := m.cluster.kind.command(m)
	cmd.Dir = m.dir
	cmd.Stdout, cmd.Stderr = out, out
	p, err := child.Start(cmd)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.proc = p
	return nil
}

const (
	probeInterval = 10 * time.Millisecond
	// A paused server does not answer.
	leadsTimeout = 200 * time.Millisecond
)

// errPortTaken means that a start failed because another process had taken a port.
var errPortTaken = errors.New("port taken by another process")

// awaitServing waits until the server serves, and checks that it is this server that
// answers.
func (m *Member) awaitServing(ctx context.Context) error {
	p := m.process()
	err := p.AwaitReady(ctx, func(ctx context.Context) error { return m.cluster.kind.probe(ctx, m) })
	if err != nil {
		return m.startFailed(err)
	}
	return m.checkListeners(p)
}

// checkListeners fails if another process answered in the server's place.
func (m *Member) checkListeners(p *child.Process) error {
	for _, r := range []role{clients, admin} {
		port := m.port[r]
		if port == nil {
			continue
		}
		if ours, err := listens(p.Pid(), port.Number); err != nil {
			return m.startFailed(err)
		} else if !ours {
			return m.startFailed(fmt.Errorf("port %d: %w", port.Number, errPortTaken))
		}
	}
	return nil
}

func (m *Member) startFailed(err error) error {
	out := m.Output()
	if bytes.Contains(bytes.ToLower(out), []byte("address already in use")) {
		err = fmt.Errorf("%w: %w", errPortTaken, err)
	}
	return fmt.Errorf("member %s: %w; output ends with:\n%s", m.name, err, out)
}

// outputKept is the number of bytes of a server's output to show.
const outputKept = 8 << 10

// Output returns the end of the server's output.
func (m *Member) Output() []byte {
	f, err := os.Open(m.outputPath())
	if err != nil {
		return nil
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > outputKept {
		_, _ = f.Seek(-outputKept, io.SeekEnd)
	}
	out, _ := io.ReadAll(f)
	return out
}

func (m *Member) outputPath() string { return filepath.Join(m.dir, "output") }

// DataDir returns the directory in which the server keeps its data.
func (m *Member) DataDir() string { return filepath.Join(m.dir, "data") }
