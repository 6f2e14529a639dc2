package postgres_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	osexec "os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/test/long"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/postgres"
	"github.com/rota-dev/rota/registry/postgres/internal/pgserver"
)

// smallDisk is a file system of a few MiB for files of a server.
type smallDisk struct{ dir string }

func mountSmallDisk(t *testing.T, s *pgserver.Server, mib int) smallDisk {
	d := smallDisk{filepath.Join(t.TempDir(), "disk")}
	require.NoError(t, os.Mkdir(d.dir, 0o700))
	for dir := d.dir; dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		require.NoError(t, os.Chmod(dir, 0o755)) // the server is another user
	}
	out, err := osexec.Command("mount", "-t", "tmpfs", "-o", fmt.Sprintf("size=%dm", mib), "tmpfs", d.dir).CombinedOutput()
	require.NoError(t, err, "%s", out)
	// Lazily, since the server ends later.
	t.Cleanup(func() { assert.NoError(t, osexec.Command("umount", "--lazy", d.dir).Run()) })
	d.own(t, s, d.dir)
	return d
}

// own gives a file to the user of the server.
func (d smallDisk) own(t *testing.T, s *pgserver.Server, path string) {
	info, err := os.Stat(dataDir(t, s))
	require.NoError(t, err)
	owner := info.Sys().(*syscall.Stat_t)
	require.NoError(t, os.Lchown(path, int(owner.Uid), int(owner.Gid)))
}

func dataDir(t *testing.T, s *pgserver.Server) string {
	rows, err := s.Query(t.Context(), database, "SHOW data_directory")
	require.NoError(t, err)
	return rows[0][0]
}

// fill leaves no room, until the returned function is called.
func (d smallDisk) fill(t *testing.T) (makeRoom func()) {
	name := filepath.Join(d.dir, "filler")
	f, err := os.Create(name)
	require.NoError(t, err)
	for block := make([]byte, 1<<16); err == nil && len(block) > 0; {
		if _, err = f.Write(block); errors.Is(err, syscall.ENOSPC) {
			block, err = block[:len(block)/2], nil
		}
	}
	require.NoError(t, errors.Join(err, f.Close()))
	return func() { require.NoError(t, os.Remove(name)) }
}

// outcomes has the keys of transactions, by the outcome that their caller learned.
type outcomes struct{ applied, refused, unknown []registry.Key }

func incompressible(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b)
	return b
}

// createUntil creates keys until enough is true.
func (o *outcomes) createUntil(t *testing.T, c registry.Registry, enough func() bool) {
	value := incompressible(20_000)
	for end := time.Now().Add(5 * time.Minute); !enough(); {
		require.True(t, time.Now().Before(end), "%d applied, %d refused, %d unknown", len(o.applied), len(o.refused), len(o.unknown))
		key := registry.Key(fmt.Sprintf("d/k%06d", len(o.applied)+len(o.refused)+len(o.unknown)))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		_, err := c.Txn(ctx, registry.Txn{Then: []registry.Op{registry.Create(key, value)}})
		cancel()
		switch {
		case err == nil:
			o.applied = append(o.applied, key)
		case errors.Is(err, registry.ErrUnknownOutcome):
			o.unknown = append(o.unknown, key)
		default:
			require.True(t, errors.Is(err, registry.ErrQuota) || errors.Is(err, registry.ErrNotApplied), "%v", err)
			o.refused = append(o.refused, key)
		}
	}
}

// check requires that each outcome was true.
func (o *outcomes) check(t *testing.T, c registry.Registry) {
	l, err := c.List(t.Context(), "d", registry.ReadOptions{})
	require.NoError(t, err)
	exists := map[registry.Key]bool{}
	for _, e := range l.Entries {
		exists[e.Key] = true
	}
	for _, key := range o.applied {
		require.True(t, exists[key], "%s was acknowledged", key)
	}
	for _, key := range o.refused {
		require.False(t, exists[key], "%s was refused", key)
	}
}

// These tests mount file systems, which only root may do: they are long tests.
func TestFullDisk(t *testing.T) {
	for range long.Pick(0, 1) {
		t.Run("of tables refuses changes until there is room", testFullTables)
		t.Run("of the log loses nothing that was acknowledged", testFullLog)
	}
}

func testFullTables(t *testing.T) {
	s := startServer(t)
	d := mountSmallDisk(t, s, 32)
	for _, sql := range []string{"CREATE TABLESPACE small LOCATION '" + d.dir + "'", "CREATE DATABASE small TABLESPACE small"} {
		require.NoError(t, s.Exec(t.Context(), database, sql))
	}
	o := optionsOf(s)
	o.Database = "small"
	require.NoError(t, postgres.Migrate(t.Context(), o))
	c := open(t, o)
	session, err := c.OpenSession(t.Context(), registry.SessionOptions{TTL: 5 * time.Second})
	require.NoError(t, err)
	var seen outcomes
	seen.createUntil(t, c, func() bool { return len(seen.applied) == 10 })
	makeRoom := d.fill(t)
	seen.createUntil(t, c, func() bool { return len(seen.refused) >= 20 })
	_, err = c.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Create("d/last", incompressible(100_000))}})
	require.ErrorIs(t, err, registry.ErrQuota)
	require.ErrorContains(t, err, "No space left on device")
	require.Empty(t, seen.unknown, "the server answers")
	seen.check(t, c)
	full := time.Now()
	seen.createUntil(t, c, func() bool { return time.Since(full) > 6*time.Second })
	require.NoError(t, session.Err(), "renewals need no room")

	makeRoom()
	applied := len(seen.applied)
	seen.createUntil(t, c, func() bool { return len(seen.applied) == applied+20 })
	seen.check(t, c)
	require.NoError(t, session.Err())
}

// The server ends when it has no room for its log.
func testFullLog(t *testing.T) {
	s := startServer(t, "fsync=on", "max_wal_size=32MB", "min_wal_size=32MB", "wal_recycle=off")
	d := mountSmallDisk(t, s, 100)
	o := newRegistry(t, s)
	wal := filepath.Join(dataDir(t, s), "pg_wal")

	require.NoError(t, s.Shutdown(syscall.SIGINT))
	moved := filepath.Join(d.dir, "pg_wal")
	out, err := osexec.Command("cp", "-a", wal, moved).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.NoError(t, os.RemoveAll(wal))
	require.NoError(t, os.Symlink(moved, wal))
	require.NoError(t, s.Continue(t.Context()))

	c := open(t, o)
	var seen outcomes
	seen.createUntil(t, c, func() bool { return len(seen.applied) == 10 })
	makeRoom := d.fill(t)
	seen.createUntil(t, c, func() bool { return len(seen.unknown) > 0 && len(seen.refused) > 2 })
	makeRoom()
	s.Kill() // the processes that have not ended
	require.NoError(t, s.Continue(t.Context()))
	applied := len(seen.applied)
	seen.createUntil(t, c, func() bool { return len(seen.applied) == applied+20 })
	seen.check(t, c)
	t.Logf("%d applied, %d refused, %d unknown", len(seen.applied), len(seen.refused), len(seen.unknown))
}
