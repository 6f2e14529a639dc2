// Package filelock locks files between processes, and between goroutines of one. A lock
// ends with its process, however that ends.
package filelock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// ErrHeld says that another one holds the lock.
var ErrHeld = errors.New("lock is held by another")

// pollInterval is short beside what is done under such locks.
const pollInterval = 50 * time.Millisecond

// Lock is a lock that is held.
type Lock struct{ file *os.File }

// Acquire locks the file at path, which it makes if there is none, and waits until it can.
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

// TryAcquire is Acquire without the wait: it fails with ErrHeld.
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

// Release gives the lock up. The file stays.
func (l *Lock) Release() {
	l.file.Close()
}
