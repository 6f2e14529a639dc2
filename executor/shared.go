package executor

import (
	"runtime"
	"sync"
	"weak"
)

// shared makes one T per key for all who want it, and forgets it when nobody holds it:
// 10,000 jobs with one cron spec hold one crontab, and a job that is gone leaves nothing.
type shared[T any] struct {
	mu    sync.Mutex
	byKey map[string]weak.Pointer[T]
}

// get returns the T of key, by parse if there is none. Parsing may read files and is done
// outside the lock; those who parse at once all get what was stored first.
func (s *shared[T]) get(key string, parse func(string) (*T, error)) (*T, error) {
	if v := s.held(key); v != nil {
		return v, nil
	}
	v, err := parse(key)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if first := s.byKey[key].Value(); first != nil {
		return first, nil
	}
	if s.byKey == nil {
		s.byKey = make(map[string]weak.Pointer[T])
	}
	s.byKey[key] = weak.Make(v)
	runtime.AddCleanup(v, s.forget, key)
	return v, nil
}

func (s *shared[T]) held(key string) *T {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byKey[key].Value()
}

// forget removes key, unless another T has been made for it since.
func (s *shared[T]) forget(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byKey[key].Value() == nil {
		delete(s.byKey, key)
	}
}
