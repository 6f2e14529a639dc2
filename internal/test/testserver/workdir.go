package testserver

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/rota-dev/rota/internal/test/testserver/filelock"
)

// workDir is a temporary directory. If its process was killed, the next newWorkDir of any
// process removes it.
type workDir struct {
	path string
	lock *filelock.Lock // held while the directory is in use
}

func newWorkDir(what string) (*workDir, error) {
	base := filepath.Join(os.TempDir(), fmt.Sprintf("rota-servers-%d", os.Getuid()))
	if err := os.MkdirAll(base, 0o700); err != nil {
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
