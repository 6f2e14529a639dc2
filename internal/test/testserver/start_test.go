package testserver

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/test/testserver/filelock"
)

// fake is a kind of server that runs the given commands, one per attempt.
type fake struct {
	commands []func(m *Member) *exec.Cmd
	tries    int
	inPlace  net.Listener // a foreign listener on the port
}

func (f *fake) name() string                                                  { return "fake" }
func (f *fake) ports() []role                                                 { return []role{clients} }
func (f *fake) connectPeers(*Cluster) error                                   { return nil }
func (f *fake) afterFirstStart(context.Context, *Cluster) error               { return nil }
func (f *fake) leads(context.Context, *Member) (bool, error)                  { return true, nil }
func (f *fake) expectEmpty(context.Context, *Member) error                    { return nil }
func (f *fake) counters(context.Context, *Member) (map[string]float64, error) { return nil, nil }

func (f *fake) prepare(m *Member) (err error) {
	if f.inPlace != nil {
		f.inPlace.Close()
		f.inPlace, err = net.Listen("tcp4", m.Addr())
	}
	return err
}

func (f *fake) command(m *Member) *exec.Cmd {
	f.tries++
	return f.commands[min(f.tries, len(f.commands))-1](m)
}

func (f *fake) probe(ctx context.Context, m *Member) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", m.Addr())
	if err == nil {
		conn.Close()
	}
	return err
}

func printAndExit(text string) func(*Member) *exec.Cmd {
	return func(*Member) *exec.Cmd { return exec.Command("sh", "-c", "echo "+text+"; exit 1") }
}

// listensAt makes this test binary listen on the given address.
const listensAt = "ROTA_TEST_LISTEN_AT"

func serve(m *Member) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), listensAt+"="+m.Addr())
	return cmd
}

func startFake(t *testing.T, f *fake) (*Cluster, error) {
	c, err := start(t.Context(), f, common{})
	if err == nil {
		t.Cleanup(c.Stop)
	}
	return c, err
}

func TestStart_RetriesWhenAPortWasTaken(t *testing.T) {
	f := &fake{commands: []func(*Member) *exec.Cmd{printAndExit("bind: Address already in use"), serve}}
	c, err := startFake(t, f)
	require.NoError(t, err)
	require.Equal(t, 2, f.tries)

	f.commands, f.tries = []func(*Member) *exec.Cmd{printAndExit("bind: address already in use"), serve}, 0
	addr := c.Members()[0].Addr()
	require.NoError(t, c.Members()[0].Restart(t.Context()))
	require.Equal(t, 2, f.tries)
	require.Equal(t, addr, c.Members()[0].Addr())
}

func TestStart_DoesNotRetryOtherFailures(t *testing.T) {
	f := &fake{commands: []func(*Member) *exec.Cmd{printAndExit("no such option")}}
	_, err := startFake(t, f)
	require.ErrorContains(t, err, "no such option")
	require.Equal(t, 1, f.tries)
}

func TestStart_DetectsAForeignServer(t *testing.T) {
	somebody, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	idle := func(*Member) *exec.Cmd { return exec.Command("sleep", "600") }
	f := &fake{commands: []func(*Member) *exec.Cmd{idle}, inPlace: somebody}
	defer func() { f.inPlace.Close() }()
	_, err = startFake(t, f)
	require.ErrorIs(t, err, errPortTaken)
	require.Equal(t, startTries, f.tries)
}

func TestStart_EndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	idle := func(*Member) *exec.Cmd {
		cancel()
		return exec.Command("sleep", "600")
	}
	_, err := start(ctx, &fake{commands: []func(*Member) *exec.Cmd{idle}}, common{})
	require.ErrorIs(t, err, context.Canceled)
}

func TestConnected_FindsTheOwnerOfAConnection(t *testing.T) {
	c, err := startFake(t, &fake{commands: []func(*Member) *exec.Cmd{serve}})
	require.NoError(t, err)
	m := c.Members()[0]
	conn, err := net.Dial("tcp", m.Addr())
	require.NoError(t, err)
	defer conn.Close()

	ours, err := connected(os.Getpid(), conn.LocalAddr(), conn.RemoteAddr())
	require.NoError(t, err)
	require.True(t, ours)
	theirs, err := connected(m.Pid(), conn.LocalAddr(), conn.RemoteAddr())
	require.NoError(t, err)
	require.False(t, theirs)
}

func TestWorkDir(t *testing.T) {
	d, err := newWorkDir("test")
	require.NoError(t, err)
	defer d.remove()
	abandoned, err := newWorkDir("test")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(abandoned.path, "file"), nil, 0o600))
	abandoned.lock.Release() // as if its process had been killed

	other, err := newWorkDir("test")
	require.NoError(t, err)
	require.NoDirExists(t, abandoned.path)
	require.DirExists(t, d.path)
	require.NotEqual(t, d.path, other.path)
	_, err = filelock.TryAcquire(lockOf(d.path))
	require.ErrorIs(t, err, filelock.ErrHeld)
	other.remove()
	require.NoDirExists(t, other.path)
}

func TestWorkDir_RemovesNothingOfAnother(t *testing.T) {
	tmp, victim := t.TempDir(), t.TempDir()
	t.Setenv("TMPDIR", tmp)
	base := filepath.Join(tmp, fmt.Sprintf("rota-servers-%d", os.Getuid()))
	photos := filepath.Join(victim, "photos")
	require.NoError(t, os.Mkdir(photos, 0o700))

	require.NoError(t, os.Symlink(victim, base)) // by another user, who knows the name
	_, err := newWorkDir("test")
	require.ErrorContains(t, err, "it is a link")
	entries, err := os.ReadDir(victim)
	require.NoError(t, err)
	require.Len(t, entries, 1, "photos alone: nothing was removed or created")

	require.NoError(t, os.Remove(base))
	require.NoError(t, os.Mkdir(base, 0o700))
	var kept []string
	for _, name := range []string{"photos", workDirPrefix + "without-a-lock", "with-a-lock"} {
		dir := filepath.Join(base, name)
		require.NoError(t, os.Mkdir(dir, 0o700))
		kept = append(kept, dir)
	}
	require.NoError(t, os.WriteFile(lockOf(kept[2]), nil, 0o600))
	d, err := newWorkDir("test")
	require.NoError(t, err)
	defer d.remove()
	for _, dir := range kept {
		require.DirExists(t, dir)
	}
}
