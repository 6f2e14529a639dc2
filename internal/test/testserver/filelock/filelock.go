// Package filelock locks files between processes and between goroutines of one process.
// The lock of a process ends when the process does, even if it is killed.
package filelock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// ErrHeld means that the lock is held elsewhere.
var ErrHeld = errors.New("lock is held by another")

// pollInterval is short compared to the work done under such locks.
const pollInterval = 50 * time.Millisecond

// Lock is a held lock.
type Lock struct{ file *os.File }

// Acquire locks the file at path, which it creates if necessary, and waits until it can.
func Acquire(ctx context.Context, path string) (*Lock, error) {
	for {
		l, err := TryAcquire(path)
		if !errors.Is(err, ErrHeld) {
			return l, err
		}
		select {
		case <-time.After(pollInterval):
		case <-ctx.Done():
			return nil, fmt.Errorf("lock %s: %w", path, context.Cause(ctx))
		}
	}
}

// TryAcquire is Acquire without waiting: it fails with ErrHeld.
func TryAcquire(path string) (*Lock, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	if err := flock(f); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return &Lock{f}, nil
}

// Release releases the lock. The file stays.
func (l *Lock) Release() {
	l.file.Close()
}
