package testserver

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/rota-dev/rota/internal/test/testserver/filelock"
	"github.com/rota-dev/rota/internal/test/testserver/provision"
)

const (
	workDirPrefix = "server-"
	lockName      = "in-use"
)

// workDir is a temporary directory. If its process was killed, the next newWorkDir of any
// process removes it.
type workDir struct {
	path string
	lock *filelock.Lock // held while the directory is in use
}

func newWorkDir(what string) (*workDir, error) {
	base := filepath.Join(os.TempDir(), fmt.Sprintf("rota-servers-%d", os.Getuid()))
	if err := provision.MakePrivateDir(base); err != nil {
		return nil, err
	}
	// Held until the new directory is locked, so that no other process removes it as
	// abandoned.
	all, err := filelock.Acquire(context.Background(), filepath.Join(base, "lock"))
	if err != nil {
		return nil, err
	}
	defer all.Release()
	removeAbandoned(base)
	path, err := os.MkdirTemp(base, workDirPrefix+what+"-")
	if err != nil {
		return nil, err
	}
	lock, err := filelock.TryAcquire(lockOf(path))
	if err != nil {
		return nil, err
	}
	return &workDir{path, lock}, nil
}

// removeAbandoned removes the directories that newWorkDir made and no process locks, and nothing else. One whose
// process was killed before it had a lock stays.
func removeAbandoned(base string) {
	entries, _ := os.ReadDir(base)
	for _, e := range entries {
		path := filepath.Join(base, e.Name())
		if !e.IsDir() || !strings.HasPrefix(e.Name(), workDirPrefix) || !isFile(lockOf(path)) {
			continue
		}
		if lock, err := filelock.TryAcquire(lockOf(path)); err == nil {
			os.RemoveAll(path)
			lock.Release()
		}
	}
}

func isFile(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode().IsRegular()
}

func lockOf(path string) string { return filepath.Join(path, lockName) }

func (d *workDir) remove() {
	os.RemoveAll(d.path)
	d.lock.Release()
}
