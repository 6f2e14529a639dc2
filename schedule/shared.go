package schedule

import (
	"runtime"
	"sync"
	"weak"
)

// shared caches one T per key while it is referenced: 10,000 jobs with one cron spec share one
// crontab, which is freed with the last of them.
type shared[T any] struct {
	mu    sync.Mutex
	byKey map[string]weak.Pointer[T]
}

// get returns the T of key, and calls parse if there is none. Parsing may read files, so it
// happens outside the lock; concurrent callers all get the first result stored.
func (s *shared[T]) get(key string, parse func(string) (*T, error)) (*T, error) {
	if v := s.lookUp(key); v != nil {
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

func (s *shared[T]) lookUp(key string) *T {
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
