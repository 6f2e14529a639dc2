package testserver

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/rota-dev/rota/internal/test/testserver/filelock"
)

// workDir is a temporary directory that the next workDir to be made removes, in whatever
// process, if nobody else did: there is no cleaning up after a process that was killed.
type workDir struct {
	path string
	lock *filelock.Lock // held as long as it is in use
}

func newWorkDir(what string) (*workDir, error) {
	base := filepath.Join(os.TempDir(), fmt.Sprintf("rota-servers-%d", os.Getuid()))
	if err := os.MkdirAll(base, 0o700); err != nil {
		return nil, err
	}
	// Nobody is to remove a directory whose lock was not taken yet.
	all, err := filelock.Acquire(context.Background(), filepath.Join(base, "lock"))
	if err != nil {
		return nil, err
	}
	defer all.Release()
	removeAbandoned(base)
	path, err := os.MkdirTemp(base, what+"-")
	if err != nil {
		return nil, err
	}
	lock, err := filelock.TryAcquire(lockOf(path))
	if err != nil {
		return nil, err
	}
	return &workDir{path, lock}, nil
}

func removeAbandoned(base string) {
	entries, _ := os.ReadDir(base)
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		path := filepath.Join(base, e.Name())
		if lock, err := filelock.TryAcquire(lockOf(path)); err == nil {
			os.RemoveAll(path)
			lock.Release()
		}
	}
}

func lockOf(path string) string { return filepath.Join(path, "in-use") }

func (d *workDir) remove() {
	os.RemoveAll(d.path)
	d.lock.Release()
}
