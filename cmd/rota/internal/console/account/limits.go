package account

import (
	"sync"
	"time"
)

// maxLimited bounds the names and the addresses that limits remembers.
const maxLimited = 4096

// limits bounds the attempts of each key. An attempt takes one from a reserve, which grows back by one in each interval.
type limits struct {
	reserve  int
	interval time.Duration

	mu   sync.Mutex
	full map[string]time.Time // when the reserve of a key is full again; those that are full are left out at some time
}

func newLimits(reserve int, interval time.Duration) *limits {
	return &limits{reserve: reserve, interval: interval, full: map[string]time.Time{}}
}

// take takes an attempt. If none is left, it returns the time until the next.
func (l *limits) take(key string) (wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	full := l.full[key]
	if full.Before(now) {
		full = now
	}
	full = full.Add(l.interval)
	if wait := full.Sub(now) - time.Duration(l.reserve)*l.interval; wait > 0 {
		return wait
	}
	if _, found := l.full[key]; !found && len(l.full) >= maxLimited {
		l.forget(now)
	}
	l.full[key] = full
	return 0
}

// giveBack returns an attempt.
func (l *limits) giveBack(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.full[key] = l.full[key].Add(-l.interval)
}

// forget removes the keys whose reserve is full, or else the one that has the most left.
func (l *limits) forget(now time.Time) {
	least, first := "", time.Time{}
	for key, full := range l.full {
		if !full.After(now) {
			delete(l.full, key)
		} else if first.IsZero() || full.Before(first) {
			least, first = key, full
		}
	}
	if len(l.full) >= maxLimited {
		delete(l.full, least)
	}
}
