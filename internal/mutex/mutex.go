//go:build !rotacheck

package mutex

import "sync"

// Mutex is a sync.Mutex.
type Mutex = sync.Mutex

// RWMutex is a sync.RWMutex.
type RWMutex = sync.RWMutex

// CheckFree does nothing in this build.
func CheckFree(string) {}
